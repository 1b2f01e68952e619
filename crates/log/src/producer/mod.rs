//! State of idempotent and transactional producers: sequences, epochs, open transactions, snapshots.

mod entry;
mod snapshot;
mod state;
mod update;

pub use entry::{BatchMetadata, ProducerEntry};
pub use snapshot::{read_snapshot, write_snapshot};
pub use state::ProducerState;
pub(crate) use state::{add_batch, first_marker};
pub use update::{CompletedTxn, ProducerUpdate};

use gracchus_kafka_proto::ErrorCode;

/// A producer's batch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    #[error("producer {producer_id}: sequence {got} does not follow {last} at offset {offset}")]
    OutOfOrderSequence {
        producer_id: i64,
        offset: i64,
        got: i32,
        last: i32,
    },
    #[error("producer {producer_id}: epoch {got} is older than {current}")]
    InvalidProducerEpoch {
        producer_id: i64,
        got: i16,
        current: i16,
    },
    #[error(
        "producer {producer_id}: a batch outside of a transaction came while one is open at offset {first_offset}"
    )]
    InvalidTxnState { producer_id: i64, first_offset: i64 },
    #[error(
        "producer {producer_id}: a marker of coordinator epoch {got} came after one of epoch {current}"
    )]
    CoordinatorFenced {
        producer_id: i64,
        got: i32,
        current: i32,
    },
    #[error("{0}")]
    InvalidRecord(String),
}

impl ProducerError {
    /// The protocol's error for it.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            Self::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            Self::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
            Self::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            Self::InvalidRecord(_) => ErrorCode::InvalidRecord,
        }
    }
}

/// One producer, as DescribeProducers shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// -1 = none
    pub last_sequence: i32,
    pub last_timestamp: i64,
    /// -1 = none
    pub coordinator_epoch: i32,
    /// -1 = no open transaction
    pub current_txn_start_offset: i64,
}
