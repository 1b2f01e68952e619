//! Counters and gauges, and their text for Prometheus.

mod exposition;
mod requests;
mod topics;

pub use exposition::Exposition;
pub use requests::RequestMetrics;
pub use topics::{Counter, TopicCounters, TopicMetrics, TopicRegistry};

/// All counters of a broker that are not its replicas'.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests.
    pub requests: RequestMetrics,
}
