//! A segment: a `.log` file and its indexes.

mod append;
mod flush;
mod list;
mod lookup;
mod recover;
mod roll;
mod scan;

pub use list::SegmentList;
pub(crate) use lookup::DECOMPRESS_LIMIT;
pub use recover::{Recovered, Resume};
pub(crate) use scan::last_whole_batch;
pub use scan::{BatchScan, BatchSpot, HeaderScan};

use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::index::{AbortedEntry, OffsetIndex, TimeEntry, TimeIndex, TxnIndex};
use crate::naming::{FileKind, segment_file_with};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

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
        segment.roll_jitter_ms = roll::jitter(dir, base_offset, config.segment_jitter_ms);
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
            reserve_step: append::RESERVE_LEAST,
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

    /// The log's directory was renamed.
    pub(crate) fn set_dir(&mut self, dir: &Arc<Path>) {
        self.dir = dir.clone();
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
