//! Figures of the running server, under ZooKeeper's own names.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A count, sum, least and largest of something measured in ms.
#[derive(Debug)]
pub struct Summary {
    count: AtomicU64,
    /// In µs, so that short ones add up.
    sum_us: AtomicU64,
    min_ms: AtomicU64,
    max_ms: AtomicU64,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            count: AtomicU64::new(0),
            sum_us: AtomicU64::new(0),
            min_ms: AtomicU64::new(u64::MAX),
            max_ms: AtomicU64::new(0),
        }
    }
}

impl Summary {
    pub fn record_us(&self, us: u64) {
        self.record_many(us, 1);
    }

    /// The same duration for `count` events.
    pub fn record_many(&self, us: u64, count: u64) {
        let ms = us / 1000;
        self.count.fetch_add(count, Relaxed);
        self.sum_us.fetch_add(us * count, Relaxed);
        if ms < self.min_ms.load(Relaxed) {
            self.min_ms.fetch_min(ms, Relaxed);
        }
        if ms > self.max_ms.load(Relaxed) {
            self.max_ms.fetch_max(ms, Relaxed);
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub fn sum_ms(&self) -> u64 {
        self.sum_us.load(Relaxed) / 1000
    }

    pub fn min_ms(&self) -> u64 {
        match self.min_ms.load(Relaxed) {
            u64::MAX => 0,
            ms => ms,
        }
    }

    pub fn max_ms(&self) -> u64 {
        self.max_ms.load(Relaxed)
    }

    pub fn average_ms(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_us.load(Relaxed) as f64 / 1000.0 / count as f64,
        }
    }

    pub fn reset(&self) {
        self.count.store(0, Relaxed);
        self.sum_us.store(0, Relaxed);
        self.min_ms.store(u64::MAX, Relaxed);
        self.max_ms.store(0, Relaxed);
    }
}

/// Counters that the server's parts add to.
#[derive(Debug, Default)]
pub struct Metrics {
    pub packets_received: AtomicU64,
    pub packets_sent: AtomicU64,
    pub bytes_received: AtomicU64,
    pub response_bytes: AtomicU64,
    pub connection_request_count: AtomicU64,
    pub connection_rejected: AtomicU64,
    pub connection_drop_count: AtomicU64,
    pub connection_revalidate_count: AtomicU64,
    pub sessionless_connections_expired: AtomicU64,
    pub stale_sessions_expired: AtomicU64,
    pub large_requests_rejected: AtomicU64,
    pub request_throttle_wait_count: AtomicU64,
    pub auth_failed_count: AtomicU64,
    pub snap_count: AtomicU64,
    pub snapshot_error_count: AtomicU64,
    pub unrecoverable_error_count: AtomicU64,
    /// Transactions logged.
    pub commit_count: AtomicU64,
    pub ensemble_auth_skip: AtomicU64,
    pub last_client_response_size: AtomicI64,
    pub min_client_response_size: AtomicI64,
    pub max_client_response_size: AtomicI64,
    /// From a request's arrival to its answer.
    pub latency: Summary,
    pub readlatency: Summary,
    pub updatelatency: Summary,
    pub fsynctime: Summary,
    pub snapshottime: Summary,
    pub dbinittime: Summary,
    pub sync_processor_batch_size: Summary,
}

impl Metrics {
    /// srst.
    pub fn reset(&self) {
        self.packets_received.store(0, Relaxed);
        self.packets_sent.store(0, Relaxed);
        self.latency.reset();
    }

    pub fn answered(&self, response_bytes: i64) {
        self.last_client_response_size
            .store(response_bytes, Relaxed);
        let min = self.min_client_response_size.load(Relaxed);
        if min == 0 || response_bytes < min {
            self.min_client_response_size.store(response_bytes, Relaxed);
        }
        if response_bytes > self.max_client_response_size.load(Relaxed) {
            self.max_client_response_size.store(response_bytes, Relaxed);
        }
    }

