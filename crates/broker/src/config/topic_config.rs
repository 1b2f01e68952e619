//! A topic's effective configuration, typed.

use std::collections::BTreeMap;

use super::broker_config::BrokerConfig;
use super::error::ConfigError;
use super::value::FromConfig;
use super::version::MetadataVersion;

/// What holds for one topic: its own overrides over the broker's values.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy` contains `compact`.
    pub compact: bool,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `compression.type`: `producer`, `uncompressed`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub compression_type: String,
    /// `compression.gzip.level`, -1 = the codec's default.
    pub compression_gzip_level: i32,
    /// `compression.lz4.level`.
    pub compression_lz4_level: i32,
    /// `compression.zstd.level`.
    pub compression_zstd_level: i32,
    /// `delete.retention.ms`: how long tombstones are kept.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: i32,
    /// `segment.index.bytes`.
    pub segment_index_bytes: i32,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`.
    pub min_cleanable_dirty_ratio: f64,
    /// `max.message.bytes`.
    pub max_message_bytes: i32,
    /// `message.format.version`, looked at below inter.broker.protocol.version 3.0 only.
    pub message_format_version: String,
    /// The format to store, which follows from it: 0, 1 or 2.
    pub record_version: i8,
    /// zstd may be stored: from inter.broker.protocol.version 2.1 on.
    pub zstd: bool,
    /// `message.timestamp.type` is `LogAppendTime`.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`, with the older `difference` form folded in.
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`, likewise.
    pub message_timestamp_after_max_ms: i64,
    /// `message.downconversion.enable`.
    pub message_downconversion_enable: bool,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election_enable: bool,
    /// `preallocate`.
    pub preallocate: bool,
    /// `retention.ms`, -1 = for ever.
    pub retention_ms: i64,
    /// `retention.bytes`, -1 = no limit.
    pub retention_bytes: i64,
    /// `segment.bytes`.
    pub segment_bytes: i32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
}

fn or<T: FromConfig>(
    overrides: &BTreeMap<String, String>,
    key: &str,
    default: T,
) -> Result<T, ConfigError> {
    match overrides.get(key) {
        Some(text) => T::from_config(key, Some(text)),
        None => Ok(default),
    }
}

impl TopicConfig {
    /// Folds a topic's overrides over the broker's values.
    pub fn resolve(
        broker: &BrokerConfig,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let policy = or(
            overrides,
            "cleanup.policy",
            broker.log_cleanup_policy.clone(),
        )?;
        let timestamp_type = or(
            overrides,
            "message.timestamp.type",
            broker.log_message_timestamp_type.clone(),
        )?;
        let difference = or(
            overrides,
            "message.timestamp.difference.max.ms",
            broker.log_message_timestamp_difference_max_ms,
        )?;
        let before = or(
            overrides,
            "message.timestamp.before.max.ms",
            broker.log_message_timestamp_before_max_ms,
        )?;
        let after = or(
            overrides,
            "message.timestamp.after.max.ms",
            broker.log_message_timestamp_after_max_ms,
        )?;
        let format = or(
            overrides,
            "message.format.version",
            broker.log_message_format_version.clone(),
        )?;
        let protocol = MetadataVersion::parse(&broker.inter_broker_protocol_version);
        // KIP-937: the old key counts only where the new ones were left at their defaults.
        let fold = |new: i64| if new == i64::MAX { difference } else { new };
        Ok(Self {
            compact: policy.iter().any(|p| p == "compact"),
            delete: policy.iter().any(|p| p == "delete"),
            compression_type: or(
                overrides,
                "compression.type",
                broker.compression_type.clone(),
            )?,
            compression_gzip_level: or(
                overrides,
                "compression.gzip.level",
                broker.compression_gzip_level,
            )?,
            compression_lz4_level: or(
                overrides,
                "compression.lz4.level",
                broker.compression_lz4_level,
            )?,
            compression_zstd_level: or(
                overrides,
                "compression.zstd.level",
                broker.compression_zstd_level,
            )?,
            delete_retention_ms: or(
                overrides,
                "delete.retention.ms",
                broker.log_cleaner_delete_retention_ms,
            )?,
            file_delete_delay_ms: or(
                overrides,
                "file.delete.delay.ms",
                broker.log_segment_delete_delay_ms,
            )?,
            flush_messages: or(
                overrides,
                "flush.messages",
                broker.log_flush_interval_messages,
            )?,
            flush_ms: or(overrides, "flush.ms", broker.flush_ms())?,
            index_interval_bytes: or(
                overrides,
                "index.interval.bytes",
                broker.log_index_interval_bytes,
            )?,
            segment_index_bytes: or(
                overrides,
                "segment.index.bytes",
                broker.log_index_size_max_bytes,
            )?,
            max_compaction_lag_ms: or(
                overrides,
                "max.compaction.lag.ms",
                broker.log_cleaner_max_compaction_lag_ms,
            )?,
            min_compaction_lag_ms: or(
                overrides,
                "min.compaction.lag.ms",
                broker.log_cleaner_min_compaction_lag_ms,
            )?,
            min_cleanable_dirty_ratio: or(
                overrides,
                "min.cleanable.dirty.ratio",
                broker.log_cleaner_min_cleanable_ratio,
            )?,
            max_message_bytes: or(overrides, "max.message.bytes", broker.message_max_bytes)?,
            record_version: record_version(protocol, &format, &broker.log_message_format_version),
            message_format_version: format,
            zstd: protocol.is_none_or(|p| p.at_least("2.1-IV0")),
            log_append_time: timestamp_type == "LogAppendTime",
            message_timestamp_before_max_ms: fold(before),
            message_timestamp_after_max_ms: fold(after),
            message_downconversion_enable: or(
                overrides,
                "message.downconversion.enable",
                broker.log_message_downconversion_enable,
            )?,
            min_insync_replicas: or(overrides, "min.insync.replicas", broker.min_insync_replicas)?,
            unclean_leader_election_enable: or(
                overrides,
                "unclean.leader.election.enable",
                broker.unclean_leader_election_enable,
            )?,
            preallocate: or(overrides, "preallocate", broker.log_preallocate)?,
            retention_ms: or(overrides, "retention.ms", broker.retention_ms())?,
            retention_bytes: or(overrides, "retention.bytes", broker.log_retention_bytes)?,
            segment_bytes: or(overrides, "segment.bytes", broker.log_segment_bytes)?,
            segment_ms: or(overrides, "segment.ms", broker.roll_ms())?,
            segment_jitter_ms: or(overrides, "segment.jitter.ms", broker.roll_jitter_ms())?,
        })
    }
}

/// The format that a log stores: the topic's, or the broker's if that is above the inter-broker protocol.
fn record_version(protocol: Option<MetadataVersion>, own: &str, broker: &str) -> i8 {
    let Some(protocol) = protocol.filter(|p| p.honours_message_format()) else {
        return 2;
    };
    let own = MetadataVersion::parse(own).filter(|v| *v <= protocol);
    own.or(MetadataVersion::parse(broker))
        .map_or(2, MetadataVersion::record_version)
}
