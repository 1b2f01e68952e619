//! What of the broker's configuration the groups use.

use std::time::Duration;

use gracchus_groups::GroupConfig;
use gracchus_groups::record::RecordVersions;
use gracchus_record::Codec;

use crate::config::BrokerConfig;
use crate::config::version::MetadataVersion;

/// Settings of the shell and of the state machine in it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The state machine's.
    pub group: GroupConfig,
    /// `offsets.commit.required.acks`.
    pub required_acks: i16,
    /// `offsets.commit.timeout.ms`.
    pub commit_timeout: Duration,
    /// `offsets.topic.compression.codec`, an id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    pub codec: Codec,
    /// `offsets.load.buffer.size`.
    pub load_buffer: usize,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check: Duration,
    /// KIP-345: `inter.broker.protocol.version` is at least 2.3.
    pub static_members: bool,
}

impl Settings {
    /// From the broker's configuration; `offsets_partitions` if the topic exists already.
    pub fn new(
        config: &BrokerConfig,
        protocol: MetadataVersion,
        offsets_partitions: Option<i32>,
    ) -> Self {
        let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1));
        let codec = u8::try_from(config.offsets_topic_compression_codec).unwrap_or(0);
        Settings {
            group: GroupConfig {
                offsets_partitions: offsets_partitions
                    .unwrap_or(config.offsets_topic_num_partitions),
                min_session_timeout_ms: config.group_min_session_timeout_ms,
                max_session_timeout_ms: config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
                max_size: config.group_max_size,
                offset_metadata_max: usize::try_from(config.offset_metadata_max_bytes).unwrap_or(0),
                offsets_retention_ms: i64::from(config.offsets_retention_minutes)
                    .saturating_mul(60_000),
                record_versions: RecordVersions::for_protocol(|name| protocol.at_least(name)),
            },
            required_acks: config.offsets_commit_required_acks,
            commit_timeout: ms(config.offsets_commit_timeout_ms.into()),
            codec: Codec::from_id(codec).unwrap_or(Codec::None),
            load_buffer: usize::try_from(config.offsets_load_buffer_size).unwrap_or(5 << 20),
            retention_check: ms(config.offsets_retention_check_interval_ms),
            static_members: protocol.at_least("2.3-IV0"),
        }
    }
}
