//! Kafka 3.9's classic group coordinator (the one that ZooKeeper mode runs) as a state machine, and the
//! records it stores in `__consumer_offsets`. No I/O: the broker's shell feeds [`Event`]s in, carries the
//! [`Action`]s out, and wakes [`GroupCoordinator`] at its next deadline. `docs/groups.md` has the rules as tables.
//!
//! In reading order:
//! - [`config`]: what an operator may set;
//! - [`request`] and [`response`]: what clients ask and are told, as plain values;
//! - [`event`]: what goes into the machine and what comes out;
//! - [`partition`]: which partition of `__consumer_offsets` a group lives in;
//! - [`record`]: the stored keys and values, all versions;
//! - [`member`], [`group`], [`offsets`]: one member, one group, the offsets of one group;
//! - [`load`]: groups and offsets rebuilt from a partition's log;
//! - [`coordinator`]: the machine itself, one file a request.

pub mod config;
pub mod coordinator;
pub mod event;
pub mod group;
pub mod load;
pub mod member;
pub mod offsets;
pub mod partition;
pub mod record;
pub mod request;
pub mod response;

pub use config::GroupConfig;
pub use coordinator::{GroupCoordinator, GroupCounts};
pub use event::{Action, AppendBatch, AppendToken, Event, ReplyToken};
pub use load::{LoadedPartition, PartitionLoader};
pub use partition::partition_for;
pub use request::Request;
pub use response::Response;
