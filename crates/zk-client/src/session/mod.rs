//! The task that owns the socket: connects, reads and writes frames, pings, reconnects.
//!
//! `connect` finds a server, `serve` is one connection's life; here is what goes on from one to the next.

mod connect;
mod serve;
pub(crate) mod tls;

use crate::client::{Place, Shared};
use crate::config::ZkConfig;
use crate::core::{LoginFailure, Output, SessionCore};
use crate::event::{EventSender, MAX_EVENTS, SessionState, ZkEvent};
use crate::op::{Op, Reply};
use bytes::BytesMut;
use connect::Socket;
use gracchus_zk_proto::ZkError;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

/// Whom a request's answer goes to.
#[derive(Debug)]
pub(crate) enum Done {
    One {
        answer: oneshot::Sender<Reply>,
        /// Given back with the answer.
        place: Place,
    },
    /// One of several submitted together, and which.
    Of(Arc<Batch>, usize),
}

impl Done {
    pub fn complete(self, reply: Reply) {
        match self {
            Done::One { answer, place } => {
                // Free before the caller knows.
                drop(place);
                let _ = answer.send(reply);
            }
            Done::Of(batch, at) => {
                if let Some(slot) = batch.replies.lock().get_mut(at) {
                    *slot = reply;
                }
            }
        }
    }
}

/// Requests submitted together. The last one that is answered, or given up, drops it, and that sends the answers.
#[derive(Debug)]
pub(crate) struct Batch {
    /// `ConnectionLoss` where none has come.
    replies: Mutex<Vec<Reply>>,
    answer: Option<oneshot::Sender<Vec<Reply>>>,
    place: Option<Place>,
}

impl Batch {
    pub(crate) fn new(count: usize, answer: oneshot::Sender<Vec<Reply>>, place: Place) -> Self {
        let lost = || Reply::failed(ZkError::ConnectionLoss);
        Batch {
            replies: Mutex::new(std::iter::repeat_with(lost).take(count).collect()),
            answer: Some(answer),
            place: Some(place),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.place = None; // free before the caller knows
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(std::mem::take(self.replies.get_mut()));
        }
    }
}

#[derive(Debug)]
pub(crate) enum Command {
    Request(Op, Done),
    Requests(Vec<Op>, Batch),
    Reopen,
    Close(oneshot::Sender<()>),
}

/// How long a refused login is not tried again: at first, and at most.
const LOGIN_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// A connection that was cut sooner than this is not replaced at once.
const BRIEF: Duration = Duration::from_millis(100);

struct Session {
    config: ZkConfig,
    core: SessionCore<Done>,
    commands: mpsc::Receiver<Command>,
    events: EventSender,
    shared: Arc<Shared>,
    /// Negotiated, or as asked for before the first connection.
    timeout: Duration,
    /// Of the core's clock.
    start: Instant,
    last_heard: Instant,
    overdue_told: bool,
    last_complaint: Instant,
    attempts: u64,
    unresolved: HashSet<String>,
    login_pause: Duration,
}

/// What a step asks for beyond what was carried out.
enum Verdict {
    GoOn,
    Refused,
    Ended,
}

/// Why a connection's loop ended.
enum Ended {
    Cut(String),
    /// The server does not believe who we are.
    Refused,
    /// The server ended the session.
    Expired,
    /// We closed it, or nobody holds a handle any more.
    Closed,
}

pub(crate) async fn run(
    config: ZkConfig,
    commands: mpsc::Receiver<Command>,
    events: EventSender,
    shared: Arc<Shared>,
) {
    let now = Instant::now();
    let mut session = Session {
        core: SessionCore::new(&config),
        timeout: config.session_timeout,
        config,
        commands,
        events,
        shared,
        start: now,
        last_heard: now,
        overdue_told: false,
        last_complaint: now,
        attempts: 0,
        unresolved: HashSet::new(),
        login_pause: LOGIN_PAUSE.0,
    };
    session.live().await;
}

