//! The wall clock. State machines get their time as an argument; shells take it from here.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    static SIMULATED: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Milliseconds since 1970, as Kafka's timestamps count.
pub fn now_ms() -> i64 {
    SIMULATED.get().unwrap_or_else(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    })
}

/// On this thread it is this time until told otherwise: for simulations.
pub fn simulate(now_ms: i64) {
    SIMULATED.set(Some(now_ms));
}
