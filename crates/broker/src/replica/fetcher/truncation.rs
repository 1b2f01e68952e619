//! Where a follower's log is cut when its leader's went another way. Plain rules.

use gracchus_log::EpochEnd;

/// What to do with the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Everything from here on goes.
    pub to: i64,
    /// The logs agree below it for sure; else the leader is asked again with the epoch that is then the last.
    pub is_done: bool,
}

/// `leader` is where the leader's log of our last epoch ends (-1 unknown); `own` says the same of ours; `end` is our log's
/// end, and `committed` our high watermark, the last resort.
pub fn cut(leader: EpochEnd, own: impl Fn(i32) -> EpochEnd, end: i64, committed: i64) -> Cut {
    let done = |to: i64| Cut {
        to: to.min(end),
        is_done: true,
    };
    if leader.end_offset < 0 {
        // The leader knows no epochs (an old message format).
        return done(committed);
    }
    if leader.epoch < 0 {
        return done(leader.end_offset);
    }
    let ours = own(leader.epoch);
    if ours.end_offset < 0 {
        return done(leader.end_offset);
    }
    if ours.epoch == leader.epoch {
        return done(ours.end_offset.min(leader.end_offset));
    }
    // The leader's epoch is none of ours: everything after our largest smaller one goes.
    Cut {
        to: ours.end_offset.min(end),
        is_done: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: i32, end_offset: i64) -> EpochEnd {
        EpochEnd { epoch, end_offset }
    }

    #[test]
    fn where_logs_are_cut() {
        // Ours: epoch 2 ends at 20, epoch 4 at 40 (the end). The high watermark is 15.
        let own = |epoch: i32| match epoch {
            ..2 => at(epoch, 0),
            2..4 => at(2, 20),
            4 => at(4, 40),
            _ => at(-1, -1),
        };
        for (leader, to, is_done) in [
            (at(4, 35), 35, true),
            (at(4, 50), 40, true),
            (at(2, 18), 18, true),
            (at(2, 30), 20, true),
            // Epoch 3 is none of ours: back to the end of epoch 2, and ask again.
            (at(3, 30), 20, false),
            (at(1, 7), 0, true),
            (at(-1, 12), 12, true),
            (at(-1, -1), 15, true),
            (at(9, 33), 33, true),
        ] {
            assert_eq!(cut(leader, own, 40, 15), Cut { to, is_done }, "{leader:?}");
        }
    }
}
