//! All that an active controller knows: a cache of the znodes, and the states of partitions and replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::{BrokerRegistration, LEADER_NONE, PartitionState};

/// A partition. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A replica of a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    pub partition: TopicPartition,
    pub broker_id: i32,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on broker {}", self.partition, self.broker_id)
    }
}

/// A partition's replicas, and those under way in or out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reassignment {
    /// All; the first is preferred. While a reassignment runs: the target, then those to be removed.
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
}

impl Reassignment {
    pub fn is_under_way(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas that shall be at the end.
    pub fn target(&self) -> Vec<i32> {
        without(&self.replicas, &self.removing)
    }

    /// The replicas that there were at the start.
    pub fn original(&self) -> Vec<i32> {
        without(&self.replicas, &self.adding)
    }

    /// The way to `target` from here.
    pub fn to(&self, target: &[i32]) -> Self {
        let original = self.original();
        let removing = without(&original, target);
        let mut replicas = target.to_vec();
        replicas.extend(&removing);
        Self {
            replicas,
            adding: without(target, &original),
            removing,
        }
    }
}

/// `ids` without `others`, order kept.
pub(crate) fn without(ids: &[i32], others: &[i32]) -> Vec<i32> {
    ids.iter()
        .copied()
        .filter(|id| !others.contains(id))
        .collect()
}

/// State of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionStage {
    NonExistent,
    New,
    Online,
    Offline,
}

/// State of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaStage {
    NonExistent,
    New,
    Online,
    Offline,
    DeletionStarted,
    DeletionSuccessful,
    DeletionIneligible,
}

/// What a state znode holds, with its data version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    pub state: PartitionState,
    pub partition_epoch: i32,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub assignment: Reassignment,
    pub stage: PartitionStage,
    pub leadership: Option<Leadership>,
    /// Absent: non-existent.
    pub replicas: BTreeMap<i32, ReplicaStage>,
}

impl Partition {
    pub fn new(assignment: Reassignment) -> Self {
        Self {
            assignment,
            stage: PartitionStage::NonExistent,
            leadership: None,
            replicas: BTreeMap::new(),
        }
    }

    pub fn leader(&self) -> Option<i32> {
        self.leadership.as_ref().map(|l| l.state.leader)
    }

    pub fn replica_stage(&self, broker_id: i32) -> ReplicaStage {
        self.replicas
            .get(&broker_id)
            .copied()
            .unwrap_or(ReplicaStage::NonExistent)
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topic {
    /// ZERO: it has none.
    pub id: Uuid,
    pub partitions: BTreeMap<i32, Partition>,
}

/// A live broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBroker {
    /// czxid of its registration.
    pub epoch: i64,
    pub registration: Arc<BrokerRegistration>,
}

/// The cache.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The controller epoch; 0 before the first election won.
    pub epoch: i32,
    /// Data version of `/controller_epoch` that fenced writes expect.
    pub epoch_version: i32,
    /// Live ones, those that shut down included.
    pub brokers: BTreeMap<i32, LiveBroker>,
    /// Asked for a controlled shutdown.
    pub shutting_down: BTreeSet<i32>,
    pub topics: BTreeMap<Arc<str>, Topic>,
    /// Topics whose znode cannot be read; told once, looked at again when it changes.
    pub unreadable: BTreeSet<String>,
    /// Brokers whose registration cannot be read.
    pub unreadable_brokers: BTreeSet<i32>,
    /// Replicas in failed log directories, by broker.
    pub offline_dirs: BTreeMap<i32, BTreeSet<TopicPartition>>,
    pub deleting: BTreeSet<Arc<str>>,
    /// Of these, those whose partitions have been made non-existent.
    pub deletion_started: BTreeSet<Arc<str>>,
    /// Of these, those that must wait.
    pub deletion_ineligible: BTreeSet<Arc<str>>,
}

impl Context {
    pub fn partition(&self, tp: &TopicPartition) -> Option<&Partition> {
        self.topics.get(&tp.topic)?.partitions.get(&tp.partition)
    }

    pub fn partition_mut(&mut self, tp: &TopicPartition) -> Option<&mut Partition> {
        self.topics
            .get_mut(&tp.topic)?
            .partitions
            .get_mut(&tp.partition)
    }

    pub fn partitions(&self) -> impl Iterator<Item = (TopicPartition, &Partition)> {
        self.topics.iter().flat_map(|(topic, t)| {
            t.partitions
                .iter()
                .map(|(index, p)| (TopicPartition::new(topic.clone(), *index), p))
        })
    }

    pub fn partitions_of(&self, topic: &str) -> Vec<TopicPartition> {
        let Some((name, topic)) = self.topics.get_key_value(topic) else {
            return Vec::new();
        };
        topic
            .partitions
            .keys()
            .map(|index| TopicPartition::new(name.clone(), *index))
            .collect()
    }

