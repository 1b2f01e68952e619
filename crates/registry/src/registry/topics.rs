//! Topics, their assignments and the states of their partitions.

use super::{Registry, RegistryError, content, data_of, zk_error};
use crate::ANY_VERSION;
use crate::json::{ConfigZnode, PartitionState, TopicAssignment, TopicPartition, ZnodeError};
use crate::op::{ZkOp, ZkReply};
use crate::paths;
use gracchus_zk_client::{Stat, ZkError};

/// A topic as it is stored. An assignment that cannot be read is an error value: leave that topic alone, tell the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTopic {
    pub name: String,
    pub assignment: Result<TopicAssignment, ZnodeError>,
    /// The node's data version.
    pub version: i32,
}

/// A topic to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    pub assignment: TopicAssignment,
    pub config: ConfigZnode,
}

impl Registry {
    /// All topics' names, in ZooKeeper's order.
    pub async fn topic_names(&self, watch: bool) -> Result<Vec<String>, RegistryError> {
        self.children(paths::TOPICS, watch).await
    }

    /// The assignments of these topics; one that is gone is left out.
    pub async fn topics(&self, names: &[String]) -> Result<Vec<StoredTopic>, RegistryError> {
        let results = self
            .execute(
                names
                    .iter()
                    .map(|name| ZkOp::get(paths::topic(name)))
                    .collect(),
            )
            .await;
        let mut topics = Vec::with_capacity(names.len());
        for (name, result) in names.iter().zip(results) {
            if let Some((data, stat)) = data_of(&paths::topic(name), result)? {
                topics.push(StoredTopic {
                    name: name.clone(),
                    assignment: TopicAssignment::parse(&data),
                    version: stat.version,
                });
            }
        }
        Ok(topics)
    }

    /// The states of these partitions with their partition epoch (data version): `None` where there is none.
    pub async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<(Result<PartitionState, ZnodeError>, Stat)>>, RegistryError> {
        let path = |p: &TopicPartition| paths::partition_state(&p.topic, p.partition);
        let results = self
            .execute(partitions.iter().map(|p| ZkOp::get(path(p))).collect())
            .await;
        partitions
            .iter()
            .zip(results)
            .map(|(p, result)| {
                Ok(data_of(&path(p), result)?
                    .map(|(data, stat)| (PartitionState::parse(&data), stat)))
            })
            .collect()
    }

    /// A leader's own write of its partition's state (inter.broker.protocol.version below 2.7-IV2), expecting a partition
    /// epoch. Returns the new one; `BadVersion` means that the controller or another write came first. A node that holds
    /// just this state already counts as written, as in Kafka.
    pub async fn set_partition_state(
        &self,
        partition: &TopicPartition,
        state: &PartitionState,
        expected: i32,
    ) -> Result<i32, RegistryError> {
        let path = paths::partition_state(&partition.topic, partition.partition);
        let set = ZkOp::SetData {
            path: path.clone(),
            data: Some(state.to_bytes()),
            version: expected,
        };
        match self.execute_one(set).await {
            Ok(ZkReply::Set(stat)) => Ok(stat.version),
            Ok(_) => Err(zk_error(&path, ZkError::SystemError)),
            Err(failure) if failure.error == ZkError::BadVersion => {
                match data_of(&path, self.execute_one(ZkOp::get(&path)).await)? {
                    Some((data, stat)) if PartitionState::parse(&data).as_ref() == Ok(state) => {
                        Ok(stat.version)
                    }
                    _ => Err(zk_error(&path, failure)),
                }
            }
            Err(failure) => Err(zk_error(&path, failure)),
        }
    }

