//! Timers of the replicas and their logs: checkpoints, retention, compaction, flush, expiry.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::manager::ReplicaManager;
use crate::clock::now_ms;
use crate::config::Change;

/// Idle logs are looked for so often.
const IDLE_EVERY: Duration = Duration::from_secs(5);
/// Logs that could not be opened for want of space or file descriptors are tried so often.
const UNOPENED_EVERY: Duration = Duration::from_secs(5);
/// Deleted files are looked for so often; `file.delete.delay.ms` decides when they go.
const FILE_DELETION_EVERY: Duration = Duration::from_secs(1);

/// A rolled segment is on the device within about this time; Kafka begins at the roll.
const SEALED_EVERY: Duration = Duration::from_secs(1);

fn every(ms: i64) -> Duration {
    Duration::from_millis(
        u64::try_from(ms)
            .unwrap_or(u64::MAX)
            .clamp(1, 365 * 86_400_000),
    )
}

impl ReplicaManager {
    /// Starts the timers. They end when `stop` is cancelled; the one that is at work is waited for by `tasks`.
    pub fn start(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let config = self.config.current();
        let first = every(config.log_initial_task_delay_ms);
        let timer = |first: Duration, interval: Duration, work: fn(&ReplicaManager)| {
            let (manager, stop) = (self.clone(), stop.clone());
            tasks.spawn(async move { manager.repeat(stop, first, interval, work).await });
        };
        let immediate = |interval: Duration| (interval, interval);

        timer(first, every(config.log_retention_check_interval_ms), |m| {
            m.logs.run_retention_once(now_ms());
        });
        timer(SEALED_EVERY, SEALED_EVERY, |m| {
            m.logs.run_sealed_flush_once(now_ms());
        });
        if config.log_flush_scheduler_interval_ms < i64::MAX {
            timer(first, every(config.log_flush_scheduler_interval_ms), |m| {
                m.logs.run_flush_once(now_ms());
            });
        }
        timer(
            first,
            every(config.log_flush_offset_checkpoint_interval_ms.into()),
            |m| {
                m.logs.checkpoint_recovery_points();
            },
        );
        timer(
            first,
            every(config.log_flush_start_offset_checkpoint_interval_ms.into()),
            |m| {
                m.logs.checkpoint_log_starts();
            },
        );
        let (at, interval) = immediate(every(config.replica_high_watermark_checkpoint_interval_ms));
        timer(at, interval, |m| {
            if m.checkpoints_high_watermarks.load(Ordering::Acquire) {
                m.logs.checkpoint_high_watermarks();
            }
        });
        timer(UNOPENED_EVERY, UNOPENED_EVERY, |m| {
            m.retry_unopened(now_ms());
        });
        timer(FILE_DELETION_EVERY, FILE_DELETION_EVERY, |m| {
            m.logs.run_file_deletion_once(now_ms());
        });
        let (at, interval) = immediate(every(
            config.producer_id_expiration_check_interval_ms.into(),
        ));
        timer(at, interval, |m| {
            m.logs.run_producer_expiration_once(now_ms())
        });
        timer(IDLE_EVERY, IDLE_EVERY, |m| m.logs.run_idle_once(now_ms()));
        if config.log_cleaner_enable {
            let (at, interval) = immediate(every(config.log_cleaner_backoff_ms));
            timer(at, interval, |m| {
                m.logs.run_cleaner_once(now_ms());
            });
        }

        self.start_moving(tasks, stop);
        let (manager, stop) = (self.clone(), stop.clone());
        tasks.spawn(async move { manager.follow_config(stop).await });
    }

    /// Runs `work` on a blocking thread, over and over.
    async fn repeat(
        self: Arc<Self>,
        stop: CancellationToken,
        first: Duration,
        interval: Duration,
        work: fn(&ReplicaManager),
    ) {
        let mut pause = first;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let manager = self.clone();
            let done = tokio::task::spawn_blocking(move || {
                work(&manager);
                manager.take_dirs_offline();
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "a periodic task of the logs failed; it is tried again at its next time");
            }
            pause = interval;
        }
    }

    /// Takes changed configurations to the logs.
    async fn follow_config(self: Arc<Self>, stop: CancellationToken) {
        use tokio::sync::broadcast::error::RecvError;
        let mut changes = self.config.changes();
        self.configure_throttles();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.recv() => change,
            };
            match change {
                Ok(Change::Topic(topic)) => self.topic_config_changed(&topic),
                Ok(Change::Broker) | Err(RecvError::Lagged(_)) => self.broker_config_changed(),
                Err(RecvError::Closed) => return,
            }
        }
    }
}
