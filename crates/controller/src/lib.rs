//! The controller of a cluster in ZooKeeper mode: who leads each partition, told to the brokers. No I/O.
//!
//! [`Controller::step`] takes one [`event::Event`] and the time and gives [`action::Action`]s. Events are worked on one at
//! a time, in order; one that needs ZooKeeper asks for operations and goes on, by a stored continuation, when their
//! results come back, while later events wait (Kafka's controller does the same with one thread).
//!
//! Reading order: [`event`], [`action`], [`context`] (what it knows), [`machine`] (queue and continuations), then by
//! subject: [`election`], [`takeover`], [`brokers`], [`topics`], [`deletion`], [`partitions`] (states), [`leaders`] (their
//! elections), [`isr`] (AlterPartition), [`reassignment`], [`preferred`] (elections asked for), [`notices`], [`shutdown`], [`producer_ids`], [`batch`] and [`requests`] (what goes to brokers).
//!
//! Invariants: every write that changes cluster state is a multi with a check of `/controller_epoch`'s version; a failed
//! fence ends the term. Leader epochs only rise. A node that can't be read is named in the log and left alone; it never
//! stops the rest.

pub mod action;
pub mod batch;
pub mod brokers;
pub mod context;
pub mod deletion;
pub mod election;
pub mod event;
pub mod isr;
pub mod leaders;
pub mod machine;
pub mod notices;
pub mod partitions;
pub mod preferred;
pub mod producer_ids;
pub mod reassignment;
pub mod requests;
pub mod shutdown;
pub mod takeover;
pub mod topics;

pub use action::{Action, ApiResult, ControlRequest, Outcome, Reassigning};
pub use context::PartitionKey;
pub use event::{Event, Timer};
pub use machine::{Controller, ControllerConfig};