impl Session {
    async fn live(&mut self) {
        loop {
            if self.wait_for_owner().await.is_none() {
                return;
            }
            let Some((socket, peer)) = self.connect().await else {
                return;
            };
            let connected = Instant::now();
            let ended = match socket {
                Socket::Plain(stream) => {
                    let (reader, writer) = stream.into_split();
                    self.serve(reader, writer).await
                }
                Socket::Tls(stream) => {
                    let (reader, writer) = tokio::io::split(*stream);
                    self.serve(reader, writer).await
                }
            };
            match ended {
                Ended::Closed => return,
                Ended::Refused => {
                    self.refused();
                    let pause = self.login_pause;
                    self.login_pause = (pause * 2).min(LOGIN_PAUSE.1);
                    if self.or_close(sleep(pause)).await.is_none() {
                        return;
                    }
                }
                Ended::Expired => {
                    if !self.wait_for_reopen().await {
                        return;
                    }
                }
                Ended::Cut(reason) => {
                    tracing::info!(
                        session = format_args!("0x{:x}", self.core.session().0),
                        "{}: connection to ZooKeeper lost: {reason}",
                        self.config.name
                    );
                    let now = self.now();
                    self.with_core(|core, _, outputs| core.disconnected(now, outputs));
                    // a server may accept connections and answer nothing (stopped, overloaded): that is no contact either
                    self.complain(&[peer.to_string()], &reason);
                    self.check_overdue();
                    // a server that takes connections and drops them is starting or overloaded: no tight loop
                    if connected.elapsed() < BRIEF && self.or_close(sleep(BRIEF)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn refused(&mut self) {
        let now = self.now();
        self.with_core(|core, _, outputs| core.disconnected(now, outputs));
        let reason = self.shared.auth_failure.lock().clone().unwrap_or_default();
        tracing::error!(
            "{}: {reason}; trying again in {} s",
            self.config.name,
            self.login_pause.as_secs()
        );
    }

    fn login_text(&self, failure: LoginFailure) -> String {
        let servers = self.config.connect.servers.iter();
        let servers: Vec<_> = servers
            .map(|(host, port)| format!("{host}:{port}"))
            .collect();
        let (user, source) = match &self.config.login {
            Some(login) => (&*login.credentials.user, &*login.source),
            None => ("nobody", "nowhere"),
        };
        format!(
            "ZooKeeper at {} and user {user} (from {source}) do not agree by SASL DIGEST-MD5: {failure}",
            servers.join(",")
        )
    }

    /// Until the owner has caught up with the events; `None` when told to end.
    async fn wait_for_owner(&mut self) -> Option<()> {
        if self.events.untaken() > MAX_EVENTS {
            tracing::warn!(
                "{}: more than {MAX_EVENTS} events of watches were not taken; the connection to ZooKeeper waits until they are",
                self.config.name
            );
            while self.events.untaken() > MAX_EVENTS / 2 {
                self.or_close(sleep(BRIEF)).await?;
            }
        }
        Some(())
    }

    /// Runs a step of the core and carries out what it asks for.
    fn with_core(
        &mut self,
        step: impl FnOnce(&mut SessionCore<Done>, &mut BytesMut, &mut Vec<Output<Done>>),
    ) {
        let mut out = BytesMut::new();
        let mut outputs = Vec::new();
        step(&mut self.core, &mut out, &mut outputs);
        self.carry_out(&mut outputs);
    }

    fn carry_out(&mut self, outputs: &mut Vec<Output<Done>>) -> Verdict {
        let mut verdict = Verdict::GoOn;
        for output in outputs.drain(..) {
            match output {
                Output::Answer(done, reply) => done.complete(reply),
                Output::Event(event) => {
                    if matches!(event, ZkEvent::Session(SessionState::Connected { .. })) {
                        *self.shared.auth_failure.lock() = None;
                        self.login_pause = LOGIN_PAUSE.0;
                    }
                    self.events.send(event);
                }
                Output::Refused(failure) => {
                    let text = self.login_text(failure);
                    *self.shared.auth_failure.lock() = Some(text);
                    verdict = Verdict::Refused;
                }
                Output::Established { timeout_ms } => {
                    self.timeout = Duration::from_millis(timeout_ms.max(1) as u64);
                    self.shared.timeout_ms.store(timeout_ms, Ordering::Relaxed);
                    *self.shared.session.lock() = Some(self.core.session());
                    self.overdue_told = false;
                    self.attempts = 0;
                }
                Output::SessionEnded => {
                    *self.shared.session.lock() = None;
                    verdict = Verdict::Ended;
                }
            }
        }
        verdict
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Fails the requests that waited too long for a connection.
    fn time_out(&mut self) {
        let (now, patience) = (self.now(), self.timeout);
        self.with_core(|core, _, outputs| core.time_out(now, patience, outputs));
    }

    /// When the next of them will have waited too long.
    fn next_time_out(&self) -> Option<Instant> {
        let at = self.core.next_time_out(self.timeout)?;
        Some(self.start + at)
    }

    /// Waits for `work` while commands are taken in, and fail when they have waited too long; `None` when the session is to end.
    async fn or_close<R>(&mut self, work: impl Future<Output = R>) -> Option<R> {
        tokio::pin!(work);
        loop {
            let time_out = self.next_time_out();
            tokio::select! {
                result = &mut work => return Some(result),
                () = sleep_until(time_out.unwrap_or(self.start)), if time_out.is_some() => self.time_out(),
                command = self.commands.recv() => match command {
                    Some(Command::Request(op, done)) => self.take(op, done),
                    Some(Command::Requests(ops, batch)) => self.take_all(ops, batch),
                    Some(Command::Reopen) => {}
                    Some(Command::Close(done)) => {
                        self.end();
                        let _ = done.send(());
                        return None;
                    }
                    None => {
                        self.end();
                        return None;
                    }
                },
            }
        }
    }

    fn take(&mut self, op: Op, done: Done) {
        let now = self.now();
        self.core.request(op, done, now);
    }

    fn take_all(&mut self, ops: Vec<Op>, batch: Batch) {
        let (now, batch) = (self.now(), Arc::new(batch));
        for (at, op) in ops.into_iter().enumerate() {
            self.core.request(op, Done::Of(batch.clone(), at), now);
        }
    }

    fn end(&mut self) {
        self.with_core(|core, _, outputs| core.fail_all(ZkError::ConnectionLoss, outputs));
        *self.shared.session.lock() = None;
        self.events.send(ZkEvent::Session(SessionState::Closed));
    }

    /// After an expiry requests are refused until the owner asks for a new session; false when told to end.
    async fn wait_for_reopen(&mut self) -> bool {
        loop {
            match self.commands.recv().await {
                Some(Command::Request(_, done)) => {
                    done.complete(Reply::failed(ZkError::SessionExpired));
                }
                Some(Command::Requests(ops, batch)) => {
                    let batch = Arc::new(batch);
                    for at in 0..ops.len() {
                        Done::Of(batch.clone(), at)
                            .complete(Reply::failed(ZkError::SessionExpired));
                    }
                }
                Some(Command::Reopen) => {
                    self.last_heard = Instant::now();
                    return true;
                }
                Some(Command::Close(done)) => {
                    self.end();
                    let _ = done.send(());
                    return false;
                }
                None => return false,
            }
        }
    }
}
