//! Rolling and flushing: what is to reach the device is gathered under the log's lock, the waiting is done without it.
//!
//! When the recovery point moves, everything that a recovery from there on goes by is on the device: the segments below it
//! with their indexes, the directory that names them, the leader epochs and the topic's id.

use super::PartitionLog;
use crate::disk;
use crate::epochs;
use crate::error::LogError;
use crate::identity;
use crate::naming::{FileKind, segment_file};
use crate::segment::Segment;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most segments of one task: their files are open until it has run.
const SEGMENTS: usize = 16;

/// A flush whose waiting is done without the log's lock: [`FlushTask::run`], then [`PartitionLog::finish_flush`].
#[derive(Debug)]
pub struct FlushTask {
    files: Vec<(PathBuf, Arc<File>)>,
    /// The directory and its small files, if they changed; what their state was then.
    names: Option<(Arc<Path>, u64)>,
    /// The log was made by this process: its directory's own name.
    parent: bool,
    up_to: i64,
    truncations: u64,
    now_ms: i64,
}

/// How far the names in a log's directory are on the device: files made or renamed, the epochs and the topic's id written.
#[derive(Debug, Default)]
pub(super) struct Names {
    changed: u64,
    synced: u64,
    /// Something changed since this process began: it is not left to the next flush of records.
    due: bool,
    /// The directory itself is new.
    parent: bool,
}

impl Names {
    pub(super) fn of_new_directory() -> Self {
        Self {
            changed: 1,
            due: true,
            parent: true,
            ..Self::default()
        }
    }

    /// Of a log that was not closed: what the last process did may not be on the device.
    pub(super) fn of_unclean_stop() -> Self {
        Self {
            changed: 1,
            ..Self::default()
        }
    }

    pub(super) fn change(&mut self) {
        self.changed += 1;
        self.due = true;
    }

    pub(super) fn note(&mut self, changed: bool) {
        if changed {
            self.change();
        }
    }
}

impl FlushTask {
    /// Waits for the device. After an error what was written may be lost, whatever a second try says.
    pub fn run(&self) -> Result<(), LogError> {
        for (path, file) in &self.files {
            file.sync_data().map_err(|e| LogError::sync(path, e))?;
            crate::disk::synced(path, false);
        }
        // A log that is deleted meanwhile is renamed, and needs it no more.
        for path in self.named() {
            disk::sync_if_exists(&path)?;
        }
        Ok(())
    }

    /// What goes to the device, in this order.
    pub fn paths(&self) -> Vec<PathBuf> {
        let files = self.files.iter().map(|(path, _)| path.clone());
        files.chain(self.named()).collect()
    }

    fn named(&self) -> Vec<PathBuf> {
        let Some((dir, _)) = &self.names else {
            return Vec::new();
        };
        let mut paths = vec![
            dir.join(epochs::FILE),
            dir.join(identity::PARTITION_METADATA),
            dir.to_path_buf(),
        ];
        if self.parent {
            paths.extend(dir.parent().map(Path::to_path_buf));
        }
        paths
    }
}

impl PartitionLog {
    /// Begins a new segment now; its base offset. Nothing happens if the active one is empty.
    pub fn roll(&mut self, now_ms: i64) -> Result<i64, LogError> {
        self.roll_at(self.log_end, now_ms)
    }

    /// As `roll`, the new segment beginning at the log's end or, for a batch that is far beyond it, later.
    pub(super) fn roll_at(&mut self, base: i64, now_ms: i64) -> Result<i64, LogError> {
        self.check_online()?;
        let config = self.config.clone();
        if let Some(active) = self.segments.last_mut() {
            if active.base_offset() == base && active.size() == 0 {
                return Ok(base);
            }
            active.seal(&config)?;
        }
        // State as of the new segment's first offset, so that recovery need not go further back.
        let dir = self.dir.clone();
        self.producers.set_end_offset(base);
        self.producers.take_snapshot(&dir)?;
        let segment = Segment::create(&self.dir, base, &config, now_ms)?;
        self.segments.push(segment);
        self.names.change();
        Ok(base)
    }

