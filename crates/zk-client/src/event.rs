//! What a session tells its owner unasked, in one ordered queue.

use gracchus_zk_proto::EventType;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{self, error::TryRecvError};

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
    /// The server refused our credentials; [`crate::ZkClient::auth_failure`] says why. The client tries again.
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

/// Events that their owner may leave untaken. Beyond it the session lets go of its connection until half of them are taken:
/// the server keeps what happens to the watches meanwhile.
pub(crate) const MAX_EVENTS: usize = 1 << 18;

/// The queue's end that the session's owner holds.
#[derive(Debug)]
pub struct EventReceiver {
    events: mpsc::UnboundedReceiver<ZkEvent>,
    untaken: Arc<AtomicUsize>,
}

/// The end that the session's task holds. Its length is looked at before more is read, since a session's own events (few) must
/// get through.
#[derive(Debug)]
pub(crate) struct EventSender {
    events: mpsc::UnboundedSender<ZkEvent>,
    untaken: Arc<AtomicUsize>,
}

pub(crate) fn queue() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let untaken = Arc::new(AtomicUsize::new(0));
    (
        EventSender {
            events: sender,
            untaken: untaken.clone(),
        },
        EventReceiver {
            events: receiver,
            untaken,
        },
    )
}

impl EventReceiver {
    /// The next event; `None` when the session is over for good.
    pub async fn recv(&mut self) -> Option<ZkEvent> {
        let event = self.events.recv().await?;
        self.untaken.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }

    pub fn try_recv(&mut self) -> Result<ZkEvent, TryRecvError> {
        let event = self.events.try_recv()?;
        self.untaken.fetch_sub(1, Ordering::Relaxed);
        Ok(event)
    }
}

impl EventSender {
    pub fn send(&self, event: ZkEvent) {
        self.untaken.fetch_add(1, Ordering::Relaxed);
        if self.events.send(event).is_err() {
            // Nobody listens any more: nothing piles up.
            self.untaken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The owner is this far behind.
    pub fn untaken(&self) -> usize {
        self.untaken.load(Ordering::Relaxed)
    }
}
