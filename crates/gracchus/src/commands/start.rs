//! `gracchus start`: coordination server, brokers and console in one process.

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
use super::{StartArgs, console, figures};
use crate::process;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Brokers that one process may have.
const MOST_BROKERS: u16 = 9;
/// Keys that each of several brokers must have for itself.
const OWN_KEYS: [&str; 5] = [
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
];

/// One of the brokers, as the console sees it.
#[derive(Clone, Default)]
struct Member {
    status: Arc<Status>,
    figures: Exposition,
}

/// Runs until a signal.
pub async fn run(args: StartArgs) -> ExitCode {
    let signal = process::stop_signal();
    tokio::pin!(signal);
    if let Err(problem) = several(&args) {
        return process::fail(&problem);
    }
    let mut prepared = Vec::new();
    // all ports before any file
    for id in 0..args.brokers {
        match configuration(&args, id).map(Prepared::bind) {
            Ok(Ok(bound)) => prepared.push(bound),
            Ok(Err(error)) => return process::fail(&error),
            Err(error) => return process::fail(&error),
        }
    }
    let coordination = Coordination::default();
    let members: Vec<Member> = prepared.iter().map(|_| Member::default()).collect();
    let console_at = {
        let (zk_health, zk_figures) = (coordination.clone(), coordination.clone());
        let (brokers_health, brokers_figures) = (members.clone(), members.clone());
        let elections = members.clone();
        let sources = gracchus_console::Sources {
            health: Arc::new(move || {
                let brokers = brokers_health.iter().enumerate().map(|(id, member)| {
                    let mut health = console::broker_health(&member.status);
                    if brokers_health.len() > 1 {
                        health.part = format!("broker {id}");
                    }
                    health
                });
                std::iter::once(zk_health.health()).chain(brokers).collect()
            }),
            metrics: Arc::new(move || {
                let texts: Vec<String> =
                    brokers_figures.iter().map(|m| m.figures.render()).collect();
                zk_figures.metrics() + &figures::of_brokers(&texts)
            }),
            elections: Arc::new(move || console::elections(elections.iter().map(|m| &m.figures))),
        };
        console::start(
            SocketAddr::new(LOCAL, args.console_port),
            "--console-port",
            sources,
        )
        .await
    };
    let mut running = Vec::new();
    let started = bring_up(
        &args,
        prepared,
        &coordination,
        &members,
        &mut running,
        signal.as_mut(),
    )
    .await;
    if let Err(error) = started {
        stop(running, &coordination).await;
        if matches!(error.downcast_ref(), Some(LifecycleError::Stopped)) {
            tracing::info!("stopped while starting");
            return ExitCode::SUCCESS;
        }
        return process::fail(&error);
    }
    let announce = async {
        for broker in &running {
            broker.ready().await;
        }
        // where standard output cannot be written, the server runs all the same
        let _ = writeln!(std::io::stdout(), "{}", ready_lines(&args, console_at));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = announce => {}
        () = &mut signal => {}
    }
    stop(running, &coordination).await;
    ExitCode::SUCCESS
}

/// What several brokers in one process exclude.
fn several(args: &StartArgs) -> Result<(), String> {
    let n = args.brokers;
    if !(1..=MOST_BROKERS).contains(&n) {
        return Err(format!("--brokers {n}: from 1 to {MOST_BROKERS}."));
    }
    if args.kafka_port.checked_add(n - 1).is_none() {
        return Err(format!(
            "--brokers {n}: they listen on --kafka-port and the ports above it, which end at 65535."
        ));
    }
    if n == 1 {
        return Ok(());
    }
    let key = |text: &str| {
        text.split_once('=')
            .map_or("", |(key, _)| key)
            .trim()
            .to_owned()
    };
    if let Some(key) = args
        .config
        .iter()
        .map(|c| key(c))
        .find(|k| OWN_KEYS.contains(&k.as_str()))
    {
        return Err(format!(
            "--brokers {n} with --config {key}: each broker has its own. Use --kafka-port and --data, or start each broker with \
             `gracchus broker server.properties`."
        ));
    }
    if args.adopt.adopt_topics {
        return Err(format!(
            "--brokers {n} with --adopt-topics: that is for one broker alone."
        ));
    }
    Ok(())
}