    /// Writes all to the device up to the LEO and raises the recovery point, holding the lock all the time: for a stop.
    pub fn flush(&mut self, now_ms: i64) -> Result<(), LogError> {
        while let Some(task) = self.begin_flush(self.log_end, now_ms)? {
            task.run()?;
            self.finish_flush(&task);
        }
        Ok(())
    }

    /// What there is to flush below `up_to`, or a first part of it: open files, their index entries written. `None` if
    /// nothing is.
    pub fn begin_flush(&mut self, up_to: i64, now_ms: i64) -> Result<Option<FlushTask>, LogError> {
        self.check_online()?;
        let up_to = up_to.min(self.log_end);
        let data = up_to > self.recovery_point;
        if !data && !self.names_are_due() {
            return Ok(None);
        }
        let mut task = FlushTask {
            files: Vec::new(),
            names: (self.names.changed != self.names.synced)
                .then(|| (self.dir.clone(), self.names.changed)),
            parent: self.names.parent,
            up_to: if data { up_to } else { self.recovery_point },
            truncations: self.truncations,
            now_ms,
        };
        if data {
            self.gather(&mut task)?;
        }
        Ok(Some(task))
    }

    /// The files of the segments from the recovery point on, and how far they reach.
    fn gather(&mut self, task: &mut FlushTask) -> Result<(), LogError> {
        let config = self.config.clone();
        let first = self.segments.floor(self.recovery_point).unwrap_or(0);
        for at in first..self.segments.len() {
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            let base = segment.base_offset();
            if base >= task.up_to {
                break;
            }
            if at >= first + SEGMENTS {
                task.up_to = base;
                break;
            }
            segment.files_to_flush(&config, &mut task.files)?;
            let snapshot = segment_file(&self.dir, base, FileKind::Snapshot);
            if let Some(file) = disk::open_if_exists(&snapshot)? {
                task.files.push((snapshot, Arc::new(file)));
            }
        }
        Ok(())
    }

    /// The device has it.
    pub fn finish_flush(&mut self, task: &FlushTask) {
        if task.truncations == self.truncations {
            self.recovery_point = self.recovery_point.max(task.up_to.min(self.log_end));
        }
        if let Some((_, state)) = task.names {
            self.names.synced = self.names.synced.max(state);
            self.names.due &= self.names.synced != self.names.changed;
            self.names.parent &= !task.parent;
        }
        self.last_flush_ms = task.now_ms;
    }

    /// A recovery checked all below, and the device has it.
    pub(crate) fn raise_recovery_point(&mut self, offset: i64) {
        self.recovery_point = self.recovery_point.max(offset.min(self.log_end));
    }

    /// True when `flush.ms` has passed since the last flush and there is something to flush.
    pub fn flush_is_due(&self, now_ms: i64) -> bool {
        self.log_end > self.recovery_point
            && now_ms.saturating_sub(self.last_flush_ms) >= self.config.flush_ms
    }

    /// True when `flush.messages` have come since the last flush: who appended flushes before it answers.
    pub fn flush_is_due_by_count(&self) -> bool {
        self.log_end.saturating_sub(self.recovery_point) >= self.config.flush_messages
    }

    /// Base offset of the active segment: what lies below belongs on the device (a rolled segment is flushed soon).
    pub fn sealed_end(&self) -> i64 {
        self.segments.last().map_or(0, Segment::base_offset)
    }

    /// Names in the directory are not on the device yet, and there are records that need them. A log without any needs none:
    /// its epochs and its topic's id come anew with the leader's. Nor does a new one of which nothing was flushed yet: a
    /// topic of thousands of partitions would sync thousands of files and directories for records that are not safe anyway.
    fn names_are_due(&self) -> bool {
        self.names.due && !self.names.parent && (self.log_end > 0 || self.size() > 0)
    }

    /// As at a clean stop: a snapshot of the producers, indexes cut, all on the device, files closed. Nothing is served after.
    pub fn close(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        let dir = self.dir.clone();
        self.producers.take_snapshot(&dir)?;
        let config = self.config.clone();
        for segment in self.segments.iter_mut() {
            segment.close(&config)?;
        }
        self.flush(now_ms)?;
        for segment in self.segments.iter_mut() {
            segment.close_file();
        }
        self.tail.clear();
        self.readers.forget();
        // What came now would not be on the device when the clean stop is noted.
        self.closed = true;
        Ok(())
    }
}
