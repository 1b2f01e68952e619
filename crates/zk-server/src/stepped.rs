//! The server without threads and sockets: bytes in, bytes out, on the caller's thread and by tokio's clock, which may be
//! paused. For simulations of a whole cluster; what a step does is what the running server does.

use crate::commit::Committer;
use crate::config::ZkConfig;
use crate::net::conn::Conn;
use crate::net::connection::Unwired;
use crate::server::{StartError, recover};
use crate::state::{Job, Shared};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What a connection has to send.
#[derive(Debug)]
pub struct Sent {
    pub conn: u64,
    pub bytes: Bytes,
    /// The server closes it behind these bytes.
    pub closes: bool,
}

/// The server. Dropping it is a crash: what was answered is in its files.
pub struct SteppedServer {
    shared: Arc<Shared>,
    committer: Committer,
    conns: BTreeMap<u64, Unwired>,
    jobs: Vec<Job>,
}

impl SteppedServer {
    /// Recovers the data; every session starts with a full timeout.
    pub fn open(config: ZkConfig) -> Result<Self, StartError> {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (shared, committer) = recover(config, nowhere)?;
        Ok(SteppedServer {
            shared,
            committer,
            conns: BTreeMap::new(),
            jobs: Vec::new(),
        })
    }

    /// A client connects.
    pub fn connect(&mut self) -> u64 {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let conn = Arc::new(Conn::new(self.shared.next_conn_id(), peer, 0));
        let id = conn.id;
        self.shared.conns.lock().insert(id, conn.clone());
        self.conns.insert(id, Unwired::new(conn));
        id
    }

    /// Bytes of a client; those of a connection that is gone are dropped.
    pub fn receive(&mut self, conn: u64, bytes: &[u8]) {
        if let Some(found) = self.conns.get_mut(&conn)
            && !found.receive(&self.shared, bytes)
        {
            found.conn.close(false);
        }
    }

    /// A connection broke, as the server sees it.
    pub fn cut(&mut self, conn: u64) {
        let Some(found) = self.conns.remove(&conn) else {
            return;
        };
        found.conn.close(false);
        self.shared.conns.lock().remove(&conn);
        self.shared.watches.lock().remove_conn(conn);
        let session = found.conn.session();
        if session != 0 {
            self.shared.sessions.lock().detach(session, conn);
        }
    }

    /// Commits what has arrived, ends sessions that are over, and gives what is to be sent.
    pub fn step(&mut self) -> Vec<Sent> {
        // as often as requests were held back until others were answered
        for _ in 0..16 {
            let _ = self.shared.queue.take(&mut self.jobs, Duration::ZERO);
            let worked = !self.jobs.is_empty();
            self.committer.step(&mut self.jobs);
            for conn in self.conns.values_mut() {
                if !conn.receive(&self.shared, &[]) {
                    conn.conn.close(false);
                }
            }
            if !worked {
                break;
            }
        }
        let mut sent = Vec::new();
        for (id, conn) in &self.conns {
            let mut out = conn.conn.out.lock();
            let closes = out.end != crate::net::conn::End::Open;
            if closes || !out.buf.is_empty() {
                let bytes = out.buf.split().freeze();
                sent.push(Sent {
                    conn: *id,
                    bytes,
                    closes,
                });
            }
        }
        for closed in sent.iter().filter(|sent| sent.closes) {
            self.cut(closed.conn);
        }
        sent
    }

    /// A node's data and version, as clients would read it now.
    pub fn node(&self, path: &str) -> Option<(Bytes, i32)> {
        let tree = self.shared.tree.read();
        let node = tree.get(path)?;
        let data = node.data.clone().unwrap_or_default();
        Some((data, node.wire_stat().version))
    }
}
