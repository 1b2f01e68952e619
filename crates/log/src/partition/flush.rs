//! Rolling and flushing.

use super::PartitionLog;
use crate::error::LogError;
use crate::naming::{FileKind, segment_file};
use crate::segment::Segment;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A flush whose waiting is done without the log's lock: [`FlushTask::run`], then [`PartitionLog::finish_flush`].
#[derive(Debug)]
pub struct FlushTask {
    files: Vec<(PathBuf, Arc<File>)>,
    up_to: i64,
    truncations: u64,
    now_ms: i64,
}

impl FlushTask {
    /// Waits for the device.
    pub fn run(&self) -> Result<(), LogError> {
        for (path, file) in &self.files {
            file.sync_data()
                .map_err(|e| LogError::io("flush", path, e))?;
        }
        Ok(())
    }
}

impl PartitionLog {
    /// Begins a new segment now; its base offset. Nothing happens if the active one is empty.
    pub fn roll(&mut self, now_ms: i64) -> Result<i64, LogError> {
        self.check_online()?;
        let base = self.log_end;
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
        Ok(base)
    }

    /// Writes all to the device up to the LEO and raises the recovery point.
    pub fn flush(&mut self, now_ms: i64) -> Result<(), LogError> {
        if let Some(task) = self.begin_flush(self.log_end, now_ms)? {
            task.run()?;
            self.finish_flush(&task);
        }
        Ok(())
    }

    /// What there is to flush below `up_to`: the files, their index entries written. `None` if nothing is.
    pub fn begin_flush(&mut self, up_to: i64, now_ms: i64) -> Result<Option<FlushTask>, LogError> {
        self.check_online()?;
        if up_to <= self.recovery_point {
            return Ok(None);
        }
        let config = self.config.clone();
        let first = self.segments.floor(self.recovery_point).unwrap_or(0);
        let mut files = Vec::new();
        for at in first..self.segments.len() {
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            if segment.base_offset() >= up_to {
                break;
            }
            segment.flush_indexes(&config)?;
            files.push((segment.path(FileKind::Log), segment.file()?));
            let snapshot = segment_file(&self.dir, segment.base_offset(), FileKind::Snapshot);
            if let Ok(file) = File::open(&snapshot) {
                files.push((snapshot, Arc::new(file)));
            }
        }
        Ok(Some(FlushTask {
            files,
            up_to,
            truncations: self.truncations,
            now_ms,
        }))
    }

    /// The device has it.
    pub fn finish_flush(&mut self, task: &FlushTask) {
        if task.truncations == self.truncations {
            self.recovery_point = self.recovery_point.max(task.up_to.min(self.log_end));
        }
        self.last_flush_ms = task.now_ms;
    }

    /// True when `flush.ms` has passed since the last flush and there is something to flush.
    pub fn flush_is_due(&self, now_ms: i64) -> bool {
        self.log_end > self.recovery_point
            && now_ms.saturating_sub(self.last_flush_ms) >= self.config.flush_ms
    }

    /// Base offset of the active segment: what lies below belongs on the device (a rolled segment is flushed soon).
    pub fn sealed_end(&self) -> i64 {
        self.segments.last().map_or(0, Segment::base_offset)
    }

    /// As at a clean stop: all on the device, a snapshot of the producers, indexes cut, files closed.
    pub fn close(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        self.flush(now_ms)?;
        let dir = self.dir.clone();
        self.producers.take_snapshot(&dir)?;
        let config = self.config.clone();
        for segment in self.segments.iter_mut() {
            segment.close(&config)?;
        }
        self.tail.clear();
        Ok(())
    }
}
