//! Walking over the batches of a segment's file: headers alone, or whole.

use crate::disk;
use crate::error::LogError;
use bytes::{Bytes, BytesMut};
use gracchus_record::batch::HEADER_SIZE;
use gracchus_record::entry::{PREFIX_SIZE, Prefix};
use gracchus_record::{BatchHeader, Entry};
use std::fs::File;
use std::path::Path;

/// A batch's place and offsets, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSpot {
    pub position: u32,
    pub size: u32,
    pub magic: i8,
    /// First offset; in formats v0 and v1 the last one of a compressed set.
    pub base_offset: i64,
    pub last_offset: i64,
    pub max_timestamp: i64,
    /// -1 in old formats
    pub leader_epoch: i32,
}

impl BatchSpot {
    pub fn end(&self) -> u32 {
        self.position.saturating_add(self.size)
    }
}

/// Bytes read at a time when only headers are wanted: an index interval and the next header.
const HEADER_CHUNK: usize = 8 << 10;
/// Bytes read at a time when whole batches are wanted.
const BATCH_CHUNK: usize = 1 << 20;

/// Headers of the batches between two positions, in order. Ends before one that is cut short or no batch;
/// `stopped_at` then says where.
#[derive(Debug)]
pub struct HeaderScan<'a> {
    file: &'a File,
    path: &'a Path,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'a> HeaderScan<'a> {
    pub fn new(file: &'a File, path: &'a Path, position: u64, end: u64) -> Self {
        Self {
            file,
            path,
            position,
            end,
            buffer: Vec::new(),
            buffer_at: 0,
        }
    }

    /// The end of the last whole batch.
    pub fn stopped_at(&self) -> u64 {
        self.position
    }

    fn peek(&mut self, len: usize) -> Result<&[u8], LogError> {
        let inside = self.position >= self.buffer_at
            && self.position + len as u64 <= self.buffer_at + self.buffer.len() as u64;
        if !inside {
            let want = (self.end.saturating_sub(self.position)).min(HEADER_CHUNK as u64) as usize;
            self.buffer.resize(want, 0);
            let got = disk::read_at_most(self.file, &mut self.buffer, self.position)
                .map_err(|e| LogError::io("read", self.path, e))?;
            self.buffer.truncate(got);
            self.buffer_at = self.position;
        }
        let from = (self.position - self.buffer_at) as usize;
        let rest = self.buffer.get(from..).unwrap_or_default();
        Ok(rest.get(..len).unwrap_or(rest))
    }

    /// The next batch's header.
    pub fn advance(&mut self) -> Result<Option<BatchSpot>, LogError> {
        let (position, end) = (self.position, self.end);
        let head = self.peek(HEADER_SIZE)?;
        let spot = Prefix::parse(head)
            .ok()
            .and_then(|p| spot(p, head, position));
        let Some(spot) = spot.filter(|s| position + u64::from(s.size) <= end) else {
            return Ok(None);
        };
        self.position += u64::from(spot.size);
        Ok(Some(spot))
    }
}

/// The last offset of the last whole batch of `bytes`, which begin with a batch, and where it ends.
pub(crate) fn last_whole_batch(bytes: &[u8]) -> Option<(i64, u32)> {
    let mut end = 0u32;
    let mut last = None;
    while let Some(rest) = bytes.get(end as usize..)
        && let Some(spot) = Prefix::parse(rest).ok().and_then(|p| spot(p, rest, 0))
        && spot.size as usize <= rest.len()
    {
        end += spot.size;
        last = Some((spot.last_offset, end));
    }
    last
}

fn spot(prefix: Prefix, head: &[u8], position: u64) -> Option<BatchSpot> {
    let position = u32::try_from(position).ok()?;
    let size = u32::try_from(prefix.size).ok()?;
    if prefix.magic == 2 {
        let h = BatchHeader::parse(head).ok()?;
        return Some(BatchSpot {
            position,
            size,
            magic: 2,
            base_offset: h.base_offset,
            last_offset: h.last_offset(),
            max_timestamp: h.max_timestamp,
            leader_epoch: h.leader_epoch,
        });
    }
    let timestamp = match prefix.magic {
        1 => i64::from_be_bytes(*head.get(18..26)?.first_chunk()?),
        _ => -1,
    };
    Some(BatchSpot {
        position,
        size,
        magic: prefix.magic,
        base_offset: prefix.offset,
        last_offset: prefix.offset,
        max_timestamp: timestamp,
        leader_epoch: -1,
    })
}

/// Whole batches between two positions, in order, checksums not looked at. Ends like [`HeaderScan`].
#[derive(Debug)]
pub struct BatchScan<'a> {
    file: &'a File,
    path: &'a Path,
    position: u64,
    end: u64,
    buffer: Bytes,
}

impl<'a> BatchScan<'a> {
    pub fn new(file: &'a File, path: &'a Path, position: u64, end: u64) -> Self {
        Self {
            file,
            path,
            position,
            end,
            buffer: Bytes::new(),
        }
    }

    /// The end of the last whole batch.
    pub fn stopped_at(&self) -> u64 {
        self.position
    }

    /// The next batch and its position.
    pub fn advance(&mut self) -> Result<Option<(u32, Entry)>, LogError> {
        let left = self.end.saturating_sub(self.position);
        if self.buffer.len() < PREFIX_SIZE && left >= PREFIX_SIZE as u64 {
            self.fill(left.min(BATCH_CHUNK as u64) as usize)?;
        }
        let Ok(prefix) = Prefix::parse(&self.buffer) else {
            return Ok(None);
        };
        if prefix.size as u64 > left {
            return Ok(None);
        }
        if prefix.size > self.buffer.len() {
            self.fill(left.min(prefix.size.max(BATCH_CHUNK) as u64) as usize)?;
        }
        let Ok(entry) = Entry::parse(&self.buffer) else {
            return Ok(None);
        };
        let at = u32::try_from(self.position)
            .map_err(|_| LogError::corrupt(self.path, "it is larger than 4 GiB"))?;
        self.buffer = self.buffer.slice(entry.size()..);
        self.position += entry.size() as u64;
        Ok(Some((at, entry)))
    }

    fn fill(&mut self, want: usize) -> Result<(), LogError> {
        let mut buffer = BytesMut::zeroed(want);
        let got = disk::read_at_most(self.file, &mut buffer, self.position)
            .map_err(|e| LogError::io("read", self.path, e))?;
        buffer.truncate(got);
        self.buffer = buffer.freeze();
        Ok(())
    }
}
