//! What goes in and out, by topic and in all: Kafka's BrokerTopicMetrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

/// It only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Since the broker's start.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// The counters of a topic, or of all.
#[derive(Debug, Default)]
pub struct TopicCounters {
    /// Records appended as leader.
    pub messages_in: Counter,
    /// Their bytes, as stored.
    pub bytes_in: Counter,
    /// Bytes refused for their size.
    pub bytes_rejected: Counter,
    /// Bytes of records given to consumers.
    pub bytes_out: Counter,
    /// Bytes appended as follower.
    pub replication_bytes_in: Counter,
    /// Bytes of records given to followers.
    pub replication_bytes_out: Counter,
    /// Appends asked for, one a partition.
    pub produce_requests: Counter,
    /// Appends that failed by this broker's fault.
    pub failed_produce_requests: Counter,
    /// Reads asked for, one a partition.
    pub fetch_requests: Counter,
    /// Reads that failed by this broker's fault.
    pub failed_fetch_requests: Counter,
    /// In-sync sets that lost a member.
    pub isr_shrinks: Counter,
    /// In-sync sets that got a member.
    pub isr_expands: Counter,
}

/// A topic's counters, and those of all topics, which outlive it.
#[derive(Debug, Default)]
pub struct TopicMetrics {
    own: TopicCounters,
    all: Arc<TopicCounters>,
}

impl TopicMetrics {
    /// Adds to both.
    pub fn add(&self, counter: impl Fn(&TopicCounters) -> &Counter, n: u64) {
        counter(&self.own).add(n);
        counter(&self.all).add(n);
    }

    /// The topic's own.
    pub fn own(&self) -> &TopicCounters {
        &self.own
    }
}

/// The topics hosted here.
#[derive(Debug, Default)]
pub struct TopicRegistry {
    all: Arc<TopicCounters>,
    topics: RwLock<Topics>,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: HashMap<Arc<str>, Arc<TopicMetrics>>,
    /// With so many the next look is due at which of them are gone, for nobody may ever ask for the figures.
    look_at: usize,
}

impl Topics {
    fn forget_gone(&mut self) {
        // a hosted partition holds its topic's
        self.by_name
            .retain(|_, metrics| Arc::strong_count(metrics) > 1);
        self.look_at = UNLOOKED.max(2 * self.by_name.len());
    }
}

/// So many topics are kept without a look at which of them are gone.
const UNLOOKED: usize = 64;

impl TopicRegistry {
    /// Of a topic that is hosted here.
    pub fn topic(&self, name: &Arc<str>) -> Arc<TopicMetrics> {
        if let Some(known) = self.topics.read().by_name.get(name) {
            return known.clone();
        }
        let fresh = || {
            Arc::new(TopicMetrics {
                own: TopicCounters::default(),
                all: self.all.clone(),
            })
        };
        let mut topics = self.topics.write();
        if topics.by_name.len() >= topics.look_at {
            topics.forget_gone();
        }
        let own = topics.by_name.entry(name.clone());
        own.or_insert_with(fresh).clone()
    }

    /// Of all topics together, those included that are gone.
    pub fn all(&self) -> &TopicCounters {
        &self.all
    }

    /// Those of which a partition is hosted, by name; the others' counters are forgotten.
    pub fn hosted(&self) -> Vec<(Arc<str>, Arc<TopicMetrics>)> {
        let mut topics = self.topics.write();
        topics.forget_gone();
        let mut hosted: Vec<_> = topics
            .by_name
            .iter()
            .map(|(name, metrics)| (name.clone(), metrics.clone()))
            .collect();
        hosted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        hosted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_are_gone_do_not_pile_up() {
        let registry = TopicRegistry::default();
        let stays = registry.topic(&"stays".into());
        for n in 0..10_000 {
            registry.topic(&format!("t{n}").into());
        }
        assert!(registry.topics.read().by_name.len() <= UNLOOKED);
        assert!(Arc::ptr_eq(&stays, &registry.topic(&"stays".into())));
    }

    #[test]
    fn a_topic_goes_and_its_share_of_all_stays() {
        let registry = TopicRegistry::default();
        let (a, b) = (registry.topic(&"a".into()), registry.topic(&"b".into()));
        a.add(|c| &c.bytes_in, 5);
        b.add(|c| &c.bytes_in, 7);
        assert_eq!(registry.all().bytes_in.get(), 12);
        drop(a);
        let hosted = registry.hosted();
        assert_eq!(hosted.len(), 1);
        assert_eq!(hosted[0].1.own().bytes_in.get(), 7);
        assert_eq!(registry.topic(&"a".into()).own().bytes_in.get(), 0);
        assert_eq!(registry.all().bytes_in.get(), 12);
    }
}
