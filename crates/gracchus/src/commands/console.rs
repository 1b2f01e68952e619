//! The console port of a server command.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gracchus_broker::lifecycle::{Phase, Status};
use gracchus_console::{Console, PartHealth, Sources};

/// Serves health and metrics in the background; None when the port is taken, which is told and no more.
pub async fn start(ip: IpAddr, port: u16, sources: Sources) -> Option<SocketAddr> {
    match Console::bind(SocketAddr::new(ip, port)).await {
        Ok(console) => {
            let address = console.address;
            tokio::spawn(async move {
                if let Err(error) = console.serve(sources).await {
                    tracing::warn!(%error, "the console has ended");
                }
            });
            Some(address)
        }
        Err(error) => {
            tracing::warn!(
                "no console: {ip}:{port}: {error}. Give it another port with --console-port or --http-port"
            );
            None
        }
    }
}

/// A broker's health from its phase.
pub fn broker_health(status: &Arc<Status>) -> PartHealth {
    let (ready, reason) = match &*status.phase() {
        Phase::Starting(what) => (false, Some(what.clone())),
        Phase::Ready => (true, None),
        Phase::Stopping => (false, Some("shutting down".to_owned())),
    };
    PartHealth {
        part: "broker".to_owned(),
        ready,
        reason,
    }
}