    /// Creates topics: for each its config, then its assignment, both unfenced; all pipelined. `NodeExists` for a topic that
    /// is there already. A crash between the two leaves a config without a topic, which a later creation takes over.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Vec<Result<(), RegistryError>> {
        let mut checks = Vec::with_capacity(topics.len() * 2);
        for topic in topics {
            checks.push(ZkOp::Exists {
                path: paths::delete_topic(&topic.name),
                watch: false,
            });
            checks.push(ZkOp::Exists {
                path: paths::topic(&topic.name),
                watch: false,
            });
        }
        let checked = self.execute(checks).await;
        let mut outcomes: Vec<Result<(), RegistryError>> = Vec::with_capacity(topics.len());
        for (topic, pair) in topics.iter().zip(checked.chunks(2)) {
            let path = paths::topic(&topic.name);
            let failed = pair.iter().find_map(|result| match result {
                Err(failure) if failure.error != ZkError::NoNode => Some(*failure),
                _ => None,
            });
            outcomes.push(match (failed, pair) {
                (Some(failure), _) => Err(zk_error(&path, failure)),
                (None, [Ok(_), _]) => Err(RegistryError::MarkedForDeletion(topic.name.clone())),
                (None, [_, Ok(_)]) => Err(zk_error(&path, ZkError::NodeExists)),
                (None, _) => Ok(()),
            });
        }
        let free: Vec<usize> = outcomes
            .iter()
            .enumerate()
            .filter(|(_, outcome)| outcome.is_ok())
            .map(|(at, _)| at)
            .collect();
        let mut writes = Vec::with_capacity(free.len() * 2);
        for topic in free.iter().filter_map(|at| topics.get(*at)) {
            writes.push(ZkOp::create(
                paths::topic_config(&topic.name),
                Some(topic.config.to_bytes()),
            ));
            writes.push(ZkOp::create(
                paths::topic(&topic.name),
                Some(topic.assignment.to_bytes()),
            ));
        }
        let written = self.execute(writes).await;
        for (at, pair) in free.iter().zip(written.chunks(2)) {
            let (Some(topic), Some(outcome)) = (topics.get(*at), outcomes.get_mut(*at)) else {
                continue;
            };
            if let [_, Err(failure)] = pair {
                *outcome = Err(zk_error(&paths::topic(&topic.name), *failure));
                continue;
            }
            match pair.first() {
                Some(Err(failure)) if failure.error == ZkError::NodeExists => {
                    // left over from a creation that was cut short: it now belongs to this topic
                    let path = paths::topic_config(&topic.name);
                    let set = ZkOp::SetData {
                        path: path.clone(),
                        data: Some(topic.config.to_bytes()),
                        version: ANY_VERSION,
                    };
                    *outcome = self
                        .execute_one(set)
                        .await
                        .map(|_| ())
                        .map_err(|failure| zk_error(&path, failure));
                }
                Some(Err(failure)) => {
                    *outcome = Err(zk_error(&paths::topic_config(&topic.name), *failure))
                }
                _ => {}
            }
        }
        outcomes
    }

    /// Rewrites a topic's assignment, unfenced (a partition count grows).
    pub async fn set_assignment(
        &self,
        topic: &str,
        assignment: &TopicAssignment,
    ) -> Result<(), RegistryError> {
        let path = paths::topic(topic);
        let set = ZkOp::SetData {
            path: path.clone(),
            data: Some(assignment.to_bytes()),
            version: ANY_VERSION,
        };
        self.execute_one(set)
            .await
            .map(|_| ())
            .map_err(|failure| zk_error(&path, failure))
    }

    /// Marks topics for deletion by the controller. One that is marked already is fine.
    pub async fn mark_for_deletion(&self, topics: &[String]) -> Vec<Result<(), RegistryError>> {
        let results = self
            .execute(
                topics
                    .iter()
                    .map(|topic| ZkOp::create(paths::delete_topic(topic), None))
                    .collect(),
            )
            .await;
        topics
            .iter()
            .zip(results)
            .map(|(topic, result)| match result {
                Ok(_) => Ok(()),
                Err(failure) if failure.error == ZkError::NodeExists => Ok(()),
                Err(failure) => Err(zk_error(&paths::delete_topic(topic), failure)),
            })
            .collect()
    }

    /// One topic's assignment.
    pub async fn assignment(&self, topic: &str) -> Result<Option<TopicAssignment>, RegistryError> {
        let path = paths::topic(topic);
        match data_of(&path, self.execute_one(ZkOp::get(&path)).await)? {
            Some((data, _)) => Ok(Some(content(&path, TopicAssignment::parse(&data))?)),
            None => Ok(None),
        }
    }
}
