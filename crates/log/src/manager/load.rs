//! Loading all logs at the start, in parallel.

use super::checkpoints::{RECOVERY_POINTS, Written};
use super::copies::{FoundCopy, Start};
use super::loader::{Job, Loader, Offsets};
use super::pending::{Pending, PendingLog};
use super::{Doomed, Held, LoadControl, LogManager, LogManagerConfig, SharedLog};
use crate::checkpoint;
use crate::cleaner::CleanerState;
use crate::config::LogConfig;
use crate::dirs::{LogDir, LogDirs};
use crate::error::{LogError, StartError};
use crate::naming::{DirKind, TopicPartition, parse_dir_name};
use crate::partition::{LogEnvironment, PartitionLog};
use crate::tail::TailBudget;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a directory's checkpoints say.
#[derive(Default)]
pub(super) struct DirFacts {
    pub clean: bool,
    pub recovery_points: Offsets,
    pub high_watermarks: Offsets,
    pub log_starts: Offsets,
}

/// The logs that [`LogManager::load_pending`] is to load.
#[derive(Debug)]
pub struct PendingLogs(Vec<Job>, Vec<FoundCopy>);

impl PendingLogs {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl LogManager {
    /// Opens the directories and loads all logs, in parallel. `topic_config` gives a topic's configuration; `control`
    /// watches and may stop it.
    pub fn load(
        dirs: LogDirs,
        config: LogManagerConfig,
        default_config: Arc<LogConfig>,
        topic_config: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &LoadControl<'_>,
    ) -> Result<Self, StartError> {
        let (manager, pending) = Self::open(dirs, config, default_config, now_ms)?;
        if !manager.load_pending(pending, topic_config, now_ms, control) {
            manager.shutdown(now_ms);
            return Err(StartError::Stopped);
        }
        if manager.dirs.iter().all(LogDir::is_offline) {
            let failures = manager.left_out.lock().join("; ");
            return Err(StartError::AllFailed(failures));
        }
        // known to the caller by `offline_dirs`
        manager.newly_offline.lock().clear();
        Ok(manager)
    }