/// Starts the coordination server, then one broker after the other.
async fn bring_up(
    args: &StartArgs,
    prepared: Vec<Prepared>,
    coordination: &Coordination,
    members: &[Member],
    running: &mut Vec<Running>,
    mut signal: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Box<dyn std::error::Error>> {
    for (id, member) in members.iter().enumerate() {
        member.status.starting(match id {
            0 => "waiting for the coordination server in this process".to_owned(),
            _ => format!("waiting for broker {}", id - 1),
        });
    }
    let mut config = ZkConfig::new(args.data.join("zookeeper"));
    config.client_address = SocketAddr::new(LOCAL, args.zookeeper_port);
    // all clients come from this machine, and they are trusted
    config.max_client_connections = 0;
    tokio::select! {
        biased;
        () = &mut signal => return Err(LifecycleError::Stopped.into()),
        server = ZkServer::start(config) => coordination.set(server?),
    }
    for (prepared, member) in prepared.into_iter().zip(members) {
        let status = member.status.clone();
        let started =
            lifecycle::start(prepared, args.adopt.into(), status, signal.as_mut()).await?;
        member.figures.set(&started.broker);
        running.push(started);
    }
    Ok(())
}

/// All brokers at once: none is left that leaders could move to.
async fn stop(running: Vec<Running>, coordination: &Coordination) {
    let stops: Vec<_> = running
        .into_iter()
        .map(|broker| tokio::spawn(broker.stop()))
        .collect();
    for stop in stops {
        // a broker that panicked has been told of
        let _ = stop.await;
    }
    shut_down(coordination).await;
}

async fn shut_down(coordination: &Coordination) {
    if let Some(server) = coordination.take() {
        server.shutdown().await;
    }
}

/// Presets of a broker of this process, under what `--config` says.
fn configuration(args: &StartArgs, id: u16) -> Result<Loaded, ConfigError> {
    let mut sources = Sources::default();
    let log_dir = args.data.join(format!("broker-{id}"));
    let port = args.kafka_port.saturating_add(id);
    // with fewer than three brokers Kafka's defaults of 3 could never be met
    let replicas = args.brokers.min(3);
    let mut presets = vec![
        ("broker.id", id.to_string()),
        ("listeners", format!("PLAINTEXT://{LOCAL}:{port}")),
        (
            "zookeeper.connect",
            format!("{LOCAL}:{}", args.zookeeper_port),
        ),
        ("log.dirs", shown(&log_dir)),
        ("offsets.topic.replication.factor", replicas.to_string()),
        (
            "transaction.state.log.replication.factor",
            replicas.to_string(),
        ),
        (
            "transaction.state.log.min.isr",
            replicas.saturating_sub(1).max(1).to_string(),
        ),
    ];
    if args.brokers > 1 {
        presets.push(("default.replication.factor", replicas.to_string()));
        // they stop together
        presets.push(("controlled.shutdown.enable", "false".to_owned()));
    }
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
    let ports = (0..args.brokers).map(|id| args.kafka_port.saturating_add(id));
    let addresses: Vec<String> = ports.map(|port| format!("{LOCAL}:{port}")).collect();
    let (kafka, zookeeper) = (addresses.join(","), args.zookeeper_port);
    let console = console.map_or(String::new(), |a| {
        format!("  console    http://{a}/health\n")
    });
    format!(
        "gracchus is ready.\n  Kafka      {kafka}\n  ZooKeeper  {LOCAL}:{zookeeper}\n{console}  data       {}\n\
         Try: gracchus topics --bootstrap-server {LOCAL}:{} --create --topic greetings --partitions 3",
        args.data.display(),
        args.kafka_port
    )
}
