//! The process itself: file limits, signals, the last words before a failed exit.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Raises the soft limit of open files to the hard one: a broker holds a few for each partition.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => tracing::debug!(
            "open files: limit {:?} raised to {:?}",
            limit.current,
            limit.maximum
        ),
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files; `ulimit -n` shows it")
        }
    }
}

/// Signals that come so soon after the first are the same wish: `timeout` and some supervisors signal the process and then
/// its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Catches signals from now on; the future completes at the first SIGTERM or Ctrl-C. A later one ends the process at
/// once.
pub fn stop_signal() -> impl Future<Output = ()> {
    let caught = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    stopped(caught)
}

type Caught = (std::io::Result<Signal>, std::io::Result<Signal>);

async fn stopped(caught: Caught) {
    let (Ok(mut term), Ok(mut interrupt)) = caught else {
        tracing::warn!("signals cannot be caught; kill ends the process without a clean shutdown");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
    let first = Instant::now();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first.elapsed() >= SAME_WISH {
                break;
            }
        }
        eprintln!("second signal: leaving at once, without a clean shutdown");
        std::process::exit(1);
    });
}

/// One paragraph on standard error, exit code 1.
pub fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("gracchus: {error}");
    ExitCode::FAILURE
}
