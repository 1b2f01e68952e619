//! Opening many logs on several threads: shared out, watched, stopped, its progress kept.

use super::LogManager;
use super::checkpoints::RECOVERY_POINTS;
use super::pending::Turn;
use super::progress::{LoadControl, LoadProgress};
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::naming::TopicPartition;
use crate::partition::listing::Listing;
use crate::partition::recovery::Watch;
use crate::partition::{OpenOptions, PartitionLog};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub(super) type Offsets = HashMap<TopicPartition, i64>;

/// Progress is told so often.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// And kept no oftener than this.
const LEAST_KEEP: Duration = Duration::from_millis(100);

/// One log to be opened.
#[derive(Debug)]
pub(super) struct Job {
    pub dir: usize,
    pub path: PathBuf,
    pub partition: TopicPartition,
}

/// A job that has been looked at.
#[derive(Debug)]
pub(super) struct Listed {
    job: Job,
    listing: Listing,
    bytes: u64,
}

/// How far a recovery of a directory's logs has come.
#[derive(Default)]
struct Progress {
    /// Checked up to here.
    reached: Mutex<Offsets>,
    /// And on the device, the checkpoint too.
    durable: Mutex<Offsets>,
}

pub(super) struct Loader<'a> {
    manager: &'a LogManager,
    topic_config: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
    now_ms: i64,
    control: &'a LoadControl<'a>,
    begun: Instant,
    progress: Vec<Progress>,
    /// Something was left out because of the stop.
    stopped: AtomicBool,
    loaded: AtomicUsize,
    recovered: AtomicUsize,
    recovered_bytes: AtomicU64,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        manager: &'a LogManager,
        topic_config: &'a (dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &'a LoadControl<'a>,
    ) -> Self {
        Self {
            manager,
            topic_config,
            now_ms,
            control,
            begun: Instant::now(),
            progress: manager.dirs.iter().map(|_| Progress::default()).collect(),
            stopped: AtomicBool::new(false),
            loaded: AtomicUsize::new(0),
            recovered: AtomicUsize::new(0),
            recovered_bytes: AtomicU64::new(0),
        }
    }

    /// Opens the logs, each of which is of use as soon as it is open. False if it was told to stop before all were. A
    /// directory in which one cannot be opened goes offline.
    pub(super) fn run(&self, jobs: Vec<Job>, threads: usize) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads };
        let threads = threads.clamp(1, jobs.len().max(1));
        let (jobs, total) = (Mutex::new(jobs.into_iter()), Mutex::default());
        on_threads(threads, |_| {
            loop {
                let Some(job) = jobs.lock().next() else { break };
                self.list(job, &total);
            }
        });
        let total = total.into_inner();
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
        std::thread::scope(|scope| {
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
            on_threads(threads, |thread| {
                let turn = match thread {
                    0 => Turn::Largest,
                    _ => Turn::Smallest,
                };
                while let Some(listed) = self.manager.pending.next(turn) {
                    let dir = listed.job.dir;
                    if let Err(error) = self.open(listed) {
                        self.failed(dir, &error);
                    }
                }
            });
            *finished.lock() = true;
            signal.notify_all();
        });
        let whole = !self.stopped.load(Relaxed);
        if !whole {
            self.keep();
        }
        (self.control.progress)(&self.now(&total));
        whole
    }

    fn failed(&self, dir: usize, error: &LogError) {
        if matches!(error, LogError::Stopped) {
            self.stopped.store(true, Relaxed);
        } else if self.manager.leave_out(dir, error) {
            (self.control.dir_failed)();
        }
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

    fn check_stop(&self) -> Result<(), LogError> {
        match self.control.stop.load(Relaxed) {
            true => Err(LogError::Stopped),
            false => Ok(()),
        }
    }

    fn list(&self, job: Job, total: &Mutex<LoadProgress>) {
        let read = self.check_stop().and_then(|()| Listing::read(&job.path));
        let listing = match read {
            Ok(listing) => listing,
            Err(error) => return self.failed(job.dir, &error),
        };
        // of a directory that has failed meanwhile
        let Some(pending) = self.manager.pending.get(&job.partition) else {
            return;
        };
        let clean = self.manager.was_clean(job.dir);
        let bytes = match clean {
            true => 0,
            false => listing.bytes_from(offset_of(pending.recovery_point)),
        };
        let mut total = total.lock();
        total.total += 1;
        total.to_recover += usize::from(!clean);
        total.to_recover_bytes += bytes;
        drop(total);
        let partition = job.partition.clone();
        let listed = Listed {
            job,
            listing,
            bytes,
        };
        self.manager.pending.ready(partition, bytes, listed);
    }

    fn open(&self, listed: Listed) -> Result<(), LogError> {
        self.check_stop()?;
        let Listed {
            job,
            listing,
            bytes,
        } = listed;
        let manager = self.manager;
        let (Some(pending), Some(dir)) = (
            manager.pending.get(&job.partition),
            manager.dirs.get(job.dir),
        ) else {
            return Ok(());
        };
        let clean = manager.was_clean(job.dir);
        let configs_before = manager.config_changes.load(SeqCst);
        let options = OpenOptions {
            config: (self.topic_config)(&job.partition.topic),
            env: manager.env.clone(),
            recovery_point: offset_of(pending.recovery_point),
            log_start: offset_of(pending.log_start),
            clean,
            fresh: false,
            offline: dir.offline.clone(),
            now_ms: self.now_ms,
        };
        let watch = JobWatch {
            loader: self,
            job: &job,
            looked_at: AtomicU64::new(0),
        };
        let partition = job.partition.clone();
        let mut log = PartitionLog::open_watched(&job.path, partition, options, listing, &watch)?;
        log.update_high_watermark(offset_of(pending.high_watermark));
        watch.looked_at(bytes.saturating_sub(watch.looked_at.load(Relaxed)));
        let Some(log) = manager.take_in(job.dir, log) else {
            return Ok(());
        };
        if manager.config_changes.load(SeqCst) != configs_before {
            let config = (self.topic_config)(&job.partition.topic);
            log.lock().update_config(config);
        }
        self.loaded.fetch_add(1, Relaxed);
        if !clean {
            self.recovered.fetch_add(1, Relaxed);
        }
        (self.control.loaded)(&job.partition);
        Ok(())
    }

    /// Puts what has been recovered so far on the device, and moves the recovery points of the checkpoint over it.
    fn keep(&self) {
        let manager = self.manager;
        for (at, (dir, progress)) in manager.dirs.iter().zip(&self.progress).enumerate() {
            let mut durable = progress.durable.lock();
            let reached = progress.reached.lock().clone();
            if dir.is_offline() || reached == *durable {
                continue;
            }
            match disk::sync_file_system(&dir.path) {
                Ok(true) => {
                    for (partition, offset) in &reached {
                        manager.pending.set_recovery_point(partition, *offset);
                    }
                    manager.write_dir(at, &RECOVERY_POINTS);
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!("the progress of the recovery is not kept: {error}");
                    if error.takes_dir_offline() {
                        self.failed(at, &error);
                    }
                    continue;
                }
            }
            *durable = reached;
        }
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
fn offset_of(noted: Option<i64>) -> i64 {
    noted.unwrap_or(0).max(0)
}

/// Does `work` on several threads at once, this one among them; it is given the thread's number.
fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}
