//! What this broker knows of the cluster: a snapshot ([`cache`]), how UpdateMetadata changes it ([`update`]), and how
//! clients are told ([`view`]).

/// The snapshot and who waits for it.
pub mod cache;
/// UpdateMetadata into the snapshot.
pub mod update;
/// The snapshot as a client of one listener sees it.
pub mod view;

pub use cache::{Endpoint, LiveBroker, MetadataCache, PartitionInfo, Snapshot, TopicInfo};
