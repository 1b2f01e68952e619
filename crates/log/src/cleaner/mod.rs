//! Compaction: keeps the last record of each key. The rules are in `docs/compaction.md`.
//!
//! A cleaning is planned under the log's lock, carried out without it on open files, and swapped in under it if the segments
//! are still the same.

mod clean;
mod filter;
mod offset_map;
mod plan;
mod swap;
mod transactions;

use crate::checkpoint;
use crate::dirs::LogDir;
use crate::error::LogError;
use crate::manager::SharedLog;
use crate::naming::TopicPartition;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

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
#[derive(Debug, Default)]
pub struct CleanerReport {
    pub cleaned: Vec<TopicPartition>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Partitions set aside because they cannot be cleaned, and why.
    pub uncleanable: Vec<(TopicPartition, String)>,
    /// Disk errors met.
    pub errors: Vec<LogError>,
}

/// Why a cleaning did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("{reason}")]
    Uncleanable { reason: String },
}

/// Holds the reading rate down to `log.cleaner.io.max.bytes.per.second`.
#[derive(Debug)]
pub struct Throttle {
    rate: f64,
    since: Instant,
    spent: u64,
}

impl Throttle {
    fn new(rate: f64) -> Self {
        Self {
            rate,
            since: Instant::now(),
            spent: 0,
        }
    }

    fn spend(&mut self, bytes: u64) {
        // Looked at every megabyte.
        self.spent += bytes;
        if self.rate >= 1e15 || self.rate <= 0.0 || self.spent < 1 << 20 {
            return;
        }
        let due = Duration::from_secs_f64((self.spent as f64 / self.rate).min(3600.0));
        if let Some(wait) = due.checked_sub(self.since.elapsed()) {
            std::thread::sleep(wait);
        }
        self.since = Instant::now();
        self.spent = 0;
    }
}

/// How far each log is clean, and which cannot be cleaned.
#[derive(Debug, Default)]
pub struct CleanerState {
    /// One pass at a time.
    running: Mutex<()>,
    checkpoints: Mutex<Vec<HashMap<TopicPartition, i64>>>,
    uncleanable: Mutex<HashMap<TopicPartition, String>>,
}

impl CleanerState {
    pub(crate) fn load(dirs: &[LogDir]) -> Self {
        let read = |dir: &LogDir| {
            if dir.is_offline() {
                return HashMap::new();
            }
            checkpoint::read(&dir.path.join(checkpoint::CLEANER)).unwrap_or_else(|error| {
                tracing::warn!("{error}; compaction begins anew");
                HashMap::new()
            })
        };
        Self {
            checkpoints: Mutex::new(dirs.iter().map(read).collect()),
            ..Self::default()
        }
    }

    /// A log was deleted.
    pub(crate) fn forget(&self, dirs: &[LogDir], dir: usize, partition: &TopicPartition) {
        self.uncleanable.lock().remove(partition);
        self.set(dirs, dir, partition, None);
    }

    /// A log was moved: what is clean of it stays clean.
    pub(crate) fn relocate(
        &self,
        dirs: &[LogDir],
        from: usize,
        to: usize,
        partition: &TopicPartition,
    ) {
        let offset = self.checkpoint(from, partition);
        self.set(dirs, from, partition, None);
        self.set(dirs, to, partition, offset);
    }

    fn checkpoint(&self, dir: usize, partition: &TopicPartition) -> Option<i64> {
        let checkpoints = self.checkpoints.lock();
        checkpoints.get(dir).and_then(|c| c.get(partition)).copied()
    }

    fn set(&self, dirs: &[LogDir], dir: usize, partition: &TopicPartition, offset: Option<i64>) {
        let mut checkpoints = self.checkpoints.lock();
        let (Some(offsets), Some(at)) = (checkpoints.get_mut(dir), dirs.get(dir)) else {
            return;
        };
        let before = match offset {
            Some(offset) => offsets.insert(partition.clone(), offset),
            None => offsets.remove(partition),
        };
        if before == offset || at.is_offline() {
            return;
        }
        let path = at.path.join(checkpoint::CLEANER);
        if let Err(error) = checkpoint::write(&path, offsets.iter().map(|(p, o)| (p, *o))) {
            tracing::warn!(
                "compaction's checkpoint was not written, work may be repeated: {error}"
            );
        }
    }

