//! Followers as their leader sees them. Plain rules, no I/O (KIP-16, controller.md B4 and B5 of the specification:
//! a follower is in sync while it had all that the leader had within the last `replica.lag.time.max.ms`).

use std::collections::BTreeMap;

use super::in_sync::InSync;

/// LEO of a follower that has not fetched in this leader epoch.
pub const UNKNOWN_OFFSET: i64 = -1;

/// One follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Follower {
    /// The offset it fetched from last, so it has everything before; -1 unknown.
    pub log_end_offset: i64,
    /// Its log start offset; -1 unknown.
    pub log_start_offset: i64,
    /// When it last had everything the leader had, in ms.
    pub last_caught_up_ms: i64,
    /// The leader's LEO at its last fetch.
    leader_end_at_last_fetch: i64,
    /// When it fetched last, in ms.
    last_fetch_ms: i64,
}

impl Follower {
    /// A follower at the start of a leader epoch: ISR members get the benefit of the doubt.
    pub fn at_epoch_start(in_isr: bool, now_ms: i64) -> Self {
        Self {
            log_end_offset: UNKNOWN_OFFSET,
            log_start_offset: UNKNOWN_OFFSET,
            last_caught_up_ms: if in_isr { now_ms } else { 0 },
            leader_end_at_last_fetch: 0,
            last_fetch_ms: 0,
        }
    }

    /// A fetch from `fetch_offset` while the leader's log ends at `leader_end`.
    pub fn fetched(
        &mut self,
        fetch_offset: i64,
        log_start_offset: i64,
        leader_end: i64,
        now_ms: i64,
    ) {
        if fetch_offset >= leader_end {
            self.last_caught_up_ms = self.last_caught_up_ms.max(now_ms);
        } else if fetch_offset >= self.leader_end_at_last_fetch {
            // It has what there was when it asked the last time.
            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);
        }
        self.log_end_offset = fetch_offset;
        self.log_start_offset = log_start_offset;
        self.leader_end_at_last_fetch = leader_end;
        self.last_fetch_ms = now_ms;
    }

    /// In sync: has everything, or had everything not long ago.
    pub fn is_caught_up(&self, leader_end: i64, now_ms: i64, max_lag_ms: i64) -> bool {
        self.log_end_offset == leader_end || now_ms - self.last_caught_up_ms <= max_lag_ms
    }
}

/// The high watermark that these followers allow: the smallest LEO among the ISR and those about to join it.
/// `eligible` says whether a follower outside of the ISR could join (its broker is alive).
pub fn high_watermark(
    leader_end: i64,
    isr: &InSync,
    followers: &BTreeMap<i32, Follower>,
    now_ms: i64,
    max_lag_ms: i64,
    eligible: impl Fn(i32) -> bool,
) -> i64 {
    followers
        .iter()
        .filter(|(id, follower)| {
            isr.counts(**id)
                || (follower.is_caught_up(leader_end, now_ms, max_lag_ms) && eligible(**id))
        })
        .map(|(_, follower)| follower.log_end_offset)
        .fold(leader_end, i64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_up_by_the_previous_fetch() {
        let mut follower = Follower::at_epoch_start(false, 1_000);
        assert!(!follower.is_caught_up(10, 40_000, 30_000));
        // At 40 s the leader has 10; the follower asks from 5.
        follower.fetched(5, 0, 10, 40_000);
        assert_eq!(follower.last_caught_up_ms, 0);
        // At 41 s it asks from 10, the leader has 20 by now: it was caught up at 40 s.
        follower.fetched(10, 0, 20, 41_000);
        assert_eq!(follower.last_caught_up_ms, 40_000);
        follower.fetched(20, 0, 20, 42_000);
        assert_eq!(follower.last_caught_up_ms, 42_000);
    }

    /// Nobody writes: a stuck follower that has everything stays in sync for ever.
    #[test]
    fn having_everything_is_in_sync() {
        let mut follower = Follower::at_epoch_start(true, 0);
        follower.fetched(7, 0, 7, 1_000);
        assert!(follower.is_caught_up(7, 10_000_000, 30_000));
        assert!(!follower.is_caught_up(8, 10_000_000, 30_000));
    }

    #[test]
    fn the_slowest_in_sync_replica_holds_the_high_watermark() {
        let at = |offset| {
            let mut follower = Follower::at_epoch_start(false, 0);
            follower.fetched(offset, 0, 100, 1_000_000);
            follower
        };
        let followers = BTreeMap::from([(2, at(90)), (3, at(50))]);
        let mark = |isr: &[i32]| {
            let isr = InSync::new(isr.to_vec());
            high_watermark(100, &isr, &followers, 1_000_000, 30_000, |_| true)
        };
        assert_eq!(mark(&[1, 2, 3]), 50);
        assert_eq!(mark(&[1, 2]), 90);
        assert_eq!(mark(&[1]), 100);
        // 3 has just caught up and is about to join: it counts already.
        let joining = BTreeMap::from([(
            3,
            Follower {
                last_caught_up_ms: 999_000,
                ..at(50)
            },
        )]);
        assert_eq!(
            high_watermark(
                100,
                &InSync::new(vec![1]),
                &joining,
                1_000_000,
                30_000,
                |_| true
            ),
            50
        );
        assert_eq!(
            high_watermark(
                100,
                &InSync::new(vec![1]),
                &joining,
                1_000_000,
                30_000,
                |_| false
            ),
            100
        );
        // An ISR member that has not fetched yet holds everything back.
        let new = BTreeMap::from([(2, Follower::at_epoch_start(true, 0))]);
        assert_eq!(
            high_watermark(
                100,
                &InSync::new(vec![1, 2]),
                &new,
                1_000_000,
                30_000,
                |_| true
            ),
            UNKNOWN_OFFSET
        );
    }
}
