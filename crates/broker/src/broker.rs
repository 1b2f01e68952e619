//! The running broker. Built once at start; every handler and every background task works on these parts.
//!
//! How a part is made (convention for [`crate::replica`], [`crate::group`], [`crate::controller`]):
//! `X::new(...)` builds it without starting anything, then [`Broker`] is put into an `Arc`, then
//! `x.start(&Arc<Broker>)` spawns its tasks on `broker.tasks` (a `TaskTracker`), which end when `broker.shutdown`
//! (a `CancellationToken`) is cancelled. Tasks may hold an `Arc<Broker>`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gracchus_registry::Registry;

use crate::config::{ConfigStore, Listeners};
use crate::controller::ControllerShell;
use crate::group::GroupShell;
use crate::metadata::MetadataCache;
use crate::metrics::Metrics;
use crate::net::limits::ConnectionCounter;
use crate::replica::ReplicaManager;

/// Who this broker is.
#[derive(Debug)]
pub struct Identity {
    /// `broker.id`.
    pub broker_id: i32,
    /// `/cluster/id`.
    pub cluster_id: String,
    /// czxid of `/brokers/ids/N`; -1 before the registration; changes when the session was lost.
    broker_epoch: AtomicI64,
}

impl Identity {
    /// An identity not registered yet.
    pub fn new(broker_id: i32, cluster_id: String) -> Self {
        Self {
            broker_id,
            cluster_id,
            broker_epoch: AtomicI64::new(-1),
        }
    }

    /// The present broker epoch, -1 before the first registration.
    pub fn broker_epoch(&self) -> i64 {
        self.broker_epoch.load(Ordering::Acquire)
    }

    /// Called after each registration.
    pub fn set_broker_epoch(&self, czxid: i64) {
        self.broker_epoch.store(czxid, Ordering::Release);
    }
}

/// The parts of a running broker.
pub struct Broker {
    /// Who it is.
    pub identity: Identity,
    /// Static and dynamic configs: `config.current()` for the broker's, `config.topic(name)` for a topic's.
    pub config: Arc<ConfigStore>,
    /// The cluster as UpdateMetadata told it.
    pub metadata: Arc<MetadataCache>,
    /// The replicas hosted here.
    pub replicas: Arc<ReplicaManager>,
    /// The group coordinator.
    pub groups: Arc<GroupShell>,
    /// The controller, active or not.
    pub controller: Arc<ControllerShell>,
    /// Requests to the active controller on another broker.
    pub controller_link: crate::controller_link::ControllerLink,
    /// Ids for producers.
    pub producer_ids: crate::producer_ids::ProducerIds,
    /// Kafka's znodes over the broker's ZooKeeper session.
    pub registry: Registry,
    /// Listeners as configured, the advertised ones complete.
    pub listeners: Listeners,
    /// Told when `/config/changes` has news.
    pub config_changes: tokio::sync::Notify,
    /// Open client connections.
    pub connections: Arc<ConnectionCounter>,
    /// Counters.
    pub metrics: Metrics,
    /// dataVersion of `/feature`, -1 when there is none (inter.broker.protocol.version below 2.7).
    pub features_epoch: AtomicI64,
    /// Cancelled when the broker stops; every task watches it.
    pub shutdown: CancellationToken,
    /// Background tasks; awaited at shutdown.
    pub tasks: TaskTracker,
}

impl Broker {
    /// Spawns a task that the broker can't do without. Should it panic, the process ends with a word about it, instead
    /// of going on half alive: a registered broker whose controller is dead would keep the others from electing one.
    pub fn spawn_vital(&self, what: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let running = tokio::spawn(task);
        self.tasks.spawn(async move {
            if running.await.is_err_and(|error| error.is_panic()) {
                tracing::error!(
                    "{what} has failed (a bug; see the message above): the process ends, restart it"
                );
                std::process::exit(1);
            }
        });
    }

    /// What ApiVersions says of the finalized features.
    pub fn finalized_features_epoch(&self) -> i64 {
        self.features_epoch.load(Ordering::Acquire)
    }
}

impl crate::net::Service for Arc<Broker> {
    async fn answer(
        &self,
        connection: &Arc<crate::context::ConnectionInfo>,
        frame: bytes::Bytes,
    ) -> crate::net::Outcome {
        crate::api::dispatch(self, connection, frame).await
    }
}
