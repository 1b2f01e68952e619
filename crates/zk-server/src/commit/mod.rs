//! The committer: one thread that owns the order of all writes.
//!
//! It takes all that arrived, turns it into transactions, makes them durable with one sync, applies them, and answers. What arrives
//! meanwhile is the next batch. Reads behind a write of their session take the same way.

mod handshake;
mod parked;
mod plan;
mod reply;
#[cfg(test)]
mod tests;
mod watching;

use crate::net::conn::Conn;
use crate::prep::Write;
use crate::snapshots::Snapshots;
use crate::state::{Clock, Job, Shared, Task};
use crate::store::txn_log::{CommitError, TxnLog};
use crate::tree::DataTree;
use gracchus_zk_proto::txn::Txn;
use gracchus_zk_proto::{OpCode, ZkError};
use handshake::{attach, end_session, grant};
use parked::Parked;
use plan::Planned;
use reply::reply;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use watching::Watching;

/// Jobs applied under one lock of the tree: readers wait no longer.
const APPLY_CHUNK: usize = 256;
/// Sessions granted while the log can't be written, beyond which clients without one are turned away.
const MAX_UNLOGGED_SESSIONS: usize = 10_000;
/// Between log lines about a log that can't be written.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Committer {
    shared: Arc<Shared>,
    log: TxnLog,
    snapshots: Snapshots,
    last_zxid: i64,
    /// Sessions granted while the log could not be written; logged first when it can.
    unlogged_sessions: Vec<(i64, i32)>,
    next_container_check_ms: i64,
    /// The last write failed.
    failing: bool,
    failure_logged: Option<Instant>,
    /// When sessions were looked at last, and until when none expires: this process itself was held up.
    last_look_ms: i64,
    grace_until_ms: i64,
    touched: Vec<Arc<Conn>>,
    parked: Parked,
}

impl Committer {
    pub fn new(shared: Arc<Shared>, log: TxnLog, snapshots: Snapshots) -> Self {
        let last_zxid = shared.tree.read().last_zxid();
        let next_container_check_ms =
            shared.clock.now_ms() + shared.config.container_check_interval_ms as i64;
        Committer {
            shared,
            log,
            snapshots,
            last_zxid,
            unlogged_sessions: Vec::new(),
            next_container_check_ms,
            failing: false,
            failure_logged: None,
            last_look_ms: i64::MAX,
            grace_until_ms: 0,
            touched: Vec::new(),
            parked: Parked::default(),
        }
    }

    /// Works until the queue is stopped and empty.
    pub fn run(mut self) {
        let mut jobs = Vec::new();
        while self.shared.queue.take(&mut jobs, self.wait()).is_some() {
            self.step(&mut jobs);
        }
        self.log.roll();
        self.snapshots.finish();
    }

    /// One batch: what arrived, and what is due without it.
    pub fn step(&mut self, jobs: &mut Vec<Job>) {
        self.parked.release(&self.shared, jobs);
        self.parked.sift(&self.shared, jobs);
        self.add_due(jobs);
        if !jobs.is_empty() || !self.unlogged_sessions.is_empty() {
            self.work(jobs);
        }
        self.snapshots.reap();
    }

    /// Until a session may expire or containers are looked at.
    fn wait(&self) -> Duration {
        if self.parked.is_ready() {
            return Duration::ZERO;
        }
        let now = self.shared.clock.now_ms();
        let due = self
            .shared
            .sessions
            .lock()
            .next_due_ms()
            .unwrap_or(i64::MAX)
            .min(self.next_container_check_ms);
        Duration::from_millis(due.saturating_sub(now).clamp(1, 1000) as u64)
    }

