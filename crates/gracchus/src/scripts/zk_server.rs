//! `zkServer.sh [--config DIR] start|start-foreground|stop|restart|status|version [FILE]`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gracchus_zk_server::ZkConfig;

use super::background;
use crate::{commands, process};

/// A server that was told to stop gets this long before `restart` gives up.
const STOPPING: Duration = Duration::from_secs(30);
/// The server gets this long to answer `status`.
const ANSWER: Duration = Duration::from_secs(5);

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let mut dir = std::env::var_os("ZOOCFGDIR").map(PathBuf::from);
    let mut words = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--config" => dir = rest.next().map(PathBuf::from),
            _ => words.push(argument.as_str()),
        }
    }
    let (action, file) = (words.first().copied(), words.get(1).copied());
    let file = config_file(dir.as_deref(), file.unwrap_or("zoo.cfg"));
    let outcome = match action {
        Some("version") => {
            println!(
                "gracchus {}, as of ZooKeeper 3.9.5",
                env!("CARGO_PKG_VERSION")
            );
            return ExitCode::SUCCESS;
        }
        Some("start-foreground") => {
            tell_config(&file);
            let words = ["gracchus", "zookeeper", &file.to_string_lossy()];
            return commands::run(words.map(str::to_owned).to_vec());
        }
        Some("start") => start(&file),
        Some("stop") => stop(&file),
        Some("restart") => stop(&file).and_then(|()| start(&file)),
        Some("status") => status(&file),
        _ => {
            eprintln!(
                "Usage: zkServer.sh [--config <conf-dir>] {{start|start-foreground|stop|version|restart|status}} [zoo.cfg]"
            );
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_empty() => ExitCode::FAILURE,
        Err(error) => process::fail(&error),
    }
}

/// As given if it is there, else in the configuration's directory.
fn config_file(dir: Option<&Path>, file: &str) -> PathBuf {
    match dir {
        Some(dir) if !Path::new(file).exists() || !file.contains('/') => dir.join(file),
        _ => PathBuf::from(file),
    }
}

fn tell_config(file: &Path) {
    eprintln!("Using config: {}", file.display());
}

fn load(file: &Path) -> Result<(ZkConfig, PathBuf), String> {
    tell_config(file);
    let config = ZkConfig::from_file(file).map_err(|e| e.to_string())?;
    let pid_file = std::env::var_os("ZOOPIDFILE")
        .map(PathBuf::from)
        .unwrap_or_else(|| config.data_dir.join("zookeeper_server.pid"));
    Ok((config, pid_file))
}

fn kept_pid(pid_file: &Path) -> Option<i32> {
    std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()
}

fn start(file: &Path) -> Result<(), String> {
    let (config, pid_file) = load(file)?;
    print!("Starting zookeeper ... ");
    if let Some(pid) = kept_pid(&pid_file).filter(|pid| background::lives(*pid)) {
        println!("already running as process {pid}.");
        return Err(String::new());
    }
    let log_dir = std::env::var("ZOO_LOG_DIR").unwrap_or_else(|_| "logs".to_owned());
    let arguments = ["zookeeper".to_owned(), file.to_string_lossy().into_owned()];
    let started = background::start(&arguments, &Path::new(&log_dir).join("zookeeper.out"));
    let written = started.and_then(|pid| {
        std::fs::create_dir_all(&config.data_dir)
            .and_then(|()| std::fs::write(&pid_file, pid.to_string()))
            .map_err(|e| format!("{}: {e}", pid_file.display()))
    });
    match written {
        Ok(()) => {
            println!("STARTED");
            Ok(())
        }
        Err(error) => {
            println!("FAILED TO START");
            Err(error)
        }
    }
}

fn stop(file: &Path) -> Result<(), String> {
    let (_, pid_file) = load(file)?;
    print!("Stopping zookeeper ... ");
    let Some(pid) = kept_pid(&pid_file) else {
        println!(
            "no zookeeper to stop (could not find file {})",
            pid_file.display()
        );
        return Ok(());
    };
    background::stop(pid);
    let begun = Instant::now();
    while background::lives(pid) {
        if begun.elapsed() > STOPPING {
            println!("FAILED TO STOP");
            return Err(format!("process {pid} did not end within {STOPPING:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::remove_file(&pid_file);
    println!("STOPPED");
    Ok(())
}

fn status(file: &Path) -> Result<(), String> {
    let (config, _) = load(file)?;
    let mut address = config.client_address;
    let host = if address.ip().is_unspecified() {
        address = SocketAddr::new([127, 0, 0, 1].into(), address.port());
        "localhost".to_owned()
    } else {
        address.ip().to_string()
    };
    println!(
        "Client port found: {}. Client address: {host}. Client SSL: false.",
        address.port()
    );
    match mode(address) {
        Some(mode) => {
            println!("Mode: {mode}");
            Ok(())
        }
        None => {
            println!("Error contacting service. It is probably not running.");
            Err(String::new())
        }
    }
}

/// From the answer to `srvr`.
fn mode(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.take(64 << 10).read_to_string(&mut text).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("Mode: "))
        .map(str::to_owned)
}
