//! Finding things in a segment: offsets, timestamps, its end.

use super::{BatchScan, BatchSpot, HeaderScan, Segment};
use crate::disk;
use crate::error::LogError;
use crate::index::{AbortedEntry, TimeEntry, TxnIndex};
use crate::naming::FileKind;
use crate::partition::TimestampOffset;
use bytes::{Bytes, BytesMut};
use gracchus_record::entry::{PREFIX_SIZE, Prefix};

/// Most plain bytes of a compressed batch that is looked into.
pub(crate) const DECOMPRESS_LIMIT: usize = 256 << 20;

impl Segment {
    /// The first batch with a last offset at or after `offset`.
    pub fn find(&mut self, offset: i64) -> Result<Option<BatchSpot>, LogError> {
        if self.size == 0 {
            return Ok(None);
        }
        let index = self.path(FileKind::OffsetIndex);
        let start = self
            .index
            .lookup(&index, self.base_offset, offset)?
            .position;
        let start = u64::from(start);
        let found = self.scan_for(offset, start)?;
        match found {
            Found::Spot(spot) => Ok(Some(spot)),
            Found::End => Ok(None),
            // The entry did not lead to a batch: a damaged index costs time, not data.
            Found::NoBatch if start > 0 => {
                tracing::warn!(
                    "{} does not fit its log; reading without it",
                    index.display()
                );
                match self.scan_for(offset, 0)? {
                    Found::Spot(spot) => Ok(Some(spot)),
                    _ => Ok(None),
                }
            }
            Found::NoBatch => Ok(None),
        }
    }

    /// Bytes of the file; fewer than `len` if it ends before.
    pub fn read_at(&mut self, position: u32, len: u64) -> Result<Bytes, LogError> {
        let file = self.file()?;
        let mut bytes = BytesMut::zeroed(usize::try_from(len).unwrap_or(usize::MAX));
        let got = disk::read_at_most(&file, &mut bytes, position.into())
            .map_err(|e| LogError::io("read", &self.path(FileKind::Log), e))?;
        bytes.truncate(got);
        Ok(bytes.freeze())
    }

    /// The size of the batch that begins at `position`; 0 if none does.
    pub fn batch_size_at(&mut self, position: u32) -> Result<u64, LogError> {
        let head = self.read_at(position, PREFIX_SIZE as u64)?;
        Ok(Prefix::parse(&head).map_or(0, |prefix| prefix.size as u64))
    }

    fn scan_for(&mut self, offset: i64, start: u64) -> Result<Found, LogError> {
        if start >= self.size {
            return Ok(if start == self.size {
                Found::End
            } else {
                Found::NoBatch
            });
        }
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let mut scan = HeaderScan::new(&file, &path, start, self.size);
        while let Some(spot) = scan.advance()? {
            if spot.last_offset >= offset {
                return Ok(Found::Spot(spot));
            }
        }
        Ok(if scan.stopped_at() == self.size {
            Found::End
        } else {
            Found::NoBatch
        })
    }

    /// The offset after the last batch.
    pub fn next_offset(&mut self) -> Result<i64, LogError> {
        if self.size == 0 {
            return Ok(self.base_offset);
        }
        let (base, index) = (self.base_offset, self.path(FileKind::OffsetIndex));
        let start = self.index.last(&index, base)?.map_or(0, |e| e.position);
        for start in [u64::from(start), 0] {
            let (file, path) = (self.file()?, self.path(FileKind::Log));
            let mut scan = HeaderScan::new(&file, &path, start, self.size);
            let mut next = None;
            while let Some(spot) = scan.advance()? {
                next = Some(spot.last_offset.saturating_add(1));
            }
            if let Some(next) = next {
                return Ok(next);
            }
        }
        Ok(base)
    }

    /// The largest timestamp and the last offset of its batch; -1 without any. From the time index unless `scan`.
    pub fn max_timestamp(&mut self, scan: bool) -> Result<TimeEntry, LogError> {
        if let Some(known) = self.max_timestamp {
            return Ok(known);
        }
        let newest = if scan {
            self.read_max_timestamp()?
        } else {
            let time = self.path(FileKind::TimeIndex);
            self.time_index.last(&time, self.base_offset)?
        };
        self.max_timestamp = Some(newest);
        Ok(newest)
    }

    /// From the time index's last entry and the batches after it.
    pub(super) fn read_max_timestamp(&mut self) -> Result<TimeEntry, LogError> {
        if self.size == 0 {
            let time = self.path(FileKind::TimeIndex);
            return self.time_index.last(&time, self.base_offset);
        }
        self.newest_up_to(self.size)
    }

