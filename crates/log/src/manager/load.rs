//! Loading all logs at the start, in parallel.

use super::checkpoints::Written;
use super::loader::{DirFacts, Job, Loader};
use super::{Doomed, Held, LoadControl, LogManager, LogManagerConfig};
use crate::checkpoint;
use crate::cleaner::CleanerState;
use crate::config::LogConfig;
use crate::dirs::{LogDir, LogDirs};
use crate::error::{LogError, StartError};
use crate::naming::{DirKind, TopicPartition, parse_dir_name};
use crate::partition::LogEnvironment;
use crate::tail::TailBudget;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

impl LogManager {
    /// Loads all logs, in parallel. `topic_config` gives a topic's configuration; `control` watches and may stop it.
    pub fn load(
        dirs: LogDirs,
        config: LogManagerConfig,
        default_config: Arc<LogConfig>,
        topic_config: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &LoadControl<'_>,
    ) -> Result<Self, StartError> {
        let dirs = dirs.dirs;
        let env = Arc::new(LogEnvironment {
            tail: TailBudget::new(config.tail_cache_bytes, config.tail_cache_partition_bytes),
            producer_id_expiration_ms: config.producer_id_expiration_ms,
        });
        let mut facts = Vec::new();
        let mut jobs = Vec::new();
        let mut doomed = Vec::new();
        let mut failures = Vec::new();
        for (at, dir) in dirs.iter().enumerate() {
            let read = match dir.is_offline() {
                true => Ok(DirFacts::default()),
                false => examine(at, dir, &default_config, now_ms, &mut jobs, &mut doomed),
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
        jobs.retain(|job| dirs.get(job.dir).is_some_and(|d| !d.is_offline()));
        let loader = Loader::new(&dirs, &facts, &env, topic_config, now_ms, control);
        let (opened, errors) = loader.run(jobs, config.recovery_threads);
        if errors.iter().any(|(_, e)| matches!(e, LogError::Stopped)) {
            loader.stopped();
            return Err(StartError::Stopped);
        }
        let durable = loader.into_durable();
        for (facts, durable) in facts.iter_mut().zip(durable) {
            facts.recovery_points.extend(durable);
        }
        for (dir, error) in errors {
            if let Some(dir) = dirs.get(dir)
                && dir.set_offline()
            {
                tracing::error!(
                    "the log directory {} is left out: {error}",
                    dir.path.display()
                );
                failures.push(error.to_string());
            }
        }
        if dirs.iter().all(LogDir::is_offline) {
            return Err(StartError::AllFailed(failures.join("; ")));
        }
        let mut cut = false;
        let mut logs: HashMap<TopicPartition, Held> = HashMap::with_capacity(opened.len());
        for (dir, mut log) in opened {
            if dirs.get(dir).is_none_or(LogDir::is_offline) {
                continue;
            }
            let partition = log.topic_partition().clone();
            // As far as the checkpoint says everything is on the device, or has been put there by the recovery.
            let noted = facts
                .get(dir)
                .and_then(|f| f.recovery_points.get(&partition));
            if let Some(noted) = noted {
                log.raise_recovery_point(*noted);
                cut |= log.recovery_point() < *noted;
            }
            if let Some(other) = logs.get(&partition) {
                return Err(StartError::Duplicate {
                    partition: partition.to_string(),
                    left: other.log.lock().dir().to_path_buf(),
                    right: log.dir().to_path_buf(),
                });
            }
            let log = Arc::new(Mutex::new(log));
            logs.insert(partition, Held { log, dir });
        }
        let cleaner = CleanerState::load(&dirs);
        let manager = Self {
            written: Written::new(facts),
            dirs,
            config,
            default_config: Mutex::new(default_config),
            env,
            logs: RwLock::new(logs),
            changing: Mutex::new(()),
            doomed: Mutex::new(doomed),
            newly_offline: Mutex::new(Vec::new()),
            cleaner,
        };
        if cut {
            // What is appended from here on has not been checked, nor flushed.
            manager.checkpoint_recovery_points();
        }
        Ok(manager)
    }
}

/// Reads a directory's checkpoints and lists its partitions.
fn examine(
    at: usize,
    dir: &LogDir,
    default_config: &LogConfig,
    now_ms: i64,
    jobs: &mut Vec<Job>,
    doomed: &mut Vec<Doomed>,
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
            Some((partition, DirKind::Future | DirKind::Stray)) => tracing::warn!(
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

/// The directories' logs by number, to choose the emptiest.
pub(super) fn count_by_dir(logs: &HashMap<TopicPartition, Held>, dirs: usize) -> Vec<usize> {
    let mut counts = vec![0; dirs];
    for held in logs.values() {
        if let Some(n) = counts.get_mut(held.dir) {
            *n += 1;
        }
    }
    counts
}
