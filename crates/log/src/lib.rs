//! A partition's log on disk, in Apache Kafka's own formats, bit for bit, both ways.
//!
//! Reading order: [`naming`] (topic-partitions, directory and file names), [`config`] (topic-level keys), [`error`];
//! the small text files: [`checkpoint`], [`epochs`] (leader epochs), [`identity`] (meta.properties, partition.metadata);
//! [`index`] (offset, time and transaction index); [`producer`] (idempotent and transactional producers' state);
//! [`segment`]; [`tail`] (batches still in memory); [`partition`] (one replica's log: [`PartitionLog`]); [`parts`] (what a read gave, in memory); [`cleaner`]
//! (compaction); [`dirs`] (one log directory: lock, clean-shutdown file) and [`manager`] (all of a broker's logs).
//!
//! Invariants: nothing here waits for anything but the disk; time comes in as `now_ms`; a failed append leaves the log
//! as it was; bytes from disk are data and never trusted.

pub mod checkpoint;
pub mod cleaner;
pub mod config;
pub mod dirs;
pub mod disk;
pub mod epochs;
pub mod error;
pub mod identity;
pub mod index;
pub mod manager;
pub mod naming;
pub mod partition;
pub mod parts;
pub mod producer;
pub mod segment;
pub mod tail;

pub use config::{CompressionType, LogConfig};
pub use error::{AppendError, LogError, StartError};
pub use gracchus_kafka_proto::{FileRegion, RecordsPart, Uuid};
pub use manager::{
    LoadControl, LoadProgress, LogManager, LogManagerConfig, PendingLogs, SharedLog,
};
pub use naming::TopicPartition;
pub use partition::{
    AbortedTxn, AppendInfo, AppendOrigin, EpochEnd, FetchData, LogPosition, PartitionLog,
    ReadLimit, RetentionOutcome, TimestampOffset,
};
pub use parts::in_memory;
