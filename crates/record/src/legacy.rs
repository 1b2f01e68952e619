//! Message sets of formats v0 (before Kafka 0.10) and v1 (before 0.11). A compressed set is one wrapper message whose
//! value holds the others: with absolute offsets in v0, relative ones in v1, and the wrapper has the last one's offset.

use crate::compression::{self, Codec, Levels};
use crate::record::{Headers, Record};
use crate::{NO_TIMESTAMP, RecordError, TimestampType};
use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;

/// Bytes before what the size field counts: offset and size.
pub const LOG_OVERHEAD: usize = 12;
/// crc, magic, attributes, key length, value length.
const LEAST_V0: usize = 14;
const LEAST_V1: usize = LEAST_V0 + 8;
const CRC_FROM: usize = 16;

const CODEC_MASK: u8 = 0x07;
const APPEND_TIME: u8 = 0x08;

/// One message of format v0 or v1 as it lies in a log: a plain one, or the wrapper of a compressed set.
#[derive(Debug, Clone, PartialEq)]
pub struct LegacyMessage {
    /// Of the message itself, or of a wrapper's last inner message.
    pub offset: i64,
    pub magic: i8,
    pub crc: u32,
    pub attributes: u8,
    /// [`NO_TIMESTAMP`] in v0.
    pub timestamp: i64,
    bytes: Bytes,
    key: Option<(usize, usize)>,
    value: Option<(usize, usize)>,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let out = self
            .bytes
            .get(self.at..self.at.saturating_add(N))
            .and_then(|b| b.try_into().ok());
        let out = out.ok_or(RecordError::Truncated {
            wanted: N,
            left: self.bytes.len().saturating_sub(self.at),
        })?;
        self.at += N;
        Ok(out)
    }

    /// The place of a length-prefixed field; -1 is null.
    fn field(&mut self) -> Result<Option<(usize, usize)>, RecordError> {
        let length = i32::from_be_bytes(self.take()?);
        if length < 0 {
            return Ok(None);
        }
        let (from, to) = (self.at, self.at + length as usize);
        if to > self.bytes.len() {
            return Err(RecordError::Truncated {
                wanted: length as usize,
                left: self.bytes.len() - self.at,
            });
        }
        self.at = to;
        Ok(Some((from, to)))
    }
}

impl LegacyMessage {
    /// Takes the message at the front of `bytes`. The checksum is not looked at.
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let mut c = Cursor { bytes, at: 0 };
        let offset = i64::from_be_bytes(c.take()?);
        let size = i32::from_be_bytes(c.take()?);
        if (size as i64) < LEAST_V0 as i64 {
            return Err(RecordError::TooSmall {
                size: size.into(),
                least: LEAST_V0,
            });
        }
        let total = LOG_OVERHEAD + size as usize;
        if total > bytes.len() {
            return Err(RecordError::Truncated {
                wanted: total,
                left: bytes.len(),
            });
        }
        let bytes = bytes.slice(..total);
        let mut c = Cursor {
            bytes: &bytes,
            at: LOG_OVERHEAD,
        };
        let crc = u32::from_be_bytes(c.take()?);
        let magic = i8::from_be_bytes(c.take()?);
        let [attributes] = c.take()?;
        let timestamp = match magic {
            0 => NO_TIMESTAMP,
            1 if (size as usize) < LEAST_V1 => {
                return Err(RecordError::TooSmall {
                    size: size.into(),
                    least: LEAST_V1,
                });
            }
            1 => i64::from_be_bytes(c.take()?),
            _ => return Err(RecordError::BadMagic(magic)),
        };
        let key = c.field()?;
        let value = c.field()?;
        if c.at != total {
            return Err(RecordError::invalid(format!(
                "message of {size} bytes ends {} bytes before its size says",
                total - c.at
            )));
        }
        Ok(LegacyMessage {
            offset,
            magic,
            crc,
            attributes,
            timestamp,
            key,
            value,
            bytes,
        })
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn key(&self) -> Option<Bytes> {
        self.key.map(|(from, to)| self.bytes.slice(from..to))
    }

    pub fn value(&self) -> Option<Bytes> {
        self.value.map(|(from, to)| self.bytes.slice(from..to))
    }

