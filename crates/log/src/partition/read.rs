//! Reading: the hot tail from memory, the rest as regions of files.

use super::readers::SMALL_READ;
use super::{AbortedTxn, FetchData, LogPosition, PartitionLog, ReadLimit, TimestampOffset};
use crate::error::LogError;
use crate::segment::{Segment, last_whole_batch};
use bytes::Bytes;
use gracchus_kafka_proto::{FileRegion, RecordsPart};
use gracchus_record::entry::{PREFIX_SIZE, Prefix};

impl PartitionLog {
    /// Reads batches from `offset` on, at most `max_bytes`; with `min_one`, at least the first batch.
    /// An offset beyond the limit but not beyond the log's end gives no data.
    pub fn read(
        &mut self,
        offset: i64,
        max_bytes: u32,
        limit: ReadLimit,
        min_one: bool,
    ) -> Result<FetchData, LogError> {
        self.check_online()?;
        if offset > self.log_end || offset < self.log_start {
            return Err(LogError::OffsetOutOfRange {
                offset,
                start: self.log_start,
                end: self.log_end,
            });
        }
        let max_offset = match limit {
            ReadLimit::HighWatermark => self.high_watermark,
            ReadLimit::LastStable => self.last_stable_offset(),
            ReadLimit::LogEnd => self.log_end,
        };
        let mut data = FetchData {
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset(),
            log_start_offset: self.log_start,
            log_end_offset: self.log_end,
            ..FetchData::default()
        };
        if offset >= max_offset {
            self.tail.want();
            data.start = self.position_of(offset)?;
        } else if let Some(read) = self.tail.read(offset, max_bytes, max_offset, min_one) {
            data.start = read.start;
            data.bytes = read.bytes;
            data.parts = read.parts;
        } else {
            self.read_files(offset, max_bytes, max_offset, limit, min_one, &mut data)?;
        }
        if limit == ReadLimit::LastStable {
            data.aborted = Some(self.aborted_between(offset, max_offset, &data)?);
        }
        Ok(data)
    }

    fn read_files(
        &mut self,
        offset: i64,
        max_bytes: u32,
        max_offset: i64,
        limit: ReadLimit,
        min_one: bool,
        data: &mut FetchData,
    ) -> Result<(), LogError> {
        let end = match limit {
            ReadLimit::LogEnd => self.log_end_position(),
            ReadLimit::HighWatermark => self.high_watermark_position()?,
            ReadLimit::LastStable => self.last_stable_position()?,
        };
        debug_assert_eq!(end.offset, max_offset);
        let mut at = self.segments.floor(offset).unwrap_or(0);
        while let Some(segment) = self.segments.get_mut(at) {
            at += 1;
            if segment.base_offset() > end.segment_base {
                break;
            }
            let segment_base = segment.base_offset();
            let stop = if segment_base == end.segment_base {
                u64::from(end.position)
            } else {
                segment.size()
            };
            let known = self.readers.position(offset, segment_base);
            let (position, size) = match known.filter(|p| u64::from(*p) < stop) {
                Some(position) => (position, None),
                None => match segment.find(offset)? {
                    Some(spot) => (spot.position, Some(spot.size.into())),
                    None => continue, // compacted away up to the segment's end: the next one has it
                },
            };
            data.start = LogPosition {
                offset,
                segment_base,
                position,
            };
            let room = stop.saturating_sub(position.into());
            let mut wanted = u64::from(max_bytes).min(room);
            let mut bytes = Bytes::new();
            if min_one && wanted < room {
                let first = match size {
                    Some(size) => size,
                    None if wanted > SMALL_READ => segment.batch_size_at(position)?,
                    None => {
                        // Most often the first batch is within what was asked for: one read does.
                        let at_least = wanted.max(PREFIX_SIZE as u64);
                        bytes = segment.read_at(position, at_least)?;
                        Prefix::parse(&bytes).map_or(0, |prefix| prefix.size as u64)
                    }
                };
                wanted = wanted.max(first).min(room);
            }
            data.bytes = wanted;
            if data.bytes > SMALL_READ {
                data.parts.push(RecordsPart::File(FileRegion {
                    file: segment.file()?,
                    offset: position.into(),
                    len: data.bytes,
                }));
            } else if data.bytes > 0 {
                if (bytes.len() as u64) < data.bytes {
                    bytes = segment.read_at(position, data.bytes)?;
                }
                bytes.truncate(usize::try_from(data.bytes).unwrap_or(usize::MAX));
                if let Some((last_offset, size)) = last_whole_batch(&bytes) {
                    self.readers.note(LogPosition {
                        offset: last_offset + 1,
                        segment_base,
                        position: position.saturating_add(size),
                    });
                }
                data.parts.push(RecordsPart::Bytes(bytes));
            }
            return Ok(());
        }
        data.start = self.log_end_position();
        Ok(())
    }

