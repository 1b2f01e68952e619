//! Requests by api key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Room for all of Kafka 3.9's keys.
const KEYS: usize = 96;

/// Requests by api key.
#[derive(Debug)]
pub struct RequestMetrics {
    counts: [AtomicU64; KEYS],
    micros: [AtomicU64; KEYS],
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; KEYS],
            micros: [const { AtomicU64::new(0) }; KEYS],
        }
    }
}

impl RequestMetrics {
    /// One answered request.
    pub fn record(&self, api_key: i16, took: Duration) {
        let Ok(at) = usize::try_from(api_key) else {
            return;
        };
        if let (Some(count), Some(micros)) = (self.counts.get(at), self.micros.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
            micros.fetch_add(
                u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                Ordering::Relaxed,
            );
        }
    }

    /// (key, requests, microseconds in all) of keys that were asked for.
    pub fn snapshot(&self) -> Vec<(i16, u64, u64)> {
        let pairs = self.counts.iter().zip(&self.micros).enumerate();
        pairs
            .map(|(key, (count, micros))| {
                (
                    i16::try_from(key).unwrap_or(-1),
                    count.load(Ordering::Relaxed),
                    micros.load(Ordering::Relaxed),
                )
            })
            .filter(|(_, count, _)| *count > 0)
            .collect()
    }
}
