//! `.index`: int32 offset - base, int32 position; 8 bytes an entry.

use super::entries::Entries;
use crate::error::LogError;
use std::path::Path;

/// Where to begin looking for an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetPosition {
    pub offset: i64,
    pub position: u32,
}

/// Offsets to positions in the segment's file. Paths are given with each call: an idle log keeps none.
#[derive(Debug, Default)]
pub struct OffsetIndex {
    entries: Entries<8>,
}

impl OffsetIndex {
    /// An index without entries, whatever the file holds; write it with `create` or by pushing.
    pub fn fresh() -> Self {
        Self {
            entries: Entries::fresh(),
        }
    }

    /// Makes the file, full size for an active segment.
    pub fn create(&mut self, path: &Path, max: u32) -> Result<(), LogError> {
        self.entries.create(path, max)
    }

    pub fn len(&mut self, path: &Path) -> Result<u32, LogError> {
        self.entries.len(path)
    }

    /// The number of entries, if no file has to be looked at for it.
    pub fn known_len(&self) -> Option<u32> {
        self.entries.known_len()
    }

    pub fn is_empty(&mut self, path: &Path) -> Result<bool, LogError> {
        Ok(self.len(path)? == 0)
    }

    pub fn last(&mut self, path: &Path, base: i64) -> Result<Option<OffsetPosition>, LogError> {
        Ok(self.entries.last(path)?.map(|e| decode(e, base)))
    }

    /// The entry `at` (for tools and tests).
    pub fn get(
        &mut self,
        path: &Path,
        base: i64,
        at: u32,
    ) -> Result<Option<OffsetPosition>, LogError> {
        Ok(self.entries.get(path, at)?.map(|e| decode(e, base)))
    }

    /// The last entry at or before `offset`; the segment's beginning if there is none.
    pub fn lookup(
        &mut self,
        path: &Path,
        base: i64,
        offset: i64,
    ) -> Result<OffsetPosition, LogError> {
        let found = self
            .entries
            .floor(path, |e| decode(*e, base).offset <= offset)?;
        Ok(found.map_or(
            OffsetPosition {
                offset: base,
                position: 0,
            },
            |(_, e)| decode(e, base),
        ))
    }

    pub fn push(
        &mut self,
        path: &Path,
        base: i64,
        entry: OffsetPosition,
        max: u32,
    ) -> Result<(), LogError> {
        let bytes = encode(entry, base).ok_or_else(|| {
            LogError::corrupt(path, format!("offset {} does not fit in it", entry.offset))
        })?;
        self.entries.push(path, bytes, max)
    }

    /// As `push`, if that needs no file; false if it does.
    pub fn push_to_memory(&mut self, base: i64, entry: OffsetPosition) -> bool {
        encode(entry, base).is_some_and(|bytes| self.entries.push_to_memory(bytes))
    }

    /// Forgets entries at or after `offset`.
    pub fn truncate_to(&mut self, path: &Path, base: i64, offset: i64) -> Result<(), LogError> {
        let found = self
            .entries
            .floor(path, |e| decode(*e, base).offset < offset)?;
        self.entries.keep(path, found.map_or(0, |(at, _)| at + 1))
    }

    pub fn trim(&mut self, path: &Path) -> Result<(), LogError> {
        self.entries.trim(path)
    }

    /// Makes the file hold exactly these entries.
    pub fn cut_file(&mut self, path: &Path) -> Result<(), LogError> {
        self.entries.cut_file(path)
    }

    /// Writes the entries that wait in memory.
    pub fn write_out(&mut self, path: &Path, max: u32) -> Result<(), LogError> {
        self.entries.write_pending(path, max)
    }
}

fn encode(entry: OffsetPosition, base: i64) -> Option<[u8; 8]> {
    let relative = i32::try_from(entry.offset - base)
        .ok()
        .filter(|r| *r >= 0)?;
    let mut bytes = [0u8; 8];
    bytes[..4].copy_from_slice(&relative.to_be_bytes());
    bytes[4..].copy_from_slice(&entry.position.to_be_bytes());
    Some(bytes)
}

fn decode(e: [u8; 8], base: i64) -> OffsetPosition {
    let [a, b, c, d, p, q, r, s] = e;
    OffsetPosition {
        offset: base.saturating_add(i32::from_be_bytes([a, b, c, d]).into()),
        position: u32::from_be_bytes([p, q, r, s]),
    }
}
