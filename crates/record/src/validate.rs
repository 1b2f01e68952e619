//! What a leader checks and changes before it appends: Kafka's rules for records from a producer.
//!
//! The table of every fault and its answer is in `docs/record-validation.md`. Batches that need no change keep their
//! bytes; only the header's offset and leader epoch (and with LogAppendTime its timestamp) are new, so an append writes
//! the patched header and the payload as it came.

mod in_place;
mod rebuild;
mod records;

use crate::batch::BatchHeader;
use crate::compression::{Codec, Levels};
use crate::entry::{Entries, Entry};
use crate::{RecordError, TimestampType};
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
    /// zstd may be stored: from inter.broker.protocol.version 2.1 on.
    pub zstd: bool,
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
    /// Index of the record in its batch, and what is wrong with it: the response's record errors. Only when there are
    /// any does Kafka put `message` into its answer.
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
            RecordError::Invalid(_) | RecordError::Decompress { .. } => Fault::InvalidRecord,
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
    /// For the time index: last offset of the batch that has it, -1 if no record has a timestamp.
    pub offset_of_max_timestamp: i64,
    /// Set under LogAppendTime.
    pub append_time: Option<i64>,
    pub record_count: u64,
    /// Bytes to be written.
    pub size: usize,
    /// The codec as stored.
    pub codec: Codec,
    /// The bytes were encoded anew: another format, another codec.
    pub rebuilt: bool,
}

/// What a produce request of this version may carry (version 3 brought format v2, version 7 zstd). Older versions aren't
/// looked at, since old clients were never held to it.
pub fn check_request(version: i16, bytes: &Bytes) -> Result<(), Refused> {
    if version < 3 {
        return Ok(());
    }
    let invalid = |text: &str| {
        Refused::new(
            Fault::InvalidRecord,
            format!("Produce requests with version {version} {text}"),
        )
    };
    let corrupt = |e: RecordError| Refused::new(Fault::CorruptMessage, e.to_string());
    let mut entries = Entries::new(bytes.clone());
    let first = entries
        .next()
        .ok_or_else(|| invalid("must have at least one record batch per partition"))?
        .map_err(corrupt)?;
    if first.magic() != 2 {
        return Err(invalid(
            "are only allowed to contain record batches with magic version 2",
        ));
    }
    if version < 7 && first.codec() == Ok(Codec::Zstd) {
        return Err(Refused::new(
            Fault::UnsupportedCompressionType,
            format!(
                "Produce requests with version {version} are not allowed to use ZStandard compression"
            ),
        ));
    }
    match entries.next().transpose().map_err(corrupt)? {
        None => Ok(()),
        Some(_) => Err(invalid(
            "are only allowed to contain exactly one record batch per partition",
        )),
    }
}

/// Checks `bytes` as one append's records for a partition whose next offset is `next_offset`.
pub fn validate(
    bytes: &Bytes,
    next_offset: i64,
    now_ms: i64,
    rules: &Rules,
) -> Result<Validated, Refused> {
    let (entries, source) = parse(bytes, rules)?;
    let Some(first) = entries.first() else {
        return Err(Refused::new(
            Fault::InvalidRecord,
            format!(
                "Record batch has no batches at all: {} bytes in the append to {}",
                bytes.len(),
                rules.partition
            ),
        ));
    };
    let target = rules.codec.unwrap_or(source);
    if target == Codec::Zstd && !rules.zstd {
        return Err(Refused::new(
            Fault::UnsupportedCompressionType,
            "Produce requests to inter.broker.protocol.version < 2.1 broker are not allowed to use ZStandard compression",
        ));
    }
    if entries.len() > 1 && (first.magic() == 2 || source != Codec::None) {
        return Err(Refused::new(
            Fault::InvalidRecord,
            "Compressed outer record has more than one batch",
        ));
    }
    let run = Run {
        rules,
        next_offset,
        now_ms,
    };
    let in_place = if source == Codec::None && target == Codec::None {
        entries.iter().all(|e| e.magic() == rules.magic)
    } else {
        // markers stay as they are written; format v0 has absolute offsets inside the compressed data
        (source == target && first.magic() == rules.magic && rules.magic > 0)
            || (source == Codec::None && first.is_control())
    };
    if in_place {
        let done = match first {
            Entry::V2(batch) => run.batch_in_place(batch)?,
            Entry::Legacy(_) => run.messages_in_place(&entries)?,
        };
        if let Some(done) = done {
            return Ok(done);
        }
    }
    run.rebuild(&entries, target)
}

/// One append's unchanging facts.
struct Run<'a> {
    rules: &'a Rules,
    next_offset: i64,
    now_ms: i64,
}

/// The checks that come before any record is looked at, on each whole batch; a tail that is cut short is dropped, as
/// Kafka does. The codec is that of the last compressed batch.
fn parse(bytes: &Bytes, rules: &Rules) -> Result<(Vec<Entry>, Codec), Refused> {
    let mut entries = Vec::new();
    let mut source = Codec::None;
    for entry in Entries::new(bytes.clone()) {
        let entry = entry.map_err(|e| {
            Refused::new(
                Fault::CorruptMessage,
                format!("{e} in topic partition {}", rules.partition),
            )
        })?;
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
        if entry.size() > rules.max_message_bytes {
            return Err(Refused::new(
                Fault::MessageTooLarge,
                format!(
                    "The record batch size in the append to {} is {} bytes which exceeds the maximum configured value of {}.",
                    rules.partition,
                    entry.size(),
                    rules.max_message_bytes
                ),
            ));
        }
        entry.check_crc().map_err(|e| {
            Refused::new(
                Fault::CorruptMessage,
                format!("{e} in topic partition {}.", rules.partition),
            )
        })?;
        let codec = entry.codec()?;
        if codec != Codec::None {
            source = codec;
        }
        entries.push(entry);
    }
    Ok((entries, source))
}

impl Run<'_> {
    /// What a batch's header must say, whoever wrote it, and `first`, whose format all batches must share.
    fn check_batch(&self, first: &Entry, entry: &Entry) -> Result<(), Refused> {
        let partition = &self.rules.partition;
        let invalid = |text: String| {
            Err(Refused::new(
                Fault::InvalidRecord,
                format!("{text} in topic partition {partition}"),
            ))
        };
        if first.magic() != entry.magic() {
            return invalid(format!(
                "Batch magic {} is not the same as the first batch's magic byte {}",
                entry.magic(),
                first.magic()
            ));
        }
        let Entry::V2(batch) = entry else {
            return Ok(());
        };
        let h = &batch.header;
        if self.rules.origin == Origin::Client {
            let range = || format!("[{}, {}]", h.base_offset, h.last_offset());
            let span = i64::from(h.last_offset_delta) + 1;
            if span <= 0 {
                return invalid(format!("Batch has an invalid offset range: {}", range()));
            }
            if h.record_count <= 0 {
                return invalid(format!(
                    "Invalid reported count for record batch: {}",
                    h.record_count
                ));
            }
            if span != i64::from(h.record_count) {
                return invalid(format!(
                    "Inconsistent batch offset range {} and count of records {}",
                    range(),
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
        }
        if self.rules.magic < 2 && (h.is_transactional() || h.has_producer_id()) {
            let kind = if h.is_transactional() {
                "Transactional"
            } else {
                "Idempotent"
            };
            return Err(Refused::new(
                Fault::UnsupportedForMessageFormat,
                format!(
                    "{kind} records cannot be used with magic version {}",
                    self.rules.magic
                ),
            ));
        }
        Ok(())
    }
}
