//! What goes into the coordinator and what comes out.

use crate::load::LoadedPartition;
use crate::request::{Request, TopicPartition};
use crate::response::Response;
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

/// Names a request until it is answered. The shell chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// Names an append until the shell reports how it ended. The coordinator chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendToken(pub u64);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The broker serves: requests are no longer refused with COORDINATOR_NOT_AVAILABLE.
    Started,
    /// The broker is stopping.
    Stopped,
    /// A client asks.
    Request { token: ReplyToken, request: Request },
    /// An append ended: the base offset of its batch, or the log's error. Every append must end.
    AppendDone {
        token: AppendToken,
        result: Result<i64, ErrorCode>,
    },
    /// This broker became leader of a partition of `__consumer_offsets`.
    Elected { partition: i32, leader_epoch: i32 },
    /// The partition's log has been read, as [`Action::Load`] asked.
    Loaded {
        partition: i32,
        leader_epoch: i32,
        contents: LoadedPartition,
    },
    /// This broker no longer leads the partition; `None` when it was deleted or its disk failed.
    Resigned {
        partition: i32,
        leader_epoch: Option<i32>,
    },
    /// Partitions of user topics are gone: their offsets go too.
    PartitionsDeleted(Vec<TopicPartition>),
    /// A transaction's marker has been written to these partitions of `__consumer_offsets`.
    TransactionCompleted {
        producer_id: i64,
        partitions: Vec<i32>,
        committed: bool,
    },
    /// `offsets.retention.check.interval.ms` has passed: expire offsets.
    ExpireOffsets,
    /// Time has passed; sent at [`crate::GroupCoordinator::next_deadline_ms`].
    Timer,
}

/// Something to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Answer a request.
    Reply {
        token: ReplyToken,
        response: Response,
    },
    /// Append to a partition of `__consumer_offsets` as its leader, then send [`Event::AppendDone`] if there is a
    /// token. With a token: as acks=all, within `offsets.commit.timeout.ms`; without one (tombstones): as acks=0.
    Append {
        partition: i32,
        batch: AppendBatch,
        token: Option<AppendToken>,
    },
    /// Read the partition from its start to its end through a [`crate::PartitionLoader`], then send [`Event::Loaded`].
    Load { partition: i32, leader_epoch: i32 },
}

/// The records of one append: one batch with create-time timestamps.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendBatch {
    /// Of every record, milliseconds.
    pub timestamp_ms: i64,
    /// Key, and value or tombstone.
    pub records: Vec<(Bytes, Option<Bytes>)>,
    /// Producer id and epoch of a transactional offset commit.
    pub transactional: Option<(i64, i16)>,
    /// The header's base sequence: Kafka writes 0 for offset commits, also without a producer, and -1 otherwise.
    pub base_sequence: i32,
}
