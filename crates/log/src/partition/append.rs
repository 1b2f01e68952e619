//! Appending: check, roll, write, note.
//!
//! Everything that can refuse comes before the write; if the write or what must follow it fails, the log is cut back.

use super::{AppendInfo, AppendOrigin, PartitionLog};
use crate::error::{AppendError, LogError, RefusedRecord};
use crate::index::AbortedEntry;
use crate::producer::{BatchMetadata, CompletedTxn, ProducerUpdate, add_batch, first_marker};
use crate::segment::{AppendSpan, Segment};
use crate::tail::KeptBatch;
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use gracchus_record::validate::{self, Fault, Origin, ReadyBatch, Refused};
use gracchus_record::{Batch, BatchHeader, Entries, Entry};
use std::io::IoSlice;

/// The producers' part of an append.
#[derive(Debug, Default)]
struct ProducerPart {
    updates: Vec<ProducerUpdate>,
    completed: Vec<CompletedTxn>,
}

enum Checked {
    Fresh(ProducerPart),
    Duplicate(BatchMetadata),
}

impl PartitionLog {
    /// Validates, gives offsets, appends. With a topic's LogAppendTime, recompression or format change the records are
    /// rewritten, else written as they came, in one write.
    pub fn append_as_leader(
        &mut self,
        records: Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        self.check_online()?;
        self.rules.leader_epoch = leader_epoch;
        self.rules.origin = match origin {
            AppendOrigin::Client => Origin::Client,
            _ => Origin::Coordinator,
        };
        let ready =
            validate::validate(&records, self.log_end, now_ms, &self.rules).map_err(refused)?;
        if ready.size as u64 > u64::from(self.config.segment_bytes) {
            return Err(AppendError::Invalid {
                code: ErrorCode::RecordListTooLarge,
                reason: format!(
                    "Message batch size is {} bytes in append to partition {}, which exceeds the maximum configured segment size of {}.",
                    ready.size, self.partition, self.config.segment_bytes
                ),
                records: Vec::new(),
            });
        }
        let headers = ready.batches.iter().filter_map(|b| b.header.as_ref());
        let part = match self.check_producers(headers.zip(&ready.batches), origin)? {
            Checked::Fresh(part) => part,
            Checked::Duplicate(old) => return Ok(self.duplicate(old)),
        };
        let mut span = AppendSpan {
            last_offset: ready.last_offset,
            max_timestamp: -1,
            max_timestamp_offset: ready.last_offset,
            bytes: ready.size as u64,
        };
        for batch in &ready.batches {
            if batch.max_timestamp > span.max_timestamp {
                span.max_timestamp = batch.max_timestamp;
                span.max_timestamp_offset = batch.last_offset;
            }
        }
        self.note_epochs(ready.batches.iter().map(|b| {
            let epoch = b.header.as_ref().map(|h| h.leader_epoch);
            (epoch, b.header.as_ref().map_or(0, |h| h.base_offset))
        }))?;
        let mut slices: Vec<IoSlice<'_>> = ready
            .batches
            .iter()
            .flat_map(|b| [IoSlice::new(&b.head), IoSlice::new(&b.payload)])
            .filter(|s| !s.is_empty())
            .collect();
        let mut position = self.write(&mut slices, span, part, now_ms)?;
        let segment_base = self.segments.last().map_or(0, Segment::base_offset);
        let mut next = ready.first_offset;
        for batch in ready.batches {
            let size = batch.size() as u32;
            self.tail.push(KeptBatch {
                base_offset: batch.header.map_or(next, |h| h.base_offset),
                last_offset: batch.last_offset,
                segment_base,
                position,
                head: batch.head,
                body: batch.payload,
            });
            next = batch.last_offset + 1;
            position += size;
        }
        Ok(AppendInfo {
            first_offset: ready.first_offset,
            last_offset: ready.last_offset,
            max_timestamp: ready.max_timestamp,
            log_append_time: ready.append_time.unwrap_or(-1),
            log_start_offset: self.log_start,
            records: u32::try_from(ready.record_count).unwrap_or(u32::MAX),
            bytes: u32::try_from(ready.size).unwrap_or(u32::MAX),
            flush_due: self.flush_is_due_by_count(),
            duplicate: false,
        })
    }

