//! Topics and partitions coming to be: what is asked for, checked and placed, then written to ZooKeeper.

/// Topics made because a client named them.
pub mod auto;
