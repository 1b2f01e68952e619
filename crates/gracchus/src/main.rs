//! The command line: which command was meant, and the rooms that it needs wired together.
//!
//! [`commands`] are the servers (`start`, `broker`, `zookeeper`), [`tools`] the `kafka-*.sh` tools, [`zk`] the ZooKeeper
//! shell. A tool parses its own arguments, as the Java tools do.

mod commands;
mod logging;
mod process;
mod tools;
mod zk;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os()
        .skip(1)
        .map(|a| a.to_string_lossy().into_owned());
    let first = arguments.next();
    let rest: Vec<String> = arguments.collect();
    match first.as_deref() {
        Some("zk") => zk::run(&rest),
        Some(name) => match tools::run(name, &rest) {
            Some(code) => code,
            None => commands::run(),
        },
        None => commands::run(),
    }
}
