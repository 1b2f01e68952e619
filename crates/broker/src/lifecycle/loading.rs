//! Loading the logs while the broker is already up: each partition is served from when its log is loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gracchus_log::cleaner::CleanerConfig;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    LoadControl, LoadProgress, LogManager, LogManagerConfig, PendingLogs, StartError,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::error::LifecycleError;
use super::status::Status;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::{BrokerConfig, ConfigStore};
use crate::replica::log_config::log_config;

/// A loading that takes longer says so this often.
const PROGRESS_LINE: Duration = Duration::from_secs(2);

/// Finds out what there is to load. Does file work: call it where a thread may block.
pub(super) fn open(
    dirs: Option<LogDirs>,
    store: &ConfigStore,
) -> Result<(LogManager, PendingLogs), StartError> {
    let dirs = dirs.ok_or(StartError::NoDirs)?;
    // no topic has the empty name
    let default = log_config(&store.topic(""));
    LogManager::open(dirs, settings(&store.current()), default, now_ms())
}

fn settings(config: &BrokerConfig) -> LogManagerConfig {
    LogManagerConfig {
        // Kafka's default of one thread a directory is a default for disks that seek
        recovery_threads: match usize::try_from(config.num_recovery_threads_per_data_dir)
            .unwrap_or(1)
        {
            1 => 0,
            threads => threads.saturating_mul(config.data_dirs().len()),
        },
        producer_id_expiration_ms: i64::from(config.producer_id_expiration_ms),
        max_transaction_timeout_ms: i64::from(config.transaction_max_timeout_ms),
        cleaner: CleanerConfig {
            enable: config.log_cleaner_enable,
            dedupe_buffer_bytes: usize::try_from(config.log_cleaner_dedupe_buffer_size)
                .unwrap_or(128 << 20),
            load_factor: config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes: usize::try_from(config.log_cleaner_io_buffer_size)
                .unwrap_or(512 << 10),
            max_bytes_per_second: config.log_cleaner_io_max_bytes_per_second,
        },
        ..LogManagerConfig::default()
    }
}

/// A loading on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loading {
    stop: Arc<AtomicBool>,
    ended: CancellationToken,
}

impl Loading {
    /// Begins it, on threads of its own. A broker that loses its last directory by it ends, as it would later.
    pub(super) fn start(
        &self,
        broker: &Arc<Broker>,
        pending: PendingLogs,
        status: &Arc<Status>,
    ) -> Result<(), LifecycleError> {
        let (owner, status, loading) = (broker.clone(), status.clone(), self.clone());
        let runtime = Handle::current();
        status.loading(Some("loading logs".into()));
        let work = move || {
            // also where the thread panics: nobody must wait for it forever
            let _ended = loading.ended.clone().drop_guard();
            run(&owner, pending, &status, &loading.stop, &runtime);
        };
        let thread = std::thread::Builder::new().name("log-loading".into());
        thread.spawn(work)?;
        Ok(())
    }

    /// It never began.
    pub(super) fn abandon(&self) {
        self.ended.cancel();
    }

    /// Completes when all logs are loaded, or it has been stopped.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends it soon; wait for [`Self::ended`]. What was recovered is kept.
    pub(super) fn stop(&self) {
        if !self.ended.is_cancelled() {
            tracing::info!("stopping; the loading of the logs ends first");
        }
        self.stop.store(true, Ordering::Release);
    }
}

/// `runtime`: who hears of roles starts tasks.
fn run(
    broker: &Broker,
    pending: PendingLogs,
    status: &Status,
    stop: &AtomicBool,
    runtime: &Handle,
) {
    let begun = Instant::now();
    let replicas = &broker.replicas;
    let store = &broker.config;
    let count = pending.len();
    let (told, last_word) = (parking_lot::Mutex::new(begun), AtomicBool::new(false));
    let progress = |p: &LoadProgress| {
        let text = p.to_string();
        if p.loaded == p.total {
            // the last word of a recovery is told in any case
            if p.is_recovery() && !last_word.swap(true, Ordering::Relaxed) {
                tracing::info!("{text}");
            }
        } else {
            let mut told = told.lock();
            if told.elapsed() >= PROGRESS_LINE {
                *told = Instant::now();
                tracing::info!("{text}");
            }
        }
        status.loading(Some(text));
    };
    let control = LoadControl {
        stop,
        progress: &progress,
        loaded: &|id| {
            let _inside = runtime.enter();
            replicas.log_loaded(id, now_ms());
        },
        dir_failed: &|| {
            let _inside = runtime.enter();
            replicas.take_dirs_offline();
        },
        ..Default::default()
    };
    let topic_config = |topic: &str| log_config(&store.topic(topic));
    let whole = replicas
        .logs()
        .load_pending(pending, &topic_config, now_ms(), &control);
    if whole {
        tracing::info!(
            "{count} partitions loaded in {} ms",
            begun.elapsed().as_millis()
        );
        replicas.resume_moves();
    }
    status.loading(None);
}