    /// The same of the batches below `end`; the indexes hold none above it.
    pub(super) fn newest_up_to(&mut self, end: u64) -> Result<TimeEntry, LogError> {
        let (base, time, index) = (
            self.base_offset,
            self.path(FileKind::TimeIndex),
            self.path(FileKind::OffsetIndex),
        );
        let mut newest = self.time_index.last(&time, base)?;
        let start = self.index.lookup(&index, base, newest.offset)?.position;
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let mut scan = HeaderScan::new(&file, &path, start.into(), end);
        while let Some(spot) = scan.advance()? {
            if spot.max_timestamp > newest.timestamp {
                newest = TimeEntry {
                    timestamp: spot.max_timestamp,
                    offset: spot.last_offset,
                };
            }
        }
        Ok(newest)
    }

    /// What retention by time goes by: the largest timestamp, or the file's modification time without one, or if it lies
    /// in the future (a producer's clock in microseconds would keep the segment for ever; Kafka does keep it).
    pub fn retention_timestamp(&mut self, now_ms: i64) -> Result<i64, LogError> {
        let newest = self.max_timestamp(false)?.timestamp;
        if (0..=now_ms).contains(&newest) {
            return Ok(newest);
        }
        self.last_modified_ms()
    }

    pub fn last_modified_ms(&self) -> Result<i64, LogError> {
        let path = self.path(FileKind::Log);
        let modified = std::fs::metadata(&path)
            .and_then(|m| m.modified())
            .map_err(|e| LogError::io("read the time of", &path, e))?;
        let since = modified.duration_since(std::time::UNIX_EPOCH);
        Ok(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The first record at or after `from` with a timestamp at or after `timestamp`.
    pub fn find_by_timestamp(
        &mut self,
        timestamp: i64,
        from: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        if self.size == 0 {
            return Ok(None);
        }
        let (base, time, index) = (
            self.base_offset,
            self.path(FileKind::TimeIndex),
            self.path(FileKind::OffsetIndex),
        );
        let before = self.time_index.lookup(&time, base, timestamp)?;
        let start = self.index.lookup(&index, base, before.offset.max(from))?;
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let mut heads = HeaderScan::new(&file, &path, start.position.into(), self.size);
        while let Some(spot) = heads.advance()? {
            if spot.max_timestamp < timestamp || spot.last_offset < from {
                continue;
            }
            let mut batch = BatchScan::new(&file, &path, spot.position.into(), spot.end().into());
            let Some((_, entry)) = batch.advance()? else {
                continue;
            };
            let mut found = None;
            let looked = entry.for_each_record(DECOMPRESS_LIMIT, |r| {
                if found.is_none() && r.timestamp >= timestamp && r.offset >= from {
                    found = Some(TimestampOffset {
                        timestamp: r.timestamp,
                        offset: r.offset,
                        leader_epoch: spot.leader_epoch,
                    });
                }
                Ok::<_, gracchus_record::RecordError>(())
            });
            looked.map_err(|e| {
                LogError::corrupt(&path, format!("the batch at byte {}: {e}", spot.position))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Calls `each` for every batch that ends at or after `offset`.
    pub fn for_each_from(
        &mut self,
        offset: i64,
        each: impl FnMut(&gracchus_record::Entry),
    ) -> Result<(), LogError> {
        self.for_each_between(offset, i64::MAX, each)
    }

    /// Calls `each` for every batch that ends at or after `offset` and below `until`.
    pub fn for_each_between(
        &mut self,
        offset: i64,
        until: i64,
        mut each: impl FnMut(&gracchus_record::Entry),
    ) -> Result<(), LogError> {
        let Some(spot) = self.find(offset)? else {
            return Ok(());
        };
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let mut scan = BatchScan::new(&file, &path, spot.position.into(), self.size);
        while let Some((_, entry)) = scan.advance()? {
            if entry.last_offset() >= until {
                break;
            }
            each(&entry);
        }
        Ok(())
    }

    /// Calls `each` for the header of every batch that ends at or after `offset`.
    pub fn for_each_header_from(
        &mut self,
        offset: i64,
        mut each: impl FnMut(&BatchSpot),
    ) -> Result<(), LogError> {
        let Some(spot) = self.find(offset)? else {
            return Ok(());
        };
        let (file, path) = (self.file()?, self.path(FileKind::Log));
        let mut scan = HeaderScan::new(&file, &path, spot.position.into(), self.size);
        while let Some(spot) = scan.advance()? {
            each(&spot);
        }
        Ok(())
    }

    /// Aborted transactions whose marker is here.
    pub fn aborted(&self) -> Result<Vec<AbortedEntry>, LogError> {
        if !self.has_aborts {
            return Ok(Vec::new());
        }
        TxnIndex::read(&self.path(FileKind::TxnIndex))
    }
}

enum Found {
    Spot(BatchSpot),
    /// All batches were looked at.
    End,
    /// The bytes there are no batch.
    NoBatch,
}
