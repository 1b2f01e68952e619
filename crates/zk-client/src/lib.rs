//! A ZooKeeper session: requests pipelined in call order, watches in one ordered queue, re-attachment after a cut.
//!
//! Reading order: [`config`] (the connect string), [`secured`] (logins and TLS, from properties), [`op`] (requests and results), [`event`], [`core`] (the session as a
//! state machine without I/O), `session` (the task that owns the socket), [`client`] (the handle that callers clone).
//!
//! Invariants: a watch event reaches the event queue before any reply that carries newer data is completed. A request
//! is answered exactly once: by the server, by `ConnectionLoss` when the connection that carried it broke or none came for a
//! whole session timeout, by `SessionExpired`, or by `ThrottledOp` when too many are open. Reading never waits for writing.

pub mod client;
pub mod config;
pub mod core;
pub mod event;
pub mod op;
mod probe;
pub mod secured;
mod session;
pub mod stepped;

pub use client::{RepliesFuture, ReplyFuture, ZkClient};
pub use config::{ConnectString, Login, ZkConfig};
pub use event::{EventReceiver, SessionState, WatchEvent, ZkEvent};
pub use gracchus_zk_proto::{Acl, AddWatchMode, CreateMode, EventType, Id, Stat, ZkError, perms};
pub use op::{MultiFailure, Op, OpResult, Reply};
pub use probe::look;
pub use secured::Secured;