    /// The server's own writes: sessions that expired, containers and TTL nodes that are done with.
    fn add_due(&mut self, jobs: &mut Vec<Job>) {
        let now = self.shared.clock.now_ms();
        let own = |session, write| Job {
            conn: None,
            session,
            xid: 0,
            op: 0,
            task: Task::Write(write),
            arrived_us: 0,
            size: 0,
        };
        // After a pause of the whole process clients that spoke meanwhile have not been heard yet.
        let tick = i64::from(self.shared.config.tick_time_ms);
        if now.saturating_sub(self.last_look_ms) > 1000 + 2 * tick {
            self.grace_until_ms = now + tick;
        }
        self.last_look_ms = now;
        let expired = if now < self.grace_until_ms {
            Vec::new()
        } else {
            self.shared.sessions.lock().expire(now)
        };
        for session in expired {
            jobs.push(own(session, Write::CloseSession));
            self.shared.queue.outstanding.fetch_add(1, Relaxed);
        }
        if now >= self.next_container_check_ms {
            let interval = self.shared.config.container_check_interval_ms;
            self.next_container_check_ms =
                now.saturating_add(i64::try_from(interval).unwrap_or(i64::MAX));
            let limit = self
                .shared
                .config
                .container_max_per_minute
                .saturating_mul(interval)
                / 60_000;
            let removable = self
                .shared
                .tree
                .read()
                .removable(Clock::wall_ms(), limit.max(1) as usize);
            for key in removable {
                jobs.push(own(
                    0,
                    Write::DeleteContainer {
                        path: key.to_string(),
                        from_client: false,
                    },
                ));
                self.shared.queue.outstanding.fetch_add(1, Relaxed);
            }
        }
    }

    fn work(&mut self, jobs: &mut Vec<Job>) {
        let planned = self.plan(jobs);
        if planned.txns > 0 {
            self.shared
                .metrics
                .sync_processor_batch_size
                .record_us(planned.txns * 1000);
        }
        match self.log.commit() {
            Ok(took) => {
                self.note_durable(took, planned.txns);
                self.last_zxid = planned.last_zxid;
                self.apply(jobs, planned.plans);
            }
            Err(error) => self.refuse(jobs, planned.plans, &error),
        }
        if self
            .snapshots
            .is_due(self.log.txns_since_roll, self.log.bytes_since_roll)
            && !self.snapshots.is_running()
        {
            self.log.roll();
            self.snapshots.start(&self.shared);
        }
    }

    fn note_durable(&mut self, took: Option<Duration>, txns: u64) {
        if let Some(took) = took {
            self.shared
                .metrics
                .fsynctime
                .record_us(took.as_micros() as u64);
            if took.as_millis() as u64 > self.shared.config.fsync_warning_threshold_ms {
                tracing::warn!(
                    "syncing the transaction log in {} took {} ms: every write waited for it. A disk of its own for dataLogDir helps.",
                    self.shared.config.log_dir().display(),
                    took.as_millis()
                );
            }
        }
        self.shared.metrics.commit_count.fetch_add(txns, Relaxed);
        if std::mem::take(&mut self.failing) {
            *self.shared.writes_refused.lock() = None;
            tracing::debug!("the transaction log can be written again: writes are accepted");
        }
        if !self.unlogged_sessions.is_empty() {
            let mut tree = self.shared.tree.write();
            for (id, timeout_ms) in self.unlogged_sessions.drain(..) {
                tree.restore_session(id, timeout_ms);
            }
        }
    }

    fn apply(&mut self, jobs: &mut Vec<Job>, plans: Vec<Planned>) {
        let shared = self.shared.clone();
        let mut watching = Watching::new(&shared, std::mem::take(&mut self.touched));
        let now_us = shared.clock.now_us();
        let now_ms = (now_us / 1000) as i64;
        let (mut finished, mut bytes) = (0, 0);
        let mut work = jobs.drain(..).zip(plans).peekable();
        while work.peek().is_some() {
            let mut tree = shared.tree.write();
            for (job, plan) in work.by_ref().take(APPLY_CHUNK) {
                apply_one(&shared, &mut tree, &mut watching, &job, plan, now_ms);
                finished += 1;
                bytes += job.size;
                answered(
                    &shared,
                    &mut watching.touched,
                    job,
                    now_us,
                    now_ms,
                    tree.last_zxid(),
                );
            }
        }
        drop(work);
        shared.queue.outstanding.fetch_sub(finished, Relaxed);
        shared.queue.outstanding_bytes.fetch_sub(bytes, Relaxed);
        for conn in watching.touched.drain(..) {
            conn.wake_marked();
        }
        self.touched = watching.touched;
    }

