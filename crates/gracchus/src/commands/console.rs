//! The console port of a server command.

use std::net::SocketAddr;
use std::sync::Arc;

use gracchus_broker::lifecycle::{Phase, Status};
use gracchus_broker::metrics::Exposition;
use gracchus_console::{Console, PartHealth, Sources};

/// Serves health and metrics in the background; None when the port is taken, which is told and no more.
/// `key` is what the port is set with.
pub async fn start(at: SocketAddr, key: &str, sources: Sources) -> Option<SocketAddr> {
    match Console::bind(at).await {
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
            tracing::warn!("no console: {at}: {error}. Give it another port with {key}");
            None
        }
    }
}

/// What the brokers have heard of elections.
pub fn elections<'a>(brokers: impl IntoIterator<Item = &'a Exposition>) -> String {
    let heard = brokers.into_iter().filter_map(Exposition::elections);
    serde_json::Value::Array(heard.collect()).to_string()
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
