//! The session without its task and socket: the owner carries the bytes and says what time it is. For simulations of a whole
//! cluster; requests, watches and what a cut leaves behind are the real core's.

use crate::client::{MAX_OPEN_REQUESTS, Shared, ZkClient};
use crate::config::ZkConfig;
use crate::core::{Output, SessionCore};
use crate::event::{self, EventReceiver, EventSender};
use crate::op::{Op, Reply};
use crate::session::{Command, Done};
use bytes::{Buf, Bytes, BytesMut};
use gracchus_zk_proto::ZkError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// The session; the handles that come with it work as any.
pub struct SteppedSession {
    core: SessionCore<Done>,
    commands: mpsc::Receiver<Command>,
    events: EventSender,
    shared: Arc<Shared>,
    timeout: Duration,
    input: BytesMut,
    output: BytesMut,
    /// Over, until the owner asks for another.
    has_ended: bool,
}

impl SteppedSession {
    /// Not connected.
    pub fn new(config: &ZkConfig) -> (ZkClient, EventReceiver, Self) {
        let (commands, receiver) = mpsc::channel(MAX_OPEN_REQUESTS);
        let (events, event_receiver) = event::queue();
        let shared = Arc::new(Shared::default());
        let session = SteppedSession {
            core: SessionCore::new(config),
            commands: receiver,
            events,
            shared: shared.clone(),
            timeout: config.session_timeout,
            input: BytesMut::new(),
            output: BytesMut::new(),
            has_ended: false,
        };
        (
            ZkClient::of_parts(commands, shared),
            event_receiver,
            session,
        )
    }

    /// Whether a connection is of use: after its end a session has to be asked for anew.
    pub fn wants_connection(&mut self, now: Duration) -> bool {
        self.take_commands(now);
        !self.has_ended
    }

    pub fn is_established(&self) -> bool {
        self.core.is_established()
    }

    /// The negotiated timeout, or the one asked for.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection is there: the handshake goes out next.
    pub fn connected(&mut self) {
        self.input.clear();
        self.output = BytesMut::from(self.core.connect_frame(0).as_ref());
    }

    pub fn ping(&mut self) {
        self.output.extend_from_slice(&self.core.ping_frame());
    }

    /// What is to be sent now.
    pub fn flush(&mut self, now: Duration) -> Bytes {
        self.take_commands(now);
        let mut outputs = Vec::new();
        self.core.fill(&mut self.output, &mut outputs);
        self.carry_out(outputs);
        self.output.split().freeze()
    }

    /// Bytes of the server; an error or the session's end (`Ok(false)`) leaves no use for the connection.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.input.extend_from_slice(bytes);
        while let Some(length) = self.input.first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|e| e.to_string())?;
            if self.input.len() < 4 + length {
                break;
            }
            self.input.advance(4);
            let body = self.input.split_to(length).freeze();
            let mut outputs = Vec::new();
            let result = self.core.frame(body, &mut self.output, &mut outputs);
            self.carry_out(outputs);
            result.map_err(|error| error.to_string())?;
            if self.has_ended {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The connection is gone.
    pub fn disconnected(&mut self, now: Duration) {
        self.output.clear();
        let mut outputs = Vec::new();
        self.core.disconnected(now, &mut outputs);
        self.carry_out(outputs);
    }

    /// Fails the requests that waited too long for a connection.
    pub fn time_out(&mut self, now: Duration) {
        let mut outputs = Vec::new();
        self.core.time_out(now, self.timeout, &mut outputs);
        self.carry_out(outputs);
    }

    fn take(&mut self, op: Op, done: Done, now: Duration) {
        if self.has_ended {
            done.complete(Reply::failed(ZkError::SessionExpired));
        } else {
            self.core.request(op, done, now);
        }
    }

    fn take_commands(&mut self, now: Duration) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Request(op, done) => self.take(op, done, now),
                Command::Requests(ops, batch) => {
                    let batch = Arc::new(batch);
                    for (at, op) in ops.into_iter().enumerate() {
                        self.take(op, Done::Of(batch.clone(), at), now);
                    }
                }
                Command::Reopen => self.has_ended = false,
                Command::Close(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    fn carry_out(&mut self, outputs: Vec<Output<Done>>) {
        for output in outputs {
            match output {
                Output::Answer(done, reply) => done.complete(reply),
                Output::Event(event) => self.events.send(event),
                Output::Established { timeout_ms } => {
                    self.timeout = Duration::from_millis(timeout_ms.max(1) as u64);
                    self.shared.timeout_ms.store(timeout_ms, Ordering::Relaxed);
                    *self.shared.session.lock() = Some(self.core.session());
                }
                Output::Refused(_) | Output::SessionEnded => {
                    *self.shared.session.lock() = None;
                    self.has_ended = true;
                }
            }
        }
    }
}
