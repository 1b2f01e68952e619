//! Work that comes round, and the clean stop.

use super::{LogManager, SharedLog};
use crate::cleaner::CleanerReport;
use crate::disk;
use crate::error::LogError;
use crate::naming::TopicPartition;
use crate::partition::{PartitionLog, remove_files};
use parking_lot::Mutex;
use std::sync::atomic::Ordering::Relaxed;

impl LogManager {
    /// `log.retention.check.interval.ms`; the number of segments deleted. A log with `compact` alone loses only what is
    /// below its start.
    pub fn run_retention_once(&self, now_ms: i64) -> usize {
        let mut deleted = 0;
        for (partition, log) in self.logs() {
            let outcome = log.lock().apply_retention(now_ms);
            match outcome {
                Ok(outcome) => deleted += outcome.deleted_segments,
                Err(error) => self.report(&partition, "retention", &error),
            }
        }
        deleted
    }

    /// `log.flush.scheduler.interval.ms`: flushes logs whose `flush.ms` has passed; how many.
    pub fn run_flush_once(&self, now_ms: i64) -> usize {
        self.flush_all(now_ms, |log| {
            if log.flush_is_due(now_ms) {
                log.log_end_offset()
            } else {
                i64::MIN
            }
        })
    }

    /// Flushes rolled segments, and the names of files made since; how many logs. Call it every second or so, whatever the
    /// flush settings: the recovery point moves by it. It costs nothing when there is nothing to do.
    pub fn run_sealed_flush_once(&self, now_ms: i64) -> usize {
        for dir in self.dirs.iter().filter(|d| !d.is_offline()) {
            // A deleted log that came back in a power cut would stand in the way of the next of its name.
            if dir.renamed.swap(false, Relaxed)
                && let Err(error) = disk::sync_dir(&dir.path)
            {
                tracing::warn!("{error}");
                self.handle_error(&error);
            }
        }
        self.flush_all(now_ms, PartitionLog::sealed_end)
    }

    fn flush_all(&self, now_ms: i64, up_to: impl Fn(&PartitionLog) -> i64) -> usize {
        let mut flushed = 0;
        for (partition, log) in self.all_logs() {
            match flush(&log, now_ms, &up_to) {
                Ok(true) => flushed += 1,
                Ok(false) => {}
                Err(error) => self.report(&partition, "the flush", &error),
            }
        }
        flushed
    }

    /// Flushes all that a log holds now: after an append that is [`crate::AppendInfo::flush_due`]. The caller tells
    /// [`Self::handle_error`] of an error.
    pub fn flush(&self, log: &SharedLog, now_ms: i64) -> Result<(), LogError> {
        let end = log.lock().log_end_offset();
        flush(log, now_ms, &|_| end).map(|_| ())
    }

    /// Files and directories whose `file.delete.delay.ms` has passed.
    pub fn run_file_deletion_once(&self, now_ms: i64) -> usize {
        let mut removed = self.remove_doomed(now_ms);
        for (_, log) in self.all_logs() {
            let due = log.lock().take_deleted_files(now_ms);
            removed += remove_files(&due);
        }
        removed
    }

    /// One pass of compaction over all logs that need it; call every `log.cleaner.backoff.ms`, from one thread.
    pub fn run_cleaner_once(&self, now_ms: i64) -> CleanerReport {
        let logs: Vec<(TopicPartition, SharedLog, usize)> = {
            let held = self.logs.read();
            held.iter()
                .map(|(p, h)| (p.clone(), h.log.clone(), h.dir))
                .collect()
        };
        let report = self
            .cleaner
            .run(&self.config.cleaner, &self.dirs, &logs, now_ms);
        for error in &report.errors {
            self.handle_error(error);
        }
        report
    }

    /// `producer.id.expiration.check.interval.ms`
    pub fn run_producer_expiration_once(&self, now_ms: i64) {
        for (_, log) in self.all_logs() {
            log.lock()
                .expire_producers(self.config.producer_id_expiration_ms, now_ms);
        }
    }

    /// Closes files and lets go of memory of logs that nobody used since the last call; every few seconds.
    pub fn run_idle_once(&self, _now_ms: i64) {
        for (_, log) in self.all_logs() {
            // One that is busy is not idle.
            if let Some(mut log) = log.try_lock() {
                log.release_idle();
            }
        }
    }

    /// Flushes and closes all logs, writes checkpoints and the clean-shutdown files, unlocks. Logs that are not loaded yet
    /// stay as they are; their loading must have ended.
    pub fn shutdown(&self, now_ms: i64) {
        let _changing = self.changing.lock();
        let logs = Mutex::new(self.all_logs());
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        let failed: Mutex<Vec<usize>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let Some((partition, log)) = logs.lock().pop() else {
                            break;
                        };
                        let closed = log.lock().close(now_ms);
                        if let Err(error) = closed {
                            failed.lock().extend(self.place_of(&log));
                            self.report(&partition, "the closing", &error);
                        }
                    }
                });
            }
        });
        self.checkpoint_recovery_points();
        self.checkpoint_high_watermarks();
        self.checkpoint_log_starts();
        let failed = failed.into_inner();
        for (at, dir) in self.dirs.iter().enumerate() {
            if dir.is_offline() {
                continue;
            }
            // With a log that could not be closed or has not been checked, the next start has to look.
            let unchecked = self.pending.any_in(at) || self.awaits_copy_in(at);
            let checked = self.was_clean(at) || !unchecked;
            if checked
                && !failed.contains(&at)
                && let Err(error) = dir.write_clean_shutdown()
            {
                tracing::warn!("the next start will check all logs: {error}");
            }
            dir.set_offline();
            dir.unlock();
        }
    }
}

/// Waits for the device without the log's lock; true if there was anything to flush.
fn flush(
    log: &SharedLog,
    now_ms: i64,
    up_to: &impl Fn(&PartitionLog) -> i64,
) -> Result<bool, LogError> {
    let (up_to, mut next) = {
        let mut log = log.lock();
        let up_to = up_to(&log);
        (up_to, log.begin_flush(up_to, now_ms)?)
    };
    let any = next.is_some();
    while let Some(task) = next {
        task.run()?;
        let mut log = log.lock();
        log.finish_flush(&task);
        next = log.begin_flush(up_to, now_ms)?;
    }
    Ok(any)
}
