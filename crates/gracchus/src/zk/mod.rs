//! `gracchus zk`: the ZooKeeper shell. From the result on it prints what zkCli 3.9 prints, without zkCli's banner.
//!
//! Reading order: [`line`] (words of a line), [`options`] (flags of a command), [`output`] (where text goes, stats, times,
//! errors), [`acl`], [`read`], [`write`], [`quota`] and [`reconfig`] (the commands), [`secure`] (SASL and TLS), [`shell`] (dispatch), [`interactive`] and [`editor`] (lines from a terminal), [`explain`]
//! (what Kafka's znodes mean).

mod acl;
mod editor;
mod explain;
mod interactive;
mod json;
mod line;
mod options;
mod output;
mod quota;
mod read;
mod reconfig;
pub mod secure;
mod shell;
#[cfg(test)]
mod tests;
mod write;

use gracchus_zk_client::secured::Properties;
use std::process::ExitCode;

pub use output::local_time;

const HELP: &str = "\
gracchus zk [-server HOST:PORT[,HOST:PORT...][/CHROOT]] [-timeout MS] [-waitforconnection] [--format json] [COMMAND ...]

Without a command: reads commands from standard input, with a prompt on a terminal.
  -server             where ZooKeeper is (localhost:2181)
  -timeout            session timeout to ask for, ms (30000)
  -waitforconnection  wait for the server for the whole timeout before the first command (else 5 s)
  -client-configuration, -zk-tls-config-file
                      a file of keys for TLS: ZooKeeper's names, or Kafka's; KAFKA_OPTS, CLIENT_JVMFLAGS and JVMFLAGS may
                      set the former, and -Djava.security.auth.login.config=FILE for SASL
  --format json       ls, get, stat, getAcl and explain print one JSON object

Commands:
";

/// What stands before the command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arguments {
    server: String,
    timeout_ms: u64,
    wait: bool,
    json: bool,
    /// For SASL and TLS, by ZooKeeper's names.
    properties: Properties,
    command: Vec<String>,
}

/// Runs it with the arguments after `gracchus zk`. The exit code is zkCli's: 0, 1 for a failed command, 127 for an unknown one.
pub fn run(arguments: &[String]) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{HELP}{}", shell::usage_lines());
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("gracchus zk: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(shell::run(arguments));
    runtime.shutdown_background(); // a thread may still wait for standard input
    ExitCode::from(code)
}

/// `None`: help is wanted.
fn parse(arguments: &[String]) -> Result<Option<Arguments>, String> {
    let mut parsed = Arguments {
        server: "localhost:2181".to_owned(),
        timeout_ms: 30_000,
        wait: false,
        json: false,
        properties: secure::of_the_environment(),
        command: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .cloned()
                .ok_or_else(|| format!("Error: no argument found for option {argument}"))
        };
        match argument.as_str() {
            "-server" | "--server" => parsed.server = value()?,
            "-timeout" | "--timeout" => {
                let text = value()?;
                parsed.timeout_ms = text
                    .parse()
                    .map_err(|_| format!("Error: -timeout takes a number of ms, not {text:?}"))?;
            }
            "-client-configuration" => parsed.properties.extend(secure::zookeepers(&value()?)?),
            "-zk-tls-config-file" => parsed.properties.extend(secure::kafkas(&value()?)?),
            "-waitforconnection" | "--waitforconnection" => parsed.wait = true,
            "--format" => match value()?.as_str() {
                "json" => parsed.json = true,
                "text" => parsed.json = false,
                other => return Err(format!("Error: --format takes text or json, not {other:?}")),
            },
            "-h" | "-help" | "--help" => return Ok(None),
            "-r" => return Err("Error: read-only servers (-r) are not supported".to_owned()),
            unknown if unknown.starts_with('-') => {
                return Err(format!(
                    "Error: unknown option {unknown}; gracchus zk --help lists them"
                ));
            }
            _ => {
                parsed.command = std::iter::once(argument).chain(rest).cloned().collect();
                break;
            }
        }
    }
    Ok(Some(parsed))
}
