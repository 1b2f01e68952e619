//! The coordinator's settings, named as in `server.properties`.

use crate::record::RecordVersions;

/// Settings of the group coordinator. Times are in milliseconds, sizes in bytes unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Partitions of `__consumer_offsets`: of the topic as it exists, else `offsets.topic.num.partitions` (50).
    pub offsets_partitions: i32,
    /// `group.min.session.timeout.ms` (6 s).
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms` (30 min).
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms` (3 s).
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size` (no limit).
    pub max_size: i32,
    /// `offset.metadata.max.bytes` (4096), counted in UTF-16 units as Kafka does.
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes` (7 days), here in milliseconds.
    pub offsets_retention_ms: i64,
    /// Versions in which records are written, from `inter.broker.protocol.version`.
    pub record_versions: RecordVersions,
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            offsets_partitions: 50,
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            max_size: i32::MAX,
            offset_metadata_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1000,
            record_versions: RecordVersions::LATEST,
        }
    }
}

/// How long a member that has just joined may wait for its first rebalance to finish (5 min): it cannot
/// heartbeat before it knows its id, so its session timeout does not apply yet.
pub const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;
