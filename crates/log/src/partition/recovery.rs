//! Recovery of a log: what lies above the recovery point is checked, what lies beside the records is made anew.
//!
//! It may be watched and stopped. What is done by then need not be done again: the recovery point moves with it, once
//! that is on the device ([`crate::manager`]).

use super::PartitionLog;
use super::open::OpenOptions;
use crate::epochs::LeaderEpochCache;
use crate::error::LogError;
use crate::index::AbortedEntry;
use crate::naming::FileKind;
use crate::producer::ProducerState;
use crate::segment::{HeaderScan, Resume};
use gracchus_record::Entry;
use std::collections::BTreeSet;

/// Bytes between two looks at the watch.
const STEP: u64 = 1 << 20;

/// Who watches a recovery.
pub(crate) trait Watch: Sync {
    /// True ends the recovery with [`LogError::Stopped`].
    fn stopped(&self) -> bool;
    /// So many more bytes have been looked at.
    fn looked_at(&self, bytes: u64);
    /// Everything below `offset` has been checked, and the producers' snapshot at it is written.
    fn reached(&self, offset: i64);
    /// The recovery takes long enough for its progress to be kept.
    fn keeps_progress(&self) -> bool;
}

/// Nobody does.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    fn stopped(&self) -> bool {
        false
    }

    fn looked_at(&self, _bytes: u64) {}

    fn reached(&self, _offset: i64) {}

    fn keeps_progress(&self) -> bool {
        false
    }
}

