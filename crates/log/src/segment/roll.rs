//! When a segment ends, and how.

use super::{AppendSpan, HeaderScan, Segment, fits_in_index};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::naming::FileKind;
use std::path::Path;

impl Segment {
    /// Whether a new segment has to begin before `span` is appended.
    pub fn should_roll(
        &mut self,
        span: &AppendSpan,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        // Even an empty segment, if the offset does not fit.
        if !fits_in_index(self.base_offset, span.last_offset) {
            return Ok(true);
        }
        if self.size.saturating_add(span.bytes) > u64::from(config.segment_bytes) {
            // A batch larger than a segment was refused before.
            return Ok(self.size > 0);
        }
        if self.size == 0 {
            return Ok(false);
        }
        let waited = self.waited_for_roll(now_ms, span.max_timestamp)?;
        if waited > config.max_segment_ms().saturating_sub(self.roll_jitter_ms) {
            return Ok(true);
        }
        let (entries, times) = match (self.index.known_len(), self.time_index.known_len()) {
            (Some(entries), Some(times)) => (entries, times),
            _ => self.index_lens()?,
        };
        Ok(entries >= config.max_index_entries()
            || times >= config.max_time_index_entries().saturating_sub(1))
    }

    /// Between the first batch's timestamp and the new one's; without timestamps, the age of the segment.
    fn waited_for_roll(&mut self, now_ms: i64, timestamp: i64) -> Result<i64, LogError> {
        let first = self.first_timestamp()?;
        Ok(if first >= 0 {
            timestamp.saturating_sub(first)
        } else {
            now_ms.saturating_sub(self.created_ms)
        })
    }

    /// Timestamp (largest) of the first batch; -1 if it has none.
    pub fn first_timestamp(&mut self) -> Result<i64, LogError> {
        if let Some(t) = self.first_timestamp {
            return Ok(t);
        }
        if self.size == 0 {
            return Ok(-1);
        }
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let first = HeaderScan::new(&file, &path, 0, self.size).advance()?;
        let timestamp = first.map_or(-1, |b| b.max_timestamp);
        self.first_timestamp = Some(timestamp);
        Ok(timestamp)
    }

    /// The segment becomes an old one: last time entry, indexes and file cut to size.
    pub fn seal(&mut self, config: &LogConfig) -> Result<(), LogError> {
        let newest = self.max_timestamp(false)?;
        let (base, index, time) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.time_index
            .maybe_push(&time, base, newest, config.max_time_index_entries())?;
        self.index.trim(&index)?;
        self.time_index.trim(&time)?;
        self.release_reserved();
        if config.preallocate {
            let file = self.file()?;
            file.set_len(self.size)
                .map_err(|e| LogError::io("cut", &self.path(FileKind::Log), e))?;
        }
        Ok(())
    }

    /// As at a clean stop: sealed and closed. A segment that was not touched is not touched now.
    pub fn close(&mut self, config: &LogConfig) -> Result<(), LogError> {
        if self.max_timestamp.is_some() {
            self.seal(config)?;
        }
        self.file = None;
        Ok(())
    }
}

/// A jitter in `0..limit` that differs by partition and segment, so that a topic's partitions do not all roll at once.
pub(super) fn jitter(dir: &Path, base_offset: i64, limit: i64) -> i64 {
    use std::hash::{Hash, Hasher};
    if limit <= 0 {
        return 0;
    }
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    (dir, base_offset).hash(&mut hasher);
    (hasher.finish() % limit as u64) as i64
}
