//! A session as a state machine without I/O: what to send for a request, what a frame means, what a cut leaves behind.

use crate::config::ZkConfig;
use crate::event::{SessionState, WatchEvent, ZkEvent};
use crate::op::{Op, OpResult, Reply, relative};
use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_proto::jute::{Jute, JuteError, Reader};
use gracchus_zk_proto::request::{AuthRequest, SetWatches2Request, SetWatchesRequest};
use gracchus_zk_proto::{
    AddWatchMode, ConnectRequest, ConnectResponse, EventType, OpCode, ReplyHeader, RequestHeader,
    WatcherEvent, WatcherType, ZkError, xid,
};
use std::collections::{BTreeSet, VecDeque};

/// Most bytes of paths in one setWatches2, so that no server refuses the frame.
const SET_WATCHES_CHUNK: usize = 128 * 1024;

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

/// Watches armed on the server for this session, by absolute path; sent again after a re-attachment.
#[derive(Debug, Default)]
struct Watches {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

/// The session. `T` is what the shell completes a request with.
pub struct SessionCore<T> {
    chroot: String,
    auth: Vec<(String, Bytes)>,
    wanted_timeout_ms: i32,
    max_in_flight: usize,
    session_id: i64,
    password: Bytes,
    last_zxid: i64,
    next_xid: i32,
    established: bool,
    queued: VecDeque<(Op, T)>,
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
            last_zxid: 0,
            next_xid: 1,
            established: false,
            queued: VecDeque::new(),
            in_flight: VecDeque::new(),
            watches: Watches::default(),
        }
    }

    /// Id and password; 0 before the first connection and after an expiry.
    pub fn session(&self) -> (i64, Bytes) {
        (self.session_id, self.password.clone())
    }

    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Nothing sent and nothing waiting to be.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.queued.is_empty()
    }

    /// Takes a request; [`SessionCore::fill`] sends it when its turn comes.
    pub fn request(&mut self, op: Op, done: T) {
        self.queued.push_back((op, done));
    }

    /// The handshake's first frame on a new connection.
    pub fn connect_frame(&self) -> Bytes {
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

    /// Appends frames for queued requests to `out`, as many as may be in flight. Requests that can't be encoded are
    /// answered at once.
    pub fn fill(&mut self, out: &mut BytesMut, outputs: &mut Vec<Output<T>>) {
        if !self.established {
            return;
        }
        while self.in_flight.len() < self.max_in_flight {
            let Some((op, done)) = self.queued.pop_front() else {
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
                outputs.push(Output::Answer(
                    done,
                    Reply {
                        zxid: 0,
                        result: Err(error),
                    },
                ));
                continue;
            }
            patch_length(out, start);
            if let Op::AddAuth { scheme, auth } = &op {
                self.auth.push((scheme.clone(), auth.clone()));
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
        if !self.established {
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
                self.note_watch(&op, &result);
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
        let new = answer.session_id != self.session_id;
        self.session_id = answer.session_id;
        self.password = answer.password.unwrap_or_default();
        self.established = true;
        outputs.push(Output::Established {
            timeout_ms: answer.timeout_ms,
        });
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
        Ok(())
    }

    /// The watches that the cut connection had, for the server to arm or fire.
    fn send_watches(&mut self, out: &mut BytesMut) {
        let empty = SetWatches2Request {
            relative_zxid: self.last_zxid,
            ..Default::default()
        };
        let mut batch = empty.clone();
        let mut size = 0;
        let mut batches = Vec::new();
        let w = &self.watches;
        let all = [
            (0, &w.data),
            (1, &w.exist),
            (2, &w.child),
            (3, &w.persistent),
            (4, &w.recursive),
        ];
        for (kind, path) in all
            .iter()
            .flat_map(|(kind, set)| set.iter().map(|path| (*kind, path)))
        {
            if size + path.len() > SET_WATCHES_CHUNK {
                batches.push(std::mem::replace(&mut batch, empty.clone()));
                size = 0;
            }
            size += path.len() + 4;
            match kind {
                0 => &mut batch.data,
                1 => &mut batch.exist,
                2 => &mut batch.child,
                3 => &mut batch.persistent,
                _ => &mut batch.persistent_recursive,
            }
            .push(path.clone());
        }
        if size > 0 {
            batches.push(batch);
        }
        for batch in batches {
            let xid = self.take_xid();
            self.in_flight.push_back(Waiting::Own {
                xid,
                is_auth: false,
            });
            // servers before 3.6 know setWatches only, and no persistent watches
            let old = batch.persistent.is_empty() && batch.persistent_recursive.is_empty();
            let op = if old {
                OpCode::SetWatches
            } else {
                OpCode::SetWatches2
            };
            out.extend_from_slice(&framed(|out| {
                RequestHeader { xid, op: op.code() }.write(out);
                if old {
                    SetWatchesRequest {
                        relative_zxid: batch.relative_zxid,
                        data: batch.data,
                        exist: batch.exist,
                        child: batch.child,
                    }
                    .write(out);
                } else {
                    batch.write(out);
                }
            }));
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
        let w = &mut self.watches;
        match kind {
            EventType::Created | EventType::DataChanged => {
                w.data.remove(&event.path);
                w.exist.remove(&event.path);
            }
            EventType::Deleted => {
                w.data.remove(&event.path);
                w.exist.remove(&event.path);
                w.child.remove(&event.path);
            }
            EventType::ChildrenChanged => {
                w.child.remove(&event.path);
            }
        }
        outputs.push(Output::Event(ZkEvent::Watch(WatchEvent {
            kind,
            path: relative(&self.chroot, &event.path),
            zxid,
        })));
        Ok(())
    }

    /// Remembers a watch that the server armed with this reply.
    fn note_watch(&mut self, op: &Op, result: &Result<OpResult, ZkError>) {
        let at = |path: &String| crate::op::absolute(&self.chroot, path);
        let w = &mut self.watches;
        match (op, result) {
            (Op::GetData { path, watch: true } | Op::Exists { path, watch: true }, Ok(_)) => {
                w.data.insert(at(path));
            }
            (Op::Exists { path, watch: true }, Err(ZkError::NoNode)) => {
                w.exist.insert(at(path));
            }
            (Op::GetChildren { path, watch: true }, Ok(_)) => {
                w.child.insert(at(path));
            }
            (Op::AddWatch { path, mode }, Ok(_)) => {
                match mode {
                    AddWatchMode::Persistent => w.persistent.insert(at(path)),
                    AddWatchMode::PersistentRecursive => w.recursive.insert(at(path)),
                };
            }
            (Op::RemoveWatches { path, kind }, Ok(_)) => {
                let path = at(path);
                if matches!(kind, WatcherType::Data | WatcherType::Any) {
                    w.data.remove(&path);
                    w.exist.remove(&path);
                }
                if matches!(kind, WatcherType::Children | WatcherType::Any) {
                    w.child.remove(&path);
                }
                if matches!(kind, WatcherType::Persistent | WatcherType::Any) {
                    w.persistent.remove(&path);
                }
                if matches!(kind, WatcherType::PersistentRecursive | WatcherType::Any) {
                    w.recursive.remove(&path);
                }
            }
            _ => {}
        }
    }

    /// The connection broke: what was sent may or may not have taken effect. What was not sent yet stays queued.
    pub fn disconnected(&mut self, outputs: &mut Vec<Output<T>>) {
        let was = std::mem::replace(&mut self.established, false);
        fail_in_flight(&mut self.in_flight, ZkError::ConnectionLoss, outputs);
        if was {
            outputs.push(Output::Event(ZkEvent::Session(SessionState::Disconnected)));
        }
    }

    /// Queued requests have waited for a whole session timeout without a connection.
    pub fn overdue(&mut self, outputs: &mut Vec<Output<T>>) {
        fail_queued(&mut self.queued, ZkError::ConnectionLoss, outputs);
        outputs.push(Output::Event(ZkEvent::Session(SessionState::Overdue)));
    }

    /// The server ended the session: everything that belonged to it is void.
    fn expire(&mut self, outputs: &mut Vec<Output<T>>) {
        self.established = false;
        self.session_id = 0;
        self.password = Bytes::new();
        self.watches = Watches::default();
        self.fail_all(ZkError::SessionExpired, outputs);
        outputs.push(Output::Event(ZkEvent::Session(SessionState::Expired)));
        outputs.push(Output::SessionEnded);
    }

    /// Answers every open request with `error`.
    pub fn fail_all(&mut self, error: ZkError, outputs: &mut Vec<Output<T>>) {
        fail_in_flight(&mut self.in_flight, error, outputs);
        fail_queued(&mut self.queued, error, outputs);
    }
}

fn fail_in_flight<T>(
    in_flight: &mut VecDeque<Waiting<T>>,
    error: ZkError,
    outputs: &mut Vec<Output<T>>,
) {
    for waiting in in_flight.drain(..) {
        if let Waiting::Caller { done, .. } = waiting {
            outputs.push(Output::Answer(
                done,
                Reply {
                    zxid: 0,
                    result: Err(error),
                },
            ));
        }
    }
}

fn fail_queued<T>(queued: &mut VecDeque<(Op, T)>, error: ZkError, outputs: &mut Vec<Output<T>>) {
    for (_, done) in queued.drain(..) {
        outputs.push(Output::Answer(
            done,
            Reply {
                zxid: 0,
                result: Err(error),
            },
        ));
    }
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
