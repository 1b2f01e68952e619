//! Record batches of format v2 (since Kafka 0.11): the header, its checksum and the few fields that may change in place.

use crate::compression::{self, Codec};
use crate::record::{self, Base, Record};
use crate::{NO_PRODUCER_ID, RecordError, TimestampType};
use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Bytes before the first record.
pub const HEADER_SIZE: usize = 61;
/// Bytes before what the length field counts: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
/// Where the checksum lies, and where what it covers begins.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

const CODEC_MASK: i16 = 0x07;
const APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// The fixed part of a batch, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after the length field.
    pub length: i32,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    /// Timestamp of the first record, or the delete horizon when that flag is set.
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], RecordError> {
    bytes
        .get(at..at + N)
        .and_then(|b| b.try_into().ok())
        .ok_or(RecordError::Truncated {
            wanted: at + N,
            left: bytes.len(),
        })
}

impl BatchHeader {
    /// Decodes the first [`HEADER_SIZE`] bytes; the magic must be 2.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let head: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or(RecordError::Truncated {
            wanted: HEADER_SIZE,
            left: bytes.len(),
        })?;
        let magic = head[16] as i8;
        if magic != 2 {
            return Err(RecordError::BadMagic(magic));
        }
        let h = head.as_slice();
        Ok(BatchHeader {
            base_offset: i64::from_be_bytes(field(h, 0)?),
            length: i32::from_be_bytes(field(h, 8)?),
            leader_epoch: i32::from_be_bytes(field(h, 12)?),
            crc: u32::from_be_bytes(field(h, CRC_AT)?),
            attributes: i16::from_be_bytes(field(h, 21)?),
            last_offset_delta: i32::from_be_bytes(field(h, 23)?),
            base_timestamp: i64::from_be_bytes(field(h, 27)?),
            max_timestamp: i64::from_be_bytes(field(h, 35)?),
            producer_id: i64::from_be_bytes(field(h, 43)?),
            producer_epoch: i16::from_be_bytes(field(h, 51)?),
            base_sequence: i32::from_be_bytes(field(h, 53)?),
            record_count: i32::from_be_bytes(field(h, 57)?),
        })
    }

    /// The header's bytes, with `crc` as it stands in the struct.
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut out = [0u8; HEADER_SIZE];
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        out[16] = 2;
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        out
    }

    /// Sets `crc` for these header fields over `records` (what follows the header).
    pub fn seal(&mut self, records: &[u8]) {
        self.crc = self.computed_crc(records);
    }

    /// CRC-32C from the attributes to the end of the records.
    pub fn computed_crc(&self, records: &[u8]) -> u32 {
        let head = self.to_bytes();
        let mut digest = crc_fast::Digest::new(Crc32Iscsi);
        digest.update(&head[CRC_FROM..]);
        digest.update(records);
        digest.finalize() as u32
    }

    /// Whole size in bytes, with base offset and length.
    pub fn size(&self) -> usize {
        LOG_OVERHEAD + self.length.max(0) as usize
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(self.last_offset_delta.into())
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn codec(&self) -> Result<Codec, RecordError> {
        Codec::from_id((self.attributes & CODEC_MASK) as u8)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// When tombstones and markers of this batch may go (ms), if compaction has set it.
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// Sequence number of the last record; wraps from i32::MAX to 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }

    pub fn set_timestamp_type(&mut self, kind: TimestampType) {
        match kind {
            TimestampType::CreateTime => self.attributes &= !APPEND_TIME,
            TimestampType::LogAppendTime => self.attributes |= APPEND_TIME,
        }
    }

    pub fn set_codec(&mut self, codec: Codec) {
        self.attributes = (self.attributes & !CODEC_MASK) | i16::from(codec.id());
    }

    pub fn set_transactional(&mut self, on: bool) {
        self.attributes = (self.attributes & !TRANSACTIONAL) | if on { TRANSACTIONAL } else { 0 };
    }

    pub fn set_control(&mut self, on: bool) {
        self.attributes = (self.attributes & !CONTROL) | if on { CONTROL } else { 0 };
    }

    /// Marks the batch with a delete horizon, which takes the base timestamp's place (KIP-534). The records' timestamp
    /// deltas must be encoded against it.
    pub fn set_delete_horizon(&mut self, ms: i64) {
        self.attributes |= DELETE_HORIZON;
        self.base_timestamp = ms;
    }

    fn base(&self) -> Base {
        Base {
            offset: self.base_offset,
            timestamp: self.base_timestamp,
            append_time: (self.timestamp_type() == TimestampType::LogAppendTime)
                .then_some(self.max_timestamp),
        }
    }
}

/// `sequence + by`, wrapping from i32::MAX to 0 as producers do.
pub fn increment_sequence(sequence: i32, by: i32) -> i32 {
    match sequence.checked_add(by) {
        Some(next) => next,
        None => by - (i32::MAX - sequence) - 1,
    }
}

/// A whole batch of format v2: the bytes as they lie in a log or a request, and the decoded header.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// Takes the batch at the front of `bytes`; what follows it is ignored. The checksum is not looked at.
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let header = BatchHeader::parse(bytes)?;
        if header.length < (HEADER_SIZE - LOG_OVERHEAD) as i32 {
            return Err(RecordError::TooSmall {
                size: header.length.into(),
                least: HEADER_SIZE - LOG_OVERHEAD,
            });
        }
        let size = header.size();
        if size > bytes.len() {
            return Err(RecordError::Truncated {
                wanted: size,
                left: bytes.len(),
            });
        }
        Ok(Batch {
            header,
            bytes: bytes.slice(..size),
        })
    }

    /// A batch of a changed header over the given records.
    pub fn assemble(header: BatchHeader, records: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_SIZE + records.len());
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(records);
        Batch {
            header,
            bytes: bytes.into(),
        }
    }

    /// The batch as it was read.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What follows the header; still compressed if the batch is.
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_SIZE.min(self.bytes.len())..)
    }

    /// Compares the stored CRC-32C with the bytes.
    pub fn check_crc(&self) -> Result<(), RecordError> {
        let covered = self.bytes.get(CRC_FROM..).unwrap_or_default();
        let computed = crc_fast::checksum(Crc32Iscsi, covered) as u32;
        if computed != self.header.crc {
            return Err(RecordError::BadCrc {
                stored: self.header.crc,
                computed,
            });
        }
        Ok(())
    }

    /// Calls `each` for every record in order; compressed data is bounded by `limit` bytes.
    pub fn for_each_record<E: From<RecordError>>(
        &self,
        limit: usize,
        mut each: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let payload = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
        let codec = self.header.codec()?;
        if codec == Codec::None {
            return self.walk(payload, &mut each);
        }
        let plain = compression::decompress(codec, 2, payload, limit)?;
        self.walk(&plain, &mut each)
    }

    fn walk<E: From<RecordError>>(
        &self,
        mut rest: &[u8],
        each: &mut impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let base = self.header.base();
        let count = self.header.record_count;
        if count < 0 {
            return Err(RecordError::invalid(format!(
                "Found invalid record count {count} in magic v2 batch"
            ))
            .into());
        }
        for _ in 0..count {
            if rest.is_empty() {
                return Err(RecordError::invalid(
                    "Incorrect declared batch size, premature EOF reached",
                )
                .into());
            }
            each(record::take_v2(&mut rest, base)?)?;
        }
        if !rest.is_empty() {
            return Err(RecordError::invalid(
                "Incorrect declared batch size, records still remaining in file",
            )
            .into());
        }
        Ok(())
    }
}
