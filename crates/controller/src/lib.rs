//! Kafka's ZooKeeper-mode controller: events in, actions out. No I/O.
//!
//! Every broker has one [`Controller`]; the one that holds `/controller` is active. [`Controller::step`] takes an [`Event`]
//! and answers [`Action`]s: reads and writes of znodes, requests to brokers, answers to requests, timers. One event is
//! worked on at a time; while it waits for ZooKeeper the others wait in a queue. Handlers are written as straight `async`
//! code over a port that only records actions, so that a wait is one line; nothing here runs on an executor.
//!
//! Modules in reading order.

/// What goes in.
pub mod event;
/// What comes out.
pub mod action;
/// What a controller is told at its start; request versions by inter.broker.protocol.version.
pub mod config;
/// The queue, and the event at work.
pub mod controller;
/// Where handlers leave actions and wait for ZooKeeper.
mod port;
/// All that an active controller knows.
pub mod context;
/// The controller's inner state: what handlers work on, and how they read and write znodes.
mod core;
/// Becoming controller, ceasing to be it (KIP-631's predecessor: `/controller`, `/controller_epoch`).
mod election;
/// What a new controller does first, in order.
mod takeover;
/// `/feature` at a takeover (KIP-584).
mod features;
/// Reading all of the cluster from ZooKeeper.
mod load;
/// Brokers that come, go, and change.
mod brokers;
/// Topics and partitions that appear.
mod topics;
/// Deleting topics, step by step.
mod deletion;
/// Partition states.
mod partition_state;
/// Replica states.
mod replica_state;
/// Who becomes leader: the four strategies.
mod leader_election;
/// LeaderAndIsr, UpdateMetadata and StopReplica, gathered and sent in order.
mod request_batch;
/// Answers of brokers.
mod answers;
/// AlterPartition: leaders change their ISR (KIP-497).
mod alter_partition;
/// ISR changes of leaders older than AlterPartition, and failed log directories.
mod notices;
/// ControlledShutdown.
mod shutdown;
/// AllocateProducerIds (KIP-730).
mod producer_ids;
/// ElectLeaders, `/admin/preferred_replica_election` and the automatic rebalance.
mod preferred;
/// Partition reassignment (KIP-455), by API and by `/admin/reassign_partitions`.
mod reassignment;

pub use action::{Action, ApiReply, ControlRequest};
pub use config::{ControllerConfig, Rebalance, Versions};
pub use context::TopicPartition;
pub use controller::{Controller, Gauges};
pub use event::{ApiRequest, Change, ControlAnswer, ElectionKind, Event, Timer};
