//! Makes batches: for the project's own producers, the coordinators' records and conversions.

use crate::batch::{Batch, BatchHeader, HEADER_SIZE, LOG_OVERHEAD};
use crate::compression::{self, Codec, Levels};
use crate::legacy::{self, LegacyRecord};
use crate::record::{self, Header};
use crate::{
    NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, RecordError,
    TimestampType,
};
use bytes::Bytes;

/// A record to be added to a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewRecord<'a> {
    /// ms since the epoch.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// Builds one batch of format v2.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    header: BatchHeader,
    codec: Codec,
    levels: Levels,
    records: Vec<u8>,
    first: bool,
    append_time: Option<i64>,
}

impl BatchBuilder {
    pub fn new(codec: Codec) -> Self {
        let mut header = BatchHeader {
            base_offset: 0,
            length: 0,
            leader_epoch: NO_LEADER_EPOCH,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            record_count: 0,
        };
        header.set_codec(codec);
        BatchBuilder {
            header,
            codec,
            levels: Levels::default(),
            records: Vec::new(),
            first: true,
            append_time: None,
        }
    }

    pub fn levels(mut self, levels: Levels) -> Self {
        self.levels = levels;
        self
    }

    pub fn base_offset(mut self, offset: i64) -> Self {
        self.header.base_offset = offset;
        self
    }

    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.header.leader_epoch = epoch;
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    pub fn transactional(mut self, on: bool) -> Self {
        self.header.set_transactional(on);
        self
    }

    pub fn control(mut self, on: bool) -> Self {
        self.header.set_control(on);
        self
    }

    /// The batch gets this time (ms) with LogAppendTime.
    pub fn append_time(mut self, ms: i64) -> Self {
        self.header.set_timestamp_type(TimestampType::LogAppendTime);
        self.append_time = Some(ms);
        self
    }

    /// Compaction's delete horizon (ms, KIP-534), in the place of the first record's timestamp; before any record.
    pub fn delete_horizon(mut self, ms: i64) -> Self {
        self.header.set_delete_horizon(ms);
        self.first = false;
        self
    }

    /// The batch ends at this offset, though its last record may be an earlier one; after all records.
    pub fn last_offset(mut self, offset: i64) -> Self {
        let delta = offset.saturating_sub(self.header.base_offset);
        self.header.last_offset_delta = i32::try_from(delta).unwrap_or(i32::MAX);
        self
    }

    /// Adds a record right after the last one.
    pub fn push(&mut self, r: NewRecord<'_>) {
        let delta = self.header.last_offset_delta.saturating_add(1);
        self.push_parts(
            delta,
            r.timestamp,
            r.key,
            r.value,
            r.headers.iter().copied(),
        );
    }

    /// Adds a record at an offset of its own; offsets must rise.
    pub fn push_at<'a>(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: impl Iterator<Item = Header<'a>> + Clone,
    ) {
        let delta = offset.wrapping_sub(self.header.base_offset) as i32;
        self.push_parts(delta, timestamp, key, value, headers);
    }

    fn push_parts<'a>(
        &mut self,
        delta: i32,
        timestamp: i64,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: impl Iterator<Item = Header<'a>> + Clone,
    ) {
        if self.first {
            self.header.base_timestamp = timestamp;
            self.first = false;
        }
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        self.header.last_offset_delta = delta;
        self.header.record_count += 1;
        record::put_v2(
            &mut self.records,
            delta,
            timestamp.wrapping_sub(self.header.base_timestamp),
            key,
            value,
            headers,
        );
    }

    pub fn count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes so far, before compression.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.records.len()
    }

    /// The finished batch; compression is the only thing that can fail.
    pub fn build(self) -> Result<Batch, RecordError> {
        let mut header = self.header;
        if let Some(ms) = self.append_time {
            header.max_timestamp = ms;
        }
        let payload = if self.codec == Codec::None {
            self.records
        } else {
            compression::compress(self.codec, 2, self.levels, &self.records)?
        };
        header.length =
            i32::try_from(HEADER_SIZE - LOG_OVERHEAD + payload.len()).map_err(|_| {
                RecordError::TooLarge {
                    limit: i32::MAX as usize,
                }
            })?;
        header.seal(&payload);
        Ok(Batch::assemble(header, &payload))
    }
}

/// Builds a message set of format v0 or v1.
#[derive(Debug)]
pub struct LegacyBuilder {
    pub magic: i8,
    pub codec: Codec,
    /// Stamps the set as LogAppendTime (ms).
    pub append_time: Option<i64>,
}

impl LegacyBuilder {
    /// The set with these records, offsets from `base_offset` on.
    pub fn build(&self, base_offset: i64, records: &[NewRecord<'_>]) -> Result<Bytes, RecordError> {
        let records: Vec<_> = records
            .iter()
            .enumerate()
            .map(|(i, r)| LegacyRecord {
                offset: base_offset + i as i64,
                timestamp: r.timestamp,
                key: r.key,
                value: r.value,
            })
            .collect();
        let mut out = Vec::new();
        legacy::put_set(
            &mut out,
            self.magic,
            self.codec,
            Levels::default(),
            self.append_time,
            &records,
        )?;
        Ok(out.into())
    }
}
