//! What a leader checks and changes before it appends: Kafka's rules for records from a producer.
//!
//! The table of every fault and its answer is in `docs/record-validation.md`. Batches that need no change keep their
//! bytes; only the header's offset and leader epoch (and with LogAppendTime its timestamp) are new, so an append writes
//! the patched header and the payload as it came.

use crate::batch::{Batch, BatchHeader, HEADER_SIZE};
use crate::compression::{Codec, Levels};
use crate::convert::{OwnedRecord, rebuild_v2, records_of};
use crate::entry::{Entries, Entry};
use crate::legacy::{self, LegacyRecord};
use crate::shape;
use crate::{NO_TIMESTAMP, RecordError, TimestampType};
use bytes::Bytes;

/// Who wrote the records: clients may not write control batches and must count offsets from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Client,
    Coordinator,
}

/// A topic's rules for what is appended to it.
#[derive(Debug, Clone)]
pub struct Rules {
    /// For messages: `topic-partition`.
    pub partition: String,
    /// Format to store: 2, or 0 and 1 for `message.format.version` under an old inter-broker protocol.
    pub magic: i8,
    /// `compression.type`; `None` is `producer`.
    pub codec: Option<Codec>,
    pub levels: Levels,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compacted: bool,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub after_max_ms: i64,
    /// `max.message.bytes`: largest batch, as it is stored.
    pub max_message_bytes: usize,
    /// Most plain bytes of one compressed batch.
    pub decompress_limit: usize,
    pub origin: Origin,
    pub leader_epoch: i32,
}

/// The protocol error that a fault is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
}

/// A refused append: nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub fault: Fault,
    pub message: String,
    /// Index of the record in its batch, and what is wrong with it.
    pub records: Vec<(i32, String)>,
}

impl Refused {
    fn new(fault: Fault, message: impl Into<String>) -> Self {
        Refused {
            fault,
            message: message.into(),
            records: Vec::new(),
        }
    }
}

impl From<RecordError> for Refused {
    fn from(error: RecordError) -> Self {
        let fault = match error {
            RecordError::UnknownCodec(_) => Fault::UnsupportedCompressionType,
            RecordError::Invalid(_) => Fault::InvalidRecord,
            RecordError::TooLarge { .. } => Fault::MessageTooLarge,
            _ => Fault::CorruptMessage,
        };
        Refused::new(fault, error.to_string())
    }
}

/// A batch ready to be written: first `head`, then `payload`.
#[derive(Debug, Clone)]
pub struct ReadyBatch {
    /// The patched header; empty for old formats.
    pub head: Bytes,
    pub payload: Bytes,
    /// Decoded header, `None` for old formats.
    pub header: Option<BatchHeader>,
    pub last_offset: i64,
    /// Largest timestamp in the batch, ms.
    pub max_timestamp: i64,
}

