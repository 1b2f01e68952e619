//! The ZooKeeper session's events, in order, to who needs them; and what follows a lost session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gracchus_registry::json::BrokerRegistration;
use gracchus_registry::paths;
use gracchus_zk_client::{EventReceiver, SessionState, ZkEvent};

use super::status::{Phase, Status};
use super::{registration, zookeeper};
use crate::broker::Broker;

/// Spawns the task that owns the queue.
pub fn start(
    broker: &Arc<Broker>,
    mut events: EventReceiver,
    own: BrokerRegistration,
    session_file: PathBuf,
    connect: String,
    status: Arc<Status>,
) {
    let owner = broker.clone();
    let broker = broker.clone();
    let node = paths::broker(broker.identity.broker_id);
    beside(
        &broker,
        keep_registration(broker.clone(), own.clone(), status.clone()),
    );
    owner.spawn_vital("the keeper of the ZooKeeper session", async move {
        loop {
            let event = tokio::select! {
                () = broker.shutdown.cancelled() => return,
                event = events.recv() => event,
            };
            let Some(event) = event else { return };
            broker.controller.zk_event(&event).await;
            match event {
                ZkEvent::Watch(watch) if watch.path == paths::CONFIG_CHANGES => broker.config_changes.notify_one(),
                ZkEvent::Watch(watch) if watch.path == paths::FEATURE => broker.read_features().await,
                ZkEvent::Watch(watch) if watch.path == node => {
                    beside(&broker, keep_registration(broker.clone(), own.clone(), status.clone()));
                }
                ZkEvent::Watch(_) => {}
                ZkEvent::Session(SessionState::Connected { session_id, new: true }) => {
                    tracing::info!("new ZooKeeper session 0x{session_id:x}: registering again");
                    if let Some(session) = broker.registry.zk().session() {
                        zookeeper::keep_session(&session_file, &connect, &session);
                    }
                    beside(&broker, register_again(broker.clone(), own.clone(), status.clone()));
                }
                ZkEvent::Session(SessionState::Connected { .. }) => tracing::info!("connected to ZooKeeper again, same session"),
                ZkEvent::Session(SessionState::Disconnected) => {
                    tracing::warn!("the connection to ZooKeeper at {connect} is lost; connecting again");
                }
                ZkEvent::Session(SessionState::Overdue) => {
                    tracing::warn!(
                        "nothing was heard of ZooKeeper at {connect} for a whole session timeout: the session may be over. Reads and \
                         writes go on with what was last known; trying to connect"
                    );
                }
                ZkEvent::Session(SessionState::Expired) => {
                    tracing::warn!("the ZooKeeper session has expired; opening a new one");
                    broker.controller.session_expired().await;
                    broker.registry.zk().reopen().await;
                }
                // The session itself says why, and tries again.
                ZkEvent::Session(SessionState::AuthFailed) => {}
                ZkEvent::Session(SessionState::Closed) => return,
            }
        }
    });
}

/// Beside the loop of events: registering may have to wait, and needs none of them.
fn beside(broker: &Arc<Broker>, work: impl Future<Output = ()> + Send + 'static) {
    let shutdown = broker.shutdown.clone();
    broker.tasks.spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = work => {}
        }
    });
}

/// Watches the own registration. If somebody deletes it while the session lives, the broker registers again; Kafka's stays
/// out of the cluster until it is restarted.
async fn keep_registration(broker: Arc<Broker>, own: BrokerRegistration, status: Arc<Status>) {
    let node = paths::broker(broker.identity.broker_id);
    // an error is a lost session, after which the broker registers anyway
    if let Ok(None) = broker.registry.zk().exists(&node, true).await {
        tracing::warn!("{node} was deleted by somebody else; registering again");
        register_again(broker, own, status).await;
    }
}

async fn register_again(broker: Arc<Broker>, own: BrokerRegistration, status: Arc<Status>) {
    let timeout = Duration::from_millis(
        u64::try_from(broker.registry.zk().negotiated_timeout_ms()).unwrap_or(0),
    );
    let id = broker.identity.broker_id;
    let mut own = own;
    own.timestamp_ms = crate::clock::now_ms();
    loop {
        match registration::register(&broker.registry, id, &own, timeout, &status).await {
            Ok(epoch) => {
                broker.identity.set_broker_epoch(epoch);
                tracing::info!("registered again as broker {id}, broker epoch {epoch}");
                status.set(Phase::Ready);
                broker.controller.registered(epoch).await;
                broker.config_changes.notify_one();
                broker.read_features().await;
                let node = paths::broker(id);
                if !matches!(broker.registry.zk().exists(&node, true).await, Ok(None)) {
                    return;
                }
            }
            Err(error) => {
                tracing::error!("cannot register again: {error}");
                status.starting(format!("cannot register again: {error}"));
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    }
}

impl Broker {
    /// Reads `/feature`, whose version ApiVersions tells, and watches it.
    pub async fn read_features(&self) {
        let zk = self.registry.zk();
        match zk.exists(paths::FEATURE, true).await {
            Ok(stat) => {
                let epoch = stat.map_or(-1, |s| i64::from(s.version));
                self.features_epoch
                    .store(epoch, std::sync::atomic::Ordering::Release);
            }
            Err(error) => tracing::debug!(%error, "{} cannot be read now", paths::FEATURE),
        }
    }
}
