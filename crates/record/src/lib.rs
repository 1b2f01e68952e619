//! Kafka's records: batches of format v2, message sets of formats v0 and v1, compression and checksums. No I/O.
//!
//! Reading order: [`varint`], [`record`] (one record), [`batch`] (format v2), [`legacy`] (formats v0 and v1), [`entry`]
//! (either of them, as a log holds them), [`compression`], [`builder`], [`control`] (markers), [`convert`] (between
//! formats and codecs), [`validate`] (what a leader checks before it appends).
//!
//! Invariant: bytes from outside are data; nothing here panics on them, allocates by their word alone, or copies a
//! record that need not change.

pub mod batch;
pub mod builder;
pub mod compression;
pub mod control;
pub mod convert;
pub mod entry;
mod error;
pub mod legacy;
pub mod record;
mod shape;
pub mod validate;
pub mod varint;

pub use batch::{Batch, BatchHeader};
pub use builder::{BatchBuilder, LegacyBuilder, NewRecord};
pub use compression::Codec;
pub use entry::{Entries, Entry};
pub use error::RecordError;
pub use legacy::LegacyMessage;
pub use record::{Header, Headers, Record};

/// No timestamp.
pub const NO_TIMESTAMP: i64 = -1;
/// No producer id.
pub const NO_PRODUCER_ID: i64 = -1;
/// No producer epoch.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// No sequence number.
pub const NO_SEQUENCE: i32 = -1;
/// No partition leader epoch.
pub const NO_LEADER_EPOCH: i32 = -1;

/// Whose clock a record's timestamp is (`message.timestamp.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}
