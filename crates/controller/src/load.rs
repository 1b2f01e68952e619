//! Reading brokers, topics and states from ZooKeeper. A node that cannot be read is told of and left alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::{BrokerRegistration, PartitionState, TopicAssignment};
use gracchus_registry::op::{MultiStep, ZkError};
use gracchus_registry::paths;

use crate::context::{Leadership, LiveBroker, Partition, Reassignment, Topic, TopicPartition};
use crate::core::{Core, Failure};

impl Core {
    /// All registered brokers, with watches on the list and on each.
    pub async fn read_brokers(&mut self) -> Result<BTreeMap<i32, LiveBroker>, Failure> {
        let mut ids: Vec<i32> = Vec::new();
        for child in self.children(paths::BROKER_IDS, true).await? {
            match child.parse() {
                Ok(id) => ids.push(id),
                Err(_) => tracing::error!(
                    "{}/{child} is no broker id; delete the node",
                    paths::BROKER_IDS
                ),
            }
        }
        ids.sort_unstable();
        let nodes: Vec<String> = ids.iter().map(|id| paths::broker(*id)).collect();
        let read = self.read_all(&nodes, true).await?;
        let mut brokers = BTreeMap::new();
        for (id, found) in ids.iter().zip(read) {
            let Some((data, stat)) = found else {
                self.cx.unreadable_brokers.remove(id);
                continue;
            };
            match BrokerRegistration::parse(&data) {
                Ok(registration) => {
                    self.cx.unreadable_brokers.remove(id);
                    brokers.insert(
                        *id,
                        LiveBroker {
                            epoch: stat.czxid,
                            registration: Arc::new(registration),
                        },
                    );
                }
                Err(error) => {
                    if self.cx.unreadable_brokers.insert(*id) {
                        tracing::error!(
                            "{} cannot be read: {error}. Broker {id} is left out of the cluster; restart it, or delete the node",
                            paths::broker(*id)
                        );
                    }
                }
            }
        }
        Ok(brokers)
    }

    /// Reads these topics, with a watch on each, and adds them to the cache. Missing ids are given.
    pub async fn load_topics(&mut self, names: &[String]) -> Result<Vec<TopicPartition>, Failure> {
        let nodes: Vec<String> = names.iter().map(|name| paths::topic(name)).collect();
        let read = self.read_all(&nodes, true).await?;
        let mut without_id = Vec::new();
        let mut added = Vec::new();
        for (name, found) in names.iter().zip(read) {
            let Some((data, stat)) = found else {
                continue;
            };
            let mut assignment = match TopicAssignment::parse(&data) {
                Ok(assignment) => assignment,
                Err(error) => {
                    if self.cx.unreadable.insert(name.clone()) {
                        tracing::error!(
                            "{} cannot be read: {error}. The topic is left alone until its content is repaired",
                            paths::topic(name)
                        );
                    }
                    continue;
                }
            };
            self.cx.unreadable.remove(name);
            let topic: Arc<str> = name.as_str().into();
            if assignment.topic_id.is_none() && self.config.versions.topic_ids {
                assignment.topic_id = Some(new_topic_id());
                without_id.push((topic.clone(), assignment.clone(), stat.version));
            }
            let mut entry = Topic {
                id: assignment.topic_id.unwrap_or(Uuid::ZERO),
                partitions: BTreeMap::new(),
            };
            for index in assignment.partitions.keys() {
                if *index < 0 {
                    tracing::error!(
                        "{} names partition {index}, which cannot be; it is left out",
                        paths::topic(name)
                    );
                    continue;
                }
                entry
                    .partitions
                    .insert(*index, Partition::new(replicas_of(&assignment, *index)));
                added.push(TopicPartition::new(topic.clone(), *index));
            }
            self.cx.topics.insert(topic, entry);
        }
        self.store_topic_ids(without_id).await?;
        Ok(added)
    }

    async fn store_topic_ids(
        &mut self,
        topics: Vec<(Arc<str>, TopicAssignment, i32)>,
    ) -> Result<(), Failure> {
        let steps = topics
            .iter()
            .map(|(topic, assignment, version)| MultiStep::SetData {
                path: paths::topic(topic),
                data: Some(assignment.to_bytes()),
                version: *version,
            })
            .collect();
        let outcomes = self.fenced(steps).await?;
        for ((topic, ..), outcome) in topics.iter().zip(outcomes) {
            match outcome {
                Ok(_) => {}
                // changed or gone meanwhile: its watch says so
                Err(ZkError::BadVersion | ZkError::NoNode) => {
                    self.cx.topics.remove(topic);
                }
                Err(error) => tracing::error!("{}: no topic id stored: {error}", paths::topic(topic)),
            }
        }
        Ok(())
    }

    /// Reads the states of these partitions into the cache.
    pub async fn load_states(&mut self, partitions: &[TopicPartition]) -> Result<(), Failure> {
        let nodes: Vec<String> = partitions
            .iter()
            .map(|tp| paths::partition_state(&tp.topic, tp.partition))
            .collect();
        let read = self.read_all(&nodes, false).await?;
        for ((tp, node), found) in partitions.iter().zip(&nodes).zip(read) {
            let Some((data, stat)) = found else { continue };
            match PartitionState::parse(&data) {
                Ok(state) => {
                    if let Some(partition) = self.cx.partition_mut(tp) {
                        partition.leadership = Some(Leadership {
                            state,
                            partition_epoch: stat.version,
                        });
                    }
                }
                Err(error) => tracing::error!(
                    "{node} cannot be read: {error}. The partition has no leader until the node is repaired and a controller is elected"
                ),
            }
        }
        Ok(())
    }
}

/// The replicas of one partition.
pub(crate) fn replicas_of(assignment: &TopicAssignment, index: i32) -> Reassignment {
    let of = |map: &BTreeMap<i32, Vec<i32>>| map.get(&index).cloned().unwrap_or_default();
    Reassignment {
        replicas: of(&assignment.partitions),
        adding: of(&assignment.adding_replicas),
        removing: of(&assignment.removing_replicas),
    }
}

/// A random id that is none of Kafka's reserved ones and does not begin with a dash, which would look like an option.
pub(crate) fn new_topic_id() -> Uuid {
    loop {
        let id = Uuid::from_bytes(*uuid::Uuid::new_v4().as_bytes());
        let reserved = id.as_bytes().iter().take(15).all(|byte| *byte == 0);
        if !reserved && !id.to_string().starts_with('-') {
            return id;
        }
    }
}