impl PartitionLog {
    /// Recovers the damaged segments and, unless the stop was clean, all from the recovery point on. True if the producers'
    /// state was followed to the log's end.
    pub(super) fn recover(
        &mut self,
        damaged: &BTreeSet<usize>,
        options: &OpenOptions,
        watch: &dyn Watch,
    ) -> Result<bool, LogError> {
        let dir = self.dir.clone();
        let unchecked = match options.clean {
            true => self.segments.len(),
            false => self.segments.floor(options.recovery_point).unwrap_or(0),
        };
        let mut which = damaged.clone();
        which.extend(unchecked..self.segments.len());
        let mut state: Option<ProducerState> = None;
        for at in which {
            if watch.stopped() {
                return Err(LogError::Stopped);
            }
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            let mut resume = segment.from_start();
            if !damaged.contains(&at) && options.recovery_point > resume.offset {
                // What lies below was flushed, indexes and all, before the recovery point moved over it.
                resume = segment.resume_at(options.recovery_point)?.unwrap_or(resume);
                watch.looked_at(resume.position.into());
            }
            // State goes on from the segment before, if that was recovered too.
            let mut producers = match state.take() {
                Some(state) if state.end_offset() == resume.offset => state,
                _ => self.producers_at(resume.offset, options)?,
            };
            let truncated = self.recover_segment(at, resume, &mut producers, watch)?;
            // An empty state of a log's only segment is read from it again as quickly as from a file.
            let only = producers.is_empty() && self.segments.len() == 1;
            if !options.clean && (!only || watch.keeps_progress()) {
                LogError::unless_full(producers.take_snapshot(&dir))?;
                for offset in producers.snapshots() {
                    self.producers.add_snapshot(*offset);
                }
                if at >= unchecked {
                    watch.reached(producers.end_offset());
                }
            }
            // Damage below the recovery point is a hole in an old segment, whose index was lost: what came after stays.
            if truncated > 0 && at >= unchecked && at + 1 < self.segments.len() {
                let rest = self.segments.split_off(at + 1);
                tracing::warn!(
                    "{}: {} segments after the cut are dropped",
                    dir.display(),
                    rest.len()
                );
                self.discard(rest, options.now_ms)?;
            }
            state = Some(producers);
        }
        let end = match self.segments.last_mut() {
            Some(last) => last.next_offset()?,
            None => return Ok(false),
        };
        match state {
            Some(mut state) if !options.clean && state.end_offset() == end => {
                state.adopt_snapshots(self.producers.snapshots());
                self.producers = state;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Recovers one segment, followed by the producers' state and the leader epochs; the number of bytes cut off.
    fn recover_segment(
        &mut self,
        at: usize,
        resume: Resume,
        producers: &mut ProducerState,
        watch: &dyn Watch,
    ) -> Result<u64, LogError> {
        let (dir, config) = (self.dir.clone(), self.config.clone());
        let (epochs, keeps_epochs) = (&mut self.epochs, config.keeps_epochs());
        let Some(segment) = self.segments.get_mut(at) else {
            return Ok(0);
        };
        let mut completed = Vec::new();
        let mut epochs_changed = false;
        let mut unseen = 0;
        let recovered = segment.recover(&config, resume, |entry, aborted| {
            unseen += entry.size() as u64;
            if unseen >= STEP {
                watch.looked_at(std::mem::take(&mut unseen));
                if watch.stopped() {
                    return Err(LogError::Stopped);
                }
            }
            if let Entry::V2(batch) = entry
                && keeps_epochs
            {
                epochs_changed |= epochs.note(batch.header.leader_epoch, batch.header.base_offset);
            }
            if let Err(error) = producers.replay(entry, &mut completed) {
                tracing::warn!("{}: while recovering its producers: {error}", dir.display());
                producers.set_end_offset(entry.last_offset().saturating_add(1));
            }
            for (done, last_stable_offset) in completed.drain(..) {
                if done.aborted {
                    aborted.push(AbortedEntry {
                        producer_id: done.producer_id,
                        first_offset: done.first_offset,
                        last_offset: done.last_offset,
                        last_stable_offset,
                    });
                }
            }
            Ok(())
        })?;
        watch.looked_at(unseen + recovered.truncated);
        if epochs_changed {
            LogError::unless_full(self.epochs.write(&dir))?;
        }
        Ok(recovered.truncated)
    }

    /// The producers' state as of an offset at which a batch begins.
    fn producers_at(
        &mut self,
        offset: i64,
        options: &OpenOptions,
    ) -> Result<ProducerState, LogError> {
        let dir = self.dir.clone();
        if !options.clean {
            // Snapshots above speak of batches that may not be there.
            self.producers.delete_snapshots(&dir, |o| o > offset)?;
        }
        let usable = self
            .producers
            .snapshots()
            .range(..=offset)
            .copied()
            .collect();
        let mut state = ProducerState::new(self.env.producer_id_expiration_ms, usable);
        state.reload(&dir, options.log_start, offset, options.now_ms)?;
        let from = state.end_offset();
        let first = self.segments.floor(from).unwrap_or(0);
        for at in first..self.segments.len() {
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            if segment.base_offset() >= offset || from >= offset {
                break;
            }
            segment.for_each_between(from, offset, |entry| {
                let mut completed = Vec::new();
                if let Err(error) = state.replay(entry, &mut completed) {
                    tracing::warn!("{}: while reading its producers: {error}", dir.display());
                }
            })?;
        }
        state.set_end_offset(offset);
        Ok(state)
    }

    /// The leader epochs as the batches' headers tell them, when the file was lost.
    pub(super) fn epochs_from_headers(&mut self) -> Result<(), LogError> {
        self.epochs = LeaderEpochCache::lost();
        let epochs = &mut self.epochs;
        for segment in self.segments.iter_mut().filter(|s| s.size() > 0) {
            let (file, path, size) = (segment.file()?, segment.path(FileKind::Log), segment.size());
            let mut scan = HeaderScan::new(&file, &path, 0, size);
            while let Some(spot) = scan.advance()? {
                epochs.note(spot.leader_epoch, spot.base_offset);
            }
        }
        LogError::unless_full(self.epochs.write(&self.dir)).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::super::listing::Listing;
    use super::*;
    use crate::config::LogConfig;
    use crate::naming::TopicPartition;
    use crate::partition::AppendOrigin;
    use gracchus_record::{BatchBuilder, Codec, NewRecord};
    use parking_lot::Mutex;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Stops once `until` was reached.
    struct Stopping {
        until: i64,
        reached: Mutex<Vec<i64>>,
        bytes: AtomicU64,
    }

    impl Watch for Stopping {
        fn stopped(&self) -> bool {
            self.reached.lock().iter().any(|r| *r >= self.until)
        }

        fn looked_at(&self, bytes: u64) {
            self.bytes.fetch_add(bytes, Relaxed);
        }

        fn reached(&self, offset: i64) {
            self.reached.lock().push(offset);
        }

        fn keeps_progress(&self) -> bool {
            true
        }
    }

    fn open(
        dir: &Path,
        recovery_point: i64,
        until: i64,
    ) -> (Result<PartitionLog, LogError>, Vec<i64>, u64) {
        let watch = Stopping {
            until,
            reached: Mutex::default(),
            bytes: AtomicU64::new(0),
        };
        let options = OpenOptions {
            config: Arc::new(LogConfig {
                segment_bytes: 500,
                ..LogConfig::default()
            }),
            recovery_point,
            ..OpenOptions::default()
        };
        let listing = Listing::read(dir).unwrap();
        let partition = TopicPartition::new("t", 0);
        let log = PartitionLog::open_watched(dir, partition, options, listing, &watch);
        (log, watch.reached.into_inner(), watch.bytes.into_inner())
    }

    #[test]
    fn a_long_log_goes_on_with_the_segment_that_was_begun() {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path(), 0, i64::MAX).0;
        let mut log = log.unwrap();
        for timestamp in 0..20 {
            let mut builder = BatchBuilder::new(Codec::None);
            builder.push(NewRecord {
                timestamp,
                key: None,
                value: Some(&[7; 100]),
                headers: &[],
            });
            let bytes = builder.build().unwrap().bytes().clone();
            log.append_as_leader(bytes, 0, AppendOrigin::Client, 0)
                .unwrap();
        }
        let bases = log.segments.bases();
        let size = log.size();
        assert!(bases.len() > 4, "{bases:?}");
        drop(log);
        let (stopped, reached, _) = open(dir.path(), 0, bases[3]);
        assert!(matches!(stopped, Err(LogError::Stopped)));
        assert_eq!(reached, bases[1..=3]);
        let (log, reached, bytes) = open(dir.path(), bases[3], i64::MAX);
        assert_eq!(log.unwrap().log_end_offset(), 20);
        assert_eq!(reached, [&bases[4..], &[20]].concat());
        let left = size / 20 * (20 - bases[3] as u64);
        assert_eq!(bytes, left, "of {size}");
        let (log, _, bytes) = open(dir.path(), 0, i64::MAX);
        assert_eq!((log.unwrap().log_end_offset(), bytes), (20, size));
    }
}
