//! One task a connection: reads frames, answers what it may at once, queues the rest, writes what is to be sent.

use super::conn::{Conn, End, MAX_BACKLOG, MAX_UNSENT};
use super::decode::decode_write;
use super::fourletter;
use super::secure::Secure;
use crate::prep::Write;
use crate::read;
use crate::state::{Job, Shared, Task};
use bytes::{Buf, Bytes, BytesMut};
use gracchus_security::digest_md5::Exchange;
use gracchus_zk_proto::{ConnectRequest, Jute, OpCode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// A connection without a session is dropped after this long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// And one that does not take its last answer.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const READ_STEP: usize = 16 << 10;
/// Buffers that a large message left are not kept.
const KEEP_BUFFER: usize = 64 << 10;

/// Pieces read and dropped at the end of a connection at most.
const MAX_DRAINED: usize = 64;

/// Why a connection ends.
#[derive(Debug)]
enum Ended {
    /// By the peer, or as the protocol wants it.
    Quietly,
    /// By bad input or a broken rule: worth a line in the log.
    Fault(String),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Ended::Quietly
    }
}

/// Whether the task can take another frame.
#[derive(Debug, PartialEq)]
enum Step {
    /// A frame was handled.
    Handled,
    /// More bytes are needed.
    Incomplete,
    /// The next frame waits until earlier requests are answered.
    Blocked,
    /// Nothing is taken at present.
    Held,
}

pub(super) struct ConnTask<'a> {
    pub(super) shared: &'a Shared,
    pub(super) conn: &'a Arc<Conn>,
    secure: Option<Secure>,
    input: BytesMut,
    /// Being written; taken from the connection's output as a whole.
    writing: BytesMut,
    /// The handshake has been queued.
    greeted: bool,
    /// Nothing more is read: the client closes its session.
    pub(super) closing: bool,
    /// A SASL challenge waits for its response.
    pub(super) sasl: Option<Exchange>,
    arrived_us: u64,
    /// Bytes that the last answer made here left to be sent.
    unsent: usize,
}

pub(crate) async fn serve(
    shared: Arc<Shared>,
    conn: Arc<Conn>,
    stream: TcpStream,
    secure: Option<Secure>,
) {
    let mut task = ConnTask {
        secure,
        shared: &shared,
        conn: &conn,
        input: BytesMut::new(),
        writing: BytesMut::new(),
        greeted: false,
        closing: false,
        sasl: None,
        arrived_us: 0,
        unsent: 0,
    };
    let ended = task.run(&stream).await;
    if let Some(secure) = &mut task.secure {
        secure.close(&stream);
    }
    drain(&stream);
    if let Err(Ended::Fault(reason)) = ended {
        tracing::warn!(
            "connection of {} (session 0x{:x}) closed: {reason}",
            conn.peer,
            conn.session()
        );
    }
    conn.close(false);
    if conn.parked.load(SeqCst) {
        // What it sent is done all the same.
        shared.queue.poke();
    }
    shared.metrics.connection_drop_count.fetch_add(1, Relaxed);
    shared.conns.lock().remove(&conn.id);
    shared.watches.lock().remove_conn(conn.id);
    let session = conn.session();
    if session != 0 {
        shared.sessions.lock().detach(session, conn.id);
    }
}

