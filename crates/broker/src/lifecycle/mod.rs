//! The order of a broker's start and stop.
//!
//! Ports are bound and log directories locked before anything is written anywhere, so that a start that cannot succeed
//! changes nothing. ZooKeeper is waited for ([`zookeeper`]); the identity is settled between it, the directories and the
//! configuration ([`identity`]); logs are loaded; then the broker registers ([`registration`]) and takes requests. A stop
//! is legal at every point.

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
/// `/brokers/ids/N`.
pub mod registration;
/// The session's events to who needs them.
pub mod session;
/// How far it is.
pub mod status;
/// The way down.
pub mod stop;
/// Reaching ZooKeeper.
pub mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use gracchus_log::cleaner::CleanerConfig;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{LogManager, LogManagerConfig};
use gracchus_registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::LifecycleError;
pub use status::{Phase, Status};

use crate::broker::{Broker, Identity};
use crate::clock::now_ms;
use crate::config::{ConfigError, ConfigStore, Listeners, Loaded, MetadataVersion};
use crate::controller::ControllerShell;
use crate::group::{GroupShell, Settings};
use crate::metadata::MetadataCache;
use crate::metrics::Metrics;
use crate::net::connection::Shared;
use crate::net::limits::{ConnectionCounter, ConnectionLimits, LineLimiter, RequestMemory};
use crate::net::server::{self, Bound, SocketOptions};
use crate::replica::ReplicaManager;
use crate::replica::log_config::log_config;

/// Requests in memory when `queued.max.request.bytes` sets no limit.
const DEFAULT_REQUEST_MEMORY: u64 = 1 << 30;
/// After the registration, the first UpdateMetadata comes at once if there is a controller; longer waits are told.
const METADATA_LINE: Duration = Duration::from_secs(10);

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

/// Starts a broker, up to where it is registered and takes requests ([`Running::ready`] waits for the rest). Dropping the
/// future stops the start wherever it is.
pub async fn start(
    prepared: Prepared,
    options: StartOptions,
    status: Arc<Status>,
) -> Result<Running, LifecycleError> {
    let begun = Instant::now();
    let Prepared { loaded, bound } = prepared;
    for warning in &loaded.warnings {
        tracing::warn!("configuration: {warning}");
    }
    let config = loaded.config.clone();
    let given = config.advertised_listeners.is_some();
    let advertised = addresses::resolve_advertised(&loaded.listeners, &bound, given);
    let listeners = Listeners {
        advertised,
        ..loaded.listeners.clone()
    };
    for line in addresses::table(&bound, &listeners.advertised) {
        tracing::info!("{line}");
    }
    for warning in addresses::warnings(&bound, &listeners.advertised) {
        tracing::warn!("{warning}");
    }
    let data_dirs: Vec<PathBuf> = config.data_dirs().into_iter().map(PathBuf::from).collect();
    for warning in data_dirs.iter().filter_map(|d| addresses::volatile_data(d)) {
        tracing::warn!("{warning}");
    }
    let dirs = blocking({
        let data_dirs = data_dirs.clone();
        move || LogDirs::open(&data_dirs)
    })
    .await??;

    // ZooKeeper and who we are there
    let zk_config = zookeeper::zk_config(&loaded, &format!("broker {}", config.broker_id))?;
    let connect = config.zookeeper_connect.clone().unwrap_or_default();
    let session_file =
        zookeeper::session_file(data_dirs.first().map_or(std::path::Path::new("."), |d| d));
    let left = zookeeper::kept_session(&session_file, &connect);
    let (zk, events) = zookeeper::connect(&loaded, &zk_config, left, &status).await?;
    let registry = Registry::new(zk.clone(), false);
    status.starting("settling the broker's identity");
    let shown_dirs = data_dirs
        .iter()
        .map(|d| d.display().to_string())
        .collect::<Vec<_>>()
        .join(",");
    let (cluster_id, broker_id) =
        identity::settle(&registry, &config, &dirs, &options, &connect, &shown_dirs).await?;
    registration::refuse_if_alive(&registry, broker_id).await?;
    dirs.write_identity(&cluster_id, broker_id, now_ms())?;
    if let Some(session) = zk.session() {
        zookeeper::keep_session(&session_file, &connect, &session);
    }
    tracing::info!("broker {broker_id} of cluster {cluster_id}");
    if options.adopt_topics {
        adopt::topics(&registry, broker_id, &config, &data_dirs).await?;
    }

    // configs as ZooKeeper has them, then the logs under these
    let mut fixed = loaded.values.clone();
    for key in ["broker.id", "node.id"] {
        fixed.insert(key.into(), broker_id.to_string());
    }
    let store = Arc::new(ConfigStore::new(fixed)?);
    dynamic::load(&registry, &store, broker_id).await?;
    let logs = load_logs(dirs, &store, &status).await?;

    // the parts
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    let metadata = Arc::new(MetadataCache::default());
    let replicas = Arc::new(ReplicaManager::new(
        broker_id,
        store.clone(),
        metadata.clone(),
        logs,
    ));
    let current = store.current();
    let protocol =
        MetadataVersion::parse(&current.inter_broker_protocol_version).ok_or_else(|| {
            ConfigError::Refused("inter.broker.protocol.version is none of Kafka's".into())
        })?;
    let offsets_partitions =
        dynamic::partition_count(&registry, crate::group::OFFSETS_TOPIC).await?;
    let settings = Settings::new(&current, protocol, offsets_partitions);
    let groups = GroupShell::new(settings, replicas.clone(), shutdown.clone(), tasks.clone());
    let connections = ConnectionCounter::new(connection_limits(&current));
    let broker = Arc::new(Broker {
        identity: Identity::new(broker_id, cluster_id),
        config: store,
        metadata,
        replicas,
        groups,
        controller: ControllerShell::new(),
        controller_link: Default::default(),
        producer_ids: Default::default(),
        registry,
        listeners,
        config_changes: tokio::sync::Notify::new(),
        connections,
        metrics: Metrics::default(),
        features_epoch: AtomicI64::new(-1),
        shutdown: shutdown.clone(),
        tasks: tasks.clone(),
    });
    broker
        .replicas
        .set_observers(vec![Arc::new(broker.groups.clone())]);
    crate::replica::storage_news::start(&broker);
    crate::replica::isr_changes::start(&broker);
    crate::replica::fetcher::start(&broker);
    broker.replicas.start(&tasks, &shutdown);

    // the network: requests are taken from here on
    let network_stop = CancellationToken::new();
    let network_tasks = TaskTracker::new();
    let shared = Arc::new(Shared {
        memory: request_memory(&loaded),
        max_frame: usize::try_from(current.socket_request_max_bytes).unwrap_or(usize::MAX),
        idle: u64::try_from(current.connections_max_idle_ms)
            .ok()
            .map(Duration::from_millis),
        lines: LineLimiter::new(20, Duration::from_secs(1)),
        stop: network_stop.clone(),
    });
    broker.groups.start(offsets_partitions);
    for b in bound {
        let name = b.listener.name.clone();
        let privileged = name == broker.listeners.inter_broker
            || Some(&name) == broker.listeners.control_plane.as_ref();
        b.accept(
            privileged,
            Arc::new(broker.clone()),
            shared.clone(),
            broker.connections.clone(),
            &network_tasks,
        )?;
    }

    // the cluster hears of us
    status.starting("registering in /brokers/ids");
    let registration = registration::registration(&current, &broker.listeners.advertised);
    let timeout = Duration::from_millis(u64::try_from(zk.negotiated_timeout_ms()).unwrap_or(0));
    let epoch =
        registration::register(&broker.registry, broker_id, &registration, timeout, &status)
            .await?;
    broker.identity.set_broker_epoch(epoch);
    tracing::info!("registered as broker {broker_id}, broker epoch {epoch}");
    broker.controller.start(&broker);
    session::start(
        &broker,
        events,
        registration,
        session_file.clone(),
        connect,
        status.clone(),
    );
    dynamic::start(&broker).await?;
    broker.read_features().await;

    status.starting("waiting for the controller's first word");
    Ok(Running {
        broker,
        network_stop,
        network_tasks,
        session_file,
        status,
        begun,
    })
}

