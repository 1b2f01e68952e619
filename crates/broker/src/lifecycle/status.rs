//! How far the broker is, for log lines and the console's readiness.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

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
    /// How far the loading of the logs is, while it lasts.
    loading: ArcSwapOption<String>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            phase: ArcSwap::from_pointee(Phase::Starting("starting".into())),
            loading: ArcSwapOption::empty(),
        }
    }
}

impl Status {
    /// Present phase. A broker whose logs are not all loaded is not ready, though it serves those that are.
    pub fn phase(&self) -> Arc<Phase> {
        let phase = self.phase.load_full();
        let Some(loading) = self.loading.load_full() else {
            return phase;
        };
        let text = match &*phase {
            Phase::Starting(what) => format!("{what}; {loading}"),
            Phase::Ready => format!("serving the partitions that are loaded; {loading}"),
            Phase::Stopping => return phase,
        };
        Arc::new(Phase::Starting(text))
    }

    /// How far the loading of the logs is; None when it has ended.
    pub fn loading(&self, progress: Option<String>) {
        self.loading.store(progress.map(Arc::new));
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
