//! A log's configuration: the topic-level keys, resolved over the broker's defaults by whoever calls.

pub use gracchus_record::TimestampType;

/// `compression.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// Keep what the producer sent.
    Producer,
    /// Recompress with this codec (`uncompressed` is [`gracchus_record::Codec::None`]).
    Codec(gracchus_record::Codec),
}

/// The topic-level keys that a log looks at. Sizes in bytes, times in milliseconds; -1 means "no limit" where Kafka
/// says so.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`
    pub segment_bytes: u32,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `retention.bytes`, -1 = no limit
    pub retention_bytes: i64,
    /// `retention.ms`, -1 = for ever
    pub retention_ms: i64,
    /// `max.message.bytes`: the largest batch
    pub max_message_bytes: u32,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `delete.retention.ms`: how long tombstones and markers stay after the first cleaning that met them
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`, 0 to 1
    pub min_cleanable_dirty_ratio: f64,
    /// `cleanup.policy` contains `compact`
    pub compact: bool,
    /// `cleanup.policy` contains `delete`
    pub delete: bool,
    /// `compression.type`
    pub compression: CompressionType,
    /// zstd may be stored: from inter.broker.protocol.version 2.1 on
    pub zstd: bool,
    /// `compression.gzip.level`, -1 = the codec's default
    pub gzip_level: i32,
    /// `compression.lz4.level`
    pub lz4_level: i32,
    /// `compression.zstd.level`
    pub zstd_level: i32,
    /// `preallocate`: makes new segments full size at once, as Kafka does
    pub preallocate: bool,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// The magic to store: 2, or 0 and 1 when `message.format.version` is honoured (inter.broker.protocol.version < 3.0)
    pub magic: i8,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 3_600_000,
            max_message_bytes: 1_048_588,
            file_delete_delay_ms: 60_000,
            delete_retention_ms: 86_400_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            compact: false,
            delete: true,
            compression: CompressionType::Producer,
            zstd: true,
            gzip_level: -1,
            lz4_level: 9,
            zstd_level: 3,
            preallocate: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: i64::MAX,
            magic: 2,
        }
    }
}

impl LogConfig {
    /// Format v2 alone carries leader epochs: a log of an older one keeps none (its followers truncate by high watermark).
    pub(crate) fn keeps_epochs(&self) -> bool {
        self.magic >= 2
    }

    /// `segment.ms`, or `max.compaction.lag.ms` if a compacted topic's is shorter: the active segment is never compacted.
    pub(crate) fn max_segment_ms(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            self.max_compaction_lag_ms.min(self.segment_ms)
        } else {
            self.segment_ms
        }
    }

    /// The most a segment may hold before it is rolled for its index alone: 8-byte entries.
    pub(crate) fn max_index_entries(&self) -> u32 {
        self.segment_index_bytes / 8
    }

    /// The same of the time index: 12-byte entries.
    pub(crate) fn max_time_index_entries(&self) -> u32 {
        self.segment_index_bytes / 12
    }
}
