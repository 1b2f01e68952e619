//! A Kafka broker in ZooKeeper mode: the listeners, one handler a request, the replicas, and the shells (tasks, timers,
//! sockets) around the state machines of the controller and the groups.
//!
//! A request's way: [`net`] reads a frame, [`api`] decodes it and calls the handler of its key, the handler works on the
//! parts that [`broker::Broker`] holds, and [`net`] writes the answer as a gather list. One request of a connection is
//! worked on at a time, as in Kafka, so answers keep their order; a wait is a parked future.
//!
//! Modules in reading order.

/// The dispatch table and one file a request.
pub mod api;
/// The running broker: the parts that the handlers share.
pub mod broker;
/// Wall-clock time in ms, in one place.
pub mod clock;
/// `server.properties`, topic configs and their dynamic overlays.
pub mod config;
/// Who asked, and how: what a handler is told besides the request.
pub mod context;
/// The shell of the controller.
pub mod controller;
/// Requests to the active controller on another broker.
pub mod controller_link;
/// The shell of the group coordinator.
pub mod group;
/// Start-up order, registration, shutdown.
pub mod lifecycle;
/// Levels of log lines, changed while the process runs.
pub mod loggers;
/// What this broker knows of the cluster: brokers, topics, leaders; fed by UpdateMetadata.
pub mod metadata;
/// Counters and gauges, as text for Prometheus.
pub mod metrics;
/// Listeners, connections, frames, limits.
pub mod net;
/// Ids for idempotent producers.
pub mod producer_ids;
/// The replicas of this broker: produce, fetch, replication, purgatories.
pub mod replica;
/// Topics and partitions coming to be.
pub mod topic_creation;

pub use broker::Broker;
pub use context::{Principal, RequestContext};
