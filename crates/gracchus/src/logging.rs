//! Log lines for people, filtered by `GRACCHUS_LOG` (as tracing's env filter: `info`, `gracchus_broker=debug,warn`).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. Without the variable: informative lines of ours, warnings of others.
pub fn start() {
    let filter = EnvFilter::try_from_env("GRACCHUS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // a log line that cannot be written (its file is on the full disk) is lost; telling so on the same stream would panic
        .log_internal_errors(false);
    // a second start (tests) keeps the first
    let _ = logger.try_init();
}
