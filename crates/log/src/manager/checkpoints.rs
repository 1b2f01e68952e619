//! The checkpoint files of each directory, written when what they hold has changed.

use super::LogManager;
use super::load::DirFacts;
use super::loader::Offsets;
use super::pending::PendingLog;
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

/// One of the files, and where its offsets come from.
pub(super) struct File {
    name: &'static str,
    written: fn(&Written) -> &[Mutex<Option<Offsets>>],
    of_log: fn(&PartitionLog) -> Option<i64>,
    of_pending: fn(&PendingLog) -> Option<i64>,
}

pub(super) static RECOVERY_POINTS: File = File {
    name: checkpoint::RECOVERY_POINT,
    written: |w| &w.recovery_points,
    of_log: |log| Some(log.recovery_point()),
    of_pending: |log| log.recovery_point,
};
static HIGH_WATERMARKS: File = File {
    name: checkpoint::HIGH_WATERMARK,
    written: |w| &w.high_watermarks,
    of_log: |log| Some(log.high_watermark()),
    of_pending: |log| log.high_watermark,
};
static LOG_STARTS: File = File {
    name: checkpoint::LOG_START,
    written: |w| &w.log_starts,
    of_log: log_start_to_note,
    of_pending: |log| log.log_start,
};

impl File {
    /// What it says of the partition.
    fn offset(&self, written: &Written, dir: usize, partition: &TopicPartition) -> Option<i64> {
        let written = (self.written)(written).get(dir)?.lock();
        written.as_ref()?.get(partition).copied()
    }
}

impl LogManager {
    /// `log.flush.offset.checkpoint.interval.ms`
    pub fn checkpoint_recovery_points(&self) {
        self.write_all(&RECOVERY_POINTS);
    }

    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub fn checkpoint_log_starts(&self) {
        self.write_all(&LOG_STARTS);
    }

    /// `replica.high.watermark.checkpoint.interval.ms`. Begin after the first LeaderAndIsr (controller.md B1).
    pub fn checkpoint_high_watermarks(&self) {
        self.write_all(&HIGH_WATERMARKS);
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
        let written = RECOVERY_POINTS.offset(&self.written, dir, partition);
        if written.is_some_and(|written| written > point) {
            self.write_dir(dir, &RECOVERY_POINTS);
        }
    }

    /// A log is about to be made: what an earlier one of its name left in the checkpoints is not about it.
    pub(super) fn forget_former(&self, dir: usize, partition: &TopicPartition) {
        for file in [&RECOVERY_POINTS, &HIGH_WATERMARKS, &LOG_STARTS] {
            if file.offset(&self.written, dir, partition).is_some() {
                self.write_dir(dir, file);
            }
        }
    }

    /// A log has come to a directory or has left it: all its checkpoints.
    pub(super) fn rewrite_checkpoints(&self, at: usize) {
        for file in [&RECOVERY_POINTS, &HIGH_WATERMARKS, &LOG_STARTS] {
            self.write_dir(at, file);
        }
    }

    fn write_all(&self, file: &File) {
        for at in 0..self.dirs.len() {
            self.write_dir(at, file);
        }
    }

    pub(super) fn write_dir(&self, at: usize, file: &File) {
        let Some(written) = (file.written)(&self.written).get(at) else {
            return;
        };
        // The file's lock first: a deletion meanwhile must not be undone by offsets collected before it.
        let mut written = written.lock();
        let now = self.offsets_now(at, file);
        self.write_one(at, file.name, now, &mut written);
    }

    fn offsets_now(&self, at: usize, file: &File) -> Offsets {
        // These first: one that is loaded meanwhile is then among the others.
        let mut now = self.pending.offsets(at, file.of_pending);
        for (partition, log) in self.logs_in(at) {
            match (file.of_log)(&log.lock()) {
                Some(offset) => now.insert(partition, offset),
                None => now.remove(&partition),
            };
        }
        now
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
                let now = self.offsets_now(dir, &LOG_STARTS);
                self.write_one(dir, LOG_STARTS.name, now, &mut written);
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
