//! Jute and the ZooKeeper 3.9 client protocol, both directions, and the records of its transaction log. No I/O.
//!
//! Reading order: [`jute`] (primitives), [`data`] (stat, ACL), [`error`], [`opcode`], [`connect`] (the handshake),
//! [`header`], [`request`] and [`response`] (one record an operation), [`multi`], [`watch`], [`txn`] (what is on disk).
//!
//! Invariant: decoding never panics and never allocates more than the input could hold.

pub mod connect;
pub mod data;
pub mod error;
pub mod header;
pub mod jute;
pub mod multi;
pub mod opcode;
pub mod request;
pub mod response;
pub mod txn;
pub mod watch;

pub use connect::{ConnectRequest, ConnectResponse};
pub use data::{Acl, CreateMode, Id, Stat, perms};
pub use error::ZkError;
pub use header::{ReplyHeader, RequestHeader, xid};
pub use jute::{Jute, JuteError, Reader};
pub use opcode::OpCode;
pub use watch::{AddWatchMode, EventType, KeeperState, WatcherEvent, WatcherType};

/// `jute.maxbuffer`'s default: the largest frame body accepted, in bytes, inclusive.
pub const DEFAULT_MAX_BUFFER: usize = 0xf_ffff;
