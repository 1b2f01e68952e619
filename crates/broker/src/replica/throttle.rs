//! Replication throttles: how many bytes a second this broker sends to, and fetches for, replicas that are not in sync and
//! that their topics' configuration lists; and how many it copies from one log directory to another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::manager::ReplicaManager;
use crate::config::store::Props;

/// The length of a window, and how many are looked at: Kafka's `replication.quota.window.*`.
const WINDOW_MS: i64 = 1000;
const WINDOWS: usize = 11;
/// No bound.
const UNBOUNDED: u64 = u64::MAX;

/// One direction.
#[derive(Debug)]
pub struct Throttle {
    rate_key: &'static str,
    replicas_key: &'static str,
    /// Bytes a second.
    bound: AtomicU64,
    rate: Mutex<Rate>,
}

/// Bytes in the windows of the last seconds.
#[derive(Debug, Default)]
struct Rate {
    /// When each began, and its bytes.
    windows: VecDeque<(i64, u64)>,
}

impl Rate {
    fn forget(&mut self, now_ms: i64) {
        let oldest = now_ms - WINDOW_MS * WINDOWS as i64;
        while self.windows.front().is_some_and(|(at, _)| *at <= oldest) {
            self.windows.pop_front();
        }
    }

    fn record(&mut self, bytes: u64, now_ms: i64) {
        self.forget(now_ms);
        match self.windows.back_mut() {
            Some((at, sum)) if now_ms - *at < WINDOW_MS => *sum = sum.saturating_add(bytes),
            _ => self.windows.push_back((now_ms, bytes)),
        }
    }

    /// Since the oldest window began, one window at least.
    fn per_second(&mut self, now_ms: i64) -> u64 {
        self.forget(now_ms);
        let Some((began, _)) = self.windows.front() else {
            return 0;
        };
        let elapsed = u64::try_from((now_ms - began).max(WINDOW_MS)).unwrap_or(1);
        let sum: u64 = self.windows.iter().map(|(_, bytes)| *bytes).sum();
        sum.saturating_mul(1000) / elapsed
    }
}

impl Throttle {
    /// What is sent to followers.
    pub fn of_leader() -> Self {
        Self::new(
            "leader.replication.throttled.rate",
            "leader.replication.throttled.replicas",
        )
    }

    /// What is fetched from leaders.
    pub fn of_follower() -> Self {
        Self::new(
            "follower.replication.throttled.rate",
            "follower.replication.throttled.replicas",
        )
    }

    /// What is copied from one log directory to another.
    pub fn of_moves() -> Self {
        // Its bound is of all of them.
        Self::new("replica.alter.log.dirs.io.max.bytes.per.second", "")
    }

    fn new(rate_key: &'static str, replicas_key: &'static str) -> Self {
        Self {
            rate_key,
            replicas_key,
            bound: AtomicU64::new(UNBOUNDED),
            rate: Mutex::new(Rate::default()),
        }
    }

    /// The broker's dynamic configuration: its own, then the cluster's.
    pub(crate) fn configure(&self, own: &Props, all: &Props) {
        let text = own.get(self.rate_key).or_else(|| all.get(self.rate_key));
        let bound = text.and_then(|text| text.trim().parse().ok());
        self.bound
            .store(bound.unwrap_or(UNBOUNDED), Ordering::Relaxed);
    }

    fn is_bounded(&self) -> bool {
        self.bound.load(Ordering::Relaxed) != UNBOUNDED
    }

    /// Bytes of a listed replica.
    pub fn record(&self, bytes: u64, now_ms: i64) {
        self.rate.lock().record(bytes, now_ms);
    }

    /// More than the bound went lately.
    pub fn is_exceeded(&self, now_ms: i64) -> bool {
        self.is_bounded()
            && self.rate.lock().per_second(now_ms) > self.bound.load(Ordering::Relaxed)
    }
}

/// Whether a topic's list (`partition:broker,...`, or `*`) has the replica.
fn lists(list: &str, partition: i32, broker: i32) -> bool {
    list.split(',').any(|entry| match entry.trim() {
        "*" => true,
        entry => entry.split_once(':').is_some_and(|(p, b)| {
            p.trim().parse() == Ok(partition) && b.trim().parse() == Ok(broker)
        }),
    })
}

impl ReplicaManager {
    pub(crate) fn configure_throttles(&self) {
        let (own, all) = (self.config.dynamic(true), self.config.dynamic(false));
        self.leader_throttle.configure(&own, &all);
        self.follower_throttle.configure(&own, &all);
        self.move_throttle.configure(&own, &all);
    }

    /// The replica here counts for this throttle; false where there is none.
    pub(crate) fn is_throttled(&self, throttle: &Throttle, topic: &str, partition: i32) -> bool {
        throttle.is_bounded()
            && self
                .config
                .topic_overrides(topic)
                .get(throttle.replicas_key)
                .is_some_and(|list| lists(list, partition, self.broker_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_replicas() {
        assert!(lists("0:1,3:2", 3, 2));
        assert!(lists("*", 7, 9));
        assert!(lists(" 0:1 , 3:2", 3, 2));
        for (partition, broker) in [(3, 1), (0, 2), (1, 1)] {
            assert!(!lists("0:1,3:2", partition, broker));
        }
        assert!(!lists("", 0, 0) && !lists("junk", 0, 0));
    }

    #[test]
    fn the_rate_is_of_the_last_windows() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(0), 0);
        rate.record(500, 0);
        rate.record(500, 900);
        assert_eq!(rate.per_second(900), 1000, "one window at least");
        assert_eq!(rate.per_second(2000), 500);
        rate.record(3000, 4000);
        assert_eq!(rate.per_second(4000), 1000);
        assert_eq!(
            rate.per_second(11_500),
            400,
            "the first window is over: 3000 in 7.5 s"
        );
        assert_eq!(rate.per_second(60_000), 0);
    }

    #[test]
    fn bounds_come_and_go() {
        let throttle = Throttle::of_leader();
        throttle.record(1_000_000, 0);
        assert!(!throttle.is_exceeded(0));
        let props = |value: &str| {
            Props::from([(
                "leader.replication.throttled.rate".to_owned(),
                value.to_owned(),
            )])
        };
        throttle.configure(&props("1000"), &props("9000000"));
        assert!(throttle.is_exceeded(0));
        throttle.configure(&Props::new(), &props("9000000"));
        assert!(!throttle.is_exceeded(0));
        throttle.configure(&Props::new(), &Props::new());
        assert!(!throttle.is_bounded());
    }
}
