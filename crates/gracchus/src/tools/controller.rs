//! `gracchus controller`: who is controller, since when, in which epoch, and the elections before.

use super::Failure;
use super::arguments::{Format, parse, print_json};
use crate::zk::{local_time, secure};
use clap::Parser;
use gracchus_registry::json::{BrokerRegistration, ControllerZnode, parse_controller_epoch};
use gracchus_registry::paths;
use gracchus_zk_client::secured::ZOOKEEPERS;
use gracchus_zk_client::{ConnectString, Secured, Stat, ZkClient, ZkConfig, ZkError, look};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// ZooKeeper gets so long for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A console's answer is not read beyond this.
const LARGEST_PAGE: u64 = 1 << 20;

/// Tells who is controller of the cluster.
#[derive(Debug, Parser)]
#[command(name = "gracchus controller", disable_version_flag = true)]
struct Options {
    /// Where the cluster's ZooKeeper is
    #[arg(
        long,
        value_name = "HOST:PORT,...[/CHROOT]",
        default_value = "localhost:2181"
    )]
    zookeeper: String,
    /// Kafka's keys for TLS to ZooKeeper; SASL and TLS are also taken from KAFKA_OPTS
    #[arg(long, value_name = "FILE")]
    zk_tls_config_file: Option<String>,
    /// A gracchus process whose brokers remember the elections since their start
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:9080")]
    console: String,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus controller", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

/// What ZooKeeper says.
struct Found {
    controller: Option<(ControllerZnode, Stat)>,
    /// Its advertised addresses.
    addresses: Vec<String>,
    /// With the time of the last election.
    epoch: Option<(i32, Stat)>,
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let connect: ConnectString = o
        .zookeeper
        .parse()
        .map_err(|e| Failure::usage(format!("--zookeeper: {e}")))?;
    let mut config = ZkConfig::new(connect);
    config.name = "controller".to_owned();
    let mut properties = secure::of_the_environment();
    if let Some(file) = &o.zk_tls_config_file {
        properties.extend(secure::kafkas(file).map_err(Failure::Usage)?);
    }
    let secured = Secured::from_properties(&properties, ZOOKEEPERS);
    let secured = secured.map_err(|e| Failure::usage(e.to_string()))?;
    secured.apply(&mut config);
    let (zk, _events) = ZkClient::start(config.clone());
    let Ok(found) = tokio::time::timeout(PATIENCE, ask(&zk)).await else {
        let seen = look(&config).await;
        return Err(Failure::other(format!(
            "no answer of ZooKeeper at {} within {} s: {}",
            o.zookeeper,
            PATIENCE.as_secs(),
            seen
        )));
    };
    let found = found?;
    let _ = tokio::time::timeout(PATIENCE, zk.close()).await;
    let elections = tokio::time::timeout(PATIENCE, elections(&o.console)).await;
    let elections = match elections {
        Ok(Ok(elections)) => Ok(elections),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    };
    match o.format {
        Format::Json => print_json(&document(&found, elections.ok().as_ref())),
        Format::Text => write(o, &found, elections),
    }
}

fn failed(path: &str, error: impl std::fmt::Display) -> Failure {
    Failure::other(format!("{path}: {error}"))
}

async fn read(zk: &ZkClient, path: &str) -> Result<Option<(bytes::Bytes, Stat)>, Failure> {
    match zk.get_data(path, false).await {
        Ok((data, stat)) => Ok(Some((data.unwrap_or_default(), stat))),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(failed(path, error)),
    }
}

async fn ask(zk: &ZkClient) -> Result<Found, Failure> {
    let controller = match read(zk, paths::CONTROLLER).await? {
        Some((data, stat)) => {
            let parsed = ControllerZnode::parse(&data).map_err(|e| failed(paths::CONTROLLER, e))?;
            Some((parsed, stat))
        }
        None => None,
    };
    let epoch = match read(zk, paths::CONTROLLER_EPOCH).await? {
        Some((data, stat)) => {
            let epoch =
                parse_controller_epoch(&data).map_err(|e| failed(paths::CONTROLLER_EPOCH, e))?;
            Some((epoch, stat))
        }
        None => None,
    };
    let mut addresses = Vec::new();
    if let Some((controller, _)) = &controller {
        let path = paths::broker(controller.broker_id);
        // one that has just gone has no addresses
        if let Some((data, _)) = read(zk, &path).await? {
            let registration = BrokerRegistration::parse(&data).map_err(|e| failed(&path, e))?;
            addresses = registration
                .endpoints
                .iter()
                .map(ToString::to_string)
                .collect();
        }
    }
    Ok(Found {
        controller,
        addresses,
        epoch,
    })
}

/// `/controller` of a console: what each of its brokers has heard.
async fn elections(console: &str) -> std::io::Result<Value> {
    let mut stream = tokio::net::TcpStream::connect(console).await?;
    let request = format!("GET /controller HTTP/1.0\r\nHost: {console}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LARGEST_PAGE).read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    if head.split(' ').nth(1) != Some("200") {
        let status = head.lines().next().unwrap_or_default();
        return Err(std::io::Error::other(format!("it answered {status:?}")));
    }
    serde_json::from_str(body).map_err(std::io::Error::other)
}

fn document(found: &Found, elections: Option<&Value>) -> Value {
    let controller = found.controller.as_ref().map(|(controller, stat)| {
        json!({
            "broker": controller.broker_id,
            "addresses": found.addresses,
            "elected_ms": stat.ctime,
            "session": format!("{:#x}", stat.ephemeral_owner),
        })
    });
    let epoch = found.epoch.as_ref();
    json!({
        "controller": controller,
        "epoch": epoch.map(|(epoch, _)| epoch),
        "last_election_ms": epoch.map(|(_, stat)| stat.mtime),
        "elections_seen": elections,
    })
}

fn write(o: &Options, found: &Found, elections: Result<Value, String>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match &found.controller {
        Some((controller, stat)) => {
            let at = match found.addresses.as_slice() {
                [] => String::from(", which is not registered any more"),
                addresses => format!(" at {}", addresses.join(", ")),
            };
            writeln!(out, "Controller:  broker {}{at}", controller.broker_id)?;
            writeln!(out, "Since:       {}", local_time(stat.ctime))?;
            writeln!(out, "Session:     {:#x}", stat.ephemeral_owner)?;
        }
        None => writeln!(
            out,
            "Controller:  none; {} is created by the first broker that can be one",
            paths::CONTROLLER
        )?,
    }
    match &found.epoch {
        Some((epoch, stat)) => {
            writeln!(out, "Epoch:       {epoch}")?;
            writeln!(out, "Last change: {}", local_time(stat.mtime))?;
        }
        None => writeln!(out, "Epoch:       none; there was no election yet")?,
    }
    let elections = match elections {
        Ok(elections) => elections,
        Err(error) => {
            writeln!(
                out,
                "Elections:   not known here: no gracchus console at {} ({error}); name one with --console",
                o.console
            )?;
            return Ok(());
        }
    };
    for broker in elections.as_array().into_iter().flatten() {
        writeln!(
            out,
            "Elections that broker {} has heard of:",
            broker["broker"]
        )?;
        for election in broker["elections"].as_array().into_iter().flatten() {
            let heard = election["heard_ms"].as_i64().unwrap_or_default();
            writeln!(
                out,
                "  epoch {}: broker {}, {}",
                election["controller_epoch"],
                election["broker_id"],
                local_time(heard)
            )?;
        }
    }
    Ok(())
}
