//! One producer's part of one append: checked first, then taken over if the write succeeds.

use super::ProducerError;
use super::entry::{BatchMetadata, ProducerEntry};
use crate::partition::AppendOrigin;
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{BatchHeader, NO_PRODUCER_EPOCH, NO_SEQUENCE};

/// A transaction that a marker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
    /// The marker's.
    pub last_offset: i64,
    pub aborted: bool,
}

/// The state of a producer as it will be after the append.
#[derive(Debug, Clone)]
pub struct ProducerUpdate {
    current: ProducerEntry,
    updated: ProducerEntry,
    origin: AppendOrigin,
    started: Vec<i64>,
}

impl ProducerUpdate {
    pub(super) fn new(current: ProducerEntry, origin: AppendOrigin) -> Self {
        // The update collects new batches only, and starts from the known epochs and transaction.
        let mut updated = ProducerEntry::empty(current.producer_id);
        updated.producer_epoch = current.producer_epoch;
        updated.coordinator_epoch = current.coordinator_epoch;
        updated.last_timestamp = current.last_timestamp;
        updated.current_txn_first_offset = current.current_txn_first_offset;
        Self {
            current,
            updated,
            origin,
            started: Vec::new(),
        }
    }

    pub fn producer_id(&self) -> i64 {
        self.updated.producer_id
    }

    /// First offsets of the transactions that it begins.
    pub(super) fn started(&self) -> &[i64] {
        &self.started
    }

    pub(super) fn into_parts(self) -> (ProducerEntry, Vec<i64>) {
        (self.updated, self.started)
    }

    fn check_epoch(&self, epoch: i16) -> Result<(), ProducerError> {
        if epoch >= self.updated.producer_epoch || self.origin == AppendOrigin::Replication {
            return Ok(());
        }
        Err(ProducerError::InvalidProducerEpoch {
            producer_id: self.updated.producer_id,
            got: epoch,
            current: self.updated.producer_epoch,
        })
    }

    fn check_sequence(&self, epoch: i16, first: i32, offset: i64) -> Result<(), ProducerError> {
        let refuse = |last| {
            Err(ProducerError::OutOfOrderSequence {
                producer_id: self.updated.producer_id,
                offset,
                got: first,
                last,
            })
        };
        if epoch != self.updated.producer_epoch {
            // A new epoch starts at 0, unless nothing is known of the producer.
            if first != 0 && self.updated.producer_epoch != NO_PRODUCER_EPOCH {
                return refuse(NO_SEQUENCE);
            }
            return Ok(());
        }
        let last = if self.updated.last_batch().is_some() {
            self.updated.last_sequence()
        } else if epoch == self.current.producer_epoch {
            self.current.last_sequence()
        } else {
            NO_SEQUENCE
        };
        let follows = i64::from(first) == i64::from(last) + 1 || (first == 0 && last == i32::MAX);
        if self.current.producer_epoch == NO_PRODUCER_EPOCH || follows {
            return Ok(());
        }
        refuse(last)
    }

    /// Adds a data batch.
    pub fn add_data(&mut self, header: &BatchHeader) -> Result<(), ProducerError> {
        let (first, last) = (header.base_offset, header.last_offset());
        self.check_epoch(header.producer_epoch)?;
        // The coordinator writes group metadata without sequences; followers trust the leader.
        if self.origin == AppendOrigin::Client {
            self.check_sequence(header.producer_epoch, header.base_sequence, first)?;
        }
        self.updated.add_batch(
            header.producer_epoch,
            BatchMetadata {
                last_sequence: header.last_sequence(),
                last_offset: last,
                offset_delta: header.last_offset_delta,
                timestamp: header.max_timestamp,
            },
        );
        match (
            self.updated.current_txn_first_offset,
            header.is_transactional(),
        ) {
            (Some(first_offset), false) => Err(ProducerError::InvalidTxnState {
                producer_id: self.updated.producer_id,
                first_offset,
            }),
            (None, true) => {
                self.updated.current_txn_first_offset = Some(first);
                self.started.push(first);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds a marker; the transaction that it ends, if one was open.
    pub fn add_marker(
        &mut self,
        marker: EndTransaction,
        epoch: i16,
        offset: i64,
        timestamp: i64,
    ) -> Result<Option<CompletedTxn>, ProducerError> {
        self.check_epoch(epoch)?;
        if self.updated.coordinator_epoch > marker.coordinator_epoch
            && self.origin != AppendOrigin::Replication
        {
            return Err(ProducerError::CoordinatorFenced {
                producer_id: self.updated.producer_id,
                got: marker.coordinator_epoch,
                current: self.updated.coordinator_epoch,
            });
        }
        let completed = self
            .updated
            .current_txn_first_offset
            .map(|first_offset| CompletedTxn {
                producer_id: self.updated.producer_id,
                first_offset,
                last_offset: offset,
                aborted: marker.marker == Marker::Abort,
            });
        self.updated.set_epoch(epoch);
        self.updated.coordinator_epoch = marker.coordinator_epoch;
        self.updated.last_timestamp = timestamp;
        self.updated.current_txn_first_offset = None;
        Ok(completed)
    }
}