    /// Reads what the directories hold and their checkpoints say. The logs are still to be loaded, by one call of
    /// [`Self::load_pending`]; each can be used from when it is ([`Self::is_pending`]).
    pub fn open(
        dirs: LogDirs,
        config: LogManagerConfig,
        default_config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<(Self, PendingLogs), StartError> {
        let dirs = dirs.dirs;
        let env = Arc::new(LogEnvironment {
            tail: TailBudget::new(config.tail_cache_bytes, config.tail_cache_partition_bytes),
            producer_id_expiration_ms: config.producer_id_expiration_ms,
        });
        let mut facts = Vec::new();
        let mut jobs = Vec::new();
        let mut futures = Vec::new();
        let mut doomed = Vec::new();
        let mut failures = Vec::new();
        for (at, dir) in dirs.iter().enumerate() {
            let read = match dir.is_offline() {
                true => Ok(DirFacts::default()),
                false => examine(
                    at,
                    dir,
                    &default_config,
                    now_ms,
                    &mut jobs,
                    &mut doomed,
                    &mut futures,
                ),
            };
            facts.push(read.unwrap_or_else(|error| {
                tracing::error!(
                    "the log directory {} is left out: {error}",
                    dir.path.display()
                );
                dir.set_offline();
                failures.push(error.to_string());
                DirFacts::default()
            }));
        }
        for jobs in [&mut jobs, &mut futures] {
            jobs.retain(|job| dirs.get(job.dir).is_some_and(|d| !d.is_offline()));
        }
        if dirs.iter().all(LogDir::is_offline) {
            return Err(StartError::AllFailed(failures.join("; ")));
        }
        let start = Start {
            dirs: &dirs,
            facts: &facts,
            env: &env,
            default_config: &default_config,
            now_ms,
        };
        let mut jobs = start.settle(jobs, &mut doomed)?;
        let copies = start.copies(futures, &mut jobs, &mut doomed)?;
        let pending = pending(&jobs, &facts);
        let manager = Self {
            pending: Pending::new(pending),
            clean: facts.iter().map(|f| f.clean).collect(),
            cleaner: CleanerState::load(&dirs),
            written: Written::new(facts),
            dirs,
            config,
            config_changes: AtomicU64::new(0),
            default_config: Mutex::new(default_config),
            env,
            logs: RwLock::new(HashMap::with_capacity(jobs.len())),
            futures: RwLock::default(),
            awaited: Mutex::new(copies.iter().map(FoundCopy::place).collect()),
            preferred: Mutex::default(),
            changing: Mutex::new(()),
            doomed: Mutex::new(doomed),
            newly_offline: Mutex::new(Vec::new()),
            left_out: Mutex::new(failures),
        };
        Ok((manager, PendingLogs(jobs, copies)))
    }

    /// Loads the logs, in parallel; those that are wanted ([`Self::want`]) before the others. False if `control` told it
    /// to stop before all were: then only [`Self::shutdown`] is left to do. A directory in which a log cannot be opened
    /// goes offline ([`Self::take_newly_offline`]).
    pub fn load_pending(
        &self,
        pending: PendingLogs,
        topic_config: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &LoadControl<'_>,
    ) -> bool {
        let loader = Loader::new(self, topic_config, now_ms, control);
        loader.run(pending.0, self.config.recovery_threads)
            && self.load_copies(pending.1, topic_config, now_ms, control)
    }

    /// The log is there but not loaded yet.
    pub fn is_pending(&self, partition: &TopicPartition) -> bool {
        self.pending.contains(partition)
    }

    /// Somebody waits for the log: if it is not loaded yet, it is loaded before those that nobody waits for.
    pub fn want(&self, partition: &TopicPartition) {
        self.pending.want(partition);
    }

    pub(super) fn was_clean(&self, dir: usize) -> bool {
        self.clean.get(dir).copied().unwrap_or(false)
    }

    /// A log has been loaded; `None` if its directory has failed meanwhile.
    pub(super) fn take_in(&self, dir: usize, mut log: PartitionLog) -> Option<SharedLog> {
        let partition = log.topic_partition().clone();
        let pending = self.pending.get(&partition)?;
        // As far as the checkpoint says everything is on the device, or has been put there by the recovery.
        if let Some(noted) = pending.recovery_point {
            log.raise_recovery_point(noted);
            if log.recovery_point() < noted {
                // What is appended from here on has not been checked, nor flushed.
                self.pending
                    .set_recovery_point(&partition, log.recovery_point());
                self.write_dir(dir, &RECOVERY_POINTS);
            }
        }
        // Nothing is taken out of it before its copy is loaded too.
        log.set_moving(self.awaited.lock().contains_key(&partition));
        let log = Arc::new(Mutex::new(log));
        let held = Held {
            log: log.clone(),
            dir,
        };
        let mut logs = self.logs.write();
        self.pending.remove(&partition)?;
        logs.insert(partition, held);
        Some(log)
    }

    /// A log of the directory cannot be loaded: the whole directory is left out. True if it was in use until now.
    pub(super) fn leave_out(&self, at: usize, error: &LogError) -> bool {
        let Some(dir) = self.dirs.get(at) else {
            return false;
        };
        if !dir.set_offline() {
            return false;
        }
        tracing::error!(
            "the log directory {} is left out: {error}",
            dir.path.display()
        );
        self.left_out.lock().push(error.to_string());
        self.lose(at);
        true
    }
}

/// What is known of the logs to be loaded.
fn pending(jobs: &[Job], facts: &[DirFacts]) -> HashMap<TopicPartition, PendingLog> {
    let mut pending: HashMap<TopicPartition, PendingLog> = HashMap::with_capacity(jobs.len());
    let nothing = DirFacts::default();
    for job in jobs {
        let facts = facts.get(job.dir).unwrap_or(&nothing);
        let noted = |offsets: &Offsets| offsets.get(&job.partition).copied();
        let log = PendingLog {
            dir: job.dir,
            path: job.path.clone(),
            recovery_point: noted(&facts.recovery_points),
            high_watermark: noted(&facts.high_watermarks),
            log_start: noted(&facts.log_starts),
            ..PendingLog::default()
        };
        pending.insert(job.partition.clone(), log);
    }
    pending
}

/// Reads a directory's checkpoints and lists its partitions.
fn examine(
    at: usize,
    dir: &LogDir,
    default_config: &LogConfig,
    now_ms: i64,
    jobs: &mut Vec<Job>,
    doomed: &mut Vec<Doomed>,
    futures: &mut Vec<Job>,
) -> Result<DirFacts, LogError> {
    let entries = std::fs::read_dir(&dir.path).map_err(|e| LogError::io("list", &dir.path, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| LogError::io("list", &dir.path, e))?;
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        match parse_dir_name(&name) {
            Some((partition, DirKind::Live)) => jobs.push(Job {
                dir: at,
                path,
                partition,
            }),
            Some((_, DirKind::Delete)) => doomed.push(Doomed {
                path,
                at_ms: now_ms.saturating_add(default_config.file_delete_delay_ms),
            }),
            Some((partition, DirKind::Future)) => futures.push(Job {
                dir: at,
                path,
                partition,
            }),
            Some((partition, DirKind::Stray)) => tracing::warn!(
                "{} is a copy of {partition} that is not in use; it is left alone",
                path.display()
            ),
            None => tracing::warn!(
                "{} is no partition directory; it is left alone",
                path.display()
            ),
        }
    }
    let mut facts = DirFacts::default();
    let mut all_read = true;
    for (name, offsets) in [
        (checkpoint::RECOVERY_POINT, &mut facts.recovery_points),
        (checkpoint::HIGH_WATERMARK, &mut facts.high_watermarks),
        (checkpoint::LOG_START, &mut facts.log_starts),
    ] {
        match checkpoint::read(&dir.path.join(name)) {
            Ok(read) => *offsets = read,
            Err(error @ LogError::Corrupt { .. }) => {
                tracing::warn!("{error}; its offsets are worked out from the logs");
                all_read = false;
            }
            Err(error) => return Err(error),
        }
    }
    // From here on a crash is a crash.
    facts.clean = dir.take_clean_shutdown()? && all_read;
    Ok(facts)
}

/// Removes a directory and all in it.
pub(super) fn remove_tree(path: &Path) -> Result<(), LogError> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LogError::io("delete", path, e)),
        _ => Ok(()),
    }
}
