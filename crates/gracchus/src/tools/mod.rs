//! The `kafka-*.sh` tools, by the names `topics`, `groups`, `configs`, `produce`, `consume`, `dump-log`.

use std::process::ExitCode;

/// Runs the tool of that name; None if there is none.
pub fn run(_name: &str, _arguments: &[String]) -> Option<ExitCode> {
    None
}
