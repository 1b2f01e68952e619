//! All of a broker's logs: loading, creating, deleting, checkpoints and periodic work.
//!
//! Periodic work is explicit: the broker's timers call `run_*_once`, on threads that may block. No call holds a log's lock
//! while it waits for the device.

mod checkpoints;
mod copies;
mod create;
mod load;
mod loader;
mod moves;
mod pending;
mod periodic;
mod progress;

pub use load::PendingLogs;
pub use moves::Swapped;
pub use progress::{LoadControl, LoadProgress};

use crate::cleaner::{CleanerConfig, CleanerState};
use crate::config::LogConfig;
use crate::dirs::LogDir;
use crate::error::LogError;
use crate::naming::TopicPartition;
use crate::partition::{LogEnvironment, PartitionLog};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

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

#[derive(Debug)]
struct Held {
    log: SharedLog,
    /// Place of its directory in `LogManager::dirs`.
    dir: usize,
}

/// A directory renamed to `-delete`, and when it goes.
#[derive(Debug)]
struct Doomed {
    path: PathBuf,
    at_ms: i64,
}

/// All logs of a broker.
#[derive(Debug)]
pub struct LogManager {
    dirs: Vec<LogDir>,
    config: LogManagerConfig,
    default_config: Mutex<Arc<LogConfig>>,
    env: Arc<LogEnvironment>,
    logs: RwLock<HashMap<TopicPartition, Held>>,
    /// Those that are to be loaded yet. Locked after `logs`.
    pending: pending::Pending,
    /// Whether the last stop of each directory was clean.
    clean: Vec<bool>,
    /// Counts the calls of `update_topic_config`: a log that is opened meanwhile must not miss one.
    config_changes: AtomicU64,
    /// Copies being made of some of them in other directories.
    futures: RwLock<HashMap<TopicPartition, Held>>,
    /// Partitions with a copy that is to be loaded yet, and the copy's directory.
    awaited: Mutex<HashMap<TopicPartition, usize>>,
    /// Where logs that are not made yet are to be made (AlterReplicaLogDirs).
    preferred: Mutex<HashMap<TopicPartition, usize>>,
    /// One creation or deletion at a time.
    changing: Mutex<()>,
    doomed: Mutex<Vec<Doomed>>,
    newly_offline: Mutex<Vec<(PathBuf, BTreeSet<TopicPartition>)>>,
    /// Why directories could not be used at the start.
    left_out: Mutex<Vec<String>>,
    /// What each checkpoint file holds, so that it is written when that changed.
    written: checkpoints::Written,
    cleaner: CleanerState,
}

impl LogManager {
    pub fn get(&self, partition: &TopicPartition) -> Option<SharedLog> {
        self.logs.read().get(partition).map(|h| h.log.clone())
    }

    pub fn logs(&self) -> Vec<(TopicPartition, SharedLog)> {
        let logs = self.logs.read();
        logs.iter()
            .map(|(p, h)| (p.clone(), h.log.clone()))
            .collect()
    }

    /// Copies too, which are in other directories than what they are copies of.
    fn all_logs(&self) -> Vec<(TopicPartition, SharedLog)> {
        let mut all = self.logs();
        all.extend(self.futures());
        all
    }

    /// Copies too.
    fn logs_in(&self, dir: usize) -> Vec<(TopicPartition, SharedLog)> {
        let mut found = Vec::new();
        for held in [&self.logs, &self.futures] {
            let held = held.read();
            let here = held.iter().filter(|(_, h)| h.dir == dir);
            found.extend(here.map(|(p, h)| (p.clone(), h.log.clone())));
        }
        found
    }

    /// A topic's configuration changed.
    pub fn update_topic_config(&self, topic: &str, config: Arc<LogConfig>) {
        self.config_changes.fetch_add(1, SeqCst);
        for (partition, log) in self.all_logs() {
            if &*partition.topic == topic {
                log.lock().update_config(config.clone());
            }
        }
    }

    pub fn update_default_config(&self, config: Arc<LogConfig>) {
        *self.default_config.lock() = config;
    }

    // --- directories

    pub fn online_dirs(&self) -> Vec<PathBuf> {
        let online = self.dirs.iter().filter(|d| !d.is_offline());
        online.map(|d| d.path.clone()).collect()
    }

    pub fn offline_dirs(&self) -> Vec<PathBuf> {
        let offline = self.dirs.iter().filter(|d| d.is_offline());
        offline.map(|d| d.path.clone()).collect()
    }

    /// Tells of an error of a log: if it takes its directory offline, the partitions lost with it (once).
    pub fn handle_error(&self, error: &LogError) -> BTreeSet<TopicPartition> {
        let Some(path) = error.fatal_to() else {
            return BTreeSet::new();
        };
        let holder = self
            .dirs
            .iter()
            .enumerate()
            .filter(|(_, d)| path.starts_with(&d.path))
            .max_by_key(|(_, d)| d.path.as_os_str().len());
        let Some((at, dir)) = holder else {
            return BTreeSet::new();
        };
        if !dir.set_offline() {
            return BTreeSet::new();
        }
        tracing::error!(
            "the log directory {} goes offline: {error}. Its partitions are not served until the disk is fixed and the broker restarted",
            dir.path.display()
        );
        self.lose(at)
    }

    /// The partitions of a directory that has gone offline.
    fn lose(&self, at: usize) -> BTreeSet<TopicPartition> {
        let mut lost = BTreeSet::new();
        let mut logs = self.logs.write();
        logs.retain(|partition, held| {
            let stays = held.dir != at;
            if !stays {
                lost.insert(partition.clone());
            }
            stays
        });
        lost.extend(self.pending.remove_dir(at));
        drop(logs);
        self.lose_moves(at);
        if let Some(dir) = self.dirs.get(at) {
            let news = (dir.path.clone(), lost.clone());
            self.newly_offline.lock().push(news);
        }
        lost
    }

    /// Directories gone offline since the last call, with their partitions.
    pub fn take_newly_offline(&self) -> Vec<(PathBuf, BTreeSet<TopicPartition>)> {
        std::mem::take(&mut *self.newly_offline.lock())
    }

    pub fn describe_dirs(&self) -> Vec<DirDescription> {
        let describe = |(at, dir): (usize, &LogDir)| {
            let (total_bytes, usable_bytes) = crate::disk::space(&dir.path).unwrap_or((0, 0));
            let logs = self.logs_in(at).into_iter().map(|(partition, log)| {
                let current = self.get(&partition);
                let future = current.is_none_or(|current| !Arc::ptr_eq(&current, &log));
                let log = log.lock();
                LogDescription {
                    partition,
                    size: log.size(),
                    future,
                    log_end_offset: log.log_end_offset(),
                }
            });
            DirDescription {
                path: dir.path.clone(),
                online: !dir.is_offline(),
                total_bytes,
                usable_bytes,
                logs: logs.collect(),
            }
        };
        self.dirs.iter().enumerate().map(describe).collect()
    }

    /// Notes an error of periodic work.
    fn report(&self, partition: &TopicPartition, what: &str, error: &LogError) {
        if matches!(
            error,
            LogError::Offline { .. } | LogError::Deleted { .. } | LogError::Closed { .. }
        ) {
            return;
        }
        tracing::warn!("{what} of {partition} failed: {error}");
        self.handle_error(error);
    }
}
