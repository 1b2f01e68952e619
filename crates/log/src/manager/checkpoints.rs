//! The checkpoint files of each directory, written when what they hold has changed.

use super::loader::{DirFacts, Offsets};
use super::{LogManager, SharedLog};
use crate::checkpoint;
use crate::naming::TopicPartition;
use crate::partition::PartitionLog;
use parking_lot::Mutex;

/// What was written last, by directory; `None` if that is not known.
#[derive(Debug)]
pub(super) struct Written {
    recovery_points: Vec<Mutex<Option<Offsets>>>,
    high_watermarks: Vec<Mutex<Option<Offsets>>>,
    log_starts: Vec<Mutex<Option<Offsets>>>,
}

impl Written {
    /// As the files were found at the start.
    pub(super) fn new(found: Vec<DirFacts>) -> Self {
        // An absent file and one of no lines are to be written alike.
        let known = |offsets: Offsets| Mutex::new((!offsets.is_empty()).then_some(offsets));
        let mut written = Self {
            recovery_points: Vec::new(),
            high_watermarks: Vec::new(),
            log_starts: Vec::new(),
        };
        for facts in found {
            written.recovery_points.push(known(facts.recovery_points));
            written.high_watermarks.push(known(facts.high_watermarks));
            written.log_starts.push(known(facts.log_starts));
        }
        written
    }
}

fn names(
    written: &[Mutex<Option<Offsets>>],
    dir: usize,
    partition: &TopicPartition,
) -> Option<i64> {
    let written = written.get(dir)?.lock();
    written.as_ref()?.get(partition).copied()
}

impl LogManager {
    /// `log.flush.offset.checkpoint.interval.ms`
    pub fn checkpoint_recovery_points(&self) {
        self.write_all(
            checkpoint::RECOVERY_POINT,
            &self.written.recovery_points,
            |log| Some(log.recovery_point()),
        );
    }

    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub fn checkpoint_log_starts(&self) {
        self.write_all(
            checkpoint::LOG_START,
            &self.written.log_starts,
            log_start_to_note,
        );
    }

    /// `replica.high.watermark.checkpoint.interval.ms`. Begin after the first LeaderAndIsr (controller.md B1).
    pub fn checkpoint_high_watermarks(&self) {
        self.write_all(
            checkpoint::HIGH_WATERMARK,
            &self.written.high_watermarks,
            |log| Some(log.high_watermark()),
        );
    }

    /// A follower's log was cut: the recovery point on disk must not stay above what is there, or a crash after further
    /// appends would take them for checked. To be called before these, without the log's lock.
    pub fn checkpoint_truncation(&self, partition: &TopicPartition) {
        let held = self.logs.read();
        let Some((dir, log)) = held.get(partition).map(|h| (h.dir, h.log.clone())) else {
            return;
        };
        drop(held);
        let point = log.lock().recovery_point();
        let written = &self.written.recovery_points;
        if names(written, dir, partition).is_some_and(|written| written > point) {
            let offset = |log: &PartitionLog| Some(log.recovery_point());
            self.write_dir(dir, checkpoint::RECOVERY_POINT, written, offset);
        }
    }

    /// A log is about to be made: what an earlier one of its name left in the checkpoints is not about it.
    pub(super) fn forget_former(&self, dir: usize, partition: &TopicPartition) {
        let written = &self.written;
        if names(&written.recovery_points, dir, partition).is_some() {
            let offset = |log: &PartitionLog| Some(log.recovery_point());
            let name = checkpoint::RECOVERY_POINT;
            self.write_dir(dir, name, &written.recovery_points, offset);
        }
        if names(&written.high_watermarks, dir, partition).is_some() {
            let offset = |log: &PartitionLog| Some(log.high_watermark());
            let name = checkpoint::HIGH_WATERMARK;
            self.write_dir(dir, name, &written.high_watermarks, offset);
        }
        if names(&written.log_starts, dir, partition).is_some() {
            let name = checkpoint::LOG_START;
            self.write_dir(dir, name, &written.log_starts, log_start_to_note);
        }
    }

    fn write_all(
        &self,
        name: &str,
        written: &[Mutex<Option<Offsets>>],
        offset: impl Fn(&PartitionLog) -> Option<i64>,
    ) {
        for at in 0..self.dirs.len() {
            self.write_dir(at, name, written, &offset);
        }
    }

    fn write_dir(
        &self,
        at: usize,
        name: &str,
        written: &[Mutex<Option<Offsets>>],
        offset: impl Fn(&PartitionLog) -> Option<i64>,
    ) {
        let Some(written) = written.get(at) else {
            return;
        };
        let collect = |(partition, log): (TopicPartition, SharedLog)| {
            offset(&log.lock()).map(|o| (partition, o))
        };
        // The file's lock first: a deletion meanwhile must not be undone by offsets collected before it.
        let mut written = written.lock();
        let now: Offsets = self.logs_in(at).into_iter().filter_map(collect).collect();
        self.write_one(at, name, now, &mut written);
    }

    fn write_one(&self, at: usize, name: &str, now: Offsets, written: &mut Option<Offsets>) {
        let Some(dir) = self.dirs.get(at).filter(|d| !d.is_offline()) else {
            return;
        };
        if written.as_ref() == Some(&now) {
            return;
        }
        let path = dir.path.join(name);
        match checkpoint::write(&path, now.iter().map(|(p, o)| (p, *o))) {
            Ok(()) => *written = Some(now),
            Err(error) => {
                tracing::warn!("a checkpoint was not written: {error}");
                self.handle_error(&error);
            }
        }
    }

    /// A log is gone: a stale log start or cleaner offset would be taken for that of a later log of the same name.
    pub(super) fn forget_checkpoints(&self, dir: usize, partition: &TopicPartition) {
        if let Some(written) = self.written.log_starts.get(dir) {
            let mut written = written.lock();
            let known = written.as_ref().is_none_or(|w| w.contains_key(partition));
            if known {
                let collect = |(p, log): (TopicPartition, SharedLog)| {
                    log_start_to_note(&log.lock()).map(|o| (p, o))
                };
                let now: Offsets = self.logs_in(dir).into_iter().filter_map(collect).collect();
                self.write_one(dir, checkpoint::LOG_START, now, &mut written);
            }
        }
        self.cleaner.forget(&self.dirs, dir, partition);
    }
}

/// Only a log start inside of the first segment cannot be told from the files.
fn log_start_to_note(log: &PartitionLog) -> Option<i64> {
    let start = log.log_start_offset();
    (start > log.first_base_offset()).then_some(start)
}