    /// Cleans the dirtiest log that needs it, then the next, until none does.
    pub(crate) fn run(
        &self,
        config: &CleanerConfig,
        dirs: &[LogDir],
        logs: &[(TopicPartition, SharedLog, usize)],
        now_ms: i64,
    ) -> CleanerReport {
        let mut report = CleanerReport::default();
        if !config.enable {
            return report;
        }
        let _running = self.running.lock();
        let mut throttle = Throttle::new(config.max_bytes_per_second);
        // A log that failed or changed under the cleaner is left for the next pass.
        let mut left: HashSet<&TopicPartition> = HashSet::new();
        loop {
            let mut best: Option<(usize, plan::Cleanable)> = None;
            for (at, (partition, log, dir)) in logs.iter().enumerate() {
                if left.contains(partition) || self.uncleanable.lock().contains_key(partition) {
                    continue;
                }
                let found = self.look(partition, log, *dir, now_ms);
                match found {
                    Ok(Some(c)) if best.is_none_or(|(_, b)| c.ratio() > b.ratio()) => {
                        best = Some((at, c));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        left.insert(partition);
                    }
                    Err(error) => {
                        left.insert(partition);
                        report.errors.push(error);
                    }
                }
            }
            let Some((partition, log, dir, cleanable)) =
                best.and_then(|(at, c)| logs.get(at).map(|(p, l, d)| (p, l, *d, c)))
            else {
                break;
            };
            let (planned, truncations) = {
                let mut log = log.lock();
                (log.plan_cleaning(cleanable), log.truncations())
            };
            let cleaned = planned
                .map_err(CleanError::Log)
                .and_then(|p| clean::clean(log, &p, config, &mut throttle, now_ms));
            match cleaned {
                Ok(done) => {
                    report.bytes_read += done.bytes_read;
                    report.bytes_written += done.bytes_written;
                    if done.end_offset <= cleanable.first_dirty {
                        left.insert(partition);
                    }
                    // One that was moved or deleted meanwhile is not there any more.
                    if log.lock().is_failed() {
                        left.insert(partition);
                        continue;
                    }
                    self.set(dirs, dir, partition, Some(done.end_offset));
                    tracing::info!(
                        "{partition} compacted up to offset {}: {} bytes written",
                        done.end_offset,
                        done.bytes_written
                    );
                    report.cleaned.push(partition.clone());
                }
                Err(CleanError::Log(error)) => {
                    left.insert(partition);
                    // Files of a log that was deleted meanwhile are not missing, they are gone.
                    let gone = log.lock().is_failed();
                    if gone || matches!(error, LogError::Conflict(_)) {
                        tracing::debug!("{partition}: {error}");
                    } else {
                        tracing::warn!("compaction of {partition} failed: {error}");
                        report.errors.push(error);
                    }
                }
                // What it was reading was cut off meanwhile.
                Err(CleanError::Uncleanable { reason })
                    if log.lock().truncations() != truncations =>
                {
                    left.insert(partition);
                    tracing::debug!("{partition}: {reason}");
                }
                Err(CleanError::Uncleanable { reason }) => {
                    tracing::warn!(
                        "{partition} cannot be compacted and is left as it is until the next start: {reason}"
                    );
                    self.uncleanable
                        .lock()
                        .insert(partition.clone(), reason.clone());
                }
            }
        }
        report.uncleanable = self
            .uncleanable
            .lock()
            .iter()
            .map(|(p, r)| (p.clone(), r.clone()))
            .collect();
        report
    }

    /// What to clean of a log now, if anything.
    fn look(
        &self,
        partition: &TopicPartition,
        log: &SharedLog,
        dir: usize,
        now_ms: i64,
    ) -> Result<Option<plan::Cleanable>, LogError> {
        let mut log = log.lock();
        if !log.config().compact || log.is_failed() || log.is_moving() {
            return Ok(None);
        }
        let mut from = self.checkpoint(dir, partition);
        if let Some(truncated) = log.take_truncated_to()
            && from.is_some_and(|f| f > truncated)
        {
            from = Some(truncated);
            if let Some(offsets) = self.checkpoints.lock().get_mut(dir) {
                offsets.insert(partition.clone(), truncated);
            }
        }
        if log.segment_count() < 2 {
            return Ok(None);
        }
        let ratio = log.config().min_cleanable_dirty_ratio;
        let cleanable = log.cleanable(from, now_ms)?;
        let due = cleanable.overdue || cleanable.ratio() > ratio;
        Ok((due && cleanable.cleanable_bytes > 0).then_some(cleanable))
    }
}
