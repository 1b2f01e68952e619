//! What a session tells its owner unasked, in one ordered queue.

use gracchus_zk_proto::EventType;
use tokio::sync::mpsc;

/// The life of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Connected or re-attached; `new` when the server made a new session.
    Connected { session_id: i64, new: bool },
    /// The connection is gone; the session may live on.
    Disconnected,
    /// Nothing was heard for a whole session timeout: by our own clock the server may have ended the session. The client
    /// goes on trying to re-attach.
    Overdue,
    /// The server said that the session is over. Its ephemerals are gone; `reopen` starts another.
    Expired,
    /// The server refused our credentials.
    AuthFailed,
    /// Closed by us.
    Closed,
}

/// A watch that fired; the path is as callers know it (without the chroot).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    pub kind: EventType,
    pub path: String,
    /// Of the change; -1 when it was found at a reconnect.
    pub zxid: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkEvent {
    Watch(WatchEvent),
    Session(SessionState),
}

/// The queue's end. One-shot watches bound it: there are never more events than watches were set.
pub type EventReceiver = mpsc::UnboundedReceiver<ZkEvent>;