impl ConnTask<'_> {
    async fn run(&mut self, stream: &TcpStream) -> Result<(), Ended> {
        let mut deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        let mut ending = false;
        loop {
            let step = self.handle_input()?;
            self.flush(stream)?;
            let end = self.conn.out.lock().end;
            if end == End::Overrun {
                return Err(Ended::Fault(format!(
                    "it left more than {MAX_UNSENT} bytes of events unread"
                )));
            }
            let unsent = self.has_unsent();
            if end == End::Now || (end == End::AfterFlush && !unsent) {
                return Ok(());
            }
            if end == End::AfterFlush && !ending {
                ending = true;
                deadline = Instant::now() + LAST_ANSWER_TIMEOUT;
            }
            // Writing may have made room for more answers.
            if step == Step::Handled || (step == Step::Held && !self.is_held()) {
                continue;
            }
            let read = step == Step::Incomplete && !self.closing;
            let interest = match (read, unsent) {
                (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
                (true, false) => Some(Interest::READABLE),
                (false, true) => Some(Interest::WRITABLE),
                (false, false) => None,
            };
            let ready = async {
                match interest {
                    Some(interest) => stream.ready(interest).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ready = ready => {
                    if ready?.is_readable() && read {
                        self.read(stream)?;
                    }
                }
                () = self.conn.wake.notified() => {}
                () = sleep_until(deadline), if ending => {
                    return Err(Ended::Fault(format!("it did not take its last answer within {} s", LAST_ANSWER_TIMEOUT.as_secs())));
                }
                () = sleep_until(deadline), if !ending && self.conn.session() == 0 => {
                    self.shared.metrics.sessionless_connections_expired.fetch_add(1, Relaxed);
                    return Err(Ended::Fault(format!("no session was asked for within {} s", HANDSHAKE_TIMEOUT.as_secs())));
                }
            }
        }
    }

    fn read(&mut self, stream: &TcpStream) -> Result<(), Ended> {
        let arrived = match &mut self.secure {
            None => {
                self.input.reserve(READ_STEP);
                stream.try_read_buf(&mut self.input)
            }
            Some(secure) => {
                let arrived = secure.read(stream, &mut self.input);
                if arrived.is_ok()
                    && let Some(subject) = secure.take_subject()
                {
                    self.is_shown(&subject);
                }
                arrived
            }
        };
        match arrived {
            Ok(0) => Err(Ended::Quietly),
            Ok(read) => {
                self.shared
                    .metrics
                    .bytes_received
                    .fetch_add(read as u64, Relaxed);
                self.arrived_us = self.shared.clock.now_us();
                if let Some(heard) = self.conn.last_heard.get() {
                    heard.store((self.arrived_us / 1000) as i64, Relaxed);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Ended::Fault(format!("TLS: {error}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// There is something that the socket has not taken yet.
    fn has_unsent(&self) -> bool {
        !self.writing.is_empty() || self.secure.as_ref().is_some_and(Secure::has_unsent)
    }

    /// Writes what is to be sent as far as the socket takes it.
    fn flush(&mut self, stream: &TcpStream) -> Result<(), Ended> {
        loop {
            if self.writing.is_empty() {
                if self.writing.capacity() > KEEP_BUFFER {
                    self.writing = BytesMut::new();
                }
                let mut out = self.conn.out.lock();
                self.unsent = 0;
                if out.buf.is_empty() {
                    drop(out);
                    if let Some(secure) = &mut self.secure
                        && let Err(error) = secure.flush(stream)
                        && error.kind() != io::ErrorKind::WouldBlock
                    {
                        return Err(error.into());
                    }
                    if self.conn.parked.load(SeqCst) {
                        self.shared.queue.poke();
                    }
                    return Ok(());
                }
                std::mem::swap(&mut self.writing, &mut out.buf);
                let packets = std::mem::take(&mut out.packets);
                drop(out);
                self.conn.stats.sent.fetch_add(packets, Relaxed);
                let metrics = &self.shared.metrics;
                metrics.packets_sent.fetch_add(packets, Relaxed);
                metrics
                    .response_bytes
                    .fetch_add(self.writing.len() as u64, Relaxed);
                metrics.answered((self.writing.len() as u64 / packets.max(1)) as i64);
            }
            let written = match &mut self.secure {
                None => stream.try_write(&self.writing),
                Some(secure) => secure.write(stream, &self.writing),
            };
            match written {
                Ok(0) => return Err(Ended::Quietly),
                Ok(written) => self.writing.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Handles all whole frames that may be handled now.
    fn handle_input(&mut self) -> Result<Step, Ended> {
        loop {
            if self.is_held() {
                return Ok(Step::Held);
            }
            match self.handle_frame()? {
                // Large answers are sent before more are made.
                Step::Handled if self.unsent > MAX_BACKLOG => return Ok(Step::Handled),
                Step::Handled => {}
                other => {
                    if self.input.is_empty() {
                        self.input = BytesMut::new();
                    }
                    return Ok(other);
                }
            }
        }
    }

    /// The handshake is open, the client does not read its answers, or too much is in process.
    fn is_held(&self) -> bool {
        if self.closing || (self.greeted && self.conn.session() == 0) {
            return true;
        }
        if self.writing.len() + self.unsent > MAX_BACKLOG {
            return true;
        }
        let held = self.conn.pending.load(SeqCst) > 0
            && (self.conn.is_full() || self.shared.is_overloaded());
        if held {
            self.shared
                .metrics
                .request_throttle_wait_count
                .fetch_add(1, Relaxed);
        }
        held
    }

    fn handle_frame(&mut self) -> Result<Step, Ended> {
        let Some(mut prefix) = self.input.get(..4) else {
            return Ok(Step::Incomplete);
        };
        if !self.greeted
            && let Some(length) = fourletter::question_len(prefix)
        {
            let Some(question) = self.input.get(..length) else {
                return Ok(Step::Incomplete);
            };
            self.shared.metrics.packets_received.fetch_add(1, Relaxed);
            self.conn.stats.received.fetch_add(1, Relaxed);
            let answer = fourletter::answer(self.shared, self.conn, question);
            self.conn
                .out
                .lock()
                .buf
                .extend_from_slice(answer.as_bytes());
            self.closing = true;
            self.conn.close(true);
            return Ok(Step::Handled);
        }
        let length = prefix.get_i32();
        let max = self.shared.config.max_buffer;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= max) else {
            self.shared
                .metrics
                .large_requests_rejected
                .fetch_add(1, Relaxed);
            return Err(Ended::Fault(format!(
                "it announces a request of {length} bytes; 0 to {max} are allowed (jute.maxbuffer). It may not speak ZooKeeper's protocol, or may speak TLS"
            )));
        };
        if self.input.len() < 4 + length {
            return Ok(Step::Incomplete);
        }
        if !self.greeted {
            let frame = self.take_frame(length);
            return self.handshake(frame);
        }
        self.request(length)
    }

    fn take_frame(&mut self, length: usize) -> Bytes {
        self.input.advance(4);
        self.input.split_to(length).freeze()
    }

    fn count_received(&self) {
        self.shared.metrics.packets_received.fetch_add(1, Relaxed);
        self.conn.stats.received.fetch_add(1, Relaxed);
    }

    fn handshake(&mut self, frame: Bytes) -> Result<Step, Ended> {
        self.count_received();
        let length = frame.len();
        let request = ConnectRequest::from_bytes(frame).map_err(|error| {
            Ended::Fault(format!(
                "its first {length} bytes are no request for a session: {error}"
            ))
        })?;
        self.shared
            .metrics
            .connection_request_count
            .fetch_add(1, Relaxed);
        let last_zxid = self.shared.tree.read().last_zxid();
        if request.last_zxid_seen > last_zxid {
            return Err(Ended::Fault(format!(
                "it has seen zxid 0x{:x}, this server knows up to 0x{last_zxid:x}. The client comes from another server, or this one has lost data; it will try its other servers",
                request.last_zxid_seen
            )));
        }
        self.greeted = true;
        self.queue(0, 0, length, Task::Connect(request));
        Ok(Step::Handled)
    }

    fn queue(&self, xid: i32, op: i32, size: usize, task: Task) {
        self.conn.note_queued(size);
        self.shared.queue.push(Job {
            conn: Some(self.conn.clone()),
            session: self.conn.session(),
            xid,
            op,
            task,
            arrived_us: self.arrived_us,
            size,
        });
    }

    fn request(&mut self, length: usize) -> Result<Step, Ended> {
        let header = self.input.get(4..12);
        let Some(mut header) = header.filter(|_| length >= 8) else {
            return Err(Ended::Fault(format!(
                "a request of {length} bytes is too short for its header"
            )));
        };
        let (xid, code) = (header.get_i32(), header.get_i32());
        let busy = self.conn.pending.load(SeqCst) > 0;
        let op = OpCode::from_code(code);
        match op {
            // Its effect must lie between the requests before and after it.
            Some(OpCode::Auth | OpCode::Sasl) if busy => return Ok(Step::Blocked),
            Some(OpCode::CreateSession) => {
                return Err(Ended::Fault(
                    "it sends createSession, which is the server's own operation".into(),
                ));
            }
            Some(OpCode::Auth | OpCode::Sasl) => {}
            _ if !self.is_let_in(xid) => {
                self.count_received();
                self.input.advance(4 + length);
                return Ok(Step::Handled);
            }
            Some(op) if read::is_read(op) && !busy => {
                self.count_received();
                self.answer(xid, op, length);
                self.input.advance(4 + length);
                return Ok(Step::Handled);
            }
            _ => {}
        }
        self.count_received();
        let mut body = self.take_frame(length);
        body.advance(8);
        match op {
            Some(OpCode::Auth) => self.auth(xid, body),
            Some(OpCode::Sasl) => self.sasl(xid, body),
            Some(op) if read::is_read(op) => self.queue(xid, code, length, Task::Read(op, body)),
            Some(op) => {
                let task = decode_write(op, body);
                self.closing =
                    matches!(task, Task::Write(Write::CloseSession) | Task::Unimplemented);
                self.queue(xid, code, length, task);
            }
            None => {
                self.closing = true;
                self.queue(xid, code, length, Task::Unimplemented);
            }
        }
        Ok(Step::Handled)
    }

    /// Answers a read from the tree as it is.
    fn answer(&mut self, xid: i32, op: OpCode, length: usize) {
        let body = self.input.get(12..4 + length).unwrap_or_default();
        let zxid;
        {
            let tree = self.shared.tree.read();
            zxid = tree.last_zxid();
            let Some(mut out) = self.conn.open_out() else {
                return;
            };
            self.shared
                .reading(&tree)
                .answer(self.conn, &mut out, xid, op, body);
            self.unsent = out.buf.len();
        }
        let metrics = &self.shared.metrics;
        metrics.latency.record_us(0);
        if op != OpCode::Ping {
            metrics.readlatency.record_us(0);
        }
        self.conn
            .answered(op.code(), xid, zxid, (self.arrived_us / 1000) as i64, 0);
    }
}

/// A connection without a socket, for [`crate::stepped`].
pub(crate) struct Unwired {
    pub conn: Arc<Conn>,
    input: BytesMut,
    greeted: bool,
    closing: bool,
}

impl Unwired {
    pub fn new(conn: Arc<Conn>) -> Self {
        Unwired {
            conn,
            input: BytesMut::new(),
            greeted: false,
            closing: false,
        }
    }

    /// Takes bytes in and handles every frame that may be handled now; false when the connection has to end.
    pub fn receive(&mut self, shared: &Shared, bytes: &[u8]) -> bool {
        let mut task = ConnTask {
            secure: None,
            shared,
            conn: &self.conn,
            input: std::mem::take(&mut self.input),
            writing: BytesMut::new(),
            greeted: self.greeted,
            closing: self.closing,
            sasl: None,
            arrived_us: shared.clock.now_us(),
            unsent: 0,
        };
        task.input.extend_from_slice(bytes);
        if !bytes.is_empty()
            && let Some(heard) = task.conn.last_heard.get()
        {
            heard.store((task.arrived_us / 1000) as i64, Relaxed);
        }
        let handled = task.handle_input();
        (self.greeted, self.closing) = (task.greeted, task.closing);
        self.input = task.input;
        handled.is_ok()
    }
}

/// Drops what the client sent behind its last request: unread, it would make the kernel reset the connection before the answer arrives.
fn drain(stream: &TcpStream) {
    let mut rest = [0; 4096];
    for _ in 0..MAX_DRAINED {
        if !matches!(stream.try_read(&mut rest), Ok(read) if read > 0) {
            return;
        }
    }
}
