//! What the parts of a running server share.

use crate::acl::Schemes;
use crate::config::ZkConfig;
use crate::metrics::{Gauges, Metrics};
use crate::net::conn::Conn;
use crate::prep::{Rules, Write};
use crate::read::Reading;
use crate::session::Sessions;
use crate::tree::DataTree;
use crate::watch::{ConnId, Watches};
use bytes::Bytes;
use gracchus_zk_proto::{ConnectRequest, OpCode, ZkError};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
// stands still with a simulation's clock
use tokio::time::Instant;

/// Locks are taken in the order tree, watches, conns, a connection's output; with the tree held for reading, a connection's output may
/// come before watches. Sessions stand alone.
pub(crate) struct Shared {
    pub config: ZkConfig,
    pub rules: Rules,
    pub tree: RwLock<DataTree>,
    pub watches: Mutex<Watches>,
    pub sessions: Mutex<Sessions>,
    pub conns: Mutex<HashMap<ConnId, Arc<Conn>>>,
    pub by_address: Mutex<HashMap<IpAddr, usize>>,
    pub queue: Queue,
    pub metrics: Metrics,
    pub clock: Clock,
    /// gtmk and stmk.
    pub trace_mask: AtomicI64,
    next_conn: AtomicU64,
    /// Why writes are refused, if they are.
    pub writes_refused: Mutex<Option<String>>,
}

/// ms since the server started, and the wall clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    pub fn now_ms(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }

    pub fn wall_ms() -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
    }
}

/// A request that must be handled in order with the writes.
pub(crate) struct Job {
    pub conn: Option<Arc<Conn>>,
    pub session: i64,
    pub xid: i32,
    pub op: i32,
    pub task: Task,
    pub arrived_us: u64,
    pub size: usize,
}

pub(crate) enum Task {
    Write(Write),
    Read(OpCode, Bytes),
    /// The request could not be read.
    Refuse(ZkError),
    /// No such operation: the connection ends with the answer.
    Unimplemented,
    /// A client without a session wants one, or its old one back.
    Connect(ConnectRequest),
}

/// Jobs on their way to the committer.
#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<QueueInner>,
    arrived: Condvar,
    /// Jobs queued or being worked on, and the bytes they hold.
    pub outstanding: AtomicUsize,
    pub outstanding_bytes: AtomicUsize,
}

#[derive(Default)]
struct QueueInner {
    jobs: Vec<Job>,
    stopping: bool,
    idle: bool,
    /// There is something to do without a new job.
    poked: bool,
}

impl Queue {
    pub fn push(&self, job: Job) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.outstanding_bytes
            .fetch_add(job.size, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        inner.jobs.push(job);
        if inner.idle {
            inner.idle = false;
            self.arrived.notify_one();
        }
    }

    /// Waits at most until `timeout` for jobs and takes all of them; `None` when the server stops and nothing is left.
    pub fn take(&self, into: &mut Vec<Job>, timeout: Duration) -> Option<()> {
        let mut inner = self.inner.lock();
        if inner.jobs.is_empty() && !inner.stopping && !inner.poked {
            inner.idle = true;
            self.arrived.wait_for(&mut inner, timeout);
            inner.idle = false;
        }
        inner.poked = false;
        std::mem::swap(&mut inner.jobs, into);
        (!into.is_empty() || !inner.stopping).then_some(())
    }

    /// Has the committer look at what it has set aside.
    pub fn poke(&self) {
        let mut inner = self.inner.lock();
        inner.poked = true;
        self.arrived.notify_one();
    }

    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        self.arrived.notify_one();
    }
}

impl Shared {
    pub fn new(config: ZkConfig, tree: DataTree, sessions: Sessions, clock: Clock) -> Self {
        Shared {
            rules: Rules {
                extended_types: config.extended_types,
                reconfig_enabled: config.reconfig_enabled,
                skip_acl: config.skip_acl,
                enforce_quota: config.enforce_quota,
                schemes: Schemes {
                    sasl: config.sasl_provider,
                    x509: config.tls.is_some(),
                },
            },
            config,
            tree: RwLock::new(tree),
            watches: Mutex::default(),
            sessions: Mutex::new(sessions),
            conns: Mutex::default(),
            by_address: Mutex::default(),
            queue: Queue::default(),
            metrics: Metrics::default(),
            clock,
            trace_mask: AtomicI64::new(DEFAULT_TRACE_MASK),
            next_conn: AtomicU64::new(1),
            writes_refused: Mutex::new(None),
        }
    }

    pub fn next_conn_id(&self) -> ConnId {
        self.next_conn.fetch_add(1, Ordering::Relaxed)
    }

    pub fn reading<'a>(&'a self, tree: &'a DataTree) -> Reading<'a> {
        Reading {
            tree,
            watches: &self.watches,
            skip_acl: self.rules.skip_acl,
        }
    }

    /// More is in process than the configuration allows: connections with open requests are not read.
    pub fn is_overloaded(&self) -> bool {
        self.queue.outstanding.load(Ordering::Relaxed) > self.config.global_outstanding_limit
            || self.queue.outstanding_bytes.load(Ordering::Relaxed) > MAX_OUTSTANDING_BYTES
    }

    pub fn clamp_timeout(&self, asked_ms: i32) -> i32 {
        asked_ms
            .max(self.config.min_timeout_ms())
            .min(self.config.max_timeout_ms())
    }

    pub fn gauges(&self) -> Gauges {
        let (znodes, ephemerals, data_size) = {
            let tree = self.tree.read();
            // ZooKeeper counts the root under both of its names.
            (
                tree.node_count() as u64 + 1,
                tree.ephemeral_count() as u64,
                tree.approximate_data_size(),
            )
        };
        // One lock at a time: in one expression they would all be held to its end, against the committer's order.
        let connections = self.conns.lock().len() as u64;
        let watches = self.watches.lock().count() as u64;
        let sessions = self.sessions.lock().len() as u64;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Gauges {
            connections,
            outstanding: self.queue.outstanding.load(Ordering::Relaxed) as u64,
            znodes,
            watches,
            ephemerals,
            data_size,
            sessions,
            uptime_ms: self.clock.now_ms() as u64,
            open_files: std::fs::read_dir("/proc/self/fd")
                .map_or(0, |entries| entries.count() as u64),
            max_files: limit.current.unwrap_or(u64::MAX),
        }
    }
}

/// What ZooKeeper traces unless told otherwise.
const DEFAULT_TRACE_MASK: i64 = 306;

/// Bytes of queued requests beyond which connections with open requests are not read.
const MAX_OUTSTANDING_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// The committer tells watchers with the watches locked, then the connections: whoever counts both must not hold one
    /// while it waits for the other.
    #[test]
    fn gauges_do_not_lock_against_the_committer() {
        let shared = Shared::new(
            ZkConfig::new("."),
            DataTree::new(),
            Sessions::new(2000, 1),
            Clock::new(),
        );
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    shared.gauges();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let _watches = shared.watches.lock();
                let conns = shared.conns.try_lock_for(Duration::from_secs(20));
                assert!(conns.is_some(), "deadlock");
            }
        });
    }
}
