//! The `kafka-*.sh` tools, by the names in [`TOOLS`]. Flags, output and exit codes are those of Kafka 3.9's tools, so that scripts which call those go on working.

mod api_versions;
mod arguments;
mod configs;
mod consume;
mod consumer_perf;
mod controller;
mod delete_records;
mod dump_log;
mod elect;
mod groups;
mod log_dirs;
mod offsets;
mod produce;
mod producer_perf;
mod producer_settings;
mod reassign;
mod stored;
mod topics;

use std::process::ExitCode;

/// Why a tool stops early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] gracchus_client::ClientError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    fn usage(text: impl Into<String>) -> Self {
        Failure::Usage(text.into())
    }

    fn other(text: impl Into<String>) -> Self {
        Failure::Other(text.into())
    }

    /// Nobody reads the output any more, which is no failure worth a word.
    fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Io(e) if e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// The exit code; what went wrong is on standard error.
fn exit_code(outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            if !e.is_closed_output() {
                eprintln!("{e}");
            }
            1
        }
    }
}

/// As Java prints the exception.
fn java_text(error: &gracchus_client::ClientError) -> String {
    match error.code() {
        Some(code) => format!("org.apache.kafka.common.errors.{code:?}Exception: {error}"),
        None => error.to_string(),
    }
}

/// Their names.
pub const TOOLS: &[&str] = &[
    "topics",
    "groups",
    "configs",
    "produce",
    "consume",
    "dump-log",
    "offsets",
    "delete-records",
    "log-dirs",
    "api-versions",
    "producer-perf",
    "consumer-perf",
    "elect",
    "reassign",
    "controller",
];

/// Runs the tool of that name; None if there is none.
pub fn run(name: &str, arguments: &[String]) -> Option<ExitCode> {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    if !TOOLS.contains(&name) {
        return None;
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("{e}");
            return Some(ExitCode::FAILURE);
        }
    };
    let code = runtime.block_on(async {
        match name {
            "topics" => topics::run(arguments).await,
            "groups" => groups::run(arguments).await,
            "configs" => configs::run(arguments).await,
            "produce" => produce::run(arguments).await,
            "consume" => consume::run(arguments).await,
            "offsets" => offsets::run(arguments).await,
            "delete-records" => delete_records::run(arguments).await,
            "log-dirs" => log_dirs::run(arguments).await,
            "api-versions" => api_versions::run(arguments).await,
            "producer-perf" => producer_perf::run(arguments).await,
            "consumer-perf" => consumer_perf::run(arguments).await,
            "elect" => elect::run(arguments).await,
            "controller" => controller::run(arguments).await,
            "reassign" => reassign::run(arguments).await,
            _ => dump_log::run(arguments),
        }
    });
    // a thread may still be blocked in a read of standard input
    runtime.shutdown_background();
    Some(ExitCode::from(code))
}