    pub fn replicas_of(&self, partitions: &[TopicPartition]) -> Vec<Replica> {
        let mut replicas = Vec::new();
        for partition in partitions {
            for id in self
                .partition(partition)
                .map_or(&[][..], |p| &p.assignment.replicas)
            {
                replicas.push(Replica {
                    partition: partition.clone(),
                    broker_id: *id,
                });
            }
        }
        replicas
    }

    /// Replicas of a topic that are in a state.
    pub fn replicas_in(&self, topic: &str, stage: ReplicaStage) -> Vec<Replica> {
        let partitions = self.partitions_of(topic);
        self.replicas_of(&partitions)
            .into_iter()
            .filter(|r| self.replica_stage(r) == stage)
            .collect()
    }

    pub fn replicas_on(&self, brokers: &[i32]) -> Vec<Replica> {
        let mut replicas = Vec::new();
        for (partition, p) in self.partitions() {
            for id in p
                .assignment
                .replicas
                .iter()
                .filter(|id| brokers.contains(id))
            {
                replicas.push(Replica {
                    partition: partition.clone(),
                    broker_id: *id,
                });
            }
        }
        replicas
    }

    pub fn replica_stage(&self, replica: &Replica) -> ReplicaStage {
        self.partition(&replica.partition)
            .map_or(ReplicaStage::NonExistent, |p| {
                p.replica_stage(replica.broker_id)
            })
    }

    pub fn live_or_shutting_down(&self) -> Vec<i32> {
        self.brokers.keys().copied().collect()
    }

    pub fn is_live(&self, broker_id: i32) -> bool {
        self.brokers.contains_key(&broker_id) && !self.shutting_down.contains(&broker_id)
    }

    fn in_failed_dir(&self, broker_id: i32, tp: &TopicPartition) -> bool {
        self.offline_dirs
            .get(&broker_id)
            .is_some_and(|partitions| partitions.contains(tp))
    }

    /// Its broker is alive and does not shut down, its log directory works.
    pub fn is_online(&self, broker_id: i32, tp: &TopicPartition) -> bool {
        self.is_live(broker_id) && !self.in_failed_dir(broker_id, tp)
    }

    /// The same, also while its broker shuts down.
    pub fn is_online_or_shutting_down(&self, broker_id: i32, tp: &TopicPartition) -> bool {
        self.brokers.contains_key(&broker_id) && !self.in_failed_dir(broker_id, tp)
    }

    pub fn is_deleting(&self, topic: &str) -> bool {
        self.deleting.contains(topic)
    }

    /// Partitions with a leader that is not online, topics being deleted aside.
    pub fn with_offline_leader(&self) -> Vec<TopicPartition> {
        self.partitions()
            .filter(|(tp, p)| {
                !self.is_deleting(&tp.topic)
                    && p.leader().is_some_and(|leader| !self.is_online(leader, tp))
            })
            .map(|(tp, _)| tp)
            .collect()
    }

    /// Partitions without a leader: their state was never written, or says so.
    pub fn offline_partitions(&self) -> usize {
        self.partitions()
            .filter(|(tp, p)| {
                !self.is_deleting(&tp.topic)
                    && match p.leader() {
                        None | Some(LEADER_NONE) => true,
                        Some(leader) => !self.brokers.contains_key(&leader),
                    }
            })
            .count()
    }

    pub fn topic_name(&self, id: &Uuid) -> Option<&Arc<str>> {
        self.topics
            .iter()
            .find(|(_, topic)| topic.id == *id)
            .map(|(name, _)| name)
    }

    /// Forgets a topic.
    pub fn remove_topic(&mut self, topic: &str) {
        self.topics.remove(topic);
        self.deleting.remove(topic);
        self.deletion_started.remove(topic);
        self.deletion_ineligible.remove(topic);
        for partitions in self.offline_dirs.values_mut() {
            partitions.retain(|tp| &*tp.topic != topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reassignment_names_the_target_first() {
        let start = Reassignment {
            replicas: vec![1],
            ..Default::default()
        };
        let moving = start.to(&[2, 3]);
        assert_eq!(moving.replicas, [2, 3, 1]);
        assert_eq!((&moving.adding[..], &moving.removing[..]), (&[2, 3][..], &[1][..]));
        assert_eq!(moving.target(), [2, 3]);
        assert_eq!(moving.original(), [1]);
        // cancelled: the original is the target again
        let back = moving.to(&moving.original());
        assert_eq!(back, start);
        // another target while it runs
        let other = moving.to(&[1, 4]);
        assert_eq!(other.replicas, [1, 4]);
        assert_eq!((&other.adding[..], &other.removing[..]), (&[4][..], &[][..]));
    }
}