    /// Nothing of the batch is in the log: writes fail, reads go on.
    fn refuse(&mut self, jobs: &mut Vec<Job>, plans: Vec<Planned>, error: &CommitError) {
        self.shared
            .metrics
            .unrecoverable_error_count
            .fetch_add(1, Relaxed);
        if self
            .failure_logged
            .is_none_or(|at| at.elapsed() > FAILURE_LOG_INTERVAL)
        {
            tracing::error!(
                "{error}: writes are refused and reads go on until it can be written. Free space on that disk or repair it."
            );
            self.failure_logged = Some(Instant::now());
        }
        self.failing = true;
        *self.shared.writes_refused.lock() = Some(error.to_string());
        let shared = self.shared.clone();
        let plans = plans
            .into_iter()
            .zip(jobs.iter())
            .map(|(plan, job)| match plan {
                Planned::Txn(..) => {
                    if !error.undone
                        && let Some(conn) = &job.conn
                    {
                        // A restart may find the write after all: no answer is the only true one.
                        conn.close(false);
                    }
                    Planned::Refuse(ZkError::SystemError)
                }
                Planned::NewSession(..)
                    if self.unlogged_sessions.len() >= MAX_UNLOGGED_SESSIONS =>
                {
                    if let Some(conn) = &job.conn {
                        conn.close(false);
                    }
                    Planned::Refuse(ZkError::SystemError)
                }
                Planned::NewSession(header, txn, request) => {
                    self.unlogged_sessions
                        .push((header.client_id, txn.timeout_ms));
                    grant(&shared, job, header.client_id, txn.timeout_ms, &request);
                    Planned::Attach(request)
                }
                other => other,
            });
        let plans: Vec<Planned> = plans.collect();
        self.apply(jobs, plans);
    }
}

/// Notes that a job is done and that its connection has something to send.
fn answered(
    shared: &Shared,
    touched: &mut Vec<Arc<Conn>>,
    job: Job,
    now_us: u64,
    now_ms: i64,
    zxid: i64,
) {
    let Some(conn) = job.conn else { return };
    let latency_us = now_us.saturating_sub(job.arrived_us);
    shared.metrics.latency.record_us(latency_us);
    if job.op != OpCode::Ping.code() {
        shared.metrics.updatelatency.record_us(latency_us);
    }
    conn.answered(job.op, job.xid, zxid, now_ms, latency_us);
    conn.note_done(job.size);
    if conn.mark_wake() {
        touched.push(conn);
    }
}

fn apply_one(
    shared: &Shared,
    tree: &mut DataTree,
    watching: &mut Watching<'_>,
    job: &Job,
    plan: Planned,
    now_ms: i64,
) {
    match plan {
        Planned::Txn(header, txn) => {
            let closing = matches!(txn, Txn::CloseSession(_));
            let zxid = header.zxid;
            let applied = tree.apply(&header, txn, &mut |change| watching.tell(zxid, change));
            if let Some(conn) = &job.conn
                && let Some(mut out) = conn.open_out()
            {
                reply(&mut out, job.xid, zxid, applied);
            }
            if closing {
                end_session(shared, job, header.client_id);
            }
        }
        Planned::NewSession(header, txn, request) => {
            let timeout_ms = txn.timeout_ms;
            tree.apply(&header, Txn::CreateSession(txn), &mut |_| {});
            grant(shared, job, header.client_id, timeout_ms, &request);
        }
        Planned::Read(op, body) => {
            if let Some(conn) = &job.conn
                && let Some(mut out) = conn.open_out()
            {
                shared
                    .reading(tree)
                    .answer(conn, &mut out, job.xid, op, &body);
            }
        }
        // Granted while the log could not be written.
        Planned::Attach(request) if request.session_id == 0 => {}
        Planned::Attach(request) => attach(shared, job, &request, now_ms),
        Planned::Refuse(error) => {
            if let Some(conn) = &job.conn
                && let Some(mut out) = conn.open_out()
            {
                out.reply(job.xid, tree.last_zxid(), |_| Err(error));
            }
            // It was the client's last request, granted or not, and nothing is read behind it.
            if job.op == OpCode::CloseSession.code()
                && let Some(conn) = &job.conn
            {
                conn.close(true);
            }
        }
        Planned::Unimplemented => {
            if let Some(conn) = &job.conn {
                if let Some(mut out) = conn.open_out() {
                    out.reply(job.xid, -1, |_| Err(ZkError::Unimplemented));
                }
                conn.close(true);
            }
        }
    }
}
