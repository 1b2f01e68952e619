//! What a log is a sequence of: a batch of format v2, or a message of an old format.

use crate::batch::{self, Batch};
use crate::compression::Codec;
use crate::legacy::{self, LegacyMessage};
use crate::{NO_LEADER_EPOCH, NO_PRODUCER_ID, Record, RecordError, TimestampType};
use bytes::Bytes;

/// Bytes that show an entry's offset, size and magic.
pub const PREFIX_SIZE: usize = 17;

/// The first fields that all formats share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// First offset in format v2; the last one of a compressed set in v0 and v1.
    pub offset: i64,
    /// Whole size in bytes.
    pub size: usize,
    pub magic: i8,
}

impl Prefix {
    /// Decodes the first [`PREFIX_SIZE`] bytes; sizes below the format's minimum are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let head: &[u8; PREFIX_SIZE] = bytes.first_chunk().ok_or(RecordError::Truncated {
            wanted: PREFIX_SIZE,
            left: bytes.len(),
        })?;
        let [
            o0,
            o1,
            o2,
            o3,
            o4,
            o5,
            o6,
            o7,
            s0,
            s1,
            s2,
            s3,
            _,
            _,
            _,
            _,
            magic,
        ] = *head;
        let offset = i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let length = i32::from_be_bytes([s0, s1, s2, s3]);
        let magic = magic as i8;
        let least = match magic {
            0 => 14,
            1 => 22,
            2 => batch::HEADER_SIZE - batch::LOG_OVERHEAD,
            _ => return Err(RecordError::BadMagic(magic)),
        };
        if i64::from(length) < least as i64 {
            return Err(RecordError::TooSmall {
                size: length.into(),
                least,
            });
        }
        Ok(Prefix {
            offset,
            size: legacy::LOG_OVERHEAD + length as usize,
            magic,
        })
    }
}

/// A batch of any format.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    V2(Batch),
    Legacy(LegacyMessage),
}

impl Entry {
    /// Takes the entry at the front of `bytes`.
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let prefix = Prefix::parse(bytes)?;
        if prefix.size > bytes.len() {
            return Err(RecordError::Truncated {
                wanted: prefix.size,
                left: bytes.len(),
            });
        }
        Ok(if prefix.magic == 2 {
            Entry::V2(Batch::parse(bytes)?)
        } else {
            Entry::Legacy(LegacyMessage::parse(bytes)?)
        })
    }

    pub fn bytes(&self) -> &Bytes {
        match self {
            Entry::V2(b) => b.bytes(),
            Entry::Legacy(m) => m.bytes(),
        }
    }

    pub fn size(&self) -> usize {
        self.bytes().len()
    }

    pub fn magic(&self) -> i8 {
        match self {
            Entry::V2(_) => 2,
            Entry::Legacy(m) => m.magic,
        }
    }

    /// First offset; of a compressed old set only known by decompressing it, so its last one is given.
    pub fn base_offset(&self) -> i64 {
        match self {
            Entry::V2(b) => b.header.base_offset,
            Entry::Legacy(m) => m.offset,
        }
    }

    pub fn last_offset(&self) -> i64 {
        match self {
            Entry::V2(b) => b.header.last_offset(),
            Entry::Legacy(m) => m.offset,
        }
    }

    pub fn max_timestamp(&self) -> i64 {
        match self {
            Entry::V2(b) => b.header.max_timestamp,
            Entry::Legacy(m) => m.timestamp,
        }
    }

    pub fn timestamp_type(&self) -> TimestampType {
        match self {
            Entry::V2(b) => b.header.timestamp_type(),
            Entry::Legacy(m) => m.timestamp_type(),
        }
    }

    pub fn codec(&self) -> Result<Codec, RecordError> {
        match self {
            Entry::V2(b) => b.header.codec(),
            Entry::Legacy(m) => m.codec(),
        }
    }

    pub fn leader_epoch(&self) -> i32 {
        match self {
            Entry::V2(b) => b.header.leader_epoch,
            Entry::Legacy(_) => NO_LEADER_EPOCH,
        }
    }

    pub fn producer_id(&self) -> i64 {
        match self {
            Entry::V2(b) => b.header.producer_id,
            Entry::Legacy(_) => NO_PRODUCER_ID,
        }
    }

    pub fn is_control(&self) -> bool {
        matches!(self, Entry::V2(b) if b.header.is_control())
    }

    pub fn check_crc(&self) -> Result<(), RecordError> {
        match self {
            Entry::V2(b) => b.check_crc(),
            Entry::Legacy(m) => m.check_crc(),
        }
    }

    /// Calls `each` for every record; compressed data is bounded by `limit` bytes.
    pub fn for_each_record<E: From<RecordError>>(
        &self,
        limit: usize,
        each: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Entry::V2(b) => b.for_each_record(limit, each),
            Entry::Legacy(m) => m.for_each_record(limit, each),
        }
    }
}

/// The entries of a buffer, in order. Ends before a tail that is cut short, which [`Entries::rest`] then holds.
#[derive(Debug, Clone)]
pub struct Entries {
    rest: Bytes,
}

impl Entries {
    pub fn new(bytes: Bytes) -> Self {
        Entries { rest: bytes }
    }

    /// Bytes not yet taken.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < PREFIX_SIZE {
            return None;
        }
        match Entry::parse(&self.rest) {
            Ok(entry) => {
                self.rest = self.rest.slice(entry.size()..);
                Some(Ok(entry))
            }
            Err(RecordError::Truncated { wanted, left })
                if left == self.rest.len() && wanted > left =>
            {
                None
            }
            Err(error) => {
                self.rest = Bytes::new();
                Some(Err(error))
            }
        }
    }
}
