//! `gracchus broker server.properties`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use gracchus_broker::lifecycle::{self, LifecycleError, Prepared, Status};

use super::{BrokerArgs, console};
use crate::process;

/// Runs until a signal.
pub async fn run(args: BrokerArgs) -> ExitCode {
    let signal = process::stop_signal();
    tokio::pin!(signal);
    let loaded = match args.config.load() {
        Ok(loaded) => loaded,
        Err(error) => return process::fail(&error),
    };
    let prepared = match Prepared::bind(loaded) {
        Ok(prepared) => prepared,
        Err(error) => return process::fail(&error),
    };
    let status = Arc::new(Status::default());
    let figures = gracchus_broker::metrics::Exposition::default();
    if let Some(port) = args.http_port {
        let (health, text, elections) = (status.clone(), figures.clone(), figures.clone());
        let sources = gracchus_console::Sources {
            health: Arc::new(move || vec![console::broker_health(&health)]),
            metrics: Arc::new(move || text.render()),
            elections: Arc::new(move || console::elections([&elections])),
        };
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        console::start(at, "--http-port", sources).await;
    }
    let running = match lifecycle::start(
        prepared,
        args.adopt.into(),
        status.clone(),
        signal.as_mut(),
    )
    .await
    {
        Ok(running) => running,
        Err(LifecycleError::Stopped) => {
            tracing::info!("stopped while starting");
            return ExitCode::SUCCESS;
        }
        Err(error) => return process::fail(&error),
    };
    figures.set(&running.broker);
    tokio::select! {
        () = async { running.ready().await; std::future::pending().await } => {}
        () = &mut signal => {}
    }
    running.stop().await;
    ExitCode::SUCCESS
}
