//! Partitions that move to other replicas.

/// AlterPartitionReassignments (45).
pub mod alter;
/// ListPartitionReassignments (46).
pub mod list;
