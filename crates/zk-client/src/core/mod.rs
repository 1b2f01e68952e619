//! A session as a state machine without I/O: what to send for a request, what a frame means, what a cut leaves behind.

mod login;
mod queue;
mod watches;

use crate::config::ZkConfig;
use crate::event::{SessionState, WatchEvent, ZkEvent};
use crate::op::{Op, Reply, relative};
use bytes::{BufMut, Bytes, BytesMut};
use gracchus_security::digest_md5::Credentials;
use gracchus_zk_proto::jute::{Jute, JuteError, Reader};
use gracchus_zk_proto::request::AuthRequest;
use gracchus_zk_proto::{
    ConnectRequest, ConnectResponse, OpCode, ReplyHeader, RequestHeader, WatcherEvent, ZkError, xid,
};
use login::Login;
pub use login::LoginFailure;
use queue::Queue;
use std::collections::VecDeque;
use std::time::Duration;
use watches::Watches;

/// Bytes of requests that one step may prepare for sending.
pub(crate) const MAX_FILLED: usize = 1 << 20;

/// What the core asks its shell to do, in order.
#[derive(Debug)]
pub enum Output<T> {
    /// Complete this request.
    Answer(T, Reply),
    Event(ZkEvent),
    /// The handshake is done; `timeout_ms` is the negotiated one.
    Established {
        timeout_ms: i32,
    },
    /// The server does not take our word for who we are; the connection is of no more use.
    Refused(LoginFailure),
    /// The session is over; the connection is of no more use.
    SessionEnded,
}

/// A frame that no sane server sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the server sent a record that can't be decoded: {0}")]
    Decode(#[from] JuteError),
    #[error("the server answered request {got} while {expected} was the oldest open one")]
    OutOfOrder { got: i32, expected: i32 },
    #[error("the server answered request {0}, but none is open")]
    Unasked(i32),
}

enum Waiting<T> {
    Caller {
        xid: i32,
        op: Op,
        done: T,
    },
    /// setWatches2 and auth after a re-attachment: nobody waits.
    Own {
        xid: i32,
        is_auth: bool,
    },
}

impl<T> Waiting<T> {
    fn xid(&self) -> i32 {
        match self {
            Waiting::Caller { xid, .. } | Waiting::Own { xid, .. } => *xid,
        }
    }
}

/// How far the present connection is.
enum Stage {
    /// There is none, or it waits for the server's first answer.
    Opening,
    LoggingIn(Login),
    Established,
}

/// The session. `T` is what the shell completes a request with.
pub struct SessionCore<T> {
    chroot: String,
    auth: Vec<(String, Bytes)>,
    wanted_timeout_ms: i32,
    max_in_flight: usize,
    session_id: i64,
    password: Bytes,
    /// The session that the owner knows of.
    told: i64,
    last_zxid: i64,
    next_xid: i32,
    credentials: Option<Credentials>,
    /// The client's part of the next login, random.
    nonce: u128,
    stage: Stage,
    queued: Queue<T>,
    in_flight: VecDeque<Waiting<T>>,
    watches: Watches,
}

impl<T> SessionCore<T> {
    pub fn new(config: &ZkConfig) -> Self {
        let (session_id, password) = config.session.clone().unwrap_or((0, Bytes::new()));
        SessionCore {
            chroot: config.connect.chroot.clone(),
            auth: config.auth.clone(),
            wanted_timeout_ms: i32::try_from(config.session_timeout.as_millis())
                .unwrap_or(i32::MAX),
            max_in_flight: config.max_in_flight.max(1),
            session_id,
            password,
            told: session_id,
            last_zxid: 0,
            next_xid: 1,
            credentials: config.login.as_ref().map(|login| login.credentials.clone()),
            nonce: 0,
            stage: Stage::Opening,
            queued: Queue::default(),
            in_flight: VecDeque::new(),
            watches: Watches::default(),
        }
    }

    /// Id and password; 0 before the first connection and after an expiry.
    pub fn session(&self) -> (i64, Bytes) {
        (self.session_id, self.password.clone())
    }

