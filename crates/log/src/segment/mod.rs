//! A segment: a `.log` file and its indexes.

mod flush;
mod list;
mod lookup;
mod recover;
mod scan;

pub use list::SegmentList;
pub(crate) use lookup::DECOMPRESS_LIMIT;
pub use recover::{Recovered, Resume};
pub(crate) use scan::last_whole_batch;
pub use scan::{BatchScan, BatchSpot, HeaderScan};

use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::index::{AbortedEntry, OffsetIndex, OffsetPosition, TimeEntry, TimeIndex, TxnIndex};
use crate::naming::{FileKind, segment_file_with};
use std::fs::File;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Blocks are reserved ahead in steps between these, growing with the traffic.
const RESERVE_LEAST: u64 = 1 << 20;
const RESERVE_MOST: u64 = 64 << 20;
/// Nothing is reserved before a segment holds this much: an idle partition takes no more than its data.
const RESERVE_FROM: u64 = 256 << 10;

/// One segment. Files are opened when needed and closed by [`Segment::close_idle`]; an idle one costs a few hundred
/// bytes.
#[derive(Debug)]
pub struct Segment {
    dir: Arc<Path>,
    base_offset: i64,
    /// `.cleaned` while compaction writes it, else empty.
    suffix: &'static str,
    size: u64,
    file: Option<Arc<File>>,
    used: bool,
    reserved_to: u64,
    reserve_step: u64,
    index: OffsetIndex,
    time_index: TimeIndex,
    bytes_since_entry: u64,
    /// Largest timestamp and the last offset of its batch; unknown until looked up.
    max_timestamp: Option<TimeEntry>,
    /// Timestamp of the first batch, which decides on rolling by time.
    first_timestamp: Option<i64>,
    created_ms: i64,
    roll_jitter_ms: i64,
    /// There is a transaction index.
    has_aborts: bool,
    /// Its files are made with the first append.
    deferred: bool,
    /// Tells segments of the same base offset apart, for the cleaner.
    serial: u64,
}

/// What is appended to a segment in one write.
#[derive(Debug, Clone, Copy)]
pub struct AppendSpan {
    pub last_offset: i64,
    /// Largest timestamp, and the last offset of the first batch that has it.
    pub max_timestamp: i64,
    pub max_timestamp_offset: i64,
    pub bytes: u64,
}

/// Whether an offset fits in the indexes of a segment that begins at `base`.
pub(crate) fn fits_in_index(base: i64, offset: i64) -> bool {
    (0..=i64::from(i32::MAX)).contains(&offset.saturating_sub(base))
}