impl ReadyBatch {
    pub fn size(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// An append that may go ahead.
#[derive(Debug, Clone)]
pub struct Validated {
    pub batches: Vec<ReadyBatch>,
    pub first_offset: i64,
    pub last_offset: i64,
    pub max_timestamp: i64,
    /// First record that has it.
    pub offset_of_max_timestamp: i64,
    /// Set under LogAppendTime.
    pub append_time: Option<i64>,
    pub record_count: u64,
    /// Bytes to be written.
    pub size: usize,
    /// The codec as stored.
    pub codec: Codec,
}

/// Checks `bytes` as one produce request's records for a partition whose next offset is `next_offset`.
pub fn validate(
    bytes: &Bytes,
    next_offset: i64,
    now_ms: i64,
    rules: &Rules,
) -> Result<Validated, Refused> {
    let entries = parse(bytes, rules)?;
    let source_codec = entries.last().map_or(Ok(Codec::None), Entry::codec)?;
    let codec = rules.codec.unwrap_or(source_codec);
    let unchanged = rules.magic == 2
        && entries
            .iter()
            .all(|e| matches!(e, Entry::V2(_)) && e.codec() == Ok(codec));
    let mut state = Progress::new(next_offset, now_ms, rules);
    if unchanged {
        for entry in &entries {
            if let Entry::V2(batch) = entry {
                state.in_place(batch)?;
            }
        }
    } else {
        state.rebuild(&entries, codec)?;
    }
    state.finish(codec)
}

/// The checks that come before any record is looked at: whole batches, their size, checksum and header.
fn parse(bytes: &Bytes, rules: &Rules) -> Result<Vec<Entry>, Refused> {
    let mut iter = Entries::new(bytes.clone());
    let mut entries = Vec::new();
    for entry in &mut iter {
        let entry = entry.map_err(|e| Refused::new(Fault::CorruptMessage, e.to_string()))?;
        if let Entry::V2(batch) = &entry
            && rules.origin == Origin::Client
            && batch.header.base_offset != 0
        {
            return Err(Refused::new(
                Fault::InvalidRecord,
                format!(
                    "The baseOffset of the record batch in the append to {} should be 0, but it is {}",
                    rules.partition, batch.header.base_offset
                ),
            ));
        }
        check_size(entry.size(), rules)?;
        entry.check_crc().map_err(|e| {
            Refused::new(
                Fault::CorruptMessage,
                format!("{e} in topic partition {}", rules.partition),
            )
        })?;
        entries.push(entry);
    }
    if entries.is_empty() || !iter.rest().is_empty() {
        return Err(Refused::new(
            Fault::CorruptMessage,
            format!(
                "{} bytes in the append to {} are not a whole batch",
                iter.rest().len(),
                rules.partition
            ),
        ));
    }
    Ok(entries)
}

fn check_size(size: usize, rules: &Rules) -> Result<(), Refused> {
    if size > rules.max_message_bytes {
        return Err(Refused::new(
            Fault::MessageTooLarge,
            format!(
                "The record batch size in the append to {} is {size} bytes which exceeds the maximum configured value of {}",
                rules.partition, rules.max_message_bytes
            ),
        ));
    }
    Ok(())
}

fn check_header(h: &BatchHeader, rules: &Rules) -> Result<(), Refused> {
    let invalid = |text: String| Err(Refused::new(Fault::InvalidRecord, text));
    if rules.origin != Origin::Client {
        return Ok(());
    }
    let span = i64::from(h.last_offset_delta) + 1;
    if span <= 0 {
        return invalid(format!(
            "Batch has an invalid offset range: [{}, {}]",
            h.base_offset,
            h.last_offset()
        ));
    }
    if h.record_count <= 0 {
        return invalid(format!(
            "Invalid reported count for record batch: {}",
            h.record_count
        ));
    }
    if span != i64::from(h.record_count) {
        return invalid(format!(
            "Inconsistent batch offset range [{}, {}] and count of records {}",
            h.base_offset,
            h.last_offset(),
            h.record_count
        ));
    }
    if h.is_control() {
        return invalid("Clients are not allowed to write control records".into());
    }
    if h.has_producer_id() && h.base_sequence < 0 {
        return invalid(format!(
            "Invalid sequence number {} in record batch with producerId {}",
            h.base_sequence, h.producer_id
        ));
    }
    Ok(())
}

/// What was found so far, over all batches of the append.
struct Progress<'a> {
    rules: &'a Rules,
    now_ms: i64,
    first_offset: i64,
    next_offset: i64,
    max_timestamp: i64,
    offset_of_max: i64,
    count: u64,
    refused: Vec<(i32, String)>,
    bad_timestamp: bool,
    batches: Vec<ReadyBatch>,
}

impl<'a> Progress<'a> {
    fn new(next_offset: i64, now_ms: i64, rules: &'a Rules) -> Self {
        Progress {
            rules,
            now_ms,
            first_offset: next_offset,
            next_offset,
            max_timestamp: NO_TIMESTAMP,
            offset_of_max: next_offset,
            count: 0,
            refused: Vec::new(),
            bad_timestamp: false,
            batches: Vec::new(),
        }
    }