    /// Requests may be sent.
    pub fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Established)
    }

    /// Nothing sent and nothing waiting to be.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.queued.is_empty()
    }

    /// Takes a request; [`SessionCore::fill`] sends it when its turn comes. How many may wait is the shell's to bound.
    pub fn request(&mut self, op: Op, done: T, now: Duration) {
        self.queued.push(op, done, now);
    }

    /// The handshake's first frame on a new connection; `nonce` is random.
    pub fn connect_frame(&mut self, nonce: u128) -> Bytes {
        self.nonce = nonce;
        framed(|out| {
            ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: self.last_zxid,
                timeout_ms: self.wanted_timeout_ms,
                session_id: self.session_id,
                password: Some(if self.password.is_empty() {
                    Bytes::from_static(&[0; 16])
                } else {
                    self.password.clone()
                }),
                read_only: Some(false),
            }
            .write(out);
        })
    }

    pub fn ping_frame(&self) -> Bytes {
        framed(|out| {
            RequestHeader {
                xid: xid::PING,
                op: OpCode::Ping.code(),
            }
            .write(out)
        })
    }

    pub fn close_frame(&mut self) -> Bytes {
        let xid = self.take_xid();
        self.in_flight.push_back(Waiting::Own {
            xid,
            is_auth: false,
        });
        framed(|out| {
            RequestHeader {
                xid,
                op: OpCode::CloseSession.code(),
            }
            .write(out)
        })
    }

    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
        xid
    }

    /// Appends frames for queued requests to `out`, as many as may be in flight, and not many bytes at once. Requests that
    /// can't be encoded are answered at once.
    pub fn fill(&mut self, out: &mut BytesMut, outputs: &mut Vec<Output<T>>) {
        if !self.is_established() {
            return;
        }
        while self.in_flight.len() < self.max_in_flight && out.len() < MAX_FILLED {
            let Some((op, done)) = self.queued.pop() else {
                return;
            };
            let xid = self.take_xid();
            let start = out.len();
            out.put_i32(0);
            let is_auth = matches!(op, Op::AddAuth { .. });
            RequestHeader {
                xid: if is_auth { xid::AUTH } else { xid },
                op: op.opcode().code(),
            }
            .write(out);
            if let Err(error) = op.encode(&self.chroot, out) {
                out.truncate(start);
                outputs.push(failed(done, error));
                continue;
            }
            patch_length(out, start);
            if let Op::AddAuth { scheme, auth } = &op {
                let auth = (scheme.clone(), auth.clone());
                if !self.auth.contains(&auth) {
                    self.auth.push(auth);
                }
            }
            let xid = if is_auth { xid::AUTH } else { xid };
            self.in_flight.push_back(Waiting::Caller { xid, op, done });
        }
    }

    /// One frame's body from the server.
    pub fn frame(
        &mut self,
        body: Bytes,
        out: &mut BytesMut,
        outputs: &mut Vec<Output<T>>,
    ) -> Result<(), FrameError> {
        if matches!(self.stage, Stage::Opening) {
            return self.handshake(body, out, outputs);
        }
        let mut r = Reader::new(body);
        let header = ReplyHeader::read(&mut r)?;
        match header.xid {
            xid::PING => return Ok(()),
            xid::NOTIFICATION => return self.notification(header.zxid, &mut r, outputs),
            _ => {}
        }
        // Not of an event: others of the same transaction may still be on their way, and setWatches with its zxid would
        // have the server arm their watches anew instead of telling.
        if header.zxid > 0 {
            self.last_zxid = self.last_zxid.max(header.zxid);
        }
        if matches!(self.stage, Stage::LoggingIn(_)) {
            return self.logging_in(header, &mut r, out, outputs);
        }
        let Some(waiting) = self.in_flight.pop_front() else {
            return Err(FrameError::Unasked(header.xid));
        };
        if waiting.xid() != header.xid {
            let expected = waiting.xid();
            self.in_flight.push_front(waiting);
            return Err(FrameError::OutOfOrder {
                got: header.xid,
                expected,
            });
        }
        let error = ZkError::from_code(header.err);
        match waiting {
            Waiting::Own { is_auth, .. } => {
                if is_auth && error.is_some() {
                    outputs.push(Output::Event(ZkEvent::Session(SessionState::AuthFailed)));
                }
            }
            Waiting::Caller { op, done, .. } => {
                if let (Op::AddAuth { scheme, auth }, Some(_)) = (&op, error) {
                    // refused: sent again on the next connection it would cut that one too
                    self.auth.retain(|(s, a)| (s, a) != (scheme, auth));
                }
                let result = match error {
                    None => Ok(op.decode(&self.chroot, &mut r)?),
                    Some(error) => Err(error),
                };
                self.watches.note(&self.chroot, &op, &result);
                outputs.push(Output::Answer(
                    done,
                    Reply {
                        zxid: header.zxid,
                        result,
                    },
                ));
            }
        }
        Ok(())
    }

    /// The header of an answer that is too large to be held: its request fails. Says which one that is.
    pub fn refuse_frame(
        &mut self,
        header: Bytes,
        outputs: &mut Vec<Output<T>>,
    ) -> Result<String, FrameError> {
        let header = ReplyHeader::from_bytes(header)?;
        let expected = self.in_flight.front().map(Waiting::xid);
        if !self.is_established() || expected != Some(header.xid) {
            return Err(FrameError::Unasked(header.xid));
        }
        self.last_zxid = self.last_zxid.max(header.zxid);
        Ok(match self.in_flight.pop_front() {
            Some(Waiting::Caller { op, done, .. }) => {
                outputs.push(failed(done, ZkError::MarshallingError));
                format!("{:?} of {}", op.opcode(), op.path())
            }
            _ => "a request of its own".into(),
        })
    }

    fn handshake(
        &mut self,
        body: Bytes,
        out: &mut BytesMut,
        outputs: &mut Vec<Output<T>>,
    ) -> Result<(), FrameError> {
        let answer = ConnectResponse::from_bytes(body)?;
        if answer.session_id == 0 || answer.timeout_ms <= 0 {
            self.expire(outputs);
            return Ok(());
        }
        self.session_id = answer.session_id;
        self.password = answer.password.unwrap_or_default();
        outputs.push(Output::Established {
            timeout_ms: answer.timeout_ms,
        });
        match self.credentials.is_some() {
            true => self.begin_login(out),
            false => self.ready(out, outputs),
        }
        Ok(())
    }

    /// The server knows who we are: requests may be sent, behind what belongs to the connection.
    fn ready(&mut self, out: &mut BytesMut, outputs: &mut Vec<Output<T>>) {
        self.stage = Stage::Established;
        let new = self.told != self.session_id;
        self.told = self.session_id;
        outputs.push(Output::Event(ZkEvent::Session(SessionState::Connected {
            session_id: self.session_id,
            new,
        })));
        for (scheme, auth) in self.auth.clone() {
            self.in_flight.push_back(Waiting::Own {
                xid: xid::AUTH,
                is_auth: true,
            });
            out.extend_from_slice(&framed(|out| {
                RequestHeader {
                    xid: xid::AUTH,
                    op: OpCode::Auth.code(),
                }
                .write(out);
                AuthRequest {
                    auth_type: 0,
                    scheme: Some(scheme),
                    auth: Some(auth),
                }
                .write(out);
            }));
        }
        if !new {
            self.send_watches(out);
        }
    }

    /// The watches that the cut connection had, for the server to arm or fire.
    fn send_watches(&mut self, out: &mut BytesMut) {
        for batch in self.watches.batches(self.last_zxid) {
            let xid = self.take_xid();
            self.in_flight.push_back(Waiting::Own {
                xid,
                is_auth: false,
            });
            out.extend_from_slice(&framed(|out| batch.write(xid, out)));
        }
    }

    fn notification(
        &mut self,
        zxid: i64,
        r: &mut Reader,
        outputs: &mut Vec<Output<T>>,
    ) -> Result<(), FrameError> {
        let event = WatcherEvent::read(r)?;
        let kind = event.kind()?;
        self.watches.fired(kind, &event.path);
        outputs.push(Output::Event(ZkEvent::Watch(WatchEvent {
            kind,
            path: relative(&self.chroot, &event.path),
            zxid,
        })));
        Ok(())
    }

    /// The connection broke: what was sent may or may not have taken effect. What was not sent yet stays queued.
    pub fn disconnected(&mut self, now: Duration, outputs: &mut Vec<Output<T>>) {
        let was = self.is_established();
        self.stage = Stage::Opening;
        fail_in_flight(&mut self.in_flight, ZkError::ConnectionLoss, outputs);
        if was {
            self.queued.offline_since(now);
            outputs.push(Output::Event(ZkEvent::Session(SessionState::Disconnected)));
        }
    }

    /// Fails each queued request that has waited longer than `patience` without a connection.
    pub fn time_out(&mut self, now: Duration, patience: Duration, outputs: &mut Vec<Output<T>>) {
        if self.is_established() {
            return;
        }
        while let Some(done) = self.queued.pop_overdue(now, patience) {
            outputs.push(failed(done, ZkError::ConnectionLoss));
        }
    }

    /// When [`SessionCore::time_out`] has something to do next.
    pub fn next_time_out(&self, patience: Duration) -> Option<Duration> {
        (!self.is_established())
            .then(|| self.queued.next_overdue(patience))
            .flatten()
    }

    /// Nothing was heard for a whole session timeout.
    pub fn overdue(&mut self, outputs: &mut Vec<Output<T>>) {
        outputs.push(Output::Event(ZkEvent::Session(SessionState::Overdue)));
    }

    /// The server ended the session: everything that belonged to it is void.
    fn expire(&mut self, outputs: &mut Vec<Output<T>>) {
        self.stage = Stage::Opening;
        self.session_id = 0;
        self.told = 0;
        self.password = Bytes::new();
        self.watches = Watches::default();
        self.fail_all(ZkError::SessionExpired, outputs);
        outputs.push(Output::Event(ZkEvent::Session(SessionState::Expired)));
        outputs.push(Output::SessionEnded);
    }

    /// Answers every open request with `error`.
    pub fn fail_all(&mut self, error: ZkError, outputs: &mut Vec<Output<T>>) {
        fail_in_flight(&mut self.in_flight, error, outputs);
        while let Some((_, done)) = self.queued.pop() {
            outputs.push(failed(done, error));
        }
    }
}

fn fail_in_flight<T>(
    in_flight: &mut VecDeque<Waiting<T>>,
    error: ZkError,
    outputs: &mut Vec<Output<T>>,
) {
    for waiting in in_flight.drain(..) {
        if let Waiting::Caller { done, .. } = waiting {
            outputs.push(failed(done, error));
        }
    }
}

fn failed<T>(done: T, error: ZkError) -> Output<T> {
    Output::Answer(done, Reply::failed(error))
}

fn patch_length(out: &mut BytesMut, start: usize) {
    let length = (out.len() - start - 4) as i32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// A frame with its length in front.
fn framed(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i32(0);
    write(&mut out);
    patch_length(&mut out, 0);
    out.freeze()
}
