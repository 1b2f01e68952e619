//! Loading all logs at the start, in parallel.

use super::checkpoints::Written;
use super::{Doomed, Held, LoadProgress, LogManager, LogManagerConfig};
use crate::checkpoint;
use crate::cleaner::CleanerState;
use crate::config::LogConfig;
use crate::dirs::{LogDir, LogDirs};
use crate::error::{LogError, StartError};
use crate::naming::{DirKind, TopicPartition, parse_dir_name};
use crate::partition::{LogEnvironment, OpenOptions, PartitionLog};
use crate::tail::TailBudget;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Offsets = HashMap<TopicPartition, i64>;

/// One log to be opened.
struct Job {
    dir: usize,
    path: PathBuf,
    partition: TopicPartition,
}

/// What a directory's checkpoints say.
#[derive(Default)]
struct DirFacts {
    clean: bool,
    recovery_points: Offsets,
    high_watermarks: Offsets,
    log_starts: Offsets,
}

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
        let loader = Loader {
            dirs: &dirs,
            facts: &facts,
            env: &env,
            topic_config,
            now_ms,
            recovering: facts
                .iter()
                .zip(&dirs)
                .any(|(f, d)| !f.clean && !d.is_offline()),
            progress,
            total: jobs.len(),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        };
        let (opened, errors) = loader.run(&jobs, config.recovery_threads);
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
        let mut logs: HashMap<TopicPartition, Held> = HashMap::with_capacity(opened.len());
        for (dir, log) in opened {
            if dirs.get(dir).is_none_or(LogDir::is_offline) {
                continue;
            }
            let partition = log.topic_partition().clone();
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
        Ok(Self {
            written: Written::new(dirs.len()),
            dirs,
            config,
            default_config: Mutex::new(default_config),
            env,
            logs: RwLock::new(logs),
            changing: Mutex::new(()),
            doomed: Mutex::new(doomed),
            newly_offline: Mutex::new(Vec::new()),
            cleaner,
        })
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

struct Loader<'a> {
    dirs: &'a [LogDir],
    facts: &'a [DirFacts],
    env: &'a Arc<LogEnvironment>,
    topic_config: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
    now_ms: i64,
    recovering: bool,
    progress: &'a (dyn Fn(LoadProgress) + Sync),
    total: usize,
    next: AtomicUsize,
    done: AtomicUsize,
}

/// Logs opened, and the directories whose logs cannot be.
type Loaded = (Vec<(usize, PartitionLog)>, Vec<(usize, LogError)>);

impl Loader<'_> {
    fn run(&self, jobs: &[Job], threads: usize) -> Loaded {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads };
        let all: Mutex<Loaded> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    let (opened, errors) = self.work(jobs);
                    let mut all = all.lock();
                    all.0.extend(opened);
                    all.1.extend(errors);
                });
            }
        });
        (self.progress)(LoadProgress {
            loaded: self.done.load(Relaxed),
            total: self.total,
            recovering: self.recovering,
        });
        all.into_inner()
    }

    fn work(&self, jobs: &[Job]) -> Loaded {
        let mut loaded = Loaded::default();
        while let Some(job) = jobs.get(self.next.fetch_add(1, Relaxed)) {
            match self.open(job) {
                Ok(log) => loaded.0.push((job.dir, log)),
                Err(error) => loaded.1.push((job.dir, error)),
            }
            let done = self.done.fetch_add(1, Relaxed) + 1;
            if done.is_multiple_of(50) {
                (self.progress)(LoadProgress {
                    loaded: done,
                    total: self.total,
                    recovering: self.recovering,
                });
            }
        }
        loaded
    }

    fn open(&self, job: &Job) -> Result<PartitionLog, LogError> {
        let nothing = DirFacts::default();
        let facts = self.facts.get(job.dir).unwrap_or(&nothing);
        let of = |offsets: &Offsets| offsets.get(&job.partition).copied().unwrap_or(0).max(0);
        let offline = self.dirs.get(job.dir).map(|d| d.offline.clone());
        let options = OpenOptions {
            config: (self.topic_config)(&job.partition.topic),
            env: self.env.clone(),
            recovery_point: of(&facts.recovery_points),
            log_start: of(&facts.log_starts),
            clean: facts.clean,
            fresh: false,
            offline: offline.unwrap_or_default(),
            now_ms: self.now_ms,
        };
        let mut log = PartitionLog::open(&job.path, job.partition.clone(), options)?;
        log.update_high_watermark(of(&facts.high_watermarks));
        Ok(log)
    }
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
