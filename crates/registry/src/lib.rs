//! Kafka's znodes: each path, its content, typed reads, conditional writes, watches.
//!
//! Reading order of the part without I/O, which state machines may use: [`paths`] (where things are), [`entity`] (whose
//! configuration, and how names are made safe), [`json`] (what the nodes hold), [`op`] (reads and writes as plain values).
//!
//! [`registry`] is the part with I/O: typed calls over one ZooKeeper session.
//!
//! Invariants: what is written has Kafka 3.9's keys in Kafka's order; what is read may have unknown keys, any order, and
//! absent optional keys; content that cannot be read is an error value, never a panic.

pub mod entity;
pub mod json;
pub mod op;
pub mod paths;
pub mod registry;

pub use json::ZnodeError;
pub use op::{ANY_VERSION, MultiReply, MultiStep, ZkFailure, ZkOp, ZkReply, ZkResult};
pub use registry::{Registry, RegistryError};
