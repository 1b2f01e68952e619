//! What a fetcher wants asked, and what it wants done to logs.

use bytes::Bytes;
use gracchus_kafka_proto::messages::{
    FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
};
use gracchus_log::{EpochEnd, TopicPartition};

/// A log as its fetcher has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogView {
    /// Its start.
    pub start: i64,
    /// Its end: the next offset to fetch.
    pub end: i64,
    /// What is known to be committed.
    pub high_watermark: i64,
    /// The epoch of its last record, if it has any epoch.
    pub latest_epoch: Option<i32>,
}

/// What to ask the leader.
#[derive(Debug)]
pub enum Work {
    /// Nothing before this time (`i64::MAX`: nothing at all).
    Wait(i64),
    /// Nothing is to be asked, but these logs are to be cut.
    Steps(Vec<Step>),
    /// Where epochs end.
    Epochs(OffsetForLeaderEpochRequest),
    /// Where logs end or start.
    Offsets(ListOffsetsRequest),
    /// Records, in this version.
    Fetch(FetchRequest, i16),
}

/// What to do with a log, if it follows in this leader epoch still.
#[derive(Debug, Clone)]
pub struct Step {
    /// Whose.
    pub partition: TopicPartition,
    /// When.
    pub leader_epoch: i32,
    /// What.
    pub what: What,
}

/// See [`Step`].
#[derive(Debug, Clone)]
pub enum What {
    /// Append what was fetched from `offset`, and take the leader's offsets over.
    Append {
        /// The log ends here, or the answer is not to the question.
        offset: i64,
        /// Batches, maybe none.
        records: Bytes,
        /// The leader's.
        high_watermark: i64,
        /// The leader's.
        log_start_offset: i64,
    },
    /// Cut it where it parts from the leader's.
    Diverged {
        /// Where the leader's log of the asked epoch ends.
        leader: EpochEnd,
        /// The leader's, -1 unknown. It may not be told again before it rises.
        high_watermark: i64,
    },
    /// Cut it here.
    Truncate(i64),
    /// Drop everything and go on here.
    Restart(i64),
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done; the log is so.
    Done(LogView),
    /// Done, but its throttle lets no more through for a while.
    Throttled(LogView),
    /// Cut, but the leader has to be asked again.
    Undecided(LogView),
    /// It does not follow in this epoch any more, or its log failed: it is left alone.
    Left,
    /// To be tried again after a while.
    Later,
}
