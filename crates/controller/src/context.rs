//! What the active controller knows of the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::{BrokerRegistration, PartitionState, TopicAssignment};

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// Shared by the keys of a topic: a cluster has far more partitions than topics.
    pub topic: Arc<str>,
    pub partition: i32,
}

impl PartitionKey {
    pub fn new(topic: &str, partition: i32) -> Self {
        Self::of(&topic.into(), partition)
    }

    pub fn of(topic: &Arc<str>, partition: i32) -> Self {
        PartitionKey {
            topic: topic.clone(),
            partition,
        }
    }
}

impl std::fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A registered broker.
#[derive(Debug, Clone)]
pub struct LiveBroker {
    /// czxid of its node.
    pub epoch: i64,
    pub registration: BrokerRegistration,
}

/// A partition's state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionPhase {
    /// Assignment known, no state node yet.
    New,
    /// Has a leader.
    Online,
    /// Had one.
    Offline,
}

/// The state node's content and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderIsr {
    pub state: PartitionState,
    /// The node's data version.
    pub partition_epoch: i32,
}

#[derive(Debug, Clone)]
pub struct Partition {
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
    pub phase: PartitionPhase,
    pub leader_isr: Option<LeaderIsr>,
}

impl Partition {
    /// A reassignment is under way.
    pub fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Topic {
    /// Zero below inter.broker.protocol.version 2.8.
    pub id: Uuid,
    pub partitions: BTreeMap<i32, Partition>,
}

impl Topic {
    /// The content of the topic's node.
    pub fn assignment(&self) -> TopicAssignment {
        let lists = |pick: fn(&Partition) -> &Vec<i32>| {
            self.partitions
                .iter()
                .filter(|(_, p)| !pick(p).is_empty())
                .map(|(n, p)| (*n, pick(p).clone()))
                .collect()
        };
        TopicAssignment {
            topic_id: (self.id != Uuid::ZERO).then_some(self.id),
            partitions: self
                .partitions
                .iter()
                .map(|(n, p)| (*n, p.replicas.clone()))
                .collect(),
            adding_replicas: lists(|p| &p.adding),
            removing_replicas: lists(|p| &p.removing),
        }
    }
}

/// How far a topic's deletion is.
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    /// StopReplica with delete was sent to these and not answered yet: partition and broker.
    pub waiting: BTreeSet<(i32, i32)>,
    pub started: bool,
    /// A replica could not be deleted, or its broker is gone: wait for that broker.
    pub blocked_by: BTreeSet<i32>,
    /// The topic's node can't be read; said once.
    pub is_unreadable: bool,
}

/// The cache of an active controller; empty otherwise.
#[derive(Debug, Default)]
pub struct Context {
    pub brokers: BTreeMap<i32, LiveBroker>,
    pub shutting_down: BTreeSet<i32>,
    pub topics: BTreeMap<Arc<str>, Topic>,
    /// Of topics that were asked for by id.
    names: HashMap<Uuid, Arc<str>>,
    pub deletions: BTreeMap<String, Deletion>,
    /// Replicas in a failed log directory: broker and partition.
    pub offline_dirs: BTreeSet<(i32, PartitionKey)>,
}

impl Context {
    pub fn partition(&self, key: &PartitionKey) -> Option<&Partition> {
        self.topics.get(&key.topic)?.partitions.get(&key.partition)
    }

    pub fn partition_mut(&mut self, key: &PartitionKey) -> Option<&mut Partition> {
        self.topics
            .get_mut(&key.topic)?
            .partitions
            .get_mut(&key.partition)
    }

    pub fn keys(&self) -> Vec<PartitionKey> {
        self.keys_where(|_, _| true)
    }

    /// The partitions that `matches` accepts.
    pub fn keys_where(&self, matches: impl Fn(&str, &Partition) -> bool) -> Vec<PartitionKey> {
        let mut keys = Vec::new();
        for (name, topic) in &self.topics {
            for (number, partition) in &topic.partitions {
                if matches(name, partition) {
                    keys.push(PartitionKey::of(name, *number));
                }
            }
        }
        keys
    }

    /// Partitions under reassignment.
    pub fn reassigning(&self) -> Vec<PartitionKey> {
        self.keys_where(|_, p| p.is_moving())
    }

    pub fn is_reassigning(&self) -> bool {
        self.topics
            .values()
            .any(|t| t.partitions.values().any(Partition::is_moving))
    }

    /// The ISR members that `matches` accepts, with their partitions.
    pub fn isr_members(&self, matches: impl Fn(i32) -> bool) -> Vec<(PartitionKey, i32)> {
        let mut members = Vec::new();
        for (name, topic) in &self.topics {
            for (number, partition) in &topic.partitions {
                let isr = partition.leader_isr.iter().flat_map(|l| &l.state.isr);
                for broker in isr.filter(|b| matches(**b)) {
                    members.push((PartitionKey::of(name, *number), *broker));
                }
            }
        }
        members
    }

    pub fn is_alive(&self, broker: i32) -> bool {
        self.brokers.contains_key(&broker)
    }

    /// Alive, not shutting down, and its directory for this partition is fine.
    pub fn is_replica_online(&self, broker: i32, key: &PartitionKey) -> bool {
        self.is_alive(broker)
            && !self.shutting_down.contains(&broker)
            && !self.is_dir_offline(broker, key)
    }

    pub fn is_dir_offline(&self, broker: i32, key: &PartitionKey) -> bool {
        !self.offline_dirs.is_empty() && self.offline_dirs.contains(&(broker, key.clone()))
    }

    /// Its replicas are going. Before that a topic that is to be deleted is led as ever: what the deletion waits for may need
    /// a leader.
    pub fn is_going(&self, topic: &str) -> bool {
        !self.deletions.is_empty() && self.deletions.get(topic).is_some_and(|d| d.started)
    }

    /// It is going, or about to.
    pub fn is_deleting(&self, topic: &str) -> bool {
        self.deletions.contains_key(topic)
    }

    /// The topic's name. Found ones are remembered, and looked at again each time.
    pub fn topic_by_id(&mut self, id: &Uuid) -> Option<Arc<str>> {
        let is_it = |name: &Arc<str>| self.topics.get(name).is_some_and(|t| t.id == *id);
        if let Some(name) = self.names.get(id).filter(|name| is_it(name)) {
            return Some(name.clone());
        }
        let found = self.topics.iter().find(|(_, t)| t.id == *id);
        let name = found.map(|(name, _)| name.clone())?;
        self.names.retain(|_, name| self.topics.contains_key(name));
        self.names.insert(*id, name.clone());
        Some(name)
    }
}
