//! Where small reads ended: a consumer that goes through old data in small steps finds its next batch without the index.

use super::LogPosition;
use std::collections::VecDeque;

/// Reads up to this are made into memory, which costs less than sending a region of the file.
pub(super) const SMALL_READ: u64 = 16 << 10;
/// Readers that are remembered; each is at one place.
const MOST: usize = 8;

/// The positions after the last small reads. Truncation and compaction must [`Readers::forget`] them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    places: VecDeque<LogPosition>,
}

impl Readers {
    /// Where the batch that begins at `offset` lies, if a read ended there.
    pub(super) fn position(&self, offset: i64, segment_base: i64) -> Option<u32> {
        self.places
            .iter()
            .find(|p| p.offset == offset && p.segment_base == segment_base)
            .map(|p| p.position)
    }

    /// A read ended here.
    pub(super) fn note(&mut self, end: LogPosition) {
        if self.places.len() >= MOST {
            self.places.pop_front();
        }
        self.places.push_back(end);
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.places = VecDeque::new();
    }
}
