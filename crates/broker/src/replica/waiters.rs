//! Parked requests: a purgatory in which a wait is a future, woken when one of its partitions changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Who waits for one partition: for its log to grow, its high watermark to rise, its role to change.
#[derive(Debug, Default)]
pub struct WaitList {
    /// Lets an append with nobody waiting pass without the lock.
    count: AtomicUsize,
    waiting: Mutex<Slab<Arc<Notify>>>,
}

impl WaitList {
    /// Something changed; everybody looks again.
    pub fn wake(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for (_, notify) in self.waiting.lock().iter() {
            notify.notify_one();
        }
    }

    /// How many requests are parked here.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// True if nobody is parked here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One parked request. Register with every partition first, look at them, then wait: a change in between wakes.
#[derive(Debug, Default)]
pub struct Waiter {
    notify: Arc<Notify>,
    places: Vec<(Arc<WaitList>, usize)>,
}

impl Waiter {
    /// Will be woken by this partition, until dropped.
    pub fn register(&mut self, list: &Arc<WaitList>) {
        let place = {
            let mut waiting = list.waiting.lock();
            list.count.fetch_add(1, Ordering::AcqRel);
            waiting.insert(self.notify.clone())
        };
        self.places.push((list.clone(), place));
    }

    /// Waits for a change; false when the deadline came first.
    pub async fn changed(&self, deadline: Instant) -> bool {
        tokio::time::timeout_at(deadline, self.notify.notified())
            .await
            .is_ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        for (list, place) in self.places.drain(..) {
            list.waiting.lock().try_remove(place);
            list.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_change_between_looking_and_waiting_is_not_lost() {
        let list = Arc::new(WaitList::default());
        let mut waiter = Waiter::default();
        waiter.register(&list);
        list.wake();
        assert!(
            waiter
                .changed(Instant::now() + Duration::from_secs(60))
                .await
        );
        assert!(!waiter.changed(Instant::now()).await);
        drop(waiter);
        assert!(list.is_empty());
        list.wake();
    }
}
