//! The task that owns the socket: connects, reads and writes frames, pings, reconnects.

use crate::client::Shared;
use crate::config::ZkConfig;
use crate::core::{Output, SessionCore};
use crate::event::{SessionState, ZkEvent};
use crate::op::{Op, Reply};
use bytes::{Buf, Bytes, BytesMut};
use gracchus_zk_proto::ZkError;
use rand::seq::SliceRandom;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

type Done = oneshot::Sender<Reply>;

pub(crate) enum Command {
    Request(Op, Done),
    Reopen,
    Close(oneshot::Sender<()>),
}

/// First and longest pause between rounds of attempts.
/// A connection that was cut sooner than this is not replaced at once.
const BRIEF: Duration = Duration::from_millis(100);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often a hopeless wait is told.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// How long a close waits for the server.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

struct Session {
    config: ZkConfig,
    core: SessionCore<Done>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::UnboundedSender<ZkEvent>,
    shared: Arc<Shared>,
    /// Negotiated, or as asked for before the first connection.
    timeout: Duration,
    last_heard: Instant,
    overdue_told: bool,
    last_complaint: Instant,
    attempts: u64,
    unresolved: HashSet<String>,
}

/// Why a connection's loop ended.
enum Ended {
    Cut(String),
    /// The server ended the session.
    Expired,
    /// We closed it, or nobody holds a handle any more.
    Closed,
}

pub(crate) async fn run(
    config: ZkConfig,
    commands: mpsc::Receiver<Command>,
    events: mpsc::UnboundedSender<ZkEvent>,
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
        last_heard: now,
        overdue_told: false,
        last_complaint: now,
        attempts: 0,
        unresolved: HashSet::new(),
    };
    session.live().await;
}