    /// Checks one record; its fault is noted, so that the answer names all of them.
    fn check_record(&mut self, index: i32, offset: i64, timestamp: i64, has_key: bool) {
        let rules = self.rules;
        if rules.compacted && !has_key {
            self.refused.push((
                index,
                format!(
                    "Compacted topic cannot accept message without key in topic partition {}.",
                    rules.partition
                ),
            ));
        } else if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            let age = self.now_ms.saturating_sub(timestamp);
            if age > rules.before_max_ms || age.saturating_neg() > rules.after_max_ms {
                self.bad_timestamp = true;
                self.refused.push((
                    index,
                    format!(
                        "Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp should be within [{}, {}]",
                        self.now_ms.saturating_sub(rules.before_max_ms),
                        self.now_ms.saturating_add(rules.after_max_ms)
                    ),
                ));
            }
        }
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.offset_of_max = offset;
        }
        self.count += 1;
    }

    /// A batch that stays as it is but for its header.
    fn in_place(&mut self, batch: &Batch) -> Result<(), Refused> {
        let rules = self.rules;
        check_header(&batch.header, rules)?;
        let mut header = batch.header;
        let base = self.next_offset;
        let mut expected = 0i32;
        let mut newest = NO_TIMESTAMP;
        shape::walk(batch, rules.decompress_limit, |r| -> Result<(), Refused> {
            if r.offset_delta != expected && rules.origin == Origin::Client {
                return Err(Refused::new(
                    Fault::InvalidRecord,
                    format!(
                        "Inner record at {expected} inside the record batch does not have incremental offsets, expected offset is {expected} in topic partition {}, found {}",
                        rules.partition, r.offset_delta
                    ),
                ));
            }
            let timestamp = batch.header.base_timestamp.wrapping_add(r.timestamp_delta);
            newest = newest.max(timestamp);
            self.check_record(expected, base + i64::from(expected), timestamp, r.has_key);
            expected = expected.saturating_add(1);
            Ok(())
        })?;
        header.base_offset = base;
        header.leader_epoch = rules.leader_epoch;
        let stamp = match rules.timestamp_type {
            TimestampType::CreateTime => newest,
            TimestampType::LogAppendTime => self.now_ms,
        };
        if header.timestamp_type() != rules.timestamp_type || header.max_timestamp != stamp {
            header.set_timestamp_type(rules.timestamp_type);
            header.max_timestamp = stamp;
            header.seal(&batch.payload());
        }
        self.next_offset = header.next_offset();
        self.push(header, batch.payload());
        Ok(())
    }

    fn push(&mut self, header: BatchHeader, payload: Bytes) {
        self.batches.push(ReadyBatch {
            head: Bytes::copy_from_slice(&header.to_bytes()),
            payload,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            header: Some(header),
        });
    }

    /// Format or codec must change: all records of the append go into one batch (or message set) of their own.
    fn rebuild(&mut self, entries: &[Entry], codec: Codec) -> Result<(), Refused> {
        let rules = self.rules;
        let mut records: Vec<OwnedRecord> = Vec::new();
        let mut template = None;
        for entry in entries {
            if let Entry::V2(batch) = entry {
                check_header(&batch.header, rules)?;
                let h = &batch.header;
                if rules.magic < 2 && (h.is_transactional() || h.has_producer_id()) {
                    return Err(Refused::new(
                        Fault::UnsupportedForMessageFormat,
                        format!(
                            "{} records cannot be used with magic version {}",
                            if h.is_transactional() {
                                "Transactional"
                            } else {
                                "Idempotent"
                            },
                            rules.magic
                        ),
                    ));
                }
                template = Some(batch);
            }
            let base = entry.base_offset();
            for (index, record) in records_of(entry, rules.decompress_limit)?
                .into_iter()
                .enumerate()
            {
                let index = i32::try_from(index).unwrap_or(i32::MAX);
                if let Entry::V2(_) = entry
                    && rules.origin == Origin::Client
                    && record.offset != base + i64::from(index)
                {
                    return Err(Refused::new(
                        Fault::InvalidRecord,
                        format!(
                            "Inner record at {index} inside the record batch does not have incremental offsets, expected offset is {} in topic partition {}, found {}",
                            base + i64::from(index),
                            rules.partition,
                            record.offset
                        ),
                    ));
                }
                let mut record = record;
                record.offset = self.next_offset;
                self.check_record(index, record.offset, record.timestamp, record.key.is_some());
                self.next_offset += 1;
                records.push(record);
            }
        }
        if !self.refused.is_empty() {
            return Ok(()); // finish() makes the error; there is nothing to build
        }
        if rules.magic == 2 {
            let mut batch = rebuild_v2(&records, self.first_offset, codec, rules.levels, template)?;
            batch.header.leader_epoch = rules.leader_epoch;
            if rules.timestamp_type == TimestampType::LogAppendTime {
                batch
                    .header
                    .set_timestamp_type(TimestampType::LogAppendTime);
                batch.header.max_timestamp = self.now_ms;
                let payload = batch.payload();
                batch.header.seal(&payload);
            }
            check_size(HEADER_SIZE + batch.payload().len(), rules)?;
            let payload = batch.payload();
            self.push(batch.header, payload);
        } else {
            self.rebuild_legacy(&records, codec)?;
        }
        Ok(())
    }

    fn rebuild_legacy(&mut self, records: &[OwnedRecord], codec: Codec) -> Result<(), Refused> {
        let rules = self.rules;
        if codec == Codec::Zstd {
            return Err(Refused::new(
                Fault::UnsupportedCompressionType,
                format!(
                    "ZStandard compression can't be used with magic version {}",
                    rules.magic
                ),
            ));
        }
        let append_time = rules.timestamp_type == TimestampType::LogAppendTime;
        let old: Vec<_> = records
            .iter()
            .map(|r| LegacyRecord {
                offset: r.offset,
                timestamp: if append_time {
                    self.now_ms
                } else {
                    r.timestamp
                },
                key: r.key.as_deref(),
                value: r.value.as_deref(),
            })
            .collect();
        let mut out = Vec::new();
        legacy::put_set(
            &mut out,
            rules.magic,
            codec,
            rules.levels,
            rules.timestamp_type,
            &old,
        )?;
        for entry in Entries::new(Bytes::from(out)) {
            let entry = entry?;
            check_size(entry.size(), rules)?;
            self.batches.push(ReadyBatch {
                head: Bytes::new(),
                payload: entry.bytes().clone(),
                header: None,
                last_offset: entry.last_offset(),
                max_timestamp: entry.max_timestamp(),
            });
        }
        Ok(())
    }

    fn finish(self, codec: Codec) -> Result<Validated, Refused> {
        if !self.refused.is_empty() {
            let (fault, message) = if self.bad_timestamp {
                (
                    Fault::InvalidTimestamp,
                    "One or more records have been rejected due to invalid timestamp".into(),
                )
            } else {
                let shown: Vec<_> = self
                    .refused
                    .iter()
                    .take(3)
                    .map(|(i, m)| format!("RecordError(batchIndex={i}, message='{m}')"))
                    .collect();
                (
                    Fault::InvalidRecord,
                    format!(
                        "One or more records have been rejected due to {} record errors in total, and only showing the first three errors at most: [{}]",
                        self.refused.len(),
                        shown.join(", ")
                    ),
                )
            };
            return Err(Refused {
                fault,
                message,
                records: self.refused,
            });
        }
        let append_time =
            (self.rules.timestamp_type == TimestampType::LogAppendTime).then_some(self.now_ms);
        Ok(Validated {
            first_offset: self.first_offset,
            last_offset: self.next_offset - 1,
            max_timestamp: append_time.unwrap_or(self.max_timestamp),
            offset_of_max_timestamp: if append_time.is_some() {
                self.first_offset
            } else {
                self.offset_of_max
            },
            append_time,
            record_count: self.count,
            size: self.batches.iter().map(ReadyBatch::size).sum(),
            batches: self.batches,
            codec,
        })
    }
}
