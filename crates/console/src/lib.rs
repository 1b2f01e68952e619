//! The console port: `/health`, `/metrics` and `/controller` now, pages later.
//!
//! What it tells comes in as closures from the binary, so that this room needs none of the others: a health report and
//! a text for Prometheus. It is up before anything else is and says why the process does not serve yet.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;

/// How one part of the process does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartHealth {
    /// `broker`, `zookeeper`.
    pub part: String,
    /// It serves.
    pub ready: bool,
    /// What it waits for, while it does not.
    pub reason: Option<String>,
}

/// What the console asks the process.
#[derive(Clone)]
pub struct Sources {
    /// Each part's health.
    pub health: Arc<dyn Fn() -> Vec<PartHealth> + Send + Sync>,
    /// All figures in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The elections that each broker has heard of, as JSON.
    pub elections: Arc<dyn Fn() -> String + Send + Sync>,
}

#[derive(Serialize)]
struct Report {
    live: bool,
    ready: bool,
    parts: Vec<PartHealth>,
}

fn report(sources: &Sources) -> Report {
    let parts = (sources.health)();
    Report {
        live: true,
        ready: !parts.is_empty() && parts.iter().all(|p| p.ready),
        parts,
    }
}

/// `/health`: always 200, since who answers lives; readiness is in the body.
async fn health(State(sources): State<Sources>) -> Response {
    axum::Json(report(&sources)).into_response()
}

/// `/health/ready`: 200 when everything serves, else 503 and the reason.
async fn ready(State(sources): State<Sources>) -> Response {
    let report = report(&sources);
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, axum::Json(report)).into_response()
}

async fn metrics(State(sources): State<Sources>) -> Response {
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        (sources.metrics)(),
    )
        .into_response()
}

/// `/controller`: who was controller, as far as the brokers of this process have heard.
async fn controller(State(sources): State<Sources>) -> Response {
    let json = "application/json";
    ([(header::CONTENT_TYPE, json)], (sources.elections)()).into_response()
}

/// A bound console port.
#[derive(Debug)]
pub struct Console {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Console {
    /// Binds. A taken port is for the caller to warn about, not to die of.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Serves until the task is dropped.
    pub async fn serve(self, sources: Sources) -> io::Result<()> {
        let router = Router::new()
            .route("/health", get(health))
            .route("/health/live", get(health))
            .route("/health/ready", get(ready))
            .route("/metrics", get(metrics))
            .route("/controller", get(controller))
            .with_state(sources);
        axum::serve(self.listener, router).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn live_at_once_ready_later() {
        let serving = Arc::new(AtomicBool::new(false));
        let console = Console::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = console.address;
        let part = {
            let serving = serving.clone();
            move || {
                let ready = serving.load(Ordering::SeqCst);
                let reason = (!ready).then(|| "waiting for ZooKeeper".to_owned());
                vec![PartHealth {
                    part: "broker".into(),
                    ready,
                    reason,
                }]
            }
        };
        let sources = Sources {
            health: Arc::new(part),
            metrics: Arc::new(|| "up 1\n".into()),
            elections: Arc::new(|| "[]".into()),
        };
        tokio::spawn(console.serve(sources));
        let health = get(address, "/health").await;
        assert!(
            health.starts_with("HTTP/1.1 200") && health.contains("waiting for ZooKeeper"),
            "{health}"
        );
        assert!(
            get(address, "/health/ready")
                .await
                .starts_with("HTTP/1.1 503")
        );
        serving.store(true, Ordering::SeqCst);
        assert!(
            get(address, "/health/ready")
                .await
                .starts_with("HTTP/1.1 200")
        );
        let metrics = get(address, "/metrics").await;
        assert!(
            metrics.contains("text/plain; version=0.0.4") && metrics.ends_with("up 1\n"),
            "{metrics}"
        );
        assert!(get(address, "/nothing").await.starts_with("HTTP/1.1 404"));
    }
}
