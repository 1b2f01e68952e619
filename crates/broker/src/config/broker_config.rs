//! The broker keys that are honoured, typed. A field's name is the key's with `.` as `_`; units are the key's.

use std::collections::BTreeMap;

use super::catalogue::{self, Kind};
use super::error::ConfigError;
use super::value;

/// Declares the struct, how it is read from effective texts, and the list of honoured keys.
macro_rules! honoured {
    ($($field:ident : $type:ty = $key:literal),* $(,)?) => {
        /// One consistent set of the broker's effective values (static, dynamic default and dynamic broker folded).
        /// Keys that have forms in hours, minutes and ms are folded by the methods below.
        #[derive(Debug, Clone, PartialEq)]
        pub struct BrokerConfig {
            $(#[doc = concat!("`", $key, "`")] pub $field: $type,)*
        }

        /// Keys that change what this broker does.
        pub const HONOURED: &[&str] = &[$($key),*];

        impl BrokerConfig {
            /// Reads the effective texts; keys that are absent take Kafka's default.
            pub fn from_values(values: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
                Ok(Self { $($field: read::<$type>(values, $key)?,)* })
            }
        }
    };
}

fn read<T: value::FromConfig>(
    values: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<T, ConfigError> {
    let text = match values.get(key) {
        Some(text) => Some(text.as_str()),
        None => catalogue::find(Kind::Broker, key).and_then(|def| def.default.as_deref()),
    };
    T::from_config(key, text)
}

honoured! {
    // identity and ZooKeeper
    broker_id: i32 = "broker.id",
    broker_id_generation_enable: bool = "broker.id.generation.enable",
    reserved_broker_max_id: i32 = "reserved.broker.max.id",
    broker_rack: Option<String> = "broker.rack",
    zookeeper_connect: Option<String> = "zookeeper.connect",
    zookeeper_session_timeout_ms: i32 = "zookeeper.session.timeout.ms",
    zookeeper_connection_timeout_ms: Option<i32> = "zookeeper.connection.timeout.ms",
    zookeeper_max_in_flight_requests: i32 = "zookeeper.max.in.flight.requests",
    zookeeper_set_acl: bool = "zookeeper.set.acl",
    inter_broker_protocol_version: String = "inter.broker.protocol.version",
    // network
    listeners: String = "listeners",
    advertised_listeners: Option<String> = "advertised.listeners",
    listener_security_protocol_map: String = "listener.security.protocol.map",
    inter_broker_listener_name: Option<String> = "inter.broker.listener.name",
    security_inter_broker_protocol: String = "security.inter.broker.protocol",
    control_plane_listener_name: Option<String> = "control.plane.listener.name",
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes",
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes",
    socket_request_max_bytes: i32 = "socket.request.max.bytes",
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size",
    max_connections: i32 = "max.connections",
    max_connections_per_ip: i32 = "max.connections.per.ip",
    max_connections_per_ip_overrides: String = "max.connections.per.ip.overrides",
    connections_max_idle_ms: i64 = "connections.max.idle.ms",
    queued_max_request_bytes: i64 = "queued.max.request.bytes",
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit",
    // topics
    num_partitions: i32 = "num.partitions",
    default_replication_factor: i32 = "default.replication.factor",
    auto_create_topics_enable: bool = "auto.create.topics.enable",
    delete_topic_enable: bool = "delete.topic.enable",
    min_insync_replicas: i32 = "min.insync.replicas",
    unclean_leader_election_enable: bool = "unclean.leader.election.enable",
    message_max_bytes: i32 = "message.max.bytes",
    compression_type: String = "compression.type",
    compression_gzip_level: i32 = "compression.gzip.level",
    compression_lz4_level: i32 = "compression.lz4.level",
    compression_zstd_level: i32 = "compression.zstd.level",
    // logs
    log_dir: String = "log.dir",
    log_dirs: Option<Vec<String>> = "log.dirs",
    log_segment_bytes: i32 = "log.segment.bytes",
    log_roll_ms: Option<i64> = "log.roll.ms",
    log_roll_hours: i32 = "log.roll.hours",
    log_roll_jitter_ms: Option<i64> = "log.roll.jitter.ms",
    log_roll_jitter_hours: i32 = "log.roll.jitter.hours",
    log_retention_ms: Option<i64> = "log.retention.ms",
    log_retention_minutes: Option<i32> = "log.retention.minutes",
    log_retention_hours: i32 = "log.retention.hours",
    log_retention_bytes: i64 = "log.retention.bytes",
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms",
    log_cleanup_policy: Vec<String> = "log.cleanup.policy",
    log_cleaner_enable: bool = "log.cleaner.enable",
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms",
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size",
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size",
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second",
    log_cleaner_delete_retention_ms: i64 = "log.cleaner.delete.retention.ms",
    log_cleaner_min_cleanable_ratio: f64 = "log.cleaner.min.cleanable.ratio",
    log_cleaner_min_compaction_lag_ms: i64 = "log.cleaner.min.compaction.lag.ms",
    log_cleaner_max_compaction_lag_ms: i64 = "log.cleaner.max.compaction.lag.ms",
    log_index_interval_bytes: i32 = "log.index.interval.bytes",
    log_index_size_max_bytes: i32 = "log.index.size.max.bytes",
    log_flush_interval_messages: i64 = "log.flush.interval.messages",
    log_flush_interval_ms: Option<i64> = "log.flush.interval.ms",
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms",
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms",
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms",
    log_segment_delete_delay_ms: i64 = "log.segment.delete.delay.ms",
    log_preallocate: bool = "log.preallocate",
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms",
    log_message_format_version: String = "log.message.format.version",
    log_message_timestamp_type: String = "log.message.timestamp.type",
    log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms",
    log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms",
    log_message_timestamp_difference_max_ms: i64 = "log.message.timestamp.difference.max.ms",
    log_message_downconversion_enable: bool = "log.message.downconversion.enable",
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir",
    // replication and fetching
    replica_selector_class: Option<String> = "replica.selector.class",
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms",
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes",
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes",
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms",
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes",
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms",
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms",
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms",
    num_replica_alter_log_dirs_threads: Option<i32> = "num.replica.alter.log.dirs.threads",
    num_replica_fetchers: i32 = "num.replica.fetchers",
    fetch_max_bytes: i32 = "fetch.max.bytes",
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots",
    // groups
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions",
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor",
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes",
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec",
    offsets_retention_minutes: i32 = "offsets.retention.minutes",
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms",
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes",
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms",
    offsets_commit_required_acks: i16 = "offsets.commit.required.acks",
    offsets_load_buffer_size: i32 = "offsets.load.buffer.size",
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms",
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms",
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
    group_max_size: i32 = "group.max.size",
    // producers and transactions
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms",
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms",
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions",
    transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor",
    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr",
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes",
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms",
    // controller
    controller_socket_timeout_ms: i32 = "controller.socket.timeout.ms",
    controlled_shutdown_enable: bool = "controlled.shutdown.enable",
    controlled_shutdown_max_retries: i32 = "controlled.shutdown.max.retries",
    controlled_shutdown_retry_backoff_ms: i64 = "controlled.shutdown.retry.backoff.ms",
    auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable",
    leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds",
    leader_imbalance_per_broker_percentage: i32 = "leader.imbalance.per.broker.percentage",
}

impl BrokerConfig {
    /// `log.retention.ms`, else minutes, else hours; -1 when unlimited.
    pub fn retention_ms(&self) -> i64 {
        let ms = match (self.log_retention_ms, self.log_retention_minutes) {
            (Some(ms), _) => ms,
            (None, Some(minutes)) => i64::from(minutes).saturating_mul(60_000),
            (None, None) => i64::from(self.log_retention_hours).saturating_mul(3_600_000),
        };
        if ms < 0 { -1 } else { ms }
    }

    /// `log.roll.ms`, else hours.
    pub fn roll_ms(&self) -> i64 {
        self.log_roll_ms
            .unwrap_or_else(|| i64::from(self.log_roll_hours).saturating_mul(3_600_000))
    }

    /// `log.roll.jitter.ms`, else hours.
    pub fn roll_jitter_ms(&self) -> i64 {
        self.log_roll_jitter_ms
            .unwrap_or_else(|| i64::from(self.log_roll_jitter_hours).saturating_mul(3_600_000))
    }

    /// `log.flush.interval.ms`, else the scheduler's interval.
    pub fn flush_ms(&self) -> i64 {
        self.log_flush_interval_ms
            .unwrap_or(self.log_flush_scheduler_interval_ms)
    }

    /// `log.dirs`, else `log.dir`.
    pub fn data_dirs(&self) -> Vec<String> {
        match &self.log_dirs {
            Some(dirs) => dirs.clone(),
            None => super::value::split_list(&self.log_dir),
        }
    }
}
