//! Record batches inside of a message: slices of memory or regions of files, never looked into here.

use crate::FileRegion;
use bytes::Bytes;

/// A `records` field: its parts follow each other on the wire.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub parts: Vec<RecordsPart>,
}

#[derive(Debug, Clone)]
pub enum RecordsPart {
    Bytes(Bytes),
    File(FileRegion),
}

impl RecordsPart {
    /// In bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(region) => region.len,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Records {
    /// No batches; on the wire a length of 0, which is not null.
    #[must_use]
    pub const fn empty() -> Self {
        Self { parts: Vec::new() }
    }

    /// In bytes, all parts together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.iter().map(RecordsPart::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it in one piece of memory, which is what decoding gives; `None` with file regions or several parts.
    #[must_use]
    pub fn as_bytes(&self) -> Option<Bytes> {
        match self.parts.as_slice() {
            [] => Some(Bytes::new()),
            [RecordsPart::Bytes(bytes)] => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Self {
            parts: vec![RecordsPart::Bytes(bytes)],
        }
    }
}

/// Equal when the bytes are, however they are cut; file regions when they are the same region of the same open file.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        if let (Some(left), Some(right)) = (self.as_bytes(), other.as_bytes()) {
            return left == right;
        }
        if self.len() != other.len() {
            return false;
        }
        match (in_memory(self), in_memory(other)) {
            (Some(left), Some(right)) => left == right,
            _ => {
                self.parts.len() == other.parts.len()
                    && self.parts.iter().zip(&other.parts).all(|pair| match pair {
                        (RecordsPart::Bytes(left), RecordsPart::Bytes(right)) => left == right,
                        (RecordsPart::File(left), RecordsPart::File(right)) => left == right,
                        _ => false,
                    })
            }
        }
    }
}

fn in_memory(records: &Records) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for part in &records.parts {
        match part {
            RecordsPart::Bytes(bytes) => all.extend_from_slice(bytes),
            RecordsPart::File(_) => return None,
        }
    }
    Some(all)
}
