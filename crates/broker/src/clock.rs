//! The wall clock. State machines get their time as an argument; shells take it from here.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, as Kafka's timestamps count.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