impl Running {
    /// Waits until the controller has told this broker of the cluster, itself included: clients are served from then on.
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
        self.status.set(Phase::Ready);
        tracing::info!(
            "broker {broker_id} is ready after {} ms",
            self.begun.elapsed().as_millis()
        );
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LifecycleError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| LifecycleError::Io(std::io::Error::other(e)))
}

async fn load_logs(
    dirs: LogDirs,
    store: &Arc<ConfigStore>,
    status: &Arc<Status>,
) -> Result<Arc<LogManager>, LifecycleError> {
    let config = store.current();
    let settings = LogManagerConfig {
        // Kafka's default of one thread a directory is a default for disks that seek
        recovery_threads: match usize::try_from(config.num_recovery_threads_per_data_dir)
            .unwrap_or(1)
        {
            1 => 0,
            threads => threads.saturating_mul(config.data_dirs().len()),
        },
        producer_id_expiration_ms: i64::from(config.producer_id_expiration_ms),
        max_transaction_timeout_ms: i64::from(config.transaction_max_timeout_ms),
        cleaner: CleanerConfig {
            enable: config.log_cleaner_enable,
            dedupe_buffer_bytes: usize::try_from(config.log_cleaner_dedupe_buffer_size)
                .unwrap_or(128 << 20),
            load_factor: config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes: usize::try_from(config.log_cleaner_io_buffer_size)
                .unwrap_or(512 << 10),
            max_bytes_per_second: config.log_cleaner_io_max_bytes_per_second,
        },
        ..LogManagerConfig::default()
    };
    status.starting("loading logs");
    let begun = Instant::now();
    let (store, told) = (store.clone(), status.clone());
    let logs = blocking(move || {
        // no topic has the empty name
        let default = log_config(&store.topic(""));
        let topic_config = |topic: &str| log_config(&store.topic(topic));
        let last = parking_lot::Mutex::new(Instant::now());
        let progress = |p: &gracchus_log::LoadProgress| {
            let text = p.to_string();
            let mut last = last.lock();
            if last.elapsed() >= Duration::from_secs(2) {
                *last = Instant::now();
                tracing::info!("{text}");
            }
            told.starting(text);
        };
        let control = gracchus_log::LoadControl {
            progress: &progress,
            ..Default::default()
        };
        LogManager::load(dirs, settings, default, &topic_config, now_ms(), &control)
    })
    .await??;
    tracing::info!(
        "{} partitions loaded in {} ms",
        logs.logs().len(),
        begun.elapsed().as_millis()
    );
    Ok(Arc::new(logs))
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

fn request_memory(loaded: &Loaded) -> RequestMemory {
    let bytes = u64::try_from(loaded.config.queued_max_request_bytes)
        .ok()
        .filter(|b| *b > 0);
    let largest = usize::try_from(loaded.config.socket_request_max_bytes).unwrap_or(usize::MAX);
    RequestMemory::new(bytes.unwrap_or(DEFAULT_REQUEST_MEMORY), largest)
}

/// The limits of connections that hold now.
pub(crate) fn connection_limits(config: &crate::config::BrokerConfig) -> ConnectionLimits {
    ConnectionLimits::new(
        config.max_connections,
        config.max_connections_per_ip,
        &config.max_connections_per_ip_overrides,
    )
}
