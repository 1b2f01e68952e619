//! A log's segments, in order of their base offsets.

use super::Segment;

/// Never empty in a live log.
#[derive(Debug, Default)]
pub struct SegmentList {
    segments: Vec<Segment>,
}

impl SegmentList {
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.segments.iter()
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Segment> {
        self.segments.iter_mut()
    }

    pub fn get(&self, at: usize) -> Option<&Segment> {
        self.segments.get(at)
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut Segment> {
        self.segments.get_mut(at)
    }

    pub fn first(&self) -> Option<&Segment> {
        self.segments.first()
    }

    pub fn last(&self) -> Option<&Segment> {
        self.segments.last()
    }

    pub fn last_mut(&mut self) -> Option<&mut Segment> {
        self.segments.last_mut()
    }

    /// In its place; a segment of the same base offset is replaced and given back.
    pub fn insert(&mut self, segment: Segment) -> Option<Segment> {
        let at = self
            .segments
            .partition_point(|s| s.base_offset() < segment.base_offset());
        match self.segments.get_mut(at) {
            Some(same) if same.base_offset() == segment.base_offset() => {
                Some(std::mem::replace(same, segment))
            }
            _ => {
                self.segments.insert(at, segment);
                None
            }
        }
    }

    pub fn push(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    /// The place of the segment that holds `offset`: the last with a base offset at or before it.
    pub fn floor(&self, offset: i64) -> Option<usize> {
        self.segments
            .partition_point(|s| s.base_offset() <= offset)
            .checked_sub(1)
    }

    /// Takes the first `n` out.
    pub fn drain_front(&mut self, n: usize) -> Vec<Segment> {
        self.segments.drain(..n.min(self.segments.len())).collect()
    }

    /// Takes all after the first `n` out.
    pub fn split_off(&mut self, n: usize) -> Vec<Segment> {
        self.segments.split_off(n.min(self.segments.len()))
    }

    pub fn remove(&mut self, at: usize) -> Option<Segment> {
        (at < self.segments.len()).then(|| self.segments.remove(at))
    }

    pub fn bases(&self) -> Vec<i64> {
        self.segments.iter().map(Segment::base_offset).collect()
    }

    pub fn size(&self) -> u64 {
        self.segments.iter().map(Segment::size).sum()
    }
}
