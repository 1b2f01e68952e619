//! The coordination server: ZooKeeper 3.9's protocol and files, for one server.
//!
//! Embedding: [`ZkServer::start`] with a [`ZkConfig`]; `gracchus zookeeper zoo.cfg` is [`run`].
//!
//! How a request goes: a connection's task ([`net`]) reads a frame. A read of a client without open writes is answered at once from
//! the tree ([`read`]). Everything else is queued for the one committer ([`commit`]), which takes all that arrived, checks each write
//! against the tree and what is ahead of it ([`prep`]), logs the transactions and syncs once ([`store`]), applies them
//! ([`tree`]), tells the watchers ([`watch`]) and answers.
//!
//! State machines without I/O: [`tree`], [`prep`], [`watch`], [`session`], [`acl`], [`path`].
//! Invariants: nothing is answered or seen by a reader before it is durable; an event reaches a connection before any
//! answer that knows its change; answers of a connection keep the order of its requests.

pub mod acl;
pub mod path;

pub mod prep;
pub mod session;
pub mod tree;
pub mod watch;

pub mod config;
pub mod stepped;
pub mod store;

mod commit;
mod metrics;
mod net;
mod read;
mod server;
mod snapshots;
mod state;

pub use config::{ConfigError, Whitelist, ZkConfig};
pub use server::{Health, StartError, ZkServer, run};
pub use store::StoreError;
