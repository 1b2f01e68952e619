//! `.timeindex`: int64 largest timestamp so far, int32 its offset - base; 12 bytes an entry.

use super::entries::Entries;
use crate::error::LogError;
use std::path::Path;

/// The largest timestamp up to a point of the segment, and the last offset of the batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: i64,
    pub offset: i64,
}

/// Timestamps to offsets.
#[derive(Debug, Default)]
pub struct TimeIndex {
    entries: Entries<12>,
}

impl TimeIndex {
    /// An index without entries, whatever the file holds.
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

    pub fn get(&mut self, path: &Path, base: i64, at: u32) -> Result<Option<TimeEntry>, LogError> {
        Ok(self.entries.get(path, at)?.map(|e| decode(e, base)))
    }

    /// The last entry; timestamp -1 at the base offset if there is none.
    pub fn last(&mut self, path: &Path, base: i64) -> Result<TimeEntry, LogError> {
        let none = TimeEntry {
            timestamp: -1,
            offset: base,
        };
        Ok(self.entries.last(path)?.map_or(none, |e| decode(e, base)))
    }

    /// The last entry with a timestamp at or before the one given; timestamp -1 at the base offset if there is none.
    pub fn lookup(
        &mut self,
        path: &Path,
        base: i64,
        timestamp: i64,
    ) -> Result<TimeEntry, LogError> {
        let found = self
            .entries
            .floor(path, |e| decode(*e, base).timestamp <= timestamp)?;
        Ok(found.map_or(
            TimeEntry {
                timestamp: -1,
                offset: base,
            },
            |(_, e)| decode(e, base),
        ))
    }

    /// Adds an entry if its timestamp is later than the last one's.
    pub fn maybe_push(
        &mut self,
        path: &Path,
        base: i64,
        entry: TimeEntry,
        max: u32,
    ) -> Result<(), LogError> {
        if entry.timestamp <= self.last(path, base)?.timestamp {
            return Ok(());
        }
        let bytes = encode(entry, base).ok_or_else(|| {
            LogError::corrupt(path, format!("offset {} does not fit in it", entry.offset))
        })?;
        self.entries.push(path, bytes, max)
    }

    /// As `maybe_push`, if that needs no file; false if it does.
    pub fn maybe_push_to_memory(&mut self, base: i64, entry: TimeEntry) -> bool {
        match self.entries.known_last() {
            Some(last) if entry.timestamp <= decode(last, base).timestamp => true,
            Some(_) => encode(entry, base).is_some_and(|bytes| self.entries.push_to_memory(bytes)),
            None => false,
        }
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

fn encode(entry: TimeEntry, base: i64) -> Option<[u8; 12]> {
    let relative = i32::try_from(entry.offset - base)
        .ok()
        .filter(|r| *r >= 0)?;
    let mut bytes = [0u8; 12];
    bytes[..8].copy_from_slice(&entry.timestamp.to_be_bytes());
    bytes[8..].copy_from_slice(&relative.to_be_bytes());
    Some(bytes)
}

fn decode(e: [u8; 12], base: i64) -> TimeEntry {
    let [a, b, c, d, f, g, h, i, p, q, r, s] = e;
    TimeEntry {
        timestamp: i64::from_be_bytes([a, b, c, d, f, g, h, i]),
        offset: base.saturating_add(i32::from_be_bytes([p, q, r, s]).into()),
    }
}
