//! Moving a log to another directory: what it means for the log that is copied, and for the copy.

use super::PartitionLog;
use crate::error::LogError;
use std::path::Path;
use std::sync::Arc;

impl PartitionLog {
    /// While a copy of it is made, neither retention nor compaction takes anything out of it: the copy would not know.
    pub(crate) fn set_moving(&mut self, moving: bool) {
        self.moving = moving;
    }

    pub fn is_moving(&self) -> bool {
        self.moving
    }

    /// How often it was cut: when that changes, what was read from its files before may not be what it holds.
    pub fn cuts(&self) -> u64 {
        self.truncations
    }

    /// What lies between the end and `offset` was compacted away in the log that this is a copy of: it goes on there.
    pub fn skip_to(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        if offset > self.log_end {
            self.roll_at(offset, now_ms)?;
            self.log_end = offset;
        }
        Ok(())
    }

    /// The copy takes over what the records do not tell: epochs that began without one, the log's start, what is committed.
    pub(crate) fn take_over_from(&mut self, other: &mut Self) -> Result<(), LogError> {
        if let (None, Some(id)) = (self.topic_id, other.topic_id) {
            self.assign_topic_id(id)?;
        }
        for entry in other.epochs.entries() {
            if self
                .latest_epoch()
                .is_none_or(|latest| latest < entry.epoch)
            {
                self.assign_epoch_start(entry.epoch, entry.start_offset)?;
            }
        }
        self.update_high_watermark(other.high_watermark);
        if other.log_start > self.log_start {
            self.delete_records(other.log_start)?;
        }
        Ok(())
    }

    /// Its directory was renamed.
    pub(crate) fn set_dir(&mut self, to: &Path) {
        let dir: Arc<Path> = Arc::from(to);
        for segment in self.segments.iter_mut() {
            segment.set_dir(&dir);
        }
        for files in &mut self.deleted {
            for path in &mut files.paths {
                if let Some(name) = path.file_name() {
                    *path = dir.join(name);
                }
            }
        }
        self.dir = dir;
        // A flush that is under way syncs the names of a directory that is not there.
        self.names.change();
    }
}
