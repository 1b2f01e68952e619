//! Logs found in the directories and not loaded yet: what the checkpoints say of them, and whose turn is next.

use super::loader::Listed;
use crate::naming::TopicPartition;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// One log that is not loaded yet.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingLog {
    /// Place of its directory in `LogManager::dirs`.
    pub dir: usize,
    pub path: PathBuf,
    /// From the checkpoint, then as far as the recovery has come and is on the device.
    pub recovery_point: Option<i64>,
    pub high_watermark: Option<i64>,
    pub log_start: Option<i64>,
    /// Somebody waits for it.
    pub wanted: bool,
    /// Its place in the queue, once it is there.
    pub bytes: Option<u64>,
}

/// By bytes to look at, so that both ends are at hand.
type Queue = BTreeMap<(u64, TopicPartition), Listed>;

#[derive(Debug, Default)]
struct State {
    logs: HashMap<TopicPartition, PendingLog>,
    wanted: Queue,
    others: Queue,
}

/// Which end of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// None of the largest is then alone at the end.
    Largest,
    /// Most logs are soon served.
    Smallest,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
}

impl Pending {
    pub(super) fn new(logs: HashMap<TopicPartition, PendingLog>) -> Self {
        let state = State {
            logs,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
        }
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<PendingLog> {
        self.state.lock().logs.get(partition).cloned()
    }

    pub(super) fn contains(&self, partition: &TopicPartition) -> bool {
        self.state.lock().logs.contains_key(partition)
    }

    /// Its turn is to come before that of logs that nobody waits for.
    pub(super) fn want(&self, partition: &TopicPartition) {
        let mut state = self.state.lock();
        let State {
            logs,
            wanted,
            others,
        } = &mut *state;
        let Some(log) = logs.get_mut(partition).filter(|l| !l.wanted) else {
            return;
        };
        log.wanted = true;
        let Some(bytes) = log.bytes else { return };
        let place = (bytes, partition.clone());
        if let Some(listed) = others.remove(&place) {
            wanted.insert(place, listed);
        }
    }

    /// It has been looked at and may be loaded.
    pub(super) fn ready(&self, partition: TopicPartition, bytes: u64, listed: Listed) {
        let mut state = self.state.lock();
        let State {
            logs,
            wanted,
            others,
        } = &mut *state;
        // of a directory that has failed meanwhile
        let Some(log) = logs.get_mut(&partition) else {
            return;
        };
        log.bytes = Some(bytes);
        let queue = if log.wanted { wanted } else { others };
        queue.insert((bytes, partition), listed);
    }

    /// The next to load.
    pub(super) fn next(&self, turn: Turn) -> Option<Listed> {
        let mut state = self.state.lock();
        let State { wanted, others, .. } = &mut *state;
        let queue = if wanted.is_empty() { others } else { wanted };
        let next = match turn {
            Turn::Largest => queue.pop_last(),
            Turn::Smallest => queue.pop_first(),
        };
        next.map(|(_, listed)| listed)
    }

    /// Below `offset` nothing is to be checked again, or what was so before is no more there.
    pub(super) fn set_recovery_point(&self, partition: &TopicPartition, offset: i64) {
        if let Some(log) = self.state.lock().logs.get_mut(partition) {
            log.recovery_point = Some(offset);
        }
    }

    /// It is loaded.
    pub(super) fn remove(&self, partition: &TopicPartition) -> Option<PendingLog> {
        let mut state = self.state.lock();
        let removed = state.logs.remove(partition);
        if state.logs.is_empty() {
            // not needed again before the next start
            *state = State::default();
        }
        removed
    }

    /// The directory is offline; its logs are returned.
    pub(super) fn remove_dir(&self, dir: usize) -> Vec<TopicPartition> {
        let mut state = self.state.lock();
        let State {
            logs,
            wanted,
            others,
        } = &mut *state;
        let mut lost = Vec::new();
        logs.retain(|partition, log| {
            if log.dir == dir {
                lost.push(partition.clone());
            }
            log.dir != dir
        });
        wanted.retain(|(_, p), _| logs.contains_key(p));
        others.retain(|(_, p), _| logs.contains_key(p));
        lost
    }

    /// What a checkpoint file of the directory has to say about them.
    pub(super) fn offsets(
        &self,
        dir: usize,
        offset: impl Fn(&PendingLog) -> Option<i64>,
    ) -> HashMap<TopicPartition, i64> {
        let state = self.state.lock();
        let in_dir = state.logs.iter().filter(|(_, log)| log.dir == dir);
        in_dir
            .filter_map(|(p, log)| offset(log).map(|o| (p.clone(), o)))
            .collect()
    }

    pub(super) fn any_in(&self, dir: usize) -> bool {
        self.state.lock().logs.values().any(|log| log.dir == dir)
    }

    /// By directory, to choose the emptiest.
    pub(super) fn count(&self, counts: &mut [usize]) {
        for log in self.state.lock().logs.values() {
            if let Some(n) = counts.get_mut(log.dir) {
                *n += 1;
            }
        }
    }
}
