//! The replicas of this broker.
//!
//! [`manager::ReplicaManager`] knows which partitions are hosted here; [`partition::Partition`] is one of them: its role
//! (leader or follower, epochs, ISR) over its log. [`assignment`] is how the controller changes roles, [`append`] and
//! [`fetch`] are the two hot paths, [`offsets`] answers where offsets, epochs and timestamps are. A request that has to
//! wait parks on a [`waiters::Waiter`] registered with its partitions. [`fetcher`] follows what others lead; as a leader,
//! [`in_sync`] and [`isr`] say who is in sync, and [`isr_changes`] tells the controller. [`isr`], [`in_sync`], [`session`]
//! and [`fetcher::machine`] are plain rules without I/O. Locks are taken in this order: hosted map, role, log.

/// Appending as leader, and waiting until the ISR has it.
pub mod append;
/// LeaderAndIsr and StopReplica: roles given and taken.
pub mod assignment;
mod failure;
/// Reading for consumers and followers, with long poll.
pub mod fetch;
/// Following other brokers' partitions.
pub mod fetcher;
/// A leader's in-sync set.
pub mod in_sync;
/// Who is caught up, and what that makes of the high watermark.
pub mod isr;
/// ISR changes on their way to the controller.
pub mod isr_changes;
mod leading;
/// A topic's configuration as its log sees it.
pub mod log_config;
/// Which partitions are hosted here.
pub mod manager;
/// Replicas on their way to another log directory.
pub mod moves;
/// Where a consumer had better read.
pub mod nearest;
/// ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers.
pub mod offsets;
/// One partition's role and log.
pub mod partition;
/// Timers: checkpoints, retention, compaction, flush.
pub mod periodic;
mod recovering;
/// Fetch sessions (KIP-227).
pub mod session;
/// News of the log directories, for the controller.
pub mod storage_news;
/// Replication throttles.
pub mod throttle;
/// Parked requests.
pub mod waiters;

pub use append::{AppendFailure, AppendOutcome};
pub use manager::{LeadershipObserver, ReplicaManager, StorageNews};
pub use partition::Partition;
