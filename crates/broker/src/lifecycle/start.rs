//! The way up, in three steps: who this broker is ([`identify`]), its logs ([`loading`]), which go on being loaded through
//! the rest of it ([`assemble`], [`join`]). A stop is legal in each; what had been stopped cleanly before still counts as
//! that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use gracchus_log::LogManager;
use gracchus_log::dirs::LogDirs;
use gracchus_registry::{Registry, paths};
use gracchus_zk_client::{EventReceiver, ZkClient};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::LifecycleError;
use super::status::Status;
use super::stop::CLOSE;
use super::{Prepared, Running, StartOptions, connection_limits};
use super::{addresses, adopt, dynamic, identity, loading, registration, session, zookeeper};
use crate::broker::{Broker, Identity};
use crate::clock::now_ms;
use crate::config::{ConfigError, ConfigStore, Listeners, Loaded, MetadataVersion};
use crate::controller::ControllerShell;
use crate::group::{GroupShell, Settings};
use crate::metadata::MetadataCache;
use crate::metrics::Metrics;
use crate::net::connection::Shared;
use crate::net::limits::{ConnectionCounter, LineLimiter, RequestMemory};
use crate::net::server::Bound;
use crate::replica::ReplicaManager;

/// Requests in memory when `queued.max.request.bytes` sets no limit.
const DEFAULT_REQUEST_MEMORY: u64 = 1 << 30;

/// Starts a broker, up to where it is registered and takes requests ([`Running::ready`] waits for the rest). When `stop`
/// completes first, whatever has begun is ended cleanly and [`LifecycleError::Stopped`] comes back.
pub async fn start(
    prepared: Prepared,
    options: StartOptions,
    status: Arc<Status>,
    stop: impl Future<Output = ()>,
) -> Result<Running, LifecycleError> {
    let begun = Instant::now();
    tokio::pin!(stop);
    let mut known = tokio::select! {
        biased;
        () = &mut stop => return Err(LifecycleError::Stopped),
        known = identify(prepared, options, &status) => known?,
    };
    let zk = known.registry.zk().clone();
    status.starting("reading the log directories");
    let opened = blocking({
        let (dirs, store) = (known.dirs.take(), known.store.clone());
        move || loading::open(dirs, &store)
    });
    let opened = opened.await.and_then(|opened| Ok(opened?));
    let (logs, pending) = match opened {
        Ok((logs, pending)) => (Arc::new(logs), pending),
        Err(error) => {
            let _ = tokio::time::timeout(CLOSE, zk.close()).await;
            // a closed session needs no ending at the next start
            let _ = std::fs::remove_file(&known.session_file);
            return Err(error);
        }
    };
    let assembled = assemble(known, logs.clone(), &status, begun);
    let (running, joining) = match assembled {
        Ok(assembled) => assembled,
        Err(error) => {
            let _ = blocking(move || logs.shutdown(now_ms())).await;
            return Err(error);
        }
    };
    if let Err(error) = running.loading.start(&running.broker, pending, &status) {
        running.loading.abandon();
        running.stop().await;
        return Err(error);
    }
    let joined = tokio::select! {
        biased;
        () = &mut stop => Err(LifecycleError::Stopped),
        joined = join(&running, joining) => joined,
    };
    match joined {
        Ok(()) => Ok(running),
        Err(error) => {
            running.stop().await;
            Err(error)
        }
    }
}

/// A broker that knows who it is: ZooKeeper, the directories and the configuration agree.
struct Known {
    loaded: Loaded,
    bound: Vec<Bound>,
    listeners: Listeners,
    /// Until the logs are loaded from them.
    dirs: Option<LogDirs>,
    registry: Registry,
    events: EventReceiver,
    session_file: PathBuf,
    cluster_id: String,
    broker_id: i32,
    store: Arc<ConfigStore>,
    offsets_partitions: Option<i32>,
}

