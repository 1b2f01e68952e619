//! `gracchus zookeeper zoo.cfg`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use gracchus_console::{PartHealth, Sources};
use gracchus_zk_server::{Health, ZkConfig, ZkServer};
use parking_lot::Mutex;

use super::{ZookeeperArgs, console};
use crate::process;

/// The embedded or only coordination server, None before it is up.
#[derive(Clone, Default)]
pub struct Coordination(Arc<Mutex<Option<ZkServer>>>);

impl Coordination {
    /// It is up.
    pub fn set(&self, server: ZkServer) {
        *self.0.lock() = Some(server);
    }

    /// Takes it away, to shut it down.
    pub fn take(&self) -> Option<ZkServer> {
        self.0.lock().take()
    }

    /// For the console.
    pub fn health(&self) -> PartHealth {
        let (ready, reason) = match self.0.lock().as_ref().map(ZkServer::health) {
            None => (false, Some("starting".to_owned())),
            Some(Health::Ready) => (true, None),
            Some(Health::ReadOnly { reason }) => {
                (false, Some(format!("writes are refused: {reason}")))
            }
            Some(Health::Stopped) => (false, Some("stopped".to_owned())),
        };
        PartHealth {
            part: "zookeeper".to_owned(),
            ready,
            reason,
        }
    }

    /// For the console.
    pub fn metrics(&self) -> String {
        self.0
            .lock()
            .as_ref()
            .map(ZkServer::metrics_text)
            .unwrap_or_default()
    }
}

/// Runs until a signal.
pub async fn run(args: ZookeeperArgs) -> ExitCode {
    let signal = process::stop_signal();
    tokio::pin!(signal);
    let config = match ZkConfig::from_file(&args.file) {
        Ok(config) => config,
        Err(error) => return process::fail(&error),
    };
    for dir in std::iter::once(&config.data_dir).chain(&config.data_log_dir) {
        if let Some(warning) = gracchus_broker::lifecycle::addresses::volatile_data(dir) {
            tracing::warn!("{warning}");
        }
    }
    let coordination = Coordination::default();
    let by_flag = args
        .http_port
        .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    for (at, key) in [
        (by_flag, "--http-port"),
        (config.metrics, "metricsProvider.httpPort"),
    ] {
        let Some(at) = at else { continue };
        let (health, metrics) = (coordination.clone(), coordination.clone());
        let sources = Sources {
            health: Arc::new(move || vec![health.health()]),
            metrics: Arc::new(move || metrics.metrics()),
            elections: Arc::new(|| "[]".to_owned()),
        };
        console::start(at, key, sources).await;
    }
    tokio::select! {
        started = ZkServer::start(config) => match started {
            Ok(server) => coordination.set(server),
            Err(error) => return process::fail(&error),
        },
        () = &mut signal => return ExitCode::SUCCESS,
    }
    signal.await;
    if let Some(server) = coordination.take() {
        server.shutdown().await;
    }
    ExitCode::SUCCESS
}
