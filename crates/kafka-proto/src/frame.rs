//! What goes out: pieces of memory and of files, in order.

use bytes::Bytes;
use std::fs::File;
use std::sync::Arc;

/// Bytes of an open file, sent without passing through user memory where the transport allows.
#[derive(Debug, Clone)]
pub struct FileRegion {
    pub file: Arc<File>,
    /// In bytes from the file's start.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
}

impl PartialEq for FileRegion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.offset == other.offset && self.len == other.len
    }
}

#[derive(Debug, Clone)]
pub enum Chunk {
    Bytes(Bytes),
    File(FileRegion),
}

impl Chunk {
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

/// An encoded message, to be written in one gathered write. Chunks are not empty.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub chunks: Vec<Chunk>,
}

impl Frame {
    /// In bytes, a length prefix included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(Chunk::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All in one piece; copies when there are several. `None` when a part is in a file.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        if let [Chunk::Bytes(only)] = self.chunks.as_slice() {
            return Some(only.clone());
        }
        let mut all = Vec::with_capacity(usize::try_from(self.len()).ok()?);
        for chunk in self.chunks {
            match chunk {
                Chunk::Bytes(bytes) => all.extend_from_slice(&bytes),
                Chunk::File(_) => return None,
            }
        }
        Some(all.into())
    }
}
