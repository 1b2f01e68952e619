//! Finding a server that accepts.

use super::{Session, tls};
use rand::seq::SliceRandom;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;

/// First and longest pause between rounds of attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often a hopeless wait is told.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// A connection to a server, before anything is said on it.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Session {
    /// Tries server after server, resolving names anew each time, until one accepts; `None` when told to end.
    pub(super) async fn connect(&mut self) -> Option<(Socket, SocketAddr)> {
        let mut pause = BACKOFF.0;
        loop {
            let mut last_error = String::from("no address to try");
            let mut tried = Vec::new();
            let (addresses, failures) = self
                .or_close(Self::resolve(self.config.connect.servers.clone()))
                .await?;
            for (host, error) in failures {
                last_error = format!("{host}: {error}");
                if self.unresolved.insert(host.clone()) {
                    tracing::warn!(
                        "{}: cannot resolve ZooKeeper server {host}: {error}; trying the others",
                        self.config.name
                    );
                }
            }
            for (host, address) in addresses {
                tried.push(address.to_string());
                self.attempts += 1;
                let wait =
                    (self.timeout / 3).clamp(Duration::from_millis(500), Duration::from_secs(10));
                let tls = self.config.tls.clone();
                let attempt = async move {
                    let opened = async {
                        let stream = TcpStream::connect(address).await;
                        let stream = stream.map_err(|error| error.to_string())?;
                        let _ = stream.set_nodelay(true);
                        Ok::<_, String>(match &tls {
                            None => Socket::Plain(stream),
                            Some(tls) => {
                                Socket::Tls(tls::handshake(tls, stream, &host, address).await?)
                            }
                        })
                    };
                    timeout(wait, opened).await
                };
                match self.or_close(attempt).await? {
                    Ok(Ok(socket)) => return Some((socket, address)),
                    Ok(Err(error)) => last_error = format!("{address}: {error}"),
                    Err(_) => {
                        last_error = format!("{address}: no answer within {} ms", wait.as_millis())
                    }
                }
            }
            self.complain(&tried, &last_error);
            self.check_overdue();
            // half of the pause is random, so that many clients don't come back in step
            let jittered = pause / 2 + pause.mul_f64(rand::random::<f64>() / 2.0);
            self.or_close(sleep(jittered)).await?;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    async fn resolve(
        servers: Vec<(String, u16)>,
    ) -> (Vec<(String, SocketAddr)>, Vec<(String, String)>) {
        let mut addresses = Vec::new();
        let mut failures = Vec::new();
        for (host, port) in servers {
            let found = tokio::net::lookup_host((host.as_str(), port))
                .await
                .map(Vec::from_iter);
            match found {
                Ok(found) => addresses.extend(found.into_iter().map(|at| (host.clone(), at))),
                Err(error) => failures.push((host, error.to_string())),
            }
        }
        addresses.shuffle(&mut rand::rng());
        addresses.dedup_by_key(|(_, address)| *address);
        (addresses, failures)
    }

    pub(super) fn complain(&mut self, tried: &[String], last_error: &str) {
        let silence = self.last_heard.elapsed();
        if silence < COMPLAIN_EVERY || self.last_complaint.elapsed() < COMPLAIN_EVERY {
            return;
        }
        self.last_complaint = Instant::now();
        tracing::warn!(
            "{}: still waiting for ZooKeeper at {} (attempt {}; addresses {}; last error: {last_error})",
            self.config.name,
            self.config
                .connect
                .servers
                .iter()
                .map(|(h, p)| format!("{h}:{p}"))
                .collect::<Vec<_>>()
                .join(","),
            self.attempts,
            if tried.is_empty() {
                "none".into()
            } else {
                tried.join(", ")
            },
        );
    }

    pub(super) fn check_overdue(&mut self) {
        if self.core.session().0 != 0
            && !self.overdue_told
            && self.last_heard.elapsed() > self.timeout
        {
            self.overdue_told = true;
            self.with_core(|core, _, outputs| core.overdue(outputs));
        }
    }
}
