//! The command line: which command was meant, and the rooms that it needs wired together.
//!
//! [`commands`] are the servers (`start`, `broker`, `zookeeper`), [`tools`] the `kafka-*.sh` tools, [`zk`] the ZooKeeper
//! shell, [`scripts`] the same under the names of Kafka's and ZooKeeper's scripts. A tool parses its own arguments, as the
//! Java tools do.

mod commands;
mod logging;
mod process;
mod scripts;
mod tools;
mod zk;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let called = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    if let Some(code) = scripts::run(&called, &rest) {
        return code;
    }
    let with_name = || std::iter::once("gracchus".to_owned()).chain(rest.iter().cloned());
    match rest.split_first() {
        Some((first, rest)) if first == "zk" => zk::run(rest),
        Some((first, rest)) => match tools::run(first, rest) {
            Some(code) => code,
            None => commands::run(with_name()),
        },
        None => commands::run(with_name()),
    }
}
