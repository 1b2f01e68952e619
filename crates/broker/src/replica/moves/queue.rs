//! Which moves are to be worked on. No I/O; the time is passed in.

use std::collections::BTreeMap;

use gracchus_log::TopicPartition;

/// A partition with a move to be worked on, or being worked on.
#[derive(Debug, Default)]
struct Entry {
    /// Somebody works on it.
    taken: bool,
    /// To be looked at, again if it is taken.
    wanted: bool,
    /// Not before this time.
    not_before_ms: i64,
}

/// What came of working on a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// There is nothing more to do, unless it was asked for again meanwhile.
    Ended,
    /// To be gone on with from this time on.
    Until(i64),
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Work on this partition's move, then [`Queue::release`] it.
    Work(TopicPartition),
    /// Nothing before this time (`i64::MAX`: until something is wanted).
    Wait(i64),
}

/// The moves of a broker. One is worked on by one task at a time, the first by name first, as in Kafka: fewer copies are
/// under way then, and each is done sooner.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<TopicPartition, Entry>,
}

impl Queue {
    /// A move has begun or has changed.
    pub fn want(&mut self, id: TopicPartition) {
        let entry = self.entries.entry(id).or_default();
        entry.wanted = true;
        entry.not_before_ms = 0;
    }

    /// The next one to work on.
    pub fn take(&mut self, now_ms: i64) -> Turn {
        let mut earliest = i64::MAX;
        for (id, entry) in &mut self.entries {
            if entry.taken || !entry.wanted {
                continue;
            }
            if entry.not_before_ms <= now_ms {
                entry.taken = true;
                entry.wanted = false;
                return Turn::Work(id.clone());
            }
            earliest = earliest.min(entry.not_before_ms);
        }
        Turn::Wait(earliest)
    }

    /// Nobody works on it any more.
    pub fn release(&mut self, id: &TopicPartition, pause: Pause) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.taken = false;
        match pause {
            _ if entry.wanted => {}
            Pause::Ended => {
                self.entries.remove(id);
            }
            Pause::Until(at) => {
                entry.wanted = true;
                entry.not_before_ms = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    #[test]
    fn one_task_a_move_the_first_first() {
        let mut queue = Queue::default();
        assert_eq!(queue.take(0), Turn::Wait(i64::MAX));
        queue.want(id(2));
        queue.want(id(1));
        assert_eq!(queue.take(0), Turn::Work(id(1)));
        assert_eq!(queue.take(0), Turn::Work(id(2)));
        assert_eq!(queue.take(0), Turn::Wait(i64::MAX));
        queue.release(&id(1), Pause::Ended);
        assert_eq!(queue.take(0), Turn::Wait(i64::MAX));
    }

    #[test]
    fn asked_for_again_while_at_work() {
        let mut queue = Queue::default();
        queue.want(id(1));
        queue.take(0);
        queue.want(id(1));
        assert_eq!(queue.take(0), Turn::Wait(i64::MAX), "still at work");
        queue.release(&id(1), Pause::Ended);
        assert_eq!(queue.take(0), Turn::Work(id(1)));
        queue.want(id(1));
        queue.release(&id(1), Pause::Until(500));
        assert_eq!(queue.take(0), Turn::Work(id(1)), "without the pause");
    }

    #[test]
    fn a_pause_is_kept_and_others_go_on() {
        let mut queue = Queue::default();
        queue.want(id(1));
        queue.take(0);
        queue.release(&id(1), Pause::Until(500));
        queue.want(id(2));
        assert_eq!(queue.take(0), Turn::Work(id(2)));
        assert_eq!(queue.take(0), Turn::Wait(500));
        assert_eq!(queue.take(500), Turn::Work(id(1)));
    }
}
