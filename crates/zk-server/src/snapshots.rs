//! When a snapshot is due, the thread that writes it, and the purge of old ones.

use crate::config::ZkConfig;
use crate::state::Shared;
use crate::store::data_dir::DataDir;
use crate::store::snapshot_writer;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Instant;

pub(crate) struct Snapshots {
    dir: Arc<DataDir>,
    snap_count: u64,
    size_limit: Option<u64>,
    /// Drawn anew after each, so that several servers don't pause together.
    txn_threshold: u64,
    byte_threshold: u64,
    keep: Option<usize>,
    running: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub fn new(config: &ZkConfig, dir: Arc<DataDir>) -> Self {
        let mut snapshots = Snapshots {
            dir,
            snap_count: config.snap_count,
            size_limit: config.snap_size_limit,
            txn_threshold: 0,
            byte_threshold: 0,
            keep: (config.purge_interval_hours > 0).then_some(config.snap_retain_count),
            running: None,
        };
        snapshots.draw();
        snapshots
    }

    fn draw(&mut self) {
        self.txn_threshold = drawn(self.snap_count);
        self.byte_threshold = self.size_limit.map_or(u64::MAX, drawn);
    }

    pub fn is_due(&self, txns: u64, bytes: u64) -> bool {
        txns > self.txn_threshold || bytes > self.byte_threshold
    }

    pub fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    pub fn start(&mut self, shared: &Arc<Shared>) {
        self.draw();
        let (shared, dir, keep) = (shared.clone(), self.dir.clone(), self.keep);
        let spawned = std::thread::Builder::new()
            .name("zk-snapshot".into())
            .spawn(move || write(&shared, &dir, keep));
        match spawned {
            Ok(thread) => self.running = Some(thread),
            Err(error) => tracing::warn!(
                "can't start a thread for the snapshot: {error}; the log grows until the next one is due"
            ),
        }
    }

    /// Forgets a finished thread.
    pub fn reap(&mut self) {
        if !self.is_running() {
            self.running = None;
        }
    }

    /// Waits for a running snapshot.
    pub fn finish(&mut self) {
        if let Some(thread) = self.running.take() {
            let _ = thread.join();
        }
    }
}

/// Between half of a limit and the limit.
fn drawn(limit: u64) -> u64 {
    limit / 2 + rand::random_range(0..(limit / 2).max(1))
}

fn write(shared: &Shared, dir: &DataDir, keep: Option<usize>) {
    let start = Instant::now();
    match snapshot_writer::write(&shared.tree, &dir.snap_dir) {
        Ok(written) => {
            shared.metrics.snap_count.fetch_add(1, Relaxed);
            shared
                .metrics
                .snapshottime
                .record_us(start.elapsed().as_micros() as u64);
            tracing::info!(
                "snapshot {} written: {} bytes in {} ms",
                written.path.display(),
                written.bytes,
                start.elapsed().as_millis()
            );
            purge(dir, keep);
        }
        Err(error) => {
            shared.metrics.snapshot_error_count.fetch_add(1, Relaxed);
            tracing::warn!(
                "{error} The transaction log keeps all changes until a snapshot succeeds."
            );
        }
    }
}

/// Removes what no kept snapshot needs.
pub(crate) fn purge(dir: &DataDir, keep: Option<usize>) {
    let Some(keep) = keep else { return };
    match dir.purge(keep) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => tracing::info!(
            "{} old snapshots and logs removed from {}; the newest {keep} snapshots stay",
            removed.len(),
            dir.snap_dir.display()
        ),
        Err(error) => tracing::warn!("old snapshots can't be removed: {error}"),
    }
}
