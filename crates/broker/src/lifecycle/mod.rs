//! The order of a broker's start and stop.
//!
//! Ports are bound and log directories locked before anything is written anywhere, so that a start that cannot succeed
//! changes nothing. ZooKeeper is waited for ([`zookeeper`]); the identity is settled between it, the directories and the
//! configuration ([`identity`]); the logs begin to be loaded ([`loading`]), and the broker registers ([`registration`]) and
//! takes requests meanwhile. A stop is legal at every point.

/// Advertised addresses and data directories, looked at before they hurt.
pub mod addresses;
/// An empty ZooKeeper under full log directories.
mod adopt;
/// Dynamic configs: read at start, followed after.
pub mod dynamic;
/// What can go wrong.
pub mod error;
/// Which cluster, which id.
pub mod identity;
/// Logs loaded while the broker is up.
mod loading;
/// `/brokers/ids/N`.
pub mod registration;
/// The session's events to who needs them.
pub mod session;
/// The way up.
mod start;
/// How far it is.
pub mod status;
/// The way down.
pub mod stop;
/// Reaching ZooKeeper.
pub mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::LifecycleError;
pub use start::start;
pub use status::{Phase, Status};

use crate::broker::Broker;
use crate::config::Loaded;
use crate::net::limits::ConnectionLimits;
use crate::net::server::{self, Bound, SocketOptions};

/// After the registration, the first UpdateMetadata comes at once if there is a controller; longer waits are told.
const METADATA_LINE: Duration = Duration::from_secs(10);

/// After the controller's first word, that on the topics comes at once, too; one that it cannot read is not waited for.
const TOPICS: Duration = Duration::from_secs(5);

/// What a start needs besides the configuration.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// Write the directories' cluster id to a ZooKeeper that has none.
    pub adopt_cluster_id: bool,
    /// Write the directories' topics to a ZooKeeper that has none.
    pub adopt_topics: bool,
}

/// A broker that serves.
pub struct Running {
    /// Its parts.
    pub broker: Arc<Broker>,
    pub(crate) network_stop: CancellationToken,
    pub(crate) network_tasks: TaskTracker,
    pub(crate) session_file: PathBuf,
    pub(crate) status: Arc<Status>,
    pub(crate) loading: loading::Loading,
    begun: Instant,
}

/// A checked configuration with its ports bound. Nothing has been written anywhere, and nobody is served.
pub struct Prepared {
    loaded: Loaded,
    bound: Vec<Bound>,
}

impl Prepared {
    /// Binds the ports.
    pub fn bind(loaded: Loaded) -> Result<Self, LifecycleError> {
        let sockets = socket_options(&loaded);
        let mut bound = Vec::with_capacity(loaded.listeners.bound.len());
        for listener in &loaded.listeners.bound {
            bound.push(server::bind(listener, sockets)?);
        }
        Ok(Self { loaded, bound })
    }
}

impl Running {
    /// Waits until the controller has told this broker of the cluster, itself included, from when on clients are served,
    /// and until all logs are loaded.
    pub async fn ready(&self) {
        let broker_id = self.broker.identity.broker_id;
        let knows_us = |s: &crate::metadata::Snapshot| s.is_alive(broker_id);
        while !self
            .broker
            .metadata
            .wait_until(METADATA_LINE, knows_us)
            .await
        {
            tracing::warn!(
                "no controller has told this broker of the cluster yet; /controller says who it is"
            );
        }
        let metadata = &self.broker.metadata;
        if !metadata.wait_until(TOPICS, |s| metadata.is_told(s)).await {
            let missing = metadata.give_up_awaited();
            tracing::warn!(
                "the controller has not told of {} topics of /brokers/topics, {} among them; serving the others",
                missing.len(),
                missing.first().map_or("none", String::as_str)
            );
        }
        self.status.set(Phase::Ready);
        self.loading.ended().await;
        tracing::info!(
            "broker {broker_id} is ready after {} ms",
            self.begun.elapsed().as_millis()
        );
    }
}

/// Buffer sizes only where the configuration names them: the system's own tuning beats Kafka's fixed 100 KiB.
fn socket_options(loaded: &Loaded) -> SocketOptions {
    let size = |key: &str, value: i32| {
        usize::try_from(value)
            .ok()
            .filter(|bytes| loaded.values.contains_key(key) && *bytes > 0)
    };
    SocketOptions {
        send_buffer: size(
            "socket.send.buffer.bytes",
            loaded.config.socket_send_buffer_bytes,
        ),
        receive_buffer: size(
            "socket.receive.buffer.bytes",
            loaded.config.socket_receive_buffer_bytes,
        ),
        backlog: loaded.config.socket_listen_backlog_size,
    }
}

/// The limits of connections that hold now.
pub(crate) fn connection_limits(config: &crate::config::BrokerConfig) -> ConnectionLimits {
    ConnectionLimits::new(
        config.max_connections,
        config.max_connections_per_ip,
        &config.max_connections_per_ip_overrides,
    )
}
