//! Requests that are not sent yet, in call order, and how long each has waited without a connection.

use crate::op::Op;
use std::collections::VecDeque;
use std::time::Duration;

struct Queued<T> {
    op: Op,
    done: T,
    /// On the caller's clock.
    since: Duration,
}

/// Times of later requests are never earlier.
pub(super) struct Queue<T> {
    waiting: VecDeque<Queued<T>>,
    offline_since: Duration,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            waiting: VecDeque::new(),
            offline_since: Duration::ZERO,
        }
    }
}

impl<T> Queue<T> {
    pub fn push(&mut self, op: Op, done: T, now: Duration) {
        let since = now;
        self.waiting.push_back(Queued { op, done, since });
    }

    pub fn pop(&mut self) -> Option<(Op, T)> {
        let queued = self.waiting.pop_front()?;
        Some((queued.op, queued.done))
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The connection is lost: waiting for it begins now, also for what stood in line before.
    pub fn offline_since(&mut self, now: Duration) {
        self.offline_since = now;
    }

    pub fn next_overdue(&self, patience: Duration) -> Option<Duration> {
        let first = self.waiting.front()?;
        Some(first.since.max(self.offline_since) + patience)
    }

    pub fn pop_overdue(&mut self, now: Duration, patience: Duration) -> Option<T> {
        (self.next_overdue(patience)? <= now)
            .then(|| self.pop())
            .flatten()
            .map(|(_, done)| done)
    }
}
