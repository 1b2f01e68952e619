//! All of a broker's logs: loading, creating, deleting, checkpoints and periodic work.
//!
//! Periodic work is explicit: the broker's timers call `run_*_once`, on threads that may block.

use crate::cleaner::{CleanerConfig, CleanerReport};
use crate::config::LogConfig;
use crate::dirs::LogDirs;
use crate::error::{LogError, StartError};
use crate::naming::TopicPartition;
use crate::partition::PartitionLog;
use gracchus_kafka_proto::Uuid;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A log, shared; hold the lock for one call.
pub type SharedLog = Arc<Mutex<PartitionLog>>;

/// Broker-level settings of the logs.
#[derive(Debug, Clone)]
pub struct LogManagerConfig {
    /// Threads that load and recover, for all directories together; 0 = one a core.
    pub recovery_threads: usize,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// `transaction.max.timeout.ms`
    pub max_transaction_timeout_ms: i64,
    /// Bytes of batches that may stay in memory for readers, all partitions together; 0 = none.
    pub tail_cache_bytes: usize,
    /// The same, of one partition.
    pub tail_cache_partition_bytes: usize,
    /// `log.cleaner.*`
    pub cleaner: CleanerConfig,
}

impl Default for LogManagerConfig {
    fn default() -> Self {
        Self {
            recovery_threads: 0,
            producer_id_expiration_ms: 86_400_000,
            max_transaction_timeout_ms: 900_000,
            tail_cache_bytes: 64 << 20,
            tail_cache_partition_bytes: 8 << 20,
            cleaner: CleanerConfig::default(),
        }
    }
}

/// How far loading is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadProgress {
    pub loaded: usize,
    pub total: usize,
    /// The last stop was not clean: logs are being recovered.
    pub recovering: bool,
}

/// A log directory, for DescribeLogDirs.
#[derive(Debug, Clone)]
pub struct DirDescription {
    pub path: PathBuf,
    pub online: bool,
    pub total_bytes: u64,
    pub usable_bytes: u64,
    pub logs: Vec<LogDescription>,
}

#[derive(Debug, Clone)]
pub struct LogDescription {
    pub partition: TopicPartition,
    pub size: u64,
    /// A copy being moved here.
    pub future: bool,
    pub log_end_offset: i64,
}

/// All logs of a broker.
#[derive(Debug)]
pub struct LogManager {
    _private: (),
}

#[allow(unused_variables, clippy::todo)]
impl LogManager {
    /// Loads all logs, in parallel. `topic_config` gives a topic's configuration; `progress` is called now and then.
    pub fn load(
        dirs: LogDirs,
        config: LogManagerConfig,
        default_config: Arc<LogConfig>,
        topic_config: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        progress: &(dyn Fn(LoadProgress) + Sync),
    ) -> Result<Self, StartError> {
        todo!()
    }

    pub fn get(&self, partition: &TopicPartition) -> Option<SharedLog> {
        todo!()
    }
    pub fn logs(&self) -> Vec<(TopicPartition, SharedLog)> {
        todo!()
    }
    /// The log, made in the directory with the fewest logs if it does not exist. Refused with a directory offline
    /// unless `is_new` (controller.md B7).
    pub fn get_or_create(
        &self,
        partition: &TopicPartition,
        is_new: bool,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<SharedLog, LogError> {
        todo!()
    }
    /// Renames the log's directory to `-delete`; its files go after `file.delete.delay.ms`. False if there is none.
    pub fn delete(&self, partition: &TopicPartition, now_ms: i64) -> Result<bool, LogError> {
        todo!()
    }
    /// A topic's configuration changed.
    pub fn update_topic_config(&self, topic: &str, config: Arc<LogConfig>) {
        todo!()
    }
    pub fn update_default_config(&self, config: Arc<LogConfig>) {
        todo!()
    }

    // --- directories
    pub fn online_dirs(&self) -> Vec<PathBuf> {
        todo!()
    }
    pub fn offline_dirs(&self) -> Vec<PathBuf> {
        todo!()
    }
    /// Tells of an error of a log: if it takes its directory offline, the partitions lost with it (once).
    pub fn handle_error(&self, error: &LogError) -> BTreeSet<TopicPartition> {
        todo!()
    }
    /// Directories gone offline since the last call, with their partitions.
    pub fn take_newly_offline(&self) -> Vec<(PathBuf, BTreeSet<TopicPartition>)> {
        todo!()
    }
    pub fn describe_dirs(&self) -> Vec<DirDescription> {
        todo!()
    }

    // --- periodic work
    /// `log.retention.check.interval.ms`. Compacted logs without `delete` are left to the cleaner.
    pub fn run_retention_once(&self, now_ms: i64) -> usize {
        todo!()
    }
    /// `log.flush.scheduler.interval.ms`
    pub fn run_flush_once(&self, now_ms: i64) -> usize {
        todo!()
    }
    /// Files and directories whose `file.delete.delay.ms` has passed.
    pub fn run_file_deletion_once(&self, now_ms: i64) -> usize {
        todo!()
    }
    /// `log.flush.offset.checkpoint.interval.ms`
    pub fn checkpoint_recovery_points(&self) {
        todo!()
    }
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub fn checkpoint_log_starts(&self) {
        todo!()
    }
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub fn checkpoint_high_watermarks(&self) {
        todo!()
    }
    /// One pass of compaction over all logs that need it; call every `log.cleaner.backoff.ms`, from one thread.
    pub fn run_cleaner_once(&self, now_ms: i64) -> CleanerReport {
        todo!()
    }
    /// `producer.id.expiration.check.interval.ms`
    pub fn run_producer_expiration_once(&self, now_ms: i64) {
        todo!()
    }
    /// Closes files and lets go of memory of logs that nobody used since the last call; every few seconds.
    pub fn run_idle_once(&self, now_ms: i64) {
        todo!()
    }

    /// Flushes and closes all logs, writes checkpoints and the clean-shutdown files, unlocks.
    pub fn shutdown(&self, now_ms: i64) {
        todo!()
    }
}