    pub fn codec(&self) -> Result<Codec, RecordError> {
        let codec = Codec::from_id(self.attributes & CODEC_MASK)?;
        if codec == Codec::Zstd {
            return Err(RecordError::UnknownCodec(codec.id()));
        }
        Ok(codec)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.magic == 1 && self.attributes & APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Compares the stored CRC-32 with the bytes.
    pub fn check_crc(&self) -> Result<(), RecordError> {
        let computed =
            crc_fast::checksum(Crc32IsoHdlc, self.bytes.get(CRC_FROM..).unwrap_or_default()) as u32;
        if computed != self.crc {
            return Err(RecordError::BadCrc {
                stored: self.crc,
                computed,
            });
        }
        Ok(())
    }

    /// Calls `each` for the message, or for each inner message of a wrapper with its absolute offset.
    pub fn for_each_record<E: From<RecordError>>(
        &self,
        limit: usize,
        mut each: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.codec()? == Codec::None {
            return each(self.as_record(self.offset, self.timestamp));
        }
        for inner in self.inner(limit)? {
            each(inner.to_record())?;
        }
        Ok(())
    }

    /// The message as a record, not looking into a wrapper.
    pub(crate) fn to_record(&self) -> Record<'_> {
        self.as_record(self.offset, self.timestamp)
    }

    /// The message's bytes with another offset and, in v1, another timestamp and its type; the checksum is renewed if
    /// those change.
    pub(crate) fn restamped(&self, offset: i64, timestamp: i64, kind: TimestampType) -> Bytes {
        let mut out = self.bytes.to_vec();
        if let Some(place) = out.get_mut(..8) {
            place.copy_from_slice(&offset.to_be_bytes());
        }
        if self.magic == 1 && (self.timestamp != timestamp || self.timestamp_type() != kind) {
            let flag = match kind {
                TimestampType::CreateTime => 0,
                TimestampType::LogAppendTime => APPEND_TIME,
            };
            if let Some(attributes) = out.get_mut(17) {
                *attributes = (*attributes & !APPEND_TIME) | flag;
            }
            if let Some(place) = out.get_mut(18..26) {
                place.copy_from_slice(&timestamp.to_be_bytes());
            }
            let crc =
                crc_fast::checksum(Crc32IsoHdlc, out.get(CRC_FROM..).unwrap_or_default()) as u32;
            if let Some(place) = out.get_mut(12..16) {
                place.copy_from_slice(&crc.to_be_bytes());
            }
        }
        out.into()
    }

    /// A wrapper's messages with absolute offsets; their timestamps are the wrapper's under LogAppendTime.
    pub fn inner(&self, limit: usize) -> Result<Vec<LegacyMessage>, RecordError> {
        let Some(packed) = self.value() else {
            return Err(RecordError::invalid(format!(
                "Found invalid compressed record set with null value (magic = {})",
                self.magic
            )));
        };
        let mut plain = Bytes::from(compression::decompress(
            self.codec()?,
            self.magic,
            &packed,
            limit,
        )?);
        let mut messages = Vec::new();
        while !plain.is_empty() {
            let mut message = LegacyMessage::parse(&plain)?;
            plain = plain.slice(message.bytes.len()..);
            if message.magic != self.magic {
                return Err(RecordError::invalid(format!(
                    "Compressed message magic {} does not match wrapper magic {}",
                    message.magic, self.magic
                )));
            }
            if message.codec()? != Codec::None {
                return Err(RecordError::invalid(
                    "Inner record inside a compressed record is compressed itself",
                ));
            }
            if self.timestamp_type() == TimestampType::LogAppendTime {
                message.timestamp = self.timestamp;
            }
            messages.push(message);
        }
        let Some(last) = messages.last().map(|m| m.offset) else {
            return Err(RecordError::invalid(
                "Found invalid compressed record set with no inner records",
            ));
        };
        if self.magic == 1 {
            // some versions of librdkafka leave the wrapper's offset at 0
            if self.offset != 0 && self.offset < last {
                return Err(RecordError::invalid(format!(
                    "Found invalid wrapper offset in compressed v1 message set, wrapper offset '{}' is less than the last inner message offset '{last}' and it is not zero.",
                    self.offset
                )));
            }
            let base = if self.offset == 0 {
                0
            } else {
                self.offset.wrapping_sub(last)
            };
            for m in &mut messages {
                m.offset = base.wrapping_add(m.offset);
            }
        }
        Ok(messages)
    }

