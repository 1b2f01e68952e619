//! Starts and stops a server.

use crate::commit::Committer;
use crate::config::{ConfigError, ZkConfig};
use crate::metrics::prometheus;
use crate::net::listener;
use crate::session::{Sessions, first_id};
use crate::snapshots::{Snapshots, purge};
use crate::state::{Clock, Shared};
use crate::store::StoreError;
use crate::store::data_dir::DataDir;
use crate::store::recovery::{self, Recovered};
use crate::store::txn_log::TxnLog;
use gracchus_security::tls::{self, TlsError};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::net::TcpListener;

/// As ZooKeeper's standalone server numbers itself in session ids.
const SERVER_ID: u8 = 1;

/// Connections that may wait to be accepted, unless the configuration says otherwise.
const LISTEN_BACKLOG: i32 = 1024;

/// Why a server does not start. Nothing on disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "can't listen on {address} for ZooKeeper clients: {source}. Another server may use the port: stop it, or set clientPort (secureClientPort, and their addresses) to a free one."
    )]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("can't start the coordination server's threads: {0}")]
    Thread(io::Error),
}

/// Whether the server can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Reads are served, writes are not.
    ReadOnly {
        reason: String,
    },
    Stopped,
}

/// A running server. Dropping the handle stops it; [`shutdown`](Self::shutdown) does so without blocking the thread.
pub struct ZkServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    secure_address: Option<SocketAddr>,
    accepting: Vec<tokio::task::JoinHandle<()>>,
    committer: Option<JoinHandle<()>>,
}

impl ZkServer {
    /// Recovers the data and serves clients on the current tokio runtime. Returns when it is ready.
    pub async fn start(config: ZkConfig) -> Result<ZkServer, StartError> {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let tls = config.tls.as_ref().map(tls::server_config).transpose()?;
        // The ports first: if one is taken, nothing on disk is touched. Early clients wait in its queue.
        let backlog = config.listen_backlog.unwrap_or(LISTEN_BACKLOG);
        let plain = config.serves_plain.then_some(config.client_address);
        let plain = plain.map(|at| listen(at, backlog)).transpose()?;
        let secure = config.secure_address.filter(|_| tls.is_some());
        let secure = secure.map(|at| listen(at, backlog)).transpose()?;
        let address = plain.as_ref().map(|(_, address)| *address);
        let secure_address = secure.as_ref().map(|(_, address)| *address);
        let Some(shown) = address.or(secure_address) else {
            return Err(ConfigError::Missing("clientPort").into());
        };
        let (shared, committer) = tokio::task::spawn_blocking(move || open(config, shown))
            .await
            .map_err(|error| StartError::Thread(io::Error::other(error)))??;
        let mut accepting = Vec::new();
        if let Some((listener, _)) = plain {
            accepting.push(tokio::spawn(listener::accept(
                shared.clone(),
                listener,
                None,
            )));
        }
        if let Some((listener, address)) = secure {
            tracing::info!("TLS for ZooKeeper clients on {address}");
            accepting.push(tokio::spawn(listener::accept(
                shared.clone(),
                listener,
                tls,
            )));
        }
        Ok(ZkServer {
            shared,
            address: shown,
            secure_address,
            accepting,
            committer: Some(committer),
        })
    }

    /// Where it listens, also when the configuration said port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where clients that speak TLS are served.
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure_address
    }

    /// True while clients are served.
    pub fn ready(&self) -> bool {
        self.health() != Health::Stopped
    }

    pub fn health(&self) -> Health {
        if self.committer.as_ref().is_none_or(JoinHandle::is_finished) {
            return Health::Stopped;
        }
        match &*self.shared.writes_refused.lock() {
            Some(reason) => Health::ReadOnly {
                reason: reason.clone(),
            },
            None => Health::Ready,
        }
    }

    /// The server's figures for Prometheus, under ZooKeeper's own names.
    pub fn metrics_text(&self) -> String {
        prometheus(&self.shared.metrics, &self.shared.gauges())
    }

    /// Stops accepting, answers what is queued, and ends.
    pub async fn shutdown(mut self) {
        self.accepting
            .iter()
            .for_each(tokio::task::JoinHandle::abort);
        self.shared.queue.stop();
        if let Some(committer) = self.committer.take() {
            let _ = tokio::task::spawn_blocking(move || committer.join()).await;
        }
        close_all(&self.shared);
    }
}

