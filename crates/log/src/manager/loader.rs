//! Opening many logs on several threads: shared out, watched, stopped, its progress kept.

use super::progress::{LoadControl, LoadProgress};
use crate::checkpoint;
use crate::config::LogConfig;
use crate::dirs::LogDir;
use crate::disk;
use crate::error::LogError;
use crate::naming::TopicPartition;
use crate::partition::listing::Listing;
use crate::partition::recovery::Watch;
use crate::partition::{LogEnvironment, OpenOptions, PartitionLog};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(super) type Offsets = HashMap<TopicPartition, i64>;

/// Progress is told so often.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// And kept no oftener than this.
const LEAST_KEEP: Duration = Duration::from_millis(100);

/// One log to be opened.
pub(super) struct Job {
    pub dir: usize,
    pub path: PathBuf,
    pub partition: TopicPartition,
}

/// What a directory's checkpoints say.
#[derive(Default)]
pub(super) struct DirFacts {
    pub clean: bool,
    pub recovery_points: Offsets,
    pub high_watermarks: Offsets,
    pub log_starts: Offsets,
}

/// How far a recovery of a directory's logs has come.
#[derive(Default)]
struct Progress {
    /// Checked up to here.
    reached: Mutex<Offsets>,
    /// And on the device, the checkpoint too.
    durable: Mutex<Offsets>,
}

/// A job that has been looked at.
struct Listed {
    job: Job,
    listing: Listing,
    bytes: u64,
}

pub(super) struct Loader<'a> {
    dirs: &'a [LogDir],
    facts: &'a [DirFacts],
    env: &'a Arc<LogEnvironment>,
    topic_config: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
    now_ms: i64,
    control: &'a LoadControl<'a>,
    begun: Instant,
    progress: Vec<Progress>,
    loaded: AtomicUsize,
    recovered: AtomicUsize,
    recovered_bytes: AtomicU64,
}

/// Logs opened, and the directories whose logs cannot be.
type Loaded = (Vec<(usize, PartitionLog)>, Vec<(usize, LogError)>);

impl<'a> Loader<'a> {
    pub(super) fn new(
        dirs: &'a [LogDir],
        facts: &'a [DirFacts],
        env: &'a Arc<LogEnvironment>,
        topic_config: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &'a LoadControl<'a>,
    ) -> Self {
        Self {
            dirs,
            facts,
            env,
            topic_config,
            now_ms,
            control,
            begun: Instant::now(),
            progress: dirs.iter().map(|_| Progress::default()).collect(),
            loaded: AtomicUsize::new(0),
            recovered: AtomicUsize::new(0),
            recovered_bytes: AtomicU64::new(0),
        }
    }