    fn counters(&self) -> [(&'static str, &AtomicU64); 16] {
        [
            ("bytes_received_count", &self.bytes_received),
            ("response_bytes", &self.response_bytes),
            ("connection_request_count", &self.connection_request_count),
            ("connection_rejected", &self.connection_rejected),
            ("connection_drop_count", &self.connection_drop_count),
            (
                "connection_revalidate_count",
                &self.connection_revalidate_count,
            ),
            (
                "sessionless_connections_expired",
                &self.sessionless_connections_expired,
            ),
            ("stale_sessions_expired", &self.stale_sessions_expired),
            ("large_requests_rejected", &self.large_requests_rejected),
            (
                "request_throttle_wait_count",
                &self.request_throttle_wait_count,
            ),
            ("snap_count", &self.snap_count),
            ("snapshot_error_count", &self.snapshot_error_count),
            ("unrecoverable_error_count", &self.unrecoverable_error_count),
            ("commit_count", &self.commit_count),
            ("ensemble_auth_skip", &self.ensemble_auth_skip),
            ("auth_failed_count", &self.auth_failed_count),
        ]
    }

    fn summaries(&self) -> [(&'static str, &Summary); 6] {
        [
            ("fsynctime", &self.fsynctime),
            ("readlatency", &self.readlatency),
            ("updatelatency", &self.updatelatency),
            ("snapshottime", &self.snapshottime),
            ("dbinittime", &self.dbinittime),
            ("sync_processor_batch_size", &self.sync_processor_batch_size),
        ]
    }
}

/// Figures that are read off the server's state when asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gauges {
    pub connections: u64,
    pub outstanding: u64,
    pub znodes: u64,
    pub watches: u64,
    pub ephemerals: u64,
    pub data_size: u64,
    pub sessions: u64,
    pub uptime_ms: u64,
    pub open_files: u64,
    pub max_files: u64,
}

impl Gauges {
    fn named(&self, metrics: &Metrics) -> Vec<(&'static str, f64)> {
        let latency = &metrics.latency;
        vec![
            ("ephemerals_count", self.ephemerals as f64),
            ("num_alive_connections", self.connections as f64),
            ("avg_latency", round4(latency.average_ms())),
            ("outstanding_requests", self.outstanding as f64),
            ("znode_count", self.znodes as f64),
            ("global_sessions", self.sessions as f64),
            ("local_sessions", 0.0),
            (
                "last_client_response_size",
                metrics.last_client_response_size.load(Relaxed) as f64,
            ),
            ("packets_sent", metrics.packets_sent.load(Relaxed) as f64),
            (
                "packets_received",
                metrics.packets_received.load(Relaxed) as f64,
            ),
            (
                "max_client_response_size",
                metrics.max_client_response_size.load(Relaxed) as f64,
            ),
            (
                "min_client_response_size",
                metrics.min_client_response_size.load(Relaxed) as f64,
            ),
            ("connection_drop_probability", 0.0),
            ("watch_count", self.watches as f64),
            ("min_latency", latency.min_ms() as f64),
            ("max_latency", latency.max_ms() as f64),
            ("max_file_descriptor_count", self.max_files as f64),
            ("open_file_descriptor_count", self.open_files as f64),
            ("approximate_data_size", self.data_size as f64),
            ("uptime", self.uptime_ms as f64),
        ]
    }
}

/// Four digits, as ZooKeeper prints averages.
pub(crate) fn round4(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// A number as Java prints a double that may be whole: `0.0`, `1.25`.
pub(crate) fn java_double(value: f64) -> String {
    if value == value.trunc() {
        format!("{value:.1}")
    } else {
        value.to_string()
    }
}

/// mntr's lines.
pub fn mntr(version: &str, metrics: &Metrics, gauges: &Gauges) -> String {
    let mut out = format!("zk_version\t{version}\nzk_server_state\tstandalone\n");
    for (name, value) in gauges.named(metrics) {
        let value = if name == "avg_latency" || name == "connection_drop_probability" {
            java_double(value)
        } else {
            format!("{value}")
        };
        let _ = writeln!(out, "zk_{name}\t{value}");
    }
    for (name, counter) in metrics.counters() {
        let _ = writeln!(out, "zk_{name}\t{}", counter.load(Relaxed));
    }
    for (name, summary) in metrics.summaries() {
        let _ = writeln!(
            out,
            "zk_avg_{name}\t{}",
            java_double(round4(summary.average_ms()))
        );
        let _ = writeln!(out, "zk_min_{name}\t{}", summary.min_ms());
        let _ = writeln!(out, "zk_max_{name}\t{}", summary.max_ms());
        let _ = writeln!(out, "zk_cnt_{name}\t{}", summary.count());
        let _ = writeln!(out, "zk_sum_{name}\t{}", summary.sum_ms());
    }
    out
}

/// The same figures as ZooKeeper's Prometheus provider names them.
pub fn prometheus(metrics: &Metrics, gauges: &Gauges) -> String {
    let mut out = String::new();
    for (name, value) in gauges.named(metrics) {
        let _ = writeln!(out, "# TYPE {name} gauge\n{name} {value}");
    }
    for (name, counter) in metrics.counters() {
        let _ = writeln!(
            out,
            "# TYPE {name} counter\n{name} {}",
            counter.load(Relaxed)
        );
    }
    for (name, summary) in metrics.summaries() {
        let _ = writeln!(
            out,
            "# TYPE {name} summary\n{name}_count {}\n{name}_sum {}",
            summary.count(),
            summary.sum_ms()
        );
    }
    out
}
