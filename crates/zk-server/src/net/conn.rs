//! A connection as the rest of the server sees it: what is to be sent, who it is, whether it waits.

use crate::acl::Identity;
use crate::metrics::Summary;
use crate::session::LastHeard;
use crate::watch::ConnId;
use bytes::{BufMut, BytesMut};
use gracchus_zk_proto::{Jute, ReplyHeader, ZkError};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// A connection with more than this to send is not read, and nothing that it asked for is worked on.
pub(crate) const MAX_BACKLOG: usize = 1 << 20;
/// Events can't be held back: a client that leaves as much unread is cut off.
pub(crate) const MAX_UNSENT: usize = 64 << 20;
/// A connection whose requests that wait for the committer take more memory is not read.
const MAX_PENDING_BYTES: usize = 4 << 20;
/// Of a waiting request, beside its own bytes.
const PENDING_OVERHEAD: usize = 256;

/// What becomes of a connection when its output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    AfterFlush,
    Now,
    /// At once, because the client does not read what it is sent.
    Overrun,
}

impl End {
    pub fn is_immediate(self) -> bool {
        matches!(self, End::Now | End::Overrun)
    }
}

#[derive(Debug)]
pub(crate) struct Out {
    pub buf: BytesMut,
    pub end: End,
    /// Replies and events in `buf` since it was taken last.
    pub packets: u64,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub id: ConnId,
    pub peer: SocketAddr,
    pub out: Mutex<Out>,
    pub wake: Notify,
    /// Someone will wake the task anyway.
    wake_due: AtomicBool,
    /// Requests queued for the committer and not answered.
    pub pending: AtomicU32,
    pending_bytes: AtomicUsize,
    /// Requests of this connection wait until it has room for their answers.
    pub parked: AtomicBool,
    /// 0 until the handshake is done.
    pub session: AtomicI64,
    pub timeout_ms: AtomicI32,
    pub last_heard: OnceLock<LastHeard>,
    identity: RwLock<Arc<Identity>>,
    pub stats: ConnStats,
}

/// For cons and stat.
#[derive(Debug, Default)]
pub(crate) struct ConnStats {
    pub received: AtomicU64,
    pub sent: AtomicU64,
    /// Wall clock, ms.
    pub established_ms: i64,
    pub last_op: AtomicI32,
    pub last_xid: AtomicI32,
    pub last_zxid: AtomicI64,
    pub last_response_ms: AtomicI64,
    pub last_latency_ms: AtomicI64,
    pub latency: Summary,
}

impl Conn {
    pub fn new(id: ConnId, peer: SocketAddr, established_ms: i64) -> Self {
        Conn {
            id,
            peer,
            out: Mutex::new(Out {
                buf: BytesMut::new(),
                end: End::Open,
                packets: 0,
            }),
            wake: Notify::new(),
            wake_due: AtomicBool::new(false),
            pending: AtomicU32::new(0),
            pending_bytes: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            session: AtomicI64::new(0),
            timeout_ms: AtomicI32::new(0),
            last_heard: OnceLock::new(),
            identity: RwLock::new(Arc::new(Identity::new(peer.ip()))),
            stats: ConnStats {
                established_ms,
                ..ConnStats::default()
            },
        }
    }

    pub fn session(&self) -> i64 {
        self.session.load(Ordering::Relaxed)
    }

    pub fn identity(&self) -> Arc<Identity> {
        self.identity.read().clone()
    }

    /// False if the connection has too many ids.
    pub fn add_id(&self, scheme: &str, id: &str) -> bool {
        let mut guard = self.identity.write();
        let mut identity = (**guard).clone();
        let added = identity.add(scheme, id);
        *guard = Arc::new(identity);
        added
    }

