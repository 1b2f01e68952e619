//! Fetch sessions (KIP-227): a client names its partitions once, then only what changed, and is told only what changed.
//! Plain rules; the time is passed in.

mod cache;
mod partitions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use gracchus_kafka_proto::Uuid;

pub use cache::{Context, FetchSessions, SessionError, SessionRequest};

/// No session.
pub const NO_SESSION: i32 = 0;
/// Epoch of a request that asks for a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that wants no session, or closes one.
pub const FINAL_EPOCH: i32 = -1;

/// The epoch after this one.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        ..0 => FINAL_EPOCH,
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

/// A partition as requests name it: by topic id since version 13, else by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// ZERO when named by topic.
    pub topic_id: Uuid,
    /// Empty when named by id.
    pub topic: Arc<str>,
    /// Its index.
    pub partition: i32,
}

/// What a request wants of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// First offset.
    pub offset: i64,
    /// Most bytes.
    pub max_bytes: i32,
    /// Leader epoch the client believes in, -1 unknown.
    pub current_leader_epoch: i32,
    /// Epoch of the last record the client has, -1 unknown.
    pub last_fetched_epoch: i32,
    /// A follower's log start.
    pub log_start_offset: i64,
}

/// What an answer says of a partition, as far as it decides whether it need be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// High watermark.
    pub high_watermark: i64,
    /// Log start.
    pub log_start_offset: i64,
    /// Records are with it.
    pub has_records: bool,
    /// It is an error, a divergence or a preferred replica: always sent.
    pub special: bool,
    /// It is an error: sent again as soon as it works.
    pub error: bool,
}
