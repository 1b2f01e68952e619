//! The newest batches of a log, kept in memory for its readers.
//!
//! Nothing is kept of a log that nobody reads at its end: what is only written costs no memory here. Batches as large as
//! a buffer of their own are kept as they arrived, header patched, payload shared with the request's buffer. Others are
//! copied, since their buffer is used again for the next requests: medium ones each, small ones into runs, which makes
//! short gather lists. All logs share one budget.

use crate::partition::LogPosition;
use bytes::Bytes;
use gracchus_kafka_proto::RecordsPart;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Batches below this are copied into runs.
const SMALL: usize = 8 << 10;
/// Batches below this are copied: they may be slices of a buffer that many requests share. Larger ones must not be.
pub const KEPT_AS_IT_CAME: usize = 288 << 10;
/// A run of small batches is closed at this size.
const RUN: usize = 64 << 10;
/// What a kept batch costs beyond its bytes.
const OVERHEAD: usize = 128;

/// How many bytes may be kept.
#[derive(Debug)]
pub struct TailBudget {
    all: usize,
    each: usize,
    used: AtomicUsize,
}

impl TailBudget {
    /// Of all logs together, and of each.
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            all,
            each,
            used: AtomicUsize::new(0),
        })
    }

    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    base_offset: i64,
    last_offset: i64,
    segment_base: i64,
    position: u32,
    size: u32,
}

/// A batch to be kept: `head` then `body`.
#[derive(Debug)]
pub struct KeptBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub segment_base: i64,
    pub position: u32,
    pub head: Bytes,
    pub body: Bytes,
}

#[derive(Debug)]
enum Piece {
    Batch {
        spot: Spot,
        head: Bytes,
        body: Bytes,
    },
    /// Batches one after the other in one buffer.
    Run {
        spots: Vec<Spot>,
        open: Vec<u8>,
        closed: Option<Bytes>,
    },
}

impl Piece {
    fn first(&self) -> Option<&Spot> {
        match self {
            Self::Batch { spot, .. } => Some(spot),
            Self::Run { spots, .. } => spots.first(),
        }
    }

    fn last_offset(&self) -> i64 {
        match self {
            Self::Batch { spot, .. } => spot.last_offset,
            Self::Run { spots, .. } => spots.last().map_or(-1, |s| s.last_offset),
        }
    }

    fn cost(&self) -> usize {
        match self {
            Self::Batch { head, body, .. } => head.len() + body.len() + OVERHEAD,
            Self::Run {
                spots,
                open,
                closed,
            } => {
                let bytes = closed.as_ref().map_or(open.len(), Bytes::len);
                bytes + spots.len() * size_of::<Spot>() + OVERHEAD
            }
        }
    }
}

/// What the tail holds of a read.
#[derive(Debug)]
pub struct TailRead {
    pub start: LogPosition,
    pub parts: Vec<RecordsPart>,
    pub bytes: u64,
}

/// The kept batches of one log, the last of them the log's last.
#[derive(Debug)]
pub struct Tail {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Somebody reads at the log's end.
    wanted: bool,
    /// Somebody did since the last [`Tail::clear_idle`].
    used: bool,
    budget: Arc<TailBudget>,
}

impl Tail {
    pub fn new(budget: Arc<TailBudget>) -> Self {
        Self {
            pieces: VecDeque::new(),
            bytes: 0,
            wanted: false,
            used: false,
            budget,
        }
    }

    /// Somebody has read all there is and waits for more: keep what comes.
    pub fn want(&mut self) {
        self.wanted = true;
        self.used = true;
    }

    /// Keeps a batch that was just appended, if there are readers for it; older ones give way to the budget.
    pub fn push(&mut self, batch: KeptBatch) {
        if !self.wanted {
            return;
        }
        let size = batch.head.len() + batch.body.len();
        if size + OVERHEAD > self.budget.each.min(self.budget.all) {
            // Larger than all that may be kept: the tail would have a hole.
            self.clear();
            return;
        }
        let spot = Spot {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            segment_base: batch.segment_base,
            position: batch.position,
            size: size as u32,
        };
        if size < SMALL {
            self.push_small(spot, &batch.head, &batch.body);
        } else {
            self.add(size + OVERHEAD);
            let (head, body) = if size < KEPT_AS_IT_CAME {
                (Bytes::new(), [&batch.head[..], &batch.body].concat().into())
            } else {
                (batch.head, batch.body)
            };
            self.pieces.push_back(Piece::Batch { spot, head, body });
        }
        self.make_room();
    }

