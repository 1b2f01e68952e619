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
        "can't listen on {address} for ZooKeeper clients: {source}. Another server may use the port: stop it, or set clientPort (and clientPortAddress) to a free one."
    )]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
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
    accepting: tokio::task::JoinHandle<()>,
    committer: Option<JoinHandle<()>>,
}

impl ZkServer {
    /// Recovers the data and serves clients on the current tokio runtime. Returns when it is ready.
    pub async fn start(config: ZkConfig) -> Result<ZkServer, StartError> {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        // The port first: if it is taken, nothing on disk is touched. Early clients wait in its queue.
        let listen = |source| StartError::Listen {
            address: config.client_address,
            source,
        };
        let listener = listener::bind(
            config.client_address,
            config.listen_backlog.unwrap_or(LISTEN_BACKLOG),
        )
        .map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let listener = TcpListener::from_std(listener).map_err(listen)?;
        let (shared, committer) = tokio::task::spawn_blocking(move || open(config, address))
            .await
            .map_err(|error| StartError::Thread(io::Error::other(error)))??;
        let accepting = tokio::spawn(listener::accept(shared.clone(), listener));
        Ok(ZkServer {
            shared,
            address,
            accepting,
            committer: Some(committer),
        })
    }

    /// Where it listens, also when the configuration said port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
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
        self.accepting.abort();
        self.shared.queue.stop();
        if let Some(committer) = self.committer.take() {
            let _ = tokio::task::spawn_blocking(move || committer.join()).await;
        }
        close_all(&self.shared);
    }
}

impl Drop for ZkServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.queue.stop();
        if let Some(committer) = self.committer.take() {
            // So that the directory is free again.
            let _ = committer.join();
        }
        close_all(&self.shared);
    }
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

fn open(
    config: ZkConfig,
    address: SocketAddr,
) -> Result<(Arc<Shared>, JoinHandle<()>), StartError> {
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
    let thread = std::thread::Builder::new()
        .name("zk-commit".into())
        .spawn(move || committer.run())
        .map_err(StartError::Thread)?;
    Ok((shared, thread))
}