    /// Where an offset lies.
    pub(super) fn position_of(&mut self, offset: i64) -> Result<LogPosition, LogError> {
        if offset >= self.log_end {
            return Ok(LogPosition {
                offset,
                ..self.log_end_position()
            });
        }
        if let Some(at) = self.tail.position(offset) {
            return Ok(at);
        }
        let mut at = self.segments.floor(offset).unwrap_or(0);
        while let Some(segment) = self.segments.get_mut(at) {
            if let Some(spot) = segment.find(offset)? {
                return Ok(LogPosition {
                    offset,
                    segment_base: segment.base_offset(),
                    position: spot.position,
                });
            }
            at += 1;
        }
        Ok(LogPosition {
            offset,
            ..self.log_end_position()
        })
    }

    /// The aborted transactions that touch what was read; one too many does no harm.
    fn aborted_between(
        &self,
        from: i64,
        limit: i64,
        data: &FetchData,
    ) -> Result<Vec<AbortedTxn>, LogError> {
        let mut found = Vec::new();
        if data.bytes == 0 {
            return Ok(found);
        }
        let first = self.segments.floor(from).unwrap_or(0);
        let holder = self.segments.floor(data.start.segment_base).unwrap_or(0);
        let in_file = matches!(data.parts.first(), Some(RecordsPart::File(_)));
        let upper = match self.segments.get(holder + 1) {
            Some(next) if in_file => next.base_offset().min(limit),
            _ => limit,
        };
        for segment in self.segments.iter().skip(first) {
            for entry in segment.aborted()? {
                if entry.last_offset >= from && entry.first_offset < upper {
                    found.push(AbortedTxn {
                        producer_id: entry.producer_id,
                        first_offset: entry.first_offset,
                    });
                }
                if entry.last_stable_offset >= upper {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// All aborted transactions with a marker between two offsets, for the cleaner.
    pub(crate) fn aborted_in(
        &self,
        from: i64,
        upper: i64,
    ) -> Result<Vec<crate::index::AbortedEntry>, LogError> {
        let mut found = Vec::new();
        let first = self.segments.floor(from).unwrap_or(0);
        for segment in self.segments.iter().skip(first) {
            for entry in segment.aborted()? {
                if entry.last_offset >= from && entry.first_offset < upper {
                    found.push(entry);
                }
                if entry.last_stable_offset >= upper {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// The first record with `timestamp >=` the one given (ListOffsets).
    pub fn find_by_timestamp(
        &mut self,
        timestamp: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        self.check_online()?;
        let log_start = self.log_start;
        let first = self.segments.floor(log_start).unwrap_or(0);
        for segment in self.segments.iter_mut().skip(first) {
            if segment.max_timestamp(false)?.timestamp < timestamp {
                continue;
            }
            // The record that reaches the timestamp may lie below the log start: then a later segment has the answer.
            if let Some(found) = segment.find_by_timestamp(timestamp, log_start)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp (ListOffsets -3, KIP-734).
    pub fn find_max_timestamp(&mut self) -> Result<Option<TimestampOffset>, LogError> {
        self.check_online()?;
        let mut best: Option<(i64, usize)> = None;
        for (at, segment) in self.segments.iter_mut().enumerate() {
            let newest = segment.max_timestamp(false)?.timestamp;
            if newest >= 0 && best.is_none_or(|(t, _)| newest > t) {
                best = Some((newest, at));
            }
        }
        let Some((timestamp, at)) = best else {
            return Ok(None);
        };
        let found = match self.segments.get_mut(at) {
            Some(segment) => segment.find_by_timestamp(timestamp, segment.base_offset())?,
            None => None,
        };
        if found.is_some_and(|f| f.offset < self.log_start) {
            return self.find_max_timestamp_above_start();
        }
        Ok(found)
    }

    /// The record found lies below the log start (Kafka gives it all the same): look at the batches above.
    fn find_max_timestamp_above_start(&mut self) -> Result<Option<TimestampOffset>, LogError> {
        let log_start = self.log_start;
        let first = self.segments.floor(log_start).unwrap_or(0);
        let mut best: Option<(i64, usize)> = None;
        for (at, segment) in self.segments.iter_mut().enumerate().skip(first) {
            segment.for_each_header_from(log_start, |spot| {
                if spot.max_timestamp >= 0 && best.is_none_or(|(t, _)| spot.max_timestamp > t) {
                    best = Some((spot.max_timestamp, at));
                }
            })?;
        }
        let Some((timestamp, at)) = best else {
            return Ok(None);
        };
        match self.segments.get_mut(at) {
            Some(segment) => segment.find_by_timestamp(timestamp, log_start),
            None => Ok(None),
        }
    }

    /// Where the log begins (ListOffsets -2): epoch -1 if it is not known.
    pub fn earliest(&self) -> TimestampOffset {
        let first = self.epochs.entries().first();
        let epoch = first.filter(|e| e.start_offset <= self.log_start);
        TimestampOffset {
            timestamp: -1,
            offset: self.log_start,
            leader_epoch: epoch.map_or(-1, |e| e.epoch),
        }
    }

    /// The segment that holds an offset, for tools and tests.
    pub fn segment_at(&mut self, at: usize) -> Option<&mut Segment> {
        self.segments.get_mut(at)
    }
}
