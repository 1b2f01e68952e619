//! `gracchus start`.

use std::process::ExitCode;

use super::StartArgs;
use crate::process;

/// Runs until a signal.
pub async fn run(_args: StartArgs) -> ExitCode {
    process::fail(&"the coordination server is not in this build")
}
