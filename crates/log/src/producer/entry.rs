//! What is known of one producer.

use gracchus_record::{NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP};

/// Batches remembered of each producer: a retry of any of them is answered with its old offsets (KIP-98).
pub const BATCHES: usize = 5;

/// A batch that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: i64,
    /// Last offset - first offset.
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchMetadata {
    pub fn first_offset(&self) -> i64 {
        self.last_offset.saturating_sub(self.offset_delta.into())
    }

    /// Wraps below 0 to i32::MAX.
    pub fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        if first < 0 {
            (first + i64::from(i32::MAX) + 1) as i32
        } else {
            first as i32
        }
    }
}

/// A producer's epoch, its newest batches and its open transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerEntry {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    pub current_txn_first_offset: Option<i64>,
    batches: [Option<BatchMetadata>; BATCHES],
}

impl ProducerEntry {
    /// Of a producer not seen yet.
    pub fn empty(producer_id: i64) -> Self {
        Self {
            producer_id,
            producer_epoch: NO_PRODUCER_EPOCH,
            coordinator_epoch: -1,
            last_timestamp: NO_TIMESTAMP,
            current_txn_first_offset: None,
            batches: [None; BATCHES],
        }
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = &BatchMetadata> {
        self.batches.iter().flatten()
    }

    pub fn last_batch(&self) -> Option<&BatchMetadata> {
        self.batches().next_back()
    }

    /// -1 without a batch.
    pub fn last_sequence(&self) -> i32 {
        self.last_batch().map_or(NO_SEQUENCE, |b| b.last_sequence)
    }

    /// -1 without a batch.
    pub fn last_data_offset(&self) -> i64 {
        self.last_batch().map_or(-1, |b| b.last_offset)
    }

    /// A new epoch begins with an empty window.
    pub fn set_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.batches = [None; BATCHES];
            self.producer_epoch = epoch;
        }
    }

    pub(super) fn push(&mut self, batch: BatchMetadata) {
        match self.batches.iter_mut().find(|b| b.is_none()) {
            Some(free) => *free = Some(batch),
            None => {
                self.batches.rotate_left(1);
                if let Some(last) = self.batches.last_mut() {
                    *last = Some(batch);
                }
            }
        }
    }

    pub fn add_batch(&mut self, epoch: i16, batch: BatchMetadata) {
        self.set_epoch(epoch);
        self.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    /// The remembered batch of the same epoch with exactly this range of sequences.
    pub fn find_duplicate(&self, epoch: i16, first: i32, last: i32) -> Option<BatchMetadata> {
        if epoch != self.producer_epoch {
            return None;
        }
        self.batches()
            .find(|b| b.last_sequence == last && b.first_sequence() == first)
            .copied()
    }

    /// Takes over what an append found out.
    pub(super) fn absorb(&mut self, newer: &Self) {
        self.set_epoch(newer.producer_epoch);
        for batch in newer.batches() {
            self.push(*batch);
        }
        self.coordinator_epoch = newer.coordinator_epoch;
        self.current_txn_first_offset = newer.current_txn_first_offset;
        self.last_timestamp = newer.last_timestamp;
    }
}
