//! The controllers that this broker has heard of.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// As many elections are remembered.
const MOST: usize = 100;

/// A controller's first word to this broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Rises with every election.
    pub controller_epoch: i32,
    /// Who won it.
    pub broker_id: i32,
    /// When this broker heard of it, ms since 1970.
    pub heard_ms: i64,
}

/// The last of them, the newest at the end.
#[derive(Debug, Default)]
pub struct Elections(Mutex<VecDeque<Election>>);

impl Elections {
    /// A controller has spoken.
    pub fn heard(&self, controller_epoch: i32, broker_id: i32, now_ms: i64) {
        let mut seen = self.0.lock();
        if seen
            .back()
            .is_some_and(|last| last.controller_epoch >= controller_epoch)
        {
            return;
        }
        if seen.len() == MOST {
            seen.pop_front();
        }
        seen.push_back(Election {
            controller_epoch,
            broker_id,
            heard_ms: now_ms,
        });
    }

    /// What has been heard since the start.
    pub fn all(&self) -> Vec<Election> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_once_and_only_the_last_of_many() {
        let elections = Elections::default();
        for epoch in 1..=150 {
            elections.heard(epoch, 1, 10);
            elections.heard(epoch, 1, 20);
            elections.heard(epoch - 1, 2, 30);
        }
        let all = elections.all();
        let epochs: Vec<i32> = all.iter().map(|e| e.controller_epoch).collect();
        assert_eq!(epochs, (51..=150).collect::<Vec<_>>());
        assert!(all.iter().all(|e| e.broker_id == 1 && e.heard_ms == 10));
    }
}