impl Session {
    async fn live(&mut self) {
        loop {
            let Some(stream) = self.connect().await else {
                return;
            };
            let connected = Instant::now();
            let peer: Vec<String> = stream
                .peer_addr()
                .iter()
                .map(SocketAddr::to_string)
                .collect();
            match self.serve(stream).await {
                Ended::Closed => return,
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
                    self.with_core(|core, _, outputs| core.disconnected(outputs));
                    // a server may accept connections and answer nothing (stopped, overloaded): that is no contact either
                    self.complain(&peer, &reason);
                    self.check_overdue();
                    // a server that takes connections and drops them is starting or overloaded: no tight loop
                    if connected.elapsed() < BRIEF && self.or_close(sleep(BRIEF)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Runs a step of the core and carries out what it asks for; returns true when the session has ended.
    fn with_core(
        &mut self,
        step: impl FnOnce(&mut SessionCore<Done>, &mut BytesMut, &mut Vec<Output<Done>>),
    ) -> (BytesMut, bool) {
        let mut out = BytesMut::new();
        let mut outputs = Vec::new();
        step(&mut self.core, &mut out, &mut outputs);
        let ended = self.carry_out(outputs);
        (out, ended)
    }

    fn carry_out(&mut self, outputs: Vec<Output<Done>>) -> bool {
        let mut ended = false;
        for output in outputs {
            match output {
                Output::Answer(done, reply) => {
                    let _ = done.send(reply);
                }
                Output::Event(event) => {
                    let _ = self.events.send(event);
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
                    ended = true;
                }
            }
        }
        ended
    }

    /// Tries server after server, resolving names anew each time, until one accepts; `None` when told to end.
    async fn connect(&mut self) -> Option<TcpStream> {
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
            for address in addresses {
                tried.push(address.to_string());
                self.attempts += 1;
                let wait =
                    (self.timeout / 3).clamp(Duration::from_millis(500), Duration::from_secs(10));
                let attempt = async move { timeout(wait, TcpStream::connect(address)).await };
                match self.or_close(attempt).await? {
                    Ok(Ok(stream)) => {
                        let _ = stream.set_nodelay(true);
                        return Some(stream);
                    }
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

    async fn resolve(servers: Vec<(String, u16)>) -> (Vec<SocketAddr>, Vec<(String, String)>) {
        let mut addresses = Vec::new();
        let mut failures = Vec::new();
        for (host, port) in servers {
            let found = tokio::net::lookup_host((host.as_str(), port))
                .await
                .map(Vec::from_iter);
            match found {
                Ok(found) => addresses.extend(found),
                Err(error) => failures.push((host, error.to_string())),
            }
        }
        addresses.shuffle(&mut rand::rng());
        addresses.dedup();
        (addresses, failures)
    }

    fn complain(&mut self, tried: &[String], last_error: &str) {
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

    fn check_overdue(&mut self) {
        if self.core.session().0 != 0
            && !self.overdue_told
            && self.last_heard.elapsed() > self.timeout
        {
            self.overdue_told = true;
            self.with_core(|core, _, outputs| core.overdue(outputs));
        }
    }

    /// Waits for `work` while commands are taken in; `None` when the session is to end.
    async fn or_close<R>(&mut self, work: impl Future<Output = R>) -> Option<R> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return Some(result),
                command = self.commands.recv() => match command {
                    Some(Command::Request(op, done)) => self.core.request(op, done),
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

    fn end(&mut self) {
        self.with_core(|core, _, outputs| core.fail_all(ZkError::ConnectionLoss, outputs));
        *self.shared.session.lock() = None;
        let _ = self.events.send(ZkEvent::Session(SessionState::Closed));
    }

    /// After an expiry requests are refused until the owner asks for a new session; false when told to end.
    async fn wait_for_reopen(&mut self) -> bool {
        loop {
            match self.commands.recv().await {
                Some(Command::Request(_, done)) => {
                    let _ = done.send(Reply {
                        zxid: 0,
                        result: Err(ZkError::SessionExpired),
                    });
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

    /// One connection's life.
    async fn serve(&mut self, stream: TcpStream) -> Ended {
        let (mut reader, mut writer) = stream.into_split();
        let mut inbox = BytesMut::with_capacity(16 * 1024);
        let mut outbox = BytesMut::from(self.core.connect_frame().as_ref());
        let mut last_sent = Instant::now();
        let connected_at = Instant::now();
        self.last_heard = self.last_heard.max(connected_at - self.timeout);
        let mut heard_here = connected_at;
        let mut closing: Option<(oneshot::Sender<()>, Instant)> = None;
        loop {
            if !outbox.is_empty() {
                // a server that takes nothing for this long is as good as gone
                match timeout(self.timeout, writer.write_all_buf(&mut outbox)).await {
                    Ok(Ok(())) => last_sent = Instant::now(),
                    Ok(Err(error)) => return self.cut(closing, error.to_string()),
                    Err(_) => return self.cut(closing, "the server takes no more bytes".into()),
                }
            }
            let silence_limit = heard_here + self.timeout * 2 / 3;
            let ping_at = last_sent + self.timeout / 3;
            let wake = silence_limit.min(if self.core.is_established() {
                ping_at
            } else {
                silence_limit
            });
            let wake = closing.as_ref().map_or(wake, |(_, until)| wake.min(*until));
            tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    Ok(0) => return self.cut(closing, "closed by the server".into()),
                    Err(error) => return self.cut(closing, error.to_string()),
                    Ok(_) => {
                        heard_here = Instant::now();
                        self.last_heard = heard_here;
                        match self.take_frames(&mut inbox, &mut outbox) {
                            Ok(false) => {}
                            Ok(true) => return Ended::Expired,
                            Err(reason) => return self.cut(closing, reason),
                        }
                    }
                },
                command = self.commands.recv(), if closing.is_none() => {
                    let mut next = command;
                    // take what is there already, so that it goes out in one write
                    loop {
                        match next {
                            Some(Command::Request(op, done)) => self.core.request(op, done),
                            Some(Command::Reopen) => {}
                            Some(Command::Close(done)) => {
                                closing = Some((done, Instant::now() + CLOSE_WAIT));
                                break;
                            }
                            None => {
                                let (done, _) = oneshot::channel();
                                closing = Some((done, Instant::now() + CLOSE_WAIT));
                                break;
                            }
                        }
                        match self.commands.try_recv() {
                            Ok(command) => next = Some(command),
                            Err(_) => break,
                        }
                    }
                    let (more, _) = self.with_core(|core, out, outputs| core.fill(out, outputs));
                    outbox.unsplit(more);
                    if closing.is_some() {
                        outbox.extend_from_slice(&self.core.close_frame());
                    }
                }
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    if closing.as_ref().is_some_and(|(_, until)| now >= *until) {
                        return self.cut(closing, "the server did not answer the close".into());
                    }
                    if now >= silence_limit {
                        return self.cut(closing, format!("nothing heard for {} ms", (self.timeout * 2 / 3).as_millis()));
                    }
                    if self.core.is_established() && now >= ping_at {
                        outbox.extend_from_slice(&self.core.ping_frame());
                    }
                }
            }
        }
    }

    /// The connection is gone; while closing that is what we wait for.
    fn cut(&mut self, closing: Option<(oneshot::Sender<()>, Instant)>, reason: String) -> Ended {
        match closing {
            None => Ended::Cut(reason),
            Some((done, _)) => {
                self.end();
                let _ = done.send(());
                Ended::Closed
            }
        }
    }

    /// Takes whole frames out of `inbox`; true when the session has ended.
    fn take_frames(&mut self, inbox: &mut BytesMut, outbox: &mut BytesMut) -> Result<bool, String> {
        while let Some(length) = inbox.first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let limit = self.config.max_frame;
            let size = usize::try_from(length)
                .ok()
                .filter(|n| *n <= limit)
                .ok_or_else(|| {
                    format!("a frame of {length} bytes, more than jute.maxbuffer ({limit}) allows")
                })?;
            if inbox.len() < 4 + size {
                inbox.reserve(4 + size - inbox.len());
                break;
            }
            inbox.advance(4);
            let body: Bytes = inbox.split_to(size).freeze();
            let mut outputs = Vec::new();
            let result = self.core.frame(body, outbox, &mut outputs);
            if self.carry_out(outputs) {
                return Ok(true);
            }
            result.map_err(|error| error.to_string())?;
        }
        let (more, _) = self.with_core(|core, out, outputs| core.fill(out, outputs));
        outbox.unsplit(more);
        Ok(false)
    }
}