fn next_serial() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Segment {
    /// Makes a new, empty active segment: the log file and the index files at full size.
    pub fn create(
        dir: &Arc<Path>,
        base_offset: i64,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        Self::create_as(dir, base_offset, config, now_ms, "")
    }

    /// As `create`, the files' names ending in `suffix`.
    pub(crate) fn create_as(
        dir: &Arc<Path>,
        base_offset: i64,
        config: &LogConfig,
        now_ms: i64,
        suffix: &'static str,
    ) -> Result<Self, LogError> {
        let mut segment = Self::deferred(dir, base_offset, config, now_ms);
        segment.suffix = suffix;
        segment.make_files(config)?;
        Ok(segment)
    }

    /// A new, empty segment whose files are made with the first append: a topic of thousands of partitions is made quickly,
    /// and a log without files begins at 0 for any broker. For the first segment of a log only.
    pub fn deferred(dir: &Arc<Path>, base_offset: i64, config: &LogConfig, now_ms: i64) -> Self {
        let mut segment = Self::existing(dir, base_offset, 0, now_ms);
        segment.deferred = true;
        segment.index = OffsetIndex::fresh();
        segment.time_index = TimeIndex::fresh();
        segment.max_timestamp = Some(TimeEntry {
            timestamp: -1,
            offset: base_offset,
        });
        segment.roll_jitter_ms = jitter(dir, base_offset, config.segment_jitter_ms);
        segment
    }

    fn make_files(&mut self, config: &LogConfig) -> Result<(), LogError> {
        let path = self.path(FileKind::Log);
        let initial = if config.preallocate && self.suffix.is_empty() {
            u64::from(config.segment_bytes)
        } else {
            0
        };
        disk::make(&path, initial)?;
        let (index, time) = (
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.index.create(&index, config.max_index_entries())?;
        self.time_index
            .create(&time, config.max_time_index_entries())?;
        self.deferred = false;
        Ok(())
    }

    /// Of files that are there; nothing is opened.
    pub fn existing(dir: &Arc<Path>, base_offset: i64, size: u64, created_ms: i64) -> Self {
        Self {
            dir: dir.clone(),
            base_offset,
            suffix: "",
            size,
            file: None,
            used: false,
            reserved_to: 0,
            reserve_step: RESERVE_LEAST,
            index: OffsetIndex::default(),
            time_index: TimeIndex::default(),
            bytes_since_entry: 0,
            max_timestamp: None,
            first_timestamp: None,
            created_ms,
            roll_jitter_ms: 0,
            has_aborts: false,
            deferred: false,
            serial: next_serial(),
        }
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes of the log file.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Renames the files; the log file first, for with it the segment counts as complete.
    pub(crate) fn rename(&mut self, suffix: &'static str) -> Result<(), LogError> {
        for kind in FileKind::SEGMENT {
            let to = segment_file_with(&self.dir, self.base_offset, kind, suffix);
            disk::rename_if_exists(&self.path(kind), &to)?;
        }
        self.suffix = suffix;
        Ok(())
    }

    /// Dates the files as those that they were made from.
    pub(crate) fn set_modified(&self, ms: i64) -> Result<(), LogError> {
        let time = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
            let path = self.path(kind);
            disk::open(&path, false)?
                .set_modified(time)
                .map_err(|e| LogError::io("set the time of", &path, e))?;
        }
        Ok(())
    }

    /// Entries of the offset and the time index.
    pub(crate) fn index_lens(&mut self) -> Result<(u32, u32), LogError> {
        let (index, time) = (
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        Ok((self.index.len(&index)?, self.time_index.len(&time)?))
    }

    pub fn path(&self, kind: FileKind) -> PathBuf {
        segment_file_with(&self.dir, self.base_offset, kind, self.suffix)
    }

    pub fn has_aborts(&self) -> bool {
        self.has_aborts
    }

    pub fn set_has_aborts(&mut self, there: bool) {
        self.has_aborts = there;
    }

    /// Adds aborted transactions to the transaction index.
    pub fn add_aborts(&mut self, entries: &[AbortedEntry]) -> Result<(), LogError> {
        if !entries.is_empty() {
            TxnIndex::append(&self.path(FileKind::TxnIndex), entries)?;
            self.has_aborts = true;
        }
        Ok(())
    }

    /// The open log file.
    pub fn file(&mut self) -> Result<Arc<File>, LogError> {
        self.used = true;
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(disk::open(&self.path(FileKind::Log), false)?);
        self.file = Some(file.clone());
        Ok(file)
    }

    /// Closes the file; it is opened again when it is needed.
    pub(crate) fn close_file(&mut self) {
        if self.reserved_to <= self.size {
            self.file = None;
        }
    }

    /// Closes the file if nothing used it since the last call; true if it is closed now.
    pub fn close_idle(&mut self) -> bool {
        if self.used {
            self.used = false;
            return self.file.is_none();
        }
        self.release_reserved();
        self.file = None;
        true
    }

    // --- appending

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
    fn release_reserved(&mut self) {
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

    // --- rolling

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

    /// Cuts batches at and after `offset`; the number of bytes that went.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<u64, LogError> {
        let found = self.find(offset)?;
        let (base, index, time) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.index.truncate_to(&index, base, offset)?;
        self.time_index.truncate_to(&time, base, offset)?;
        TxnIndex::truncate_to(&self.path(FileKind::TxnIndex), offset)?;
        let mut cut = 0;
        if let Some(spot) = found {
            let file = self.file()?;
            file.set_len(spot.position.into())
                .map_err(|e| LogError::io("cut", &self.path(FileKind::Log), e))?;
            cut = self.size - u64::from(spot.position);
            self.size = spot.position.into();
            // A cleaning of what it held is not of it any more.
            self.serial = next_serial();
        }
        if self.size == 0 {
            self.created_ms = now_ms;
            self.first_timestamp = None;
        }
        self.reserved_to = 0;
        self.bytes_since_entry = 0;
        self.max_timestamp = Some(self.read_max_timestamp()?);
        Ok(cut)
    }
}

/// A jitter in `0..limit` that differs by partition and segment, so that a topic's partitions do not all roll at once.
fn jitter(dir: &Path, base_offset: i64, limit: i64) -> i64 {
    use std::hash::{Hash, Hasher};
    if limit <= 0 {
        return 0;
    }
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    (dir, base_offset).hash(&mut hasher);
    (hasher.finish() % limit as u64) as i64
}
