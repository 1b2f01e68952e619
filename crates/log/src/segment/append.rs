//! Appending to a segment: blocks reserved ahead, one gathered write, the indexes' entries; what fails is taken back.

use super::{AppendSpan, Segment};
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::index::{OffsetPosition, TimeEntry};
use crate::naming::FileKind;
use std::fs::File;
use std::io::IoSlice;

/// Blocks are reserved ahead in steps between these, growing with the traffic.
pub(super) const RESERVE_LEAST: u64 = 1 << 20;
const RESERVE_MOST: u64 = 64 << 20;
/// Nothing is reserved before a segment holds this much: an idle partition takes no more than its data.
const RESERVE_FROM: u64 = 256 << 10;

impl Segment {
    /// Writes the slices at the end and notes what they hold. On an error the segment is as it was.
    pub fn append(
        &mut self,
        slices: &mut [IoSlice<'_>],
        span: AppendSpan,
        config: &LogConfig,
    ) -> Result<(), LogError> {
        let position = self.position_for(span.bytes)?;
        if self.deferred {
            self.make_files(config)?;
        }
        let file = self.file()?;
        // Known before the write, so that nothing can fail after it but the indexes.
        let known = self.max_timestamp(false)?;
        self.reserve(&file, span.bytes, u64::from(config.segment_bytes));
        if let Err(e) = disk::write_all_vectored(&file, slices, self.size) {
            self.undo(&file, self.size);
            return Err(LogError::io("append to", &self.path(FileKind::Log), e));
        }
        let before = self.bytes_since_entry;
        let newest = if span.max_timestamp > known.timestamp {
            TimeEntry {
                timestamp: span.max_timestamp,
                offset: span.max_timestamp_offset,
            }
        } else {
            known
        };
        if before > u64::from(config.index_interval_bytes) {
            let at = OffsetPosition {
                offset: span.last_offset,
                position,
            };
            if let Err(error) = self.add_index_entries(at, newest, config) {
                self.undo(&file, self.size);
                return Err(error);
            }
            self.bytes_since_entry = 0;
        }
        if position == 0 {
            self.first_timestamp = Some(span.max_timestamp);
        }
        self.max_timestamp = Some(newest);
        self.bytes_since_entry += span.bytes;
        self.size += span.bytes;
        Ok(())
    }

    fn position_for(&self, bytes: u64) -> Result<u32, LogError> {
        let end = self.size.saturating_add(bytes);
        match u32::try_from(self.size) {
            Ok(position) if end <= i32::MAX as u64 => Ok(position),
            _ => Err(LogError::corrupt(
                &self.path(FileKind::Log),
                "a segment cannot grow beyond 2 GiB",
            )),
        }
    }

    fn add_index_entries(
        &mut self,
        at: OffsetPosition,
        newest: TimeEntry,
        config: &LogConfig,
    ) -> Result<(), LogError> {
        let base = self.base_offset;
        if !self.index.push_to_memory(base, at) {
            let index = self.path(FileKind::OffsetIndex);
            self.index
                .push(&index, base, at, config.max_index_entries())?;
        }
        if !self.time_index.maybe_push_to_memory(base, newest) {
            let time = self.path(FileKind::TimeIndex);
            self.time_index
                .maybe_push(&time, base, newest, config.max_time_index_entries())?;
        }
        Ok(())
    }

    /// Takes the last append back.
    pub fn take_back(&mut self, size: u64, offset: i64) -> Result<(), LogError> {
        let file = self.file()?;
        self.undo(&file, size);
        self.size = size;
        let (base, index, time) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.max_timestamp = None;
        self.index.truncate_to(&index, base, offset)?;
        self.time_index.truncate_to(&time, base, offset)
    }

    /// Cuts a half-written tail off. If even that fails, the next append overwrites it, and a recovery cuts it.
    fn undo(&mut self, file: &File, size: u64) {
        if let Err(error) = file.set_len(size) {
            tracing::warn!(
                "cannot cut {} back to {size} bytes after a failed append: {error}",
                self.path(FileKind::Log).display()
            );
        }
        self.reserved_to = 0;
    }

    fn reserve(&mut self, file: &File, bytes: u64, most: u64) {
        let end = self.size + bytes;
        if end <= self.reserved_to || self.size < RESERVE_FROM || self.reserve_step == 0 {
            return;
        }
        let to = (end + self.reserve_step).min(most.max(end));
        if disk::reserve(file, self.size, to - self.size) {
            self.reserved_to = to;
            self.reserve_step = (self.reserve_step * 2).min(RESERVE_MOST);
        } else {
            self.reserve_step = 0; // not here, or no room
        }
    }

    /// Gives blocks beyond the end back.
    pub(super) fn release_reserved(&mut self) {
        if self.reserved_to <= self.size {
            return;
        }
        self.reserved_to = 0;
        self.reserve_step = RESERVE_LEAST;
        if let Some(file) = &self.file
            && let Err(error) = file.set_len(self.size)
        {
            tracing::warn!(
                "cannot give the reserved blocks of {} back: {error}",
                self.path(FileKind::Log).display()
            );
        }
    }
}