impl Drop for ZkServer {
    fn drop(&mut self) {
        self.accepting
            .iter()
            .for_each(tokio::task::JoinHandle::abort);
        self.shared.queue.stop();
        if let Some(committer) = self.committer.take() {
            // So that the directory is free again.
            let _ = committer.join();
        }
        close_all(&self.shared);
    }
}

fn listen(address: SocketAddr, backlog: i32) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = listener::bind(address, backlog).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((TcpListener::from_std(listener).map_err(failed)?, bound))
}

fn close_all(shared: &Shared) {
    for conn in shared.conns.lock().values() {
        conn.close(true);
    }
}

/// Runs a server until `shutdown` completes: `gracchus zookeeper zoo.cfg`.
pub async fn run(config: ZkConfig, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    let server = ZkServer::start(config).await?;
    shutdown.await;
    server.shutdown().await;
    Ok(())
}

/// The server as its data directory has it, without threads and listeners.
pub(crate) fn recover(
    config: ZkConfig,
    address: SocketAddr,
) -> Result<(Arc<Shared>, Committer), StartError> {
    let start = Instant::now();
    let clock = Clock::new();
    let dir = Arc::new(DataDir::open(&config)?);
    let Recovered {
        tree,
        log: to_resume,
        snapshot_zxid,
        replayed,
    } = recovery::recover(&dir, config.trust_empty_snapshot)?;
    let mut log = TxnLog::new(&dir.log_dir, config.pre_alloc_size, config.force_sync);
    if let Some((path, position, txns)) = to_resume
        && let Err(error) = log.resume(&path, position, txns)
    {
        return Err(StoreError::Io {
            action: "go on writing",
            path,
            source: error,
        }
        .into());
    }
    let mut sessions = Sessions::new(
        i64::from(config.tick_time_ms),
        first_id(SERVER_ID, Clock::wall_ms()),
    );
    for (id, timeout_ms) in tree.sessions() {
        sessions.add(*id, *timeout_ms, None, clock.now_ms());
    }
    tracing::info!(
        "coordination server on {address}: {} znodes, {} sessions, zxid 0x{:x} (snapshot 0x{snapshot_zxid:x} and {replayed} transactions from {}) in {} ms",
        tree.node_count(),
        sessions.len(),
        tree.last_zxid(),
        dir.log_dir.display(),
        start.elapsed().as_millis()
    );
    if !config.force_sync {
        tracing::warn!(
            "forceSync=no: writes are answered before they are on disk, and a power cut may lose them"
        );
    }
    let snapshots = Snapshots::new(&config, dir.clone());
    let keep = (config.purge_interval_hours > 0).then_some(config.snap_retain_count);
    purge(&dir, keep);
    let shared = Arc::new(Shared::new(config, tree, sessions, clock));
    shared
        .metrics
        .dbinittime
        .record_us(start.elapsed().as_micros() as u64);
    let committer = Committer::new(shared.clone(), log, snapshots);
    Ok((shared, committer))
}

fn open(
    config: ZkConfig,
    address: SocketAddr,
) -> Result<(Arc<Shared>, JoinHandle<()>), StartError> {
    let (shared, committer) = recover(config, address)?;
    let thread = std::thread::Builder::new()
        .name("zk-commit".into())
        .spawn(move || committer.run())
        .map_err(StartError::Thread)?;
    Ok((shared, thread))
}
