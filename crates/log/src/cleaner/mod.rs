//! Compaction: keeps the last record of each key.

use crate::naming::TopicPartition;

/// `log.cleaner.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`
    pub enable: bool,
    /// `log.cleaner.dedupe.buffer.size`, of all threads
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`
    pub load_factor: f64,
    /// `log.cleaner.io.buffer.size`
    pub io_buffer_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`
    pub max_bytes_per_second: f64,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        Self {
            enable: true,
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 512 << 10,
            max_bytes_per_second: f64::MAX,
        }
    }
}

/// What one pass did.
#[derive(Debug, Clone, Default)]
pub struct CleanerReport {
    pub cleaned: Vec<TopicPartition>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Partitions set aside because they cannot be cleaned, and why.
    pub uncleanable: Vec<(TopicPartition, String)>,
}
