//! A segment's way to the device.

use super::Segment;
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::naming::FileKind;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

impl Segment {
    /// Writes waiting index entries and adds the segment's open files to `files`, for whoever waits for the device.
    pub(crate) fn files_to_flush(
        &mut self,
        config: &LogConfig,
        files: &mut Vec<(PathBuf, Arc<File>)>,
    ) -> Result<(), LogError> {
        if self.deferred {
            return Ok(()); // it has no files yet
        }
        let (index, time) = (
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.index.write_out(&index, config.max_index_entries())?;
        self.time_index
            .write_out(&time, config.max_time_index_entries())?;
        files.push((self.path(FileKind::Log), self.file()?));
        for path in [index, time, self.path(FileKind::TxnIndex)] {
            if let Some(file) = disk::open_if_exists(&path)? {
                files.push((path, Arc::new(file)));
            }
        }
        Ok(())
    }

    /// Gives all of the segment to the device, and waits.
    pub fn flush(&mut self, config: &LogConfig) -> Result<(), LogError> {
        let mut files = Vec::new();
        self.files_to_flush(config, &mut files)?;
        for (path, file) in &files {
            file.sync_data().map_err(|e| LogError::sync(path, e))?;
            crate::disk::synced(path, false);
        }
        Ok(())
    }
}