    /// Appends the leader's batches with the offsets that they have. A trailing partial batch is ignored.
    pub fn append_as_follower(
        &mut self,
        records: Bytes,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        self.check_online()?;
        let mut entries = Entries::new(records.clone());
        let mut batches: Vec<Entry> = Vec::new();
        let mut last = -1i64;
        let mut span = AppendSpan {
            last_offset: -1,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            bytes: 0,
        };
        for entry in &mut entries {
            let corrupt = |e: gracchus_record::RecordError, at: u64| AppendError::Invalid {
                code: ErrorCode::CorruptMessage,
                reason: format!("{}: the leader's batch at byte {at}: {e}", self.partition),
                records: Vec::new(),
            };
            let entry = entry.map_err(|e| corrupt(e, span.bytes))?;
            entry.check_crc().map_err(|e| corrupt(e, span.bytes))?;
            if entry.last_offset() <= last || entry.last_offset() == i64::MAX {
                return Err(AppendError::Invalid {
                    code: ErrorCode::UnknownServerError,
                    reason: format!(
                        "{}: the leader's offsets do not rise: {} after {last}",
                        self.partition,
                        entry.last_offset()
                    ),
                    records: Vec::new(),
                });
            }
            last = entry.last_offset();
            if entry.max_timestamp() > span.max_timestamp {
                span.max_timestamp = entry.max_timestamp();
                span.max_timestamp_offset = last;
            }
            span.bytes += entry.size() as u64;
            batches.push(entry);
        }
        let Some(first) = batches.first().map(Entry::base_offset) else {
            return Ok(self.nothing_appended());
        };
        if first < self.log_end && self.log_end == self.log_start && last >= self.log_end {
            // Empty, and its start lies inside of the leader's batch (DeleteRecords): the batch is kept whole.
            self.restart_at(first, self.log_start, now_ms)?;
        }
        if first < self.log_end {
            return Err(AppendError::UnexpectedOffset {
                first,
                last,
                expected: self.log_end,
                log_start: self.log_start,
            });
        }
        span.last_offset = last;
        let part = self.check_follower_producers(&batches)?;
        self.note_epochs(batches.iter().map(|e| {
            let epoch = (e.magic() >= 2).then(|| e.leader_epoch());
            (epoch, e.base_offset())
        }))?;
        let whole = records.slice(..span.bytes as usize);
        let mut position = self.write(&mut [IoSlice::new(&whole)], span, part, now_ms)?;
        let segment_base = self.segments.last().map_or(0, Segment::base_offset);
        let mut count = 0u32;
        for entry in batches {
            count = count.saturating_add(match &entry {
                Entry::V2(b) => u32::try_from(b.header.record_count).unwrap_or(0),
                Entry::Legacy(_) => 1,
            });
            self.tail.push(KeptBatch {
                base_offset: entry.base_offset(),
                last_offset: entry.last_offset(),
                segment_base,
                position,
                head: Bytes::new(),
                body: entry.bytes().clone(),
            });
            position += entry.size() as u32;
        }
        Ok(AppendInfo {
            first_offset: first,
            last_offset: last,
            max_timestamp: span.max_timestamp,
            log_append_time: -1,
            log_start_offset: self.log_start,
            records: count,
            bytes: span.bytes as u32,
            flush_due: self.flush_is_due_by_count(),
            duplicate: false,
        })
    }

    fn nothing_appended(&self) -> AppendInfo {
        AppendInfo {
            first_offset: -1,
            last_offset: self.log_end - 1,
            max_timestamp: -1,
            log_append_time: -1,
            log_start_offset: self.log_start,
            records: 0,
            bytes: 0,
            flush_due: false,
            duplicate: false,
        }
    }

    fn duplicate(&self, old: BatchMetadata) -> AppendInfo {
        AppendInfo {
            first_offset: old.first_offset(),
            last_offset: old.last_offset,
            max_timestamp: old.timestamp,
            log_append_time: old.timestamp,
            log_start_offset: self.log_start,
            records: 0,
            bytes: 0,
            // The first answer may have been lost before its flush.
            flush_due: self.flush_is_due_by_count(),
            duplicate: true,
        }
    }