    fn as_record(&self, offset: i64, timestamp: i64) -> Record<'_> {
        let slice =
            |place: Option<(usize, usize)>| place.and_then(|(from, to)| self.bytes.get(from..to));
        Record {
            offset,
            timestamp,
            key: slice(self.key),
            value: slice(self.value),
            headers: Headers::default(),
            size: self.bytes.len(),
        }
    }
}

/// What a message is made of.
#[derive(Debug, Clone, Copy)]
pub struct LegacyFields<'a> {
    pub magic: i8,
    pub offset: i64,
    /// Not written in v0.
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub codec: Codec,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

/// Appends one message of format v0 or v1.
pub fn put_message(out: &mut Vec<u8>, fields: LegacyFields<'_>) {
    let start = out.len();
    out.extend_from_slice(&fields.offset.to_be_bytes());
    out.extend_from_slice(&[0; 8]); // size and crc, below
    out.push(fields.magic as u8);
    let append_time = fields.magic == 1 && fields.timestamp_type == TimestampType::LogAppendTime;
    out.push(fields.codec.id() | if append_time { APPEND_TIME } else { 0 });
    if fields.magic == 1 {
        out.extend_from_slice(&fields.timestamp.to_be_bytes());
    }
    for field in [fields.key, fields.value] {
        match field {
            None => out.extend_from_slice(&(-1i32).to_be_bytes()),
            Some(bytes) => {
                out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }
    let size = (out.len() - start - LOG_OVERHEAD) as i32;
    let crc = crc_fast::checksum(
        Crc32IsoHdlc,
        out.get(start + CRC_FROM..).unwrap_or_default(),
    ) as u32;
    if let Some(place) = out.get_mut(start + 8..start + 12) {
        place.copy_from_slice(&size.to_be_bytes());
    }
    if let Some(place) = out.get_mut(start + 12..start + 16) {
        place.copy_from_slice(&crc.to_be_bytes());
    }
}

/// One record to be written in an old format; headers don't exist there.
#[derive(Debug, Clone, Copy)]
pub struct LegacyRecord<'a> {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
}

/// Appends records as single messages, or as one compressed wrapper. `append_time` (ms) stamps them as LogAppendTime:
/// each message, or the wrapper alone.
pub fn put_set(
    out: &mut Vec<u8>,
    magic: i8,
    codec: Codec,
    levels: Levels,
    append_time: Option<i64>,
    records: &[LegacyRecord<'_>],
) -> Result<(), RecordError> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Ok(());
    };
    let timestamp_type = match append_time {
        Some(_) => TimestampType::LogAppendTime,
        None => TimestampType::CreateTime,
    };
    let fields = |r: &LegacyRecord<'_>, offset: i64| LegacyFields {
        magic,
        offset,
        timestamp: r.timestamp,
        timestamp_type,
        codec: Codec::None,
        key: None,
        value: None,
    };
    if codec == Codec::None {
        for r in records {
            put_message(
                out,
                LegacyFields {
                    key: r.key,
                    value: r.value,
                    timestamp: append_time.unwrap_or(r.timestamp),
                    ..fields(r, r.offset)
                },
            );
        }
        return Ok(());
    }
    let mut inner = Vec::new();
    for r in records {
        let offset = if magic == 1 {
            r.offset.wrapping_sub(first.offset)
        } else {
            r.offset
        };
        let kind = TimestampType::CreateTime;
        put_message(
            &mut inner,
            LegacyFields {
                key: r.key,
                value: r.value,
                timestamp_type: kind,
                ..fields(r, offset)
            },
        );
    }
    let packed = compression::compress(codec, magic, levels, &inner)?;
    let newest = records
        .iter()
        .map(|r| r.timestamp)
        .max()
        .unwrap_or(NO_TIMESTAMP);
    put_message(
        out,
        LegacyFields {
            codec,
            value: Some(&packed),
            timestamp: append_time.unwrap_or(newest),
            ..fields(last, last.offset)
        },
    );
    Ok(())
}
