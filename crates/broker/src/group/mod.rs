//! The shell around the group coordinator ([`gracchus_groups`]).
//!
//! [`shell::GroupShell`] owns the state machine: requests, the log's outcomes, leadership and time go in, answers and
//! appends come out. [`log`] is what it needs of the replicas of `__consumer_offsets`, [`batch`] how records become a
//! batch, [`loading`] how a partition is read back, [`settings`] what of the configuration it uses, [`topic`] how the
//! topic comes to be and which broker coordinates a group, [`legacy`] offsets of clients that keep them in ZooKeeper.

/// Records of an append as one batch.
pub mod batch;
/// Offsets in ZooKeeper, for version 0 of OffsetCommit and OffsetFetch.
pub mod legacy;
/// Reading a partition of the offsets topic back.
pub mod loading;
/// The replicas of the offsets topic, as the shell sees them.
pub mod log;
/// What of the broker's configuration the groups use.
pub mod settings;
/// The state machine in its shell.
pub mod shell;
/// The offsets topic.
pub mod topic;

pub use log::OffsetsLog;
pub use settings::Settings;
pub use shell::GroupShell;

/// Where groups and committed offsets are kept.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";
