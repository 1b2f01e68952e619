//! The whole cluster under deterministic simulation: three brokers, ZooKeeper and clients in one thread, on a clock that
//! moves from event to event, over a network and disks that fail by a seed.
//!
//! What runs is the product: the brokers' replicas with their logs, handlers and fetcher machines, the controller, the
//! registry with the client's session core, and the coordination server with its committer. Only what moves bytes and waits
//! is the simulator's: [`world`] (time, events, network), [`process`] with [`following`] and [`control`] (a broker's tasks),
//! [`zookeeper`], [`client`], [`disk`] (what a power cut leaves). [`oracle`] says what must hold; [`cluster`] is a run with its faults.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a simulation is a test"
)]

pub mod answers;
pub mod client;
pub mod cluster;
pub mod control;
pub mod disk;
pub mod following;
pub mod oracle;
pub mod process;
pub mod random;
pub mod requests;
pub mod world;
pub mod zookeeper;

pub use cluster::{Summary, play};
