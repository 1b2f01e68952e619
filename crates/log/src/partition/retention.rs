//! Deleting old segments: by time, by size, below the log start offset. Files are renamed to `.deleted` at once and
//! removed after `file.delete.delay.ms`, so that a reader in the middle of one is not disturbed.

use super::{PartitionLog, RetentionOutcome};
use crate::disk;
use crate::error::LogError;
use crate::naming::{FileKind, segment_file, segment_file_with};
use crate::segment::Segment;
use std::path::PathBuf;

/// Files renamed to `.deleted`, and when they go.
#[derive(Debug)]
pub(super) struct DeletedFiles {
    pub(super) paths: Vec<PathBuf>,
    at_ms: i64,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    LogStart,
    Size { surplus: u64 },
    Time { now_ms: i64 },
}

impl PartitionLog {
    /// Deletes segments by time, size and log start offset; renames to `.deleted`, files go after
    /// `file.delete.delay.ms`. A log that is being moved keeps all until it is there, as in Kafka.
    pub fn apply_retention(&mut self, now_ms: i64) -> Result<RetentionOutcome, LogError> {
        self.check_online()?;
        let mut outcome = RetentionOutcome::default();
        if self.moving {
            return Ok(outcome);
        }
        self.delete_by(Rule::LogStart, now_ms, &mut outcome)?;
        if !self.config.delete {
            return Ok(outcome);
        }
        if let Ok(most) = u64::try_from(self.config.retention_bytes) {
            let surplus = self.size().saturating_sub(most);
            self.delete_by(Rule::Size { surplus }, now_ms, &mut outcome)?;
        }
        if self.config.retention_ms >= 0 {
            self.delete_by(Rule::Time { now_ms }, now_ms, &mut outcome)?;
        }
        Ok(outcome)
    }

    fn delete_by(
        &mut self,
        mut rule: Rule,
        now_ms: i64,
        outcome: &mut RetentionOutcome,
    ) -> Result<(), LogError> {
        let mut count = 0;
        loop {
            let next = self.segments.get(count + 1).map(Segment::base_offset);
            let upper = next.unwrap_or(self.log_end);
            let (log_start, retention_ms) = (self.log_start, self.config.retention_ms);
            let Some(segment) = self.segments.get_mut(count) else {
                break;
            };
            // The log start can never pass the high watermark; an empty active segment stays.
            if self.high_watermark < upper || (next.is_none() && segment.size() == 0) {
                break;
            }
            let goes = match &mut rule {
                Rule::LogStart => next.is_some_and(|n| n <= log_start),
                Rule::Size { surplus } => match surplus.checked_sub(segment.size()) {
                    Some(left) => {
                        *surplus = left;
                        true
                    }
                    None => false,
                },
                Rule::Time { now_ms } => {
                    now_ms.saturating_sub(segment.retention_timestamp(*now_ms)?) > retention_ms
                }
            };
            if !goes {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        if count == self.segments.len() {
            self.roll(now_ms)?;
        }
        let new_start = self.segments.get(count).map(Segment::base_offset);
        if let Some(start) = new_start
            && start > self.log_start
        {
            self.delete_records(start)?;
        }
        let gone = self.segments.drain_front(count);
        outcome.deleted_segments += gone.len();
        outcome.deleted_bytes += gone.iter().map(Segment::size).sum::<u64>();
        tracing::info!(
            "{}: {count} segments below offset {} deleted by {rule:?}; the log starts at {}",
            self.partition,
            new_start.unwrap_or(self.log_end),
            self.log_start
        );
        self.discard(gone, now_ms)
    }

    /// Renames the files of segments that are out of the list already.
    pub(crate) fn discard(&mut self, segments: Vec<Segment>, now_ms: i64) -> Result<(), LogError> {
        self.discard_but(segments, None, now_ms)
    }

    /// As `discard`, but keeps the snapshot at `keep`: a cleaned segment takes that place.
    pub(crate) fn discard_but(
        &mut self,
        segments: Vec<Segment>,
        keep: Option<i64>,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let mut paths = Vec::new();
        let mut failed = None;
        for segment in segments {
            let base = segment.base_offset();
            let forgotten = Some(base) != keep && self.producers.forget_snapshot(base);
            let snapshot = forgotten.then_some(FileKind::Snapshot);
            for kind in FileKind::SEGMENT.into_iter().chain(snapshot) {
                let to = segment_file_with(&self.dir, base, kind, ".deleted");
                match disk::rename_if_exists(&segment_file(&self.dir, base, kind), &to) {
                    Ok(true) => paths.push(to),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        if !paths.is_empty() {
            let at_ms = now_ms.saturating_add(self.config.file_delete_delay_ms);
            self.deleted.push(DeletedFiles { paths, at_ms });
        }
        failed.map_or(Ok(()), Err)
    }

    /// The `.deleted` files whose time has come, for [`remove_files`]: a large file takes its time, which the log's lock is
    /// not held for.
    pub fn take_deleted_files(&mut self, now_ms: i64) -> Vec<PathBuf> {
        let due = self.deleted.extract_if(.., |files| files.at_ms <= now_ms);
        due.flat_map(|files| files.paths).collect()
    }
}

/// Removes files; how many there were.
pub fn remove_files(paths: &[PathBuf]) -> usize {
    let removed = |path: &&PathBuf| match disk::remove_if_exists(path) {
        Ok(there) => there,
        Err(error) => {
            tracing::warn!("{error}; it goes at the next start");
            false
        }
    };
    paths.iter().filter(removed).count()
}
