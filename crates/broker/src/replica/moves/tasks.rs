//! Who works on the moves: `num.replica.alter.log.dirs.threads` tasks, as many as there are directories by default.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::copy::{Job, Outcome};
use super::queue::{Pause, Turn};
use crate::clock::now_ms;
use crate::replica::ReplicaManager;
use gracchus_log::TopicPartition;

/// A thread is held no longer for a move before others may have it.
const SLICE: Duration = Duration::from_millis(50);
/// While `replica.alter.log.dirs.io.max.bytes.per.second` is exceeded it is looked at so often.
const THROTTLED_MS: i64 = 100;
/// A move that has to wait for space, or for another change of its log, is tried so often.
const LATER_MS: i64 = 1000;

impl ReplicaManager {
    /// A move has begun or has changed.
    pub(crate) fn want_move(&self, id: &TopicPartition) {
        self.moves.lock().want(id.clone());
        self.moves_changed.notify_waiters();
    }

    /// Goes on with the moves that an earlier process has begun, of the partitions that have their roles.
    pub fn resume_moves(&self) {
        for (id, _) in self.logs.futures() {
            self.want_move(&id);
        }
    }

    pub(crate) fn start_moving(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let config = self.config.current();
        let dirs = config.data_dirs().len();
        if dirs < 2 {
            return;
        }
        let threads = config
            .num_replica_alter_log_dirs_threads
            .and_then(|threads| usize::try_from(threads).ok())
            .unwrap_or(dirs);
        for _ in 0..threads.max(1) {
            let (manager, stop) = (self.clone(), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = manager.clone().work_on_moves(&stop) => {}
                }
            });
        }
    }

    async fn work_on_moves(self: Arc<Self>, stop: &CancellationToken) {
        loop {
            let news = self.moves_changed.notified();
            tokio::pin!(news);
            // what comes from here on is heard
            news.as_mut().enable();
            let turn = self.moves.lock().take(now_ms());
            match turn {
                Turn::Work(id) => {
                    let pause = self.clone().work_on(id.clone(), stop).await;
                    self.moves.lock().release(&id, pause);
                    // asked for again meanwhile, perhaps
                    self.moves_changed.notify_waiters();
                }
                Turn::Wait(until) => {
                    let pause = u64::try_from(until.saturating_sub(now_ms())).unwrap_or(0);
                    let pause = Duration::from_millis(pause.min(86_400_000));
                    tokio::select! {
                        () = news => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    async fn work_on(self: Arc<Self>, id: TopicPartition, stop: &CancellationToken) -> Pause {
        let mut job = Job::new(id.clone());
        while !stop.is_cancelled() {
            let manager = self.clone();
            let slice = tokio::task::spawn_blocking(move || {
                let pause = manager.slice_of_move(&mut job);
                (job, pause)
            });
            match slice.await {
                Ok((_, Some(pause))) => return pause,
                Ok((back, None)) => job = back,
                Err(error) => {
                    tracing::error!(partition = %id, %error, "a move failed (a bug); it is tried again");
                    return Pause::Until(now_ms() + LATER_MS);
                }
            }
        }
        Pause::Ended
    }

    /// Steps of a move for a while; None if it is to be gone on with at once.
    fn slice_of_move(&self, job: &mut Job) -> Option<Pause> {
        let begun = Instant::now();
        loop {
            let now = now_ms();
            if self.move_throttle.is_exceeded(now) {
                return Some(Pause::Until(now + THROTTLED_MS));
            }
            match self.step_move(job, now) {
                Outcome::Copied(bytes) => self.move_throttle.record(bytes, now),
                Outcome::Later => return Some(Pause::Until(now + LATER_MS)),
                Outcome::Ended => return Some(Pause::Ended),
            }
            if begun.elapsed() >= SLICE {
                return None;
            }
        }
    }
}
