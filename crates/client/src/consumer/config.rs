//! How a consumer behaves.

use crate::admin::IsolationLevel;
use std::time::Duration;

/// Where to begin when there is no committed offset, or it is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// An error.
    None,
}

/// Kafka's names and defaults.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Needed to subscribe and to commit.
    pub group: Option<String>,
    /// Static membership (KIP-345).
    pub instance_id: Option<String>,
    pub offset_reset: OffsetReset,
    pub isolation: IsolationLevel,
    /// Commits what poll has given, this often and at close.
    pub auto_commit: Option<Duration>,
    pub fetch_max_wait: Duration,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub partition_max_bytes: i32,
    pub max_poll_records: usize,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub heartbeat_interval: Duration,
    /// Most plain bytes of one compressed batch.
    pub decompress_limit: usize,
    /// Lets the broker create a topic that is asked for, if it does so.
    pub allow_auto_create: bool,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        ConsumerConfig {
            group: None,
            instance_id: None,
            offset_reset: OffsetReset::Latest,
            isolation: IsolationLevel::ReadUncommitted,
            auto_commit: Some(Duration::from_secs(5)),
            fetch_max_wait: Duration::from_millis(500),
            fetch_min_bytes: 1,
            fetch_max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            max_poll_records: 500,
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            heartbeat_interval: Duration::from_secs(3),
            decompress_limit: 256 << 20,
            allow_auto_create: true,
        }
    }
}
