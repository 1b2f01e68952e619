//! The checkpoint files of each directory, written when what they hold has changed.

use super::{LogManager, SharedLog};
use crate::checkpoint;
use crate::naming::TopicPartition;
use crate::partition::PartitionLog;
use parking_lot::Mutex;
use std::collections::HashMap;

type Offsets = HashMap<TopicPartition, i64>;

/// What was written last, by directory; `None` before the first time.
#[derive(Debug)]
pub(super) struct Written {
    recovery_points: Vec<Mutex<Option<Offsets>>>,
    high_watermarks: Vec<Mutex<Option<Offsets>>>,
    log_starts: Vec<Mutex<Option<Offsets>>>,
}

impl Written {
    pub(super) fn new(dirs: usize) -> Self {
        let none = || (0..dirs).map(|_| Mutex::new(None)).collect();
        Self {
            recovery_points: none(),
            high_watermarks: none(),
            log_starts: none(),
        }
    }
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

    fn write_all(
        &self,
        name: &str,
        written: &[Mutex<Option<Offsets>>],
        offset: impl Fn(&PartitionLog) -> Option<i64>,
    ) {
        for (at, written) in written.iter().enumerate() {
            let collect = |(partition, log): (TopicPartition, SharedLog)| {
                offset(&log.lock()).map(|o| (partition, o))
            };
            // The file's lock first: a deletion meanwhile must not be undone by offsets collected before it.
            let mut written = written.lock();
            let now: Offsets = self.logs_in(at).into_iter().filter_map(collect).collect();
            self.write_one(at, name, now, &mut written);
        }
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