    fn push_small(&mut self, spot: Spot, head: &Bytes, body: &Bytes) {
        let size = head.len() + body.len();
        let mut cost = size + size_of::<Spot>();
        let room = matches!(
            self.pieces.back(),
            Some(Piece::Run { open, closed: None, .. }) if open.len() + size <= RUN
        );
        if !room {
            if let Some(Piece::Run { open, closed, .. }) = self.pieces.back_mut()
                && closed.is_none()
            {
                let mut bytes = std::mem::take(open);
                bytes.shrink_to_fit();
                *closed = Some(bytes.into());
            }
            cost += OVERHEAD;
            self.pieces.push_back(Piece::Run {
                spots: Vec::new(),
                open: Vec::new(),
                closed: None,
            });
        }
        if let Some(Piece::Run { spots, open, .. }) = self.pieces.back_mut() {
            spots.push(spot);
            open.extend_from_slice(head);
            open.extend_from_slice(body);
        }
        self.add(cost);
    }

    fn add(&mut self, cost: usize) {
        self.bytes += cost;
        self.budget.used.fetch_add(cost, Relaxed);
    }

    fn pop_front(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.give_back(piece.cost());
        }
    }

    fn give_back(&mut self, cost: usize) {
        let cost = cost.min(self.bytes);
        self.bytes -= cost;
        self.budget.used.fetch_sub(cost, Relaxed);
    }

    fn make_room(&mut self) {
        while self.bytes > self.budget.each && self.pieces.len() > 1 {
            self.pop_front();
        }
        // Over the common budget, the one who appends gives way; the idle ones are emptied by `close_idle`.
        while self.budget.used() > self.budget.all && !self.pieces.is_empty() {
            self.pop_front();
        }
    }

    pub fn clear(&mut self) {
        self.pieces = VecDeque::new();
        let all = self.bytes;
        self.give_back(all);
    }

    /// Empties it, and keeps nothing more, if nobody used it since the last call.
    pub fn clear_idle(&mut self) {
        if !std::mem::take(&mut self.used) {
            self.wanted = false;
            self.clear();
        }
    }

    /// Forgets batches that begin at or after `offset`, or reach over it. If others went with them, all are forgotten: what
    /// comes next would not follow on what is here.
    pub fn truncate(&mut self, offset: i64) {
        while self
            .pieces
            .back()
            .is_some_and(|p| p.last_offset() >= offset)
        {
            if let Some(piece) = self.pieces.pop_back() {
                let others = piece.first().is_some_and(|s| s.last_offset < offset);
                self.give_back(piece.cost());
                if others {
                    self.clear();
                }
            }
        }
    }

    /// Forgets batches below `offset`: they have moved in their files.
    pub fn drop_before(&mut self, offset: i64) {
        while self
            .pieces
            .front()
            .and_then(Piece::first)
            .is_some_and(|s| s.base_offset < offset)
        {
            self.pop_front();
        }
    }

    /// The offset from which on everything is here.
    pub fn first_offset(&self) -> Option<i64> {
        self.pieces
            .front()
            .and_then(Piece::first)
            .map(|s| s.base_offset)
    }

    fn piece_for(&self, offset: i64) -> Option<usize> {
        if offset < self.first_offset()? {
            return None;
        }
        let at = self.pieces.partition_point(|p| p.last_offset() < offset);
        (at < self.pieces.len()).then_some(at)
    }

    /// Where the batch that holds `offset` (or the next one) lies in the log's files.
    pub fn position(&self, offset: i64) -> Option<LogPosition> {
        let piece = self.pieces.get(self.piece_for(offset)?)?;
        let spot = match piece {
            Piece::Batch { spot, .. } => spot,
            Piece::Run { spots, .. } => {
                spots.get(spots.partition_point(|s| s.last_offset < offset))?
            }
        };
        Some(LogPosition {
            offset,
            segment_base: spot.segment_base,
            position: spot.position,
        })
    }

    /// Reads whole batches from `offset` on that end below `limit`; `None` if the offset is not here.
    pub fn read(
        &mut self,
        offset: i64,
        max_bytes: u32,
        limit: i64,
        min_one: bool,
    ) -> Option<TailRead> {
        let first = self.piece_for(offset)?;
        let start = self.position(offset)?;
        self.used = true;
        let mut read = TailRead {
            start,
            parts: Vec::new(),
            bytes: 0,
        };
        for piece in self.pieces.range(first..) {
            let room = u64::from(max_bytes).saturating_sub(read.bytes);
            let forced = min_one && read.bytes == 0;
            match piece {
                Piece::Batch { spot, head, body } => {
                    if spot.last_offset >= limit || (u64::from(spot.size) > room && !forced) {
                        break;
                    }
                    if !head.is_empty() {
                        read.parts.push(RecordsPart::Bytes(head.clone()));
                    }
                    read.parts.push(RecordsPart::Bytes(body.clone()));
                    read.bytes += u64::from(spot.size);
                }
                Piece::Run {
                    spots,
                    open,
                    closed,
                } => {
                    let whole = read_run(spots, open, closed.as_ref(), offset, room, limit, forced);
                    let (bytes, complete) = whole;
                    if !bytes.is_empty() {
                        read.bytes += bytes.len() as u64;
                        read.parts.push(RecordsPart::Bytes(bytes));
                    }
                    if !complete {
                        break;
                    }
                }
            }
        }
        Some(read)
    }
}