async fn identify(
    prepared: Prepared,
    options: StartOptions,
    status: &Arc<Status>,
) -> Result<Known, LifecycleError> {
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
    let name = match config.broker_id {
        ..0 => "a broker without an id yet".to_owned(),
        id => format!("broker {id}"),
    };
    let zk_config = zookeeper::zk_config(&loaded, &name)?;
    let connect = config.zookeeper_connect.clone().unwrap_or_default();
    let session_file = zookeeper::session_file(data_dirs.first().map_or(Path::new("."), |d| d));
    let left = zookeeper::kept_session(&session_file, &connect);
    let (zk, events) = zookeeper::connect(&loaded, &zk_config, left, status).await?;
    let registry = Registry::new(zk.clone(), config.zookeeper_set_acl);
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

    // configs as ZooKeeper has them: the logs are opened under these
    let mut fixed = loaded.values.clone();
    for key in ["broker.id", "node.id"] {
        fixed.insert(key.into(), broker_id.to_string());
    }
    let store = Arc::new(ConfigStore::new(fixed)?);
    dynamic::load(&registry, &store, broker_id).await?;
    let offsets_partitions =
        dynamic::partition_count(&registry, crate::group::OFFSETS_TOPIC).await?;
    Ok(Known {
        loaded,
        bound,
        listeners,
        dirs: Some(dirs),
        registry,
        events,
        session_file,
        cluster_id,
        broker_id,
        store,
        offsets_partitions,
    })
}

/// What [`join`] needs besides the broker.
struct Joining {
    events: EventReceiver,
    zk: ZkClient,
    connect: String,
}

/// Puts the parts together and takes requests.
fn assemble(
    known: Known,
    logs: Arc<LogManager>,
    status: &Arc<Status>,
    begun: Instant,
) -> Result<(Running, Joining), LifecycleError> {
    let Known {
        loaded,
        bound,
        listeners,
        registry,
        events,
        session_file,
        cluster_id,
        broker_id,
        store,
        offsets_partitions,
        ..
    } = known;
    let zk = registry.zk().clone();
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
        let privileged = broker.listeners.is_privileged(&b.listener.name);
        b.accept(
            privileged,
            Arc::new(broker.clone()),
            shared.clone(),
            broker.connections.clone(),
            &network_tasks,
        )?;
    }

    let running = Running {
        broker,
        network_stop,
        network_tasks,
        session_file,
        status: status.clone(),
        loading: Default::default(),
        begun,
    };
    let joining = Joining {
        events,
        zk,
        connect: loaded.config.zookeeper_connect.unwrap_or_default(),
    };
    Ok((running, joining))
}

/// The cluster hears of this broker, and this broker begins to hear of the cluster.
async fn join(running: &Running, joining: Joining) -> Result<(), LifecycleError> {
    let Joining {
        events,
        zk,
        connect,
    } = joining;
    let (broker, status) = (&running.broker, &running.status);
    let broker_id = broker.identity.broker_id;
    // whom clients ask for: known before the controller can speak
    let deleted = broker
        .registry
        .children(paths::DELETE_TOPICS, false)
        .await?;
    let mut topics = broker.registry.topic_names(false).await?;
    topics.retain(|topic| !deleted.contains(topic));
    broker.metadata.await_topics(topics);
    status.starting("registering in /brokers/ids");
    let registration =
        registration::registration(&broker.config.current(), &broker.listeners.advertised);
    let timeout = Duration::from_millis(u64::try_from(zk.negotiated_timeout_ms()).unwrap_or(0));
    let epoch =
        registration::register(&broker.registry, broker_id, &registration, timeout, status).await?;
    broker.identity.set_broker_epoch(epoch);
    tracing::info!("registered as broker {broker_id}, broker epoch {epoch}");
    broker.controller.start(broker);
    session::start(
        broker,
        events,
        registration,
        running.session_file.clone(),
        connect,
        status.clone(),
    );
    dynamic::start(broker).await?;
    broker.read_features().await;

    status.starting("waiting for the controller's first word");
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LifecycleError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| LifecycleError::Io(std::io::Error::other(e)))
}

fn request_memory(loaded: &Loaded) -> RequestMemory {
    let bytes = u64::try_from(loaded.config.queued_max_request_bytes)
        .ok()
        .filter(|b| *b > 0);
    let largest = usize::try_from(loaded.config.socket_request_max_bytes).unwrap_or(usize::MAX);
    RequestMemory::new(bytes.unwrap_or(DEFAULT_REQUEST_MEMORY), largest)
}
