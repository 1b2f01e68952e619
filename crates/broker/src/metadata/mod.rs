//! What this broker knows of the cluster: a snapshot ([`cache`]), how UpdateMetadata changes it ([`update`]), how
//! clients are told ([`view`]), and which controllers there were ([`elections`]).

/// The snapshot and who waits for it.
pub mod cache;
/// The controllers heard of.
pub mod elections;
/// UpdateMetadata into the snapshot.
pub mod update;
/// The snapshot as a client of one listener sees it.
pub mod view;

pub use cache::{Endpoint, LiveBroker, MetadataCache, PartitionInfo, Snapshot, TopicInfo};
