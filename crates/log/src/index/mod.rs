//! A segment's indexes: offsets to file positions, timestamps to offsets, aborted transactions.
//!
//! No file stays open and nothing is mapped: the active segment's newest entries wait in memory and go to the file a page
//! at a time, at a flush, a roll and a close; older ones are looked up with a few positional reads. After a crash the
//! active segment's indexes are rebuilt from the log in any case.

mod entries;
mod offset;
mod time;
mod txn;

pub use offset::{OffsetIndex, OffsetPosition};
pub use time::{TimeEntry, TimeIndex};
pub use txn::{AbortedEntry, TxnIndex};
