//! Log lines for people, filtered by `GRACCHUS_LOG` (as tracing's env filter: `info`, `gracchus_broker=debug,warn`).

use std::io::IsTerminal;

use gracchus_broker::loggers;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging to standard error. Without the variable: informative lines of ours, warnings of others.
pub fn start() {
    let given = std::env::var("GRACCHUS_LOG").ok();
    let directives = given
        .filter(|text| EnvFilter::try_new(text).is_ok())
        .unwrap_or_else(|| "info".to_owned());
    let logger = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&directives))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // a log line that cannot be written (its file is on the full disk) is lost; telling so on the same stream would panic
        .log_internal_errors(false)
        .with_filter_reloading();
    let handle = logger.reload_handle();
    // a second start (tests) keeps the first
    if logger.finish().try_init().is_ok() {
        loggers::install(&directives, move |directives| {
            let filter = EnvFilter::try_new(directives).map_err(|e| e.to_string())?;
            handle.reload(filter).map_err(|e| e.to_string())
        });
    }
}