    /// The output, unless the connection is gone.
    pub fn open_out(&self) -> Option<MutexGuard<'_, Out>> {
        let out = self.out.lock();
        (!out.end.is_immediate()).then_some(out)
    }

    /// Ends the connection, at once or after what it has still to send.
    pub fn close(&self, after_flush: bool) {
        {
            let mut out = self.out.lock();
            if out.end.is_immediate() {
                // Stays as it is.
            } else if !after_flush {
                out.end = End::Now;
                out.buf = BytesMut::new();
            } else {
                out.end = End::AfterFlush;
            }
        }
        self.wake.notify_one();
    }

    /// A request of `size` bytes goes to the committer.
    pub fn note_queued(&self, size: usize) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.pending_bytes
            .fetch_add(size + PENDING_OVERHEAD, Ordering::Relaxed);
    }

    /// And is done.
    pub fn note_done(&self, size: usize) {
        self.pending_bytes
            .fetch_sub(size + PENDING_OVERHEAD, Ordering::Relaxed);
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    /// No more requests are taken in until some are answered, and the answers read.
    pub fn is_full(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
            || self.pending_bytes.load(Ordering::Relaxed) > MAX_PENDING_BYTES
            || self.out.lock().buf.len() > MAX_BACKLOG
    }

    /// How much more may be prepared for sending; `None` if the connection is gone.
    pub fn room(&self) -> Option<usize> {
        let out = self.open_out()?;
        Some(MAX_BACKLOG.saturating_sub(out.buf.len()))
    }

    /// True for the first who must wake the task.
    pub fn mark_wake(&self) -> bool {
        !self.wake_due.swap(true, Ordering::AcqRel)
    }

    pub fn wake_marked(&self) {
        self.wake_due.store(false, Ordering::Release);
        self.wake.notify_one();
    }

    /// Notes an answered request.
    pub fn answered(&self, op: i32, xid: i32, zxid: i64, now_ms: i64, latency_us: u64) {
        let stats = &self.stats;
        stats.last_op.store(op, Ordering::Relaxed);
        stats.last_xid.store(xid, Ordering::Relaxed);
        stats.last_zxid.store(zxid, Ordering::Relaxed);
        stats.last_response_ms.store(now_ms, Ordering::Relaxed);
        stats
            .last_latency_ms
            .store((latency_us / 1000) as i64, Ordering::Relaxed);
        stats.latency.record_us(latency_us);
    }
}

impl Out {
    /// Whether more may be added; a client that does not read is cut off.
    fn has_room(&mut self) -> bool {
        if self.buf.len() > MAX_UNSENT && !self.end.is_immediate() {
            self.end = End::Overrun;
            self.buf = BytesMut::new();
        }
        !self.end.is_immediate()
    }

    /// Appends an event.
    pub fn event(&mut self, frame: &[u8]) {
        if self.has_room() {
            self.buf.put_slice(frame);
            self.packets += 1;
        }
    }

    /// Appends a reply; the body is written only if `fill` succeeds.
    pub fn reply(
        &mut self,
        xid: i32,
        zxid: i64,
        fill: impl FnOnce(&mut BytesMut) -> Result<(), ZkError>,
    ) {
        if !self.has_room() {
            return;
        }
        let start = self.buf.len();
        self.buf.put_i32(0);
        ReplyHeader { xid, zxid, err: 0 }.write(&mut self.buf);
        if let Err(error) = fill(&mut self.buf) {
            self.buf.truncate(start + 4);
            let header = ReplyHeader {
                xid,
                zxid,
                err: error.code(),
            };
            header.write(&mut self.buf);
        }
        self.patch_length(start);
        self.packets += 1;
    }

    /// Appends a refusal that has a record behind its header all the same.
    pub fn refuse_with(&mut self, xid: i32, error: ZkError, record: &impl Jute) {
        let start = self.buf.len();
        self.buf.put_i32(0);
        let err = error.code();
        ReplyHeader { xid, zxid: 0, err }.write(&mut self.buf);
        record.write(&mut self.buf);
        self.patch_length(start);
        self.packets += 1;
    }

    /// Appends a frame without a reply header.
    pub fn frame(&mut self, record: &impl Jute) {
        let start = self.buf.len();
        self.buf.put_i32(0);
        record.write(&mut self.buf);
        self.patch_length(start);
        self.packets += 1;
    }

    fn patch_length(&mut self, start: usize) {
        let length = (self.buf.len() - start - 4) as i32;
        if let Some(mut prefix) = self.buf.get_mut(start..start + 4) {
            prefix.put_i32(length);
        }
    }
}