    /// Opens the logs. Once it is told to stop, [`LogError::Stopped`] is among the errors unless all were opened.
    pub(super) fn run(&self, jobs: Vec<Job>, threads: usize) -> Loaded {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads };
        let (mut listed, mut errors) = share_out(jobs, threads, |job| {
            let dir = job.dir;
            self.list(job).map_err(|error| (dir, error))
        });
        // The largest first: none of them is then alone at the end.
        listed.sort_by_key(|l| std::cmp::Reverse(l.bytes));
        let total = LoadProgress {
            total: listed.len(),
            to_recover: listed.iter().filter(|l| !self.is_clean(l.job.dir)).count(),
            to_recover_bytes: listed.iter().map(|l| l.bytes).sum(),
            ..LoadProgress::default()
        };
        let (finished, signal) = (Mutex::new(false), Condvar::new());
        let every = |interval: Duration, work: &dyn Fn()| {
            let mut finished = finished.lock();
            while !*finished {
                if signal.wait_for(&mut finished, interval).timed_out() && !*finished {
                    // The lock is not held over it: the end must not wait for it.
                    parking_lot::MutexGuard::unlocked(&mut finished, work);
                }
            }
        };
        let opened = std::thread::scope(|scope| {
            scope.spawn(|| every(TELL_EVERY, &|| (self.control.progress)(&self.now(&total))));
            if total.to_recover > 0 {
                let interval = self.control.keep_every.max(LEAST_KEEP);
                let total = &total;
                scope.spawn(move || {
                    every(interval, &|| {
                        // A load that is nearly done does not wait for the device.
                        if self.now(total).left().is_none_or(|left| left > interval) {
                            self.keep();
                        }
                    })
                });
            }
            let (opened, failed) = share_out(listed, threads, |listed| {
                let dir = listed.job.dir;
                match self.open(listed) {
                    Ok(log) => Ok((dir, log)),
                    Err(error) => Err((dir, error)),
                }
            });
            *finished.lock() = true;
            signal.notify_all();
            errors.extend(failed);
            opened
        });
        (self.control.progress)(&self.now(&total));
        (opened, errors)
    }

    fn now(&self, total: &LoadProgress) -> LoadProgress {
        LoadProgress {
            loaded: self.loaded.load(Relaxed),
            recovered: self.recovered.load(Relaxed),
            recovered_bytes: self
                .recovered_bytes
                .load(Relaxed)
                .min(total.to_recover_bytes),
            elapsed: self.begun.elapsed(),
            ..total.clone()
        }
    }

    fn is_clean(&self, dir: usize) -> bool {
        self.facts.get(dir).is_some_and(|f| f.clean)
    }

    fn recovery_point(&self, job: &Job) -> i64 {
        let facts = self.facts.get(job.dir);
        facts.map_or(0, |f| offset_of(&f.recovery_points, &job.partition))
    }

    fn check_stop(&self) -> Result<(), LogError> {
        match self.control.stop.load(Relaxed) {
            true => Err(LogError::Stopped),
            false => Ok(()),
        }
    }

    fn list(&self, job: Job) -> Result<Listed, LogError> {
        self.check_stop()?;
        let listing = Listing::read(&job.path)?;
        let bytes = match self.is_clean(job.dir) {
            true => 0,
            false => listing.bytes_from(self.recovery_point(&job)),
        };
        Ok(Listed {
            job,
            listing,
            bytes,
        })
    }

    fn open(&self, listed: Listed) -> Result<PartitionLog, LogError> {
        self.check_stop()?;
        let Listed {
            job,
            listing,
            bytes,
        } = listed;
        let nothing = DirFacts::default();
        let facts = self.facts.get(job.dir).unwrap_or(&nothing);
        let offline = self.dirs.get(job.dir).map(|d| d.offline.clone());
        let options = OpenOptions {
            config: (self.topic_config)(&job.partition.topic),
            env: self.env.clone(),
            recovery_point: self.recovery_point(&job),
            log_start: offset_of(&facts.log_starts, &job.partition),
            clean: facts.clean,
            fresh: false,
            offline: offline.unwrap_or_default(),
            now_ms: self.now_ms,
        };
        let watch = JobWatch {
            loader: self,
            job: &job,
            looked_at: AtomicU64::new(0),
        };
        let partition = job.partition.clone();
        let mut log = PartitionLog::open_watched(&job.path, partition, options, listing, &watch)?;
        log.update_high_watermark(offset_of(&facts.high_watermarks, &job.partition));
        watch.looked_at(bytes.saturating_sub(watch.looked_at.load(Relaxed)));
        self.loaded.fetch_add(1, Relaxed);
        if !facts.clean {
            self.recovered.fetch_add(1, Relaxed);
        }
        Ok(log)
    }

    /// Puts what has been recovered so far on the device, and moves the recovery points of the checkpoint over it.
    fn keep(&self) {
        for ((dir, facts), progress) in self.dirs.iter().zip(self.facts).zip(&self.progress) {
            let mut durable = progress.durable.lock();
            let reached = progress.reached.lock().clone();
            if dir.is_offline() || reached == *durable {
                continue;
            }
            let mut offsets = facts.recovery_points.clone();
            offsets.extend(reached.iter().map(|(p, o)| (p.clone(), *o)));
            let kept = disk::sync_file_system(&dir.path).and_then(|synced| match synced {
                true => {
                    let path = dir.path.join(checkpoint::RECOVERY_POINT);
                    checkpoint::write(&path, offsets.iter().map(|(p, o)| (p, *o)))
                }
                false => Ok(()),
            });
            match kept {
                Ok(()) => *durable = reached,
                Err(error) => {
                    tracing::warn!("the progress of the recovery is not kept: {error}");
                    if error.takes_dir_offline() {
                        dir.set_offline();
                    }
                }
            }
        }
    }

    /// Told to stop: the progress is kept, what had been stopped cleanly says so again, the directories are let go.
    pub(super) fn stopped(&self) {
        self.keep();
        for (dir, facts) in self.dirs.iter().zip(self.facts) {
            if facts.clean
                && !dir.is_offline()
                && let Err(error) = dir.write_clean_shutdown()
            {
                tracing::warn!("the next start will check all logs: {error}");
            }
            dir.unlock();
        }
    }

    /// The recovery points that moved, by directory.
    pub(super) fn into_durable(self) -> Vec<Offsets> {
        let progress = self.progress.into_iter();
        progress.map(|p| p.durable.into_inner()).collect()
    }
}

/// One log's part of the progress.
struct JobWatch<'a> {
    loader: &'a Loader<'a>,
    job: &'a Job,
    looked_at: AtomicU64,
}

impl Watch for JobWatch<'_> {
    fn stopped(&self) -> bool {
        self.loader.control.stop.load(Relaxed)
    }

    fn looked_at(&self, bytes: u64) {
        self.looked_at.fetch_add(bytes, Relaxed);
        self.loader.recovered_bytes.fetch_add(bytes, Relaxed);
    }

    fn reached(&self, offset: i64) {
        if let Some(progress) = self.loader.progress.get(self.job.dir) {
            let mut reached = progress.reached.lock();
            reached.insert(self.job.partition.clone(), offset);
        }
    }

    fn keeps_progress(&self) -> bool {
        // From here on it may last until the next time that it is kept.
        self.loader.begun.elapsed() >= self.loader.control.keep_every / 2
    }
}

/// A checkpoint's offset; 0 without one.
fn offset_of(offsets: &Offsets, partition: &TopicPartition) -> i64 {
    offsets.get(partition).copied().unwrap_or(0).max(0)
}

/// Does `work` on all items, in their order, on several threads.
fn share_out<T: Send, R: Send, E: Send>(
    items: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> (Vec<R>, Vec<E>) {
    let threads = threads.clamp(1, items.len().max(1));
    let items = Mutex::new(items.into_iter());
    let all = Mutex::new((Vec::new(), Vec::new()));
    let each = || {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        loop {
            let Some(item) = items.lock().next() else {
                break;
            };
            match work(item) {
                Ok(result) => done.push(result),
                Err(error) => failed.push(error),
            }
        }
        let mut all = all.lock();
        all.0.extend(done);
        all.1.extend(failed);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(each);
        }
        each();
    });
    all.into_inner()
}