/// The batches of a run that a read takes, and whether it took all to its end.
fn read_run(
    spots: &[Spot],
    open: &[u8],
    closed: Option<&Bytes>,
    offset: i64,
    room: u64,
    limit: i64,
    forced: bool,
) -> (Bytes, bool) {
    let (mut from, mut to, mut complete) = (None, 0usize, true);
    let mut at = 0usize;
    for spot in spots {
        let begin = at;
        at += spot.size as usize;
        if spot.last_offset < offset {
            continue;
        }
        let start = from.unwrap_or(begin);
        let over = (at - start) as u64 > room && !(forced && from.is_none());
        if spot.last_offset >= limit || over {
            complete = false;
            break;
        }
        from = Some(start);
        to = at;
    }
    let Some(from) = from else {
        return (Bytes::new(), complete);
    };
    let bytes = match closed {
        Some(bytes) if to <= bytes.len() => bytes.slice(from..to),
        _ => Bytes::copy_from_slice(open.get(from..to).unwrap_or_default()),
    };
    (bytes, complete)
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(offset: i64, count: i64, size: usize, position: u32) -> KeptBatch {
        KeptBatch {
            base_offset: offset,
            last_offset: offset + count - 1,
            segment_base: 0,
            position,
            head: Bytes::from(vec![1; 61]),
            body: Bytes::from(vec![2; size - 61]),
        }
    }

    #[test]
    fn reads_whole_batches_within_bounds() {
        let budget = TailBudget::new(1 << 20, 1 << 20);
        let mut tail = Tail::new(budget.clone());
        tail.want();
        let sizes = [100usize, 200, 20_000, 300, 400];
        let (mut offset, mut position) = (10, 0);
        for size in sizes {
            tail.push(batch(offset, 5, size, position));
            offset += 5;
            position += size as u32;
        }
        assert!(tail.read(9, 1000, 99, true).is_none());
        let all = tail.read(10, 1 << 20, 99, true).unwrap();
        assert_eq!(all.bytes, 21_000);
        assert_eq!(all.parts.len(), 3, "run, batch, run");
        assert_eq!(all.start.position, 0);
        let some = tail.read(17, 500, 99, true).unwrap();
        assert_eq!((some.bytes, some.start.position), (200, 100));
        assert_eq!(
            tail.read(21, 500, 99, true).unwrap().bytes,
            20_000,
            "at least one"
        );
        assert_eq!(tail.read(21, 500, 99, false).unwrap().bytes, 0);
        assert_eq!(
            tail.read(10, 1 << 20, 20, true).unwrap().bytes,
            300,
            "to the limit"
        );
        assert_eq!(
            tail.read(10, 1 << 20, 19, true).unwrap().bytes,
            100,
            "whole batches only"
        );
        assert!(tail.read(35, 1000, 99, true).is_none(), "beyond the end");
        tail.truncate(27);
        assert_eq!(tail.read(10, 1 << 20, 99, true).unwrap().bytes, 20_300);
        drop(tail);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn only_what_somebody_waits_for_is_kept() {
        let budget = TailBudget::new(1 << 20, 1 << 20);
        let mut tail = Tail::new(budget.clone());
        tail.push(batch(0, 1, 20_000, 0));
        assert_eq!(tail.first_offset(), None);
        tail.want();
        tail.push(batch(1, 1, 20_000, 20_000));
        tail.push(batch(2, 1, 400_000, 40_000));
        tail.clear_idle();
        assert_eq!(tail.first_offset(), Some(1), "wanted since");
        let read = tail.read(1, 1 << 20, 99, true).unwrap();
        assert_eq!(read.parts.len(), 3, "a copy; head and body as they came");
        tail.clear_idle();
        tail.clear_idle();
        tail.push(batch(3, 1, 20_000, 440_000));
        assert_eq!(tail.first_offset(), None);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_budget_holds() {
        let budget = TailBudget::new(100_000, 50_000);
        let mut tails: Vec<_> = (0..4).map(|_| Tail::new(budget.clone())).collect();
        tails.iter_mut().for_each(Tail::want);
        for offset in 0..200 {
            for tail in &mut tails {
                let size = if offset % 3 == 0 { 9000 } else { 700 };
                tail.push(batch(offset, 1, size, 0));
                assert!(budget.used() <= 100_000);
            }
        }
        for tail in &mut tails {
            tail.push(batch(200, 1, 60_000, 0));
            assert_eq!(tail.first_offset(), None, "larger than a partition's part");
        }
        assert_eq!(budget.used(), 0);
    }
}
