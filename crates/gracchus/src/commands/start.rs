//! `gracchus start`: coordination server, broker and console in one process.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use gracchus_broker::config::{ConfigError, Loaded, Origin, Sources};
use gracchus_broker::lifecycle::{self, LifecycleError, Prepared, Running, Status};
use gracchus_broker::metrics::Exposition;
use gracchus_zk_server::{ZkConfig, ZkServer};

use super::zookeeper::Coordination;
use super::{StartArgs, console};
use crate::process;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs until a signal.
pub async fn run(args: StartArgs) -> ExitCode {
    let signal = process::stop_signal();
    tokio::pin!(signal);
    if args.brokers != 1 {
        return process::fail(&format!(
            "--brokers {}: several brokers in one process are not offered yet. Leave the option out for one broker; for a cluster, \
             start each with `gracchus broker server.properties` against one `gracchus zookeeper`.",
            args.brokers
        ));
    }
    let loaded = match configuration(&args) {
        Ok(loaded) => loaded,
        Err(error) => return process::fail(&error),
    };
    // both ports before any file
    let prepared = match Prepared::bind(loaded) {
        Ok(prepared) => prepared,
        Err(error) => return process::fail(&error),
    };
    let (coordination, status, figures) = (
        Coordination::default(),
        Arc::new(Status::default()),
        Exposition::default(),
    );
    let console_at = {
        let (zk_health, broker_health) = (coordination.clone(), status.clone());
        let (zk_figures, broker_figures) = (coordination.clone(), figures.clone());
        let sources = gracchus_console::Sources {
            health: Arc::new(move || {
                vec![zk_health.health(), console::broker_health(&broker_health)]
            }),
            metrics: Arc::new(move || zk_figures.metrics() + &broker_figures.render()),
        };
        console::start(
            SocketAddr::new(LOCAL, args.console_port),
            "--console-port",
            sources,
        )
        .await
    };
    let started = bring_up(&args, prepared, &coordination, &status, signal.as_mut()).await;
    let running = match started {
        Ok(running) => running,
        Err(error) => {
            shut_down(&coordination).await;
            if matches!(error.downcast_ref(), Some(LifecycleError::Stopped)) {
                tracing::info!("stopped while starting");
                return ExitCode::SUCCESS;
            }
            return process::fail(&error);
        }
    };
    figures.set(&running.broker);
    let announce = async {
        running.ready().await;
        // where standard output cannot be written, the server runs all the same
        let _ = writeln!(std::io::stdout(), "{}", ready_lines(&args, console_at));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = announce => {}
        () = &mut signal => {}
    }
    running.stop().await;
    shut_down(&coordination).await;
    ExitCode::SUCCESS
}

async fn bring_up(
    args: &StartArgs,
    prepared: Prepared,
    coordination: &Coordination,
    status: &Arc<Status>,
    mut signal: Pin<&mut impl Future<Output = ()>>,
) -> Result<Running, Box<dyn std::error::Error>> {
    status.starting("waiting for the coordination server in this process");
    let mut config = ZkConfig::new(args.data.join("zookeeper"));
    config.client_address = SocketAddr::new(LOCAL, args.zookeeper_port);
    // all clients come from this machine, and they are trusted
    config.max_client_connections = 0;
    tokio::select! {
        biased;
        () = &mut signal => return Err(LifecycleError::Stopped.into()),
        server = ZkServer::start(config) => coordination.set(server?),
    }
    Ok(lifecycle::start(prepared, args.adopt.into(), status.clone(), signal).await?)
}

async fn shut_down(coordination: &Coordination) {
    if let Some(server) = coordination.take() {
        server.shutdown().await;
    }
}

/// Presets of one broker alone, under what `--config` says.
fn configuration(args: &StartArgs) -> Result<Loaded, ConfigError> {
    let mut sources = Sources::default();
    let log_dir = args.data.join("broker-0");
    let presets = [
        ("broker.id", "0".to_owned()),
        (
            "listeners",
            format!("PLAINTEXT://{LOCAL}:{}", args.kafka_port),
        ),
        (
            "zookeeper.connect",
            format!("{LOCAL}:{}", args.zookeeper_port),
        ),
        ("log.dirs", shown(&log_dir)),
        // with fewer than three brokers Kafka's defaults of 3 could never be met
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
    ];
    for (key, value) in presets {
        sources.set(key, &value, Origin::Preset);
    }
    args.config
        .iter()
        .try_for_each(|c| sources.assignment("--config", c))?;
    sources.check()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn ready_lines(args: &StartArgs, console: Option<SocketAddr>) -> String {
    let (kafka, zookeeper) = (args.kafka_port, args.zookeeper_port);
    let console = console.map_or(String::new(), |a| {
        format!("  console    http://{a}/health\n")
    });
    format!(
        "gracchus is ready.\n  Kafka      {LOCAL}:{kafka}\n  ZooKeeper  {LOCAL}:{zookeeper}\n{console}  data       {}\n\
         Try: gracchus topics --bootstrap-server {LOCAL}:{kafka} --create --topic greetings --partitions 3",
        args.data.display()
    )
}
