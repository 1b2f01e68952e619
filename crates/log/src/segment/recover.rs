//! Recovery of a segment: every batch is checked, what follows the first bad one is cut, the indexes are made anew.

use super::{BatchScan, HeaderScan, Segment, fits_in_index};
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

/// Where the recovery of a segment begins; what lies before is taken as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    pub position: u32,
    /// The least that the next batch's offsets may be.
    pub offset: i64,
}

impl Segment {
    /// Recovers all of it.
    pub fn from_start(&self) -> Resume {
        Resume {
            position: 0,
            offset: self.base_offset,
        }
    }

    /// Where the batches from `offset` on begin, if all below were flushed with their index entries and these lead there.
    /// `None`: they do not, so nothing is to be trusted.
    pub fn resume_at(&mut self, offset: i64) -> Result<Option<Resume>, LogError> {
        let (base, index, log) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::Log),
        );
        let start = self.index.lookup(&index, base, offset - 1)?.position;
        if u64::from(start) >= self.size {
            return Ok(None);
        }
        let mut next = (start == 0).then_some(base);
        let file = self.file()?;
        let mut scan = HeaderScan::new(&file, &log, start.into(), self.size);
        while let Some(spot) = scan.advance()? {
            if spot.last_offset >= offset {
                return Ok(next.map(|offset| Resume {
                    position: spot.position,
                    offset,
                }));
            }
            if spot.last_offset < next.unwrap_or(base) {
                return Ok(None);
            }
            next = Some(spot.last_offset + 1);
        }
        let end = u32::try_from(scan.stopped_at()).ok();
        let resume = end.zip(next.filter(|next| *next == offset));
        Ok(resume.map(|(position, offset)| Resume { position, offset }))
    }

    /// Makes the indexes ready for what a recovery finds from `resume` on; the largest timestamp before it.
    fn begin_recovery(&mut self, resume: Resume) -> Result<TimeEntry, LogError> {
        let (base, index, time, txn) = (
            self.base_offset,
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
            self.path(FileKind::TxnIndex),
        );
        if resume.position == 0 {
            // Emptied at once: entries of both times, mixed by a second crash, would lead astray.
            self.index = OffsetIndex::fresh();
            self.time_index = TimeIndex::fresh();
            self.index.cut_file(&index)?;
            self.time_index.cut_file(&time)?;
            TxnIndex::reset(&txn)?;
            return Ok(TimeEntry {
                timestamp: -1,
                offset: base,
            });
        }
        self.index.truncate_to(&index, base, resume.offset)?;
        self.time_index.truncate_to(&time, base, resume.offset)?;
        TxnIndex::truncate_to(&txn, resume.offset)?;
        self.newest_up_to(resume.position.into())
    }

    /// Recovers from `resume` on. `follow` sees every good batch in order and may add aborted transactions, which go to the
    /// transaction index.
    pub fn recover(
        &mut self,
        config: &LogConfig,
        resume: Resume,
        mut follow: impl FnMut(&Entry, &mut Vec<AbortedEntry>) -> Result<(), LogError>,
    ) -> Result<Recovered, LogError> {
        let (base, log, index, time) = (
            self.base_offset,
            self.path(FileKind::Log),
            self.path(FileKind::OffsetIndex),
            self.path(FileKind::TimeIndex),
        );
        let file = self.file()?;
        let mut newest = self.begin_recovery(resume)?;
        let mut aborted = Vec::new();
        let mut last_entry = u64::from(self.index.last(&index, base)?.map_or(0, |e| e.position));
        let mut valid = u64::from(resume.position);
        let mut next_offset = resume.offset;
        let mut why = None;
        let mut scan = BatchScan::new(&file, &log, valid, self.size);
        while let Some((position, entry)) = scan.advance()? {
            if let Err(e) = entry.check_crc() {
                why = Some(e.to_string());
                break;
            }
            let last = entry.last_offset();
            if last < next_offset || last == i64::MAX {
                why = Some(format!("offset {last} does not belong here"));
                break;
            }
            if !fits_in_index(base, last) {
                return Err(LogError::OffsetOverflow { path: log, base });
            }
            if entry.max_timestamp() > newest.timestamp {
                newest = TimeEntry {
                    timestamp: entry.max_timestamp(),
                    offset: last,
                };
            }
            if valid.saturating_sub(last_entry) > u64::from(config.index_interval_bytes) {
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