    fn check_producers<'a>(
        &self,
        batches: impl Iterator<Item = (&'a BatchHeader, &'a ReadyBatch)>,
        origin: AppendOrigin,
    ) -> Result<Checked, AppendError> {
        let mut part = ProducerPart::default();
        for (header, ready) in batches {
            if !header.has_producer_id() {
                continue;
            }
            if origin == AppendOrigin::Client
                && let Some(known) = self.producers.get(header.producer_id)
                && let Some(old) = known.find_duplicate(
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence(),
                )
            {
                return Ok(Checked::Duplicate(old));
            }
            self.check_one(&mut part, header, origin, || {
                Entry::V2(Batch::assemble(*header, &ready.payload))
            })?;
        }
        Ok(Checked::Fresh(part))
    }

    fn check_follower_producers(&self, batches: &[Entry]) -> Result<ProducerPart, AppendError> {
        let mut part = ProducerPart::default();
        for entry in batches {
            if let Entry::V2(batch) = entry
                && batch.header.has_producer_id()
            {
                self.check_one(&mut part, &batch.header, AppendOrigin::Replication, || {
                    entry.clone()
                })?;
            }
        }
        Ok(part)
    }

    fn check_one(
        &self,
        part: &mut ProducerPart,
        header: &BatchHeader,
        origin: AppendOrigin,
        entry: impl FnOnce() -> Entry,
    ) -> Result<(), AppendError> {
        let id = header.producer_id;
        let known = part.updates.iter().position(|u| u.producer_id() == id);
        let at = known.unwrap_or_else(|| {
            part.updates.push(self.producers.prepare(id, origin));
            part.updates.len() - 1
        });
        if let Some(update) = part.updates.get_mut(at) {
            let done = add_batch(update, header, || first_marker(&entry()))?;
            part.completed.extend(done);
        }
        Ok(())
    }

    /// Notes the epochs that batches name; old formats forget them all, as their followers cannot compare.
    fn note_epochs(
        &mut self,
        batches: impl Iterator<Item = (Option<i32>, i64)>,
    ) -> Result<(), LogError> {
        if !self.config.keeps_epochs() {
            return Ok(());
        }
        let dir = self.dir.clone();
        for (epoch, base_offset) in batches {
            match epoch {
                Some(epoch) if epoch < 0 => {}
                Some(epoch) => {
                    let changed = self.epochs.assign(&dir, epoch, base_offset)?;
                    self.names.note(changed);
                }
                None => {
                    let changed = self.epochs.clear(&dir)?;
                    self.names.note(changed);
                }
            }
        }
        Ok(())
    }

    /// Rolls if needed, writes, takes the producers' part over and moves the end; the position written at.
    fn write(
        &mut self,
        slices: &mut [IoSlice<'_>],
        span: AppendSpan,
        part: ProducerPart,
        now_ms: i64,
    ) -> Result<u32, LogError> {
        self.roll_if_needed(&span, now_ms)?;
        let config = self.config.clone();
        let dir = self.dir.clone();
        let log_end = self.log_end;
        let active = self
            .segments
            .last_mut()
            .ok_or_else(|| LogError::corrupt(&dir, "it has no active segment"))?;
        let before = active.size();
        active.append(slices, span, &config)?;
        let stable = self
            .producers
            .last_stable_offsets(&part.updates, &part.completed);
        let aborted: Vec<AbortedEntry> = part
            .completed
            .iter()
            .zip(stable)
            .filter(|(c, _)| c.aborted)
            .map(|(c, last_stable_offset)| AbortedEntry {
                producer_id: c.producer_id,
                first_offset: c.first_offset,
                last_offset: c.last_offset,
                last_stable_offset,
            })
            .collect();
        if let Err(error) = active.add_aborts(&aborted) {
            active.take_back(before, log_end)?;
            return Err(error);
        }
        if before == 0 {
            self.names.change(); // its files may have been made just now
        }
        for update in part.updates {
            self.producers.update(update);
        }
        for completed in &part.completed {
            self.producers.complete(completed);
        }
        self.log_end = span.last_offset + 1;
        self.producers.set_end_offset(self.log_end);
        Ok(u32::try_from(before).unwrap_or(u32::MAX))
    }

    fn roll_if_needed(&mut self, span: &AppendSpan, now_ms: i64) -> Result<(), LogError> {
        let config = self.config.clone();
        let roll = match self.segments.last_mut() {
            Some(active) => active.should_roll(span, &config, now_ms)?,
            None => true,
        };
        if roll {
            // A follower of a compacted log may meet a gap that no index spans.
            let least = span.last_offset.saturating_sub(i64::from(i32::MAX));
            self.roll_at(self.log_end.max(least), now_ms)?;
        }
        Ok(())
    }
}

fn refused(error: Refused) -> AppendError {
    AppendError::Invalid {
        code: match error.fault {
            Fault::CorruptMessage => ErrorCode::CorruptMessage,
            Fault::InvalidRecord => ErrorCode::InvalidRecord,
            Fault::InvalidTimestamp => ErrorCode::InvalidTimestamp,
            Fault::MessageTooLarge => ErrorCode::MessageTooLarge,
            Fault::UnsupportedCompressionType => ErrorCode::UnsupportedCompressionType,
            Fault::UnsupportedForMessageFormat => ErrorCode::UnsupportedForMessageFormat,
        },
        reason: error.message,
        records: error
            .records
            .into_iter()
            .map(|(index, reason)| RefusedRecord { index, reason })
            .collect(),
    }
}
