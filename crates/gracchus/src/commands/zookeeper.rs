//! `gracchus zookeeper zoo.cfg`.

use std::process::ExitCode;

use super::ZookeeperArgs;
use crate::process;

/// Runs until a signal.
pub async fn run(_args: ZookeeperArgs) -> ExitCode {
    process::fail(&"the coordination server is not in this build")
}
