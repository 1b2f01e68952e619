//! How far the broker is, for log lines and the console's readiness.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Where the broker stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Not serving yet; the text says what it waits for.
    Starting(String),
    /// Serving.
    Ready,
    /// On its way out.
    Stopping,
}

/// Shared with the console.
#[derive(Debug)]
pub struct Status {
    phase: ArcSwap<Phase>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            phase: ArcSwap::from_pointee(Phase::Starting("starting".into())),
        }
    }
}

impl Status {
    /// Present phase.
    pub fn phase(&self) -> Arc<Phase> {
        self.phase.load_full()
    }

    /// Moves on.
    pub fn set(&self, phase: Phase) {
        self.phase.store(Arc::new(phase));
    }

    /// Moves on to another step of starting.
    pub fn starting(&self, what: impl Into<String>) {
        self.set(Phase::Starting(what.into()));
    }
}
