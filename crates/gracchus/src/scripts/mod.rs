//! The binary under the names of Kafka's and ZooKeeper's scripts: `gracchus link DIR` makes the links, and called by one of
//! them it acts as that script, so that what calls the scripts runs unchanged.

mod background;
mod zk_server;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use crate::{commands, process, tools, zk};

/// What a script is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// A tool by its name.
    Tool(&'static str),
    /// `kafka-server-start.sh`.
    Broker,
    /// `zookeeper-server-start.sh`.
    Zookeeper,
    /// Ends what runs under this command.
    Stop(&'static str),
    /// `zkServer.sh`.
    ZkServer,
    /// `zkCli.sh`.
    ZkCli,
    /// `zookeeper-shell.sh`: the server comes first, without a flag.
    Shell,
}

const SCRIPTS: &[(&str, Script)] = &[
    ("kafka-broker-api-versions", Script::Tool("api-versions")),
    ("kafka-configs", Script::Tool("configs")),
    ("kafka-console-consumer", Script::Tool("consume")),
    ("kafka-console-producer", Script::Tool("produce")),
    ("kafka-consumer-groups", Script::Tool("groups")),
    ("kafka-consumer-perf-test", Script::Tool("consumer-perf")),
    ("kafka-delete-records", Script::Tool("delete-records")),
    ("kafka-dump-log", Script::Tool("dump-log")),
    ("kafka-get-offsets", Script::Tool("offsets")),
    ("kafka-leader-election", Script::Tool("elect")),
    ("kafka-log-dirs", Script::Tool("log-dirs")),
    ("kafka-producer-perf-test", Script::Tool("producer-perf")),
    ("kafka-reassign-partitions", Script::Tool("reassign")),
    ("kafka-server-start", Script::Broker),
    ("kafka-server-stop", Script::Stop("broker")),
    ("kafka-topics", Script::Tool("topics")),
    ("zkCli", Script::ZkCli),
    ("zkServer", Script::ZkServer),
    ("zookeeper-server-start", Script::Zookeeper),
    ("zookeeper-server-stop", Script::Stop("zookeeper")),
    ("zookeeper-shell", Script::Shell),
];

/// The script of this name, with or without `.sh`.
fn find(called: &str) -> Option<Script> {
    let name = Path::new(called).file_name()?.to_str()?;
    let name = name.strip_suffix(".sh").unwrap_or(name);
    SCRIPTS
        .iter()
        .find(|(script, _)| *script == name)
        .map(|(_, script)| *script)
}

/// Acts as the script under whose name the binary was called; None if it was called by its own.
pub fn run(called: &str, arguments: &[String]) -> Option<ExitCode> {
    Some(match find(called)? {
        Script::Tool(name) => tools::run(name, arguments)?,
        Script::Broker => server(called, "broker", arguments),
        Script::Zookeeper => server(called, "zookeeper", arguments),
        Script::Stop(command) => background::stop_all(command),
        Script::ZkServer => zk_server::run(arguments),
        Script::ZkCli => zk::run(arguments),
        Script::Shell => match arguments.split_first() {
            Some((server, command)) => {
                let flag = "-server".to_owned();
                zk::run(&[&[flag, server.clone()], command].concat())
            }
            None => {
                eprintln!("USAGE: {called} zookeeper_host:port[/path] [args...]");
                ExitCode::FAILURE
            }
        },
    })
}

/// `[-daemon] [-loggc] FILE [--override K=V]...`
fn server(called: &str, command: &str, arguments: &[String]) -> ExitCode {
    let mut in_background = false;
    let mut rest = arguments.iter();
    let mut passed = vec!["gracchus".to_owned(), command.to_owned()];
    for argument in rest.by_ref() {
        match argument.as_str() {
            "-daemon" => in_background = true,
            // of the JVM only
            "-loggc" => {}
            _ => {
                passed.push(argument.clone());
                break;
            }
        }
    }
    passed.extend(rest.cloned());
    if passed.len() == 2 {
        let overrides = if command == "broker" {
            "server.properties [--override property=value]*"
        } else {
            "zookeeper.properties"
        };
        eprintln!("USAGE: {called} [-daemon] {overrides}");
        return ExitCode::FAILURE;
    }
    if !in_background {
        return commands::run(passed);
    }
    let log = if command == "broker" {
        "kafkaServer.out"
    } else {
        "zookeeper.out"
    };
    let dir = std::env::var("LOG_DIR").unwrap_or_else(|_| "logs".to_owned());
    let arguments = passed.get(1..).unwrap_or_default();
    match background::start(arguments, &Path::new(&dir).join(log)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => process::fail(&error),
    }
}

/// `gracchus link DIR`.
pub fn link(dir: &Path) -> ExitCode {
    match make_links(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => process::fail(&error),
    }
}

fn make_links(dir: &Path) -> Result<(), String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let binary = std::env::current_exe().map_err(|e| format!("where this binary is: {e}"))?;
    std::fs::create_dir_all(dir).map_err(|e| at(dir, e))?;
    let links: Vec<_> = SCRIPTS
        .iter()
        .map(|(name, _)| dir.join(format!("{name}.sh")))
        .collect();
    // all or none: what is no link is somebody's script
    for link in &links {
        match std::fs::symlink_metadata(link) {
            Ok(meta) if meta.is_symlink() => {}
            Ok(_) => {
                return Err(format!(
                    "{} is there already and is no link; move it away, or give another directory",
                    link.display()
                ));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(at(link, e)),
        }
    }
    for link in &links {
        match std::fs::remove_file(link) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(at(link, e)),
            _ => {}
        }
        std::os::unix::fs::symlink(&binary, link).map_err(|e| at(link, e))?;
        println!("{}", link.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_known_by_their_names() {
        assert_eq!(
            find("/opt/kafka/bin/kafka-topics.sh"),
            Some(Script::Tool("topics"))
        );
        assert_eq!(find("kafka-topics"), Some(Script::Tool("topics")));
        assert_eq!(find("./zkServer.sh"), Some(Script::ZkServer));
        assert_eq!(find("gracchus"), None);
        assert_eq!(find(""), None);
        for (name, script) in SCRIPTS {
            if let Script::Tool(tool) = script {
                assert!(tools::TOOLS.contains(tool), "{name}");
            }
        }
    }
}
