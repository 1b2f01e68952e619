//! Shortening a log, at either end.

use super::{LogPosition, PartitionLog};
use crate::error::LogError;
use crate::segment::Segment;

impl PartitionLog {
    /// Cuts everything from `offset` on; true if there was anything.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<bool, LogError> {
        self.check_online()?;
        let dir = self.dir.clone();
        if offset >= self.log_end {
            // An epoch noted at the end without records is forgotten too: this broker led, and no record came.
            let changed = self.epochs.truncate_from_end(&dir, self.log_end)?;
            self.names.note(changed);
            return Ok(false);
        }
        let first = self.segments.first().map_or(0, Segment::base_offset);
        if offset < first {
            self.truncate_fully_and_start_at(offset.max(0), now_ms)?;
            return Ok(true);
        }
        self.note_truncation(offset);
        let keep = self.segments.floor(offset).map_or(0, |at| at + 1);
        let mut gone = self.segments.split_off(keep);
        // From the last on: what a crash leaves is a log without a hole.
        gone.reverse();
        self.tail.truncate(offset);
        self.readers.forget();
        // From here on the log ends at `offset`, whatever fails: a second try goes on.
        self.log_end = offset;
        self.high_watermark = self.high_watermark.min(offset);
        self.high_watermark_at = None;
        self.log_start = self.log_start.min(offset);
        self.recovery_point = self.recovery_point.min(offset);
        self.discard(gone, now_ms)?;
        if let Some(active) = self.segments.last_mut() {
            active.truncate_to(offset, now_ms)?;
        }
        self.epochs.truncate_from_end(&dir, offset)?;
        self.rebuild_producers(now_ms)?;
        Ok(true)
    }

    /// Deletes everything and goes on at `offset`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: i64,
        now_ms: i64,
    ) -> Result<(), LogError> {
        self.restart_at(offset, offset, now_ms)
    }

    /// As [`Self::truncate_fully_and_start_at`], with a log start that lies in the middle of the batch to come: a follower's
    /// first fetch from a leader whose records were deleted up to there gives the whole batch.
    pub fn restart_at(&mut self, offset: i64, log_start: i64, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        let dir = self.dir.clone();
        self.note_truncation(offset);
        let mut gone = self.segments.split_off(0);
        gone.reverse();
        self.tail.clear();
        self.readers.forget();
        // From here on the log is empty, whatever fails: the next append makes its segment.
        self.log_end = offset;
        self.log_start = log_start.max(offset);
        self.high_watermark = self.log_start.min(offset);
        self.high_watermark_at = Some(LogPosition {
            offset,
            segment_base: offset,
            position: 0,
        });
        self.recovery_point = self.recovery_point.min(offset);
        self.discard(gone, now_ms)?;
        let segment = Segment::create(&self.dir, offset, &self.config, now_ms)?;
        self.segments.push(segment);
        self.epochs.clear(&dir)?;
        self.producers.truncate_fully(&dir, offset)
    }

    fn note_truncation(&mut self, offset: i64) {
        self.truncations += 1;
        self.names.change();
        self.truncated_to = Some(self.truncated_to.map_or(offset, |o| o.min(offset)));
    }

    /// Raises the log start offset (DeleteRecords, or the leader's at a follower); beyond the high watermark:
    /// OffsetOutOfRange. Segments go at the next retention pass. True if it rose.
    pub fn delete_records(&mut self, offset: i64) -> Result<bool, LogError> {
        self.check_online()?;
        if offset > self.high_watermark {
            return Err(LogError::OffsetOutOfRange {
                offset,
                start: self.log_start,
                end: self.high_watermark,
            });
        }
        if offset <= self.log_start {
            return Ok(false);
        }
        let dir = self.dir.clone();
        self.log_start = offset;
        self.producers.on_log_start(offset);
        let changed = self.epochs.truncate_from_start(&dir, offset)?;
        self.names.note(changed);
        Ok(true)
    }

    /// The producers' state up to the log's end, from the newest usable snapshot and the batches after it.
    pub(super) fn rebuild_producers(&mut self, now_ms: i64) -> Result<(), LogError> {
        let dir = self.dir.clone();
        self.producers
            .reload(&dir, self.log_start, self.log_end, now_ms)?;
        let from = self.producers.end_offset();
        if from < self.log_end {
            let first = self.segments.floor(from).unwrap_or(0);
            for at in first..self.segments.len() {
                let Some(base) = self.segments.get(at).map(Segment::base_offset) else {
                    break;
                };
                if at > first {
                    self.producers.set_end_offset(base);
                    if at + 2 >= self.segments.len() {
                        LogError::unless_full(self.producers.take_snapshot(&dir))?;
                    }
                }
                let (producers, partition) = (&mut self.producers, &self.partition);
                let Some(segment) = self.segments.get_mut(at) else {
                    break;
                };
                let mut completed = Vec::new();
                segment.for_each_from(from.max(base), |entry| {
                    if let Err(error) = producers.replay(entry, &mut completed) {
                        tracing::warn!("{partition}: while reading its producers: {error}");
                        producers.set_end_offset(entry.last_offset().saturating_add(1));
                    }
                })?;
            }
        }
        self.producers.set_end_offset(self.log_end);
        LogError::unless_full(self.producers.take_snapshot(&dir))?;
        self.producers.on_high_watermark(self.high_watermark);
        Ok(())
    }
}
