//! The ZooKeeper shell.

use std::process::ExitCode;

/// Runs it with the arguments after `gracchus zk`.
pub fn run(_arguments: &[String]) -> ExitCode {
    eprintln!("gracchus zk: not in this build");
    ExitCode::FAILURE
}
