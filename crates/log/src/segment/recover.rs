//! Recovery of a segment: every batch is checked, what follows the first bad one is cut, the indexes are made anew.

use super::{BatchScan, Segment};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::index::{AbortedEntry, OffsetIndex, OffsetPosition, TimeEntry, TimeIndex, TxnIndex};
use crate::naming::FileKind;
use gracchus_record::Entry;

/// What a recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes cut from the end.
    pub truncated: u64,
    /// The offset after the last batch.
    pub next_offset: i64,
}

impl Segment {
    /// Recovers. `follow` sees every good batch in order and may add aborted transactions, which go to the transaction
    /// index.
    pub fn recover(
        &mut self,
        config: &LogConfig,
        mut follow: impl FnMut(&Entry, &mut Vec<AbortedEntry>) -> Result<(), LogError>,
    ) -> Result<Recovered, LogError> {
        let (base, log, index, time, txn) = (
            self.base_offset,
            self.path(FileKind::Log),
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
            self.path(FileKind::TxnIndex),
        );
        let file = self.file()?;
        self.index = OffsetIndex::fresh();
        self.time_index = TimeIndex::fresh();
        let mut newest = TimeEntry {
            timestamp: -1,
            offset: base,
        };
        let mut aborted = Vec::new();
        let mut last_entry = 0u64;
        let mut valid = 0u64;
        let mut next_offset = base;
        let mut why = None;
        let mut scan = BatchScan::new(&file, &log, 0, self.size);
        while let Some((position, entry)) = scan.advance()? {
            if let Err(e) = entry.check_crc() {
                why = Some(e.to_string());
                break;
            }
            let last = entry.last_offset();
            let fits = (0..=i64::from(i32::MAX)).contains(&last.saturating_sub(base));
            if !fits || last < next_offset || last == i64::MAX {
                why = Some(format!("offset {last} does not belong here"));
                break;
            }
            if entry.max_timestamp() > newest.timestamp {
                newest = TimeEntry {
                    timestamp: entry.max_timestamp(),
                    offset: last,
                };
            }
            if valid - last_entry > u64::from(config.index_interval_bytes) {
                let at = OffsetPosition {
                    offset: last,
                    position,
                };
                // While recovering, entries are bounded by the file that they describe, not by segment.index.bytes.
                self.index.push(&index, base, at, 0)?;
                self.time_index.maybe_push(&time, base, newest, 0)?;
                last_entry = valid;
            }
            follow(&entry, &mut aborted)?;
            valid = u64::from(position) + entry.size() as u64;
            next_offset = last + 1;
        }
        let truncated = self.size.saturating_sub(valid);
        if truncated > 0 {
            tracing::warn!(
                "{}: {}; the last {truncated} of {} bytes are cut, the log goes on at offset {next_offset}",
                log.display(),
                why.as_deref().unwrap_or("a batch at its end is incomplete"),
                self.size,
            );
            file.set_len(valid)
                .map_err(|e| LogError::io("cut", &log, e))?;
        }
        self.size = valid;
        self.reserved_to = 0;
        self.bytes_since_entry = 0;
        self.first_timestamp = None;
        self.max_timestamp = Some(newest);
        self.finish_recovery(newest, config)?;
        TxnIndex::reset(&txn)?;
        self.add_aborts(&aborted)?;
        Ok(Recovered {
            truncated,
            next_offset,
        })
    }

    fn finish_recovery(&mut self, newest: TimeEntry, _config: &LogConfig) -> Result<(), LogError> {
        let (base, index, time) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        self.time_index.maybe_push(&time, base, newest, 0)?;
        self.index.cut_file(&index)?;
        self.time_index.cut_file(&time)
    }
}
