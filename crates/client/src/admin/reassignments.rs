//! Moving replicas: between brokers, and between the log directories of one.

use super::{Admin, Each};
use crate::{ClientError, TopicPartition};
use gracchus_kafka_proto::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use gracchus_kafka_proto::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use gracchus_kafka_proto::messages::describe_log_dirs_request::DescribableLogDirTopic;
use gracchus_kafka_proto::messages::{
    AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest,
    ListPartitionReassignmentsRequest,
};
use std::collections::{BTreeMap, BTreeSet};

/// Replicas that are on their way in or out.
#[derive(Debug, Clone)]
pub struct Reassignment {
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
}

/// A partition's replica on one broker. Ordered by broker first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    pub broker: i32,
    pub partition: TopicPartition,
}

/// Where a replica's log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaLog {
    pub dir: String,
    /// Bytes on disk.
    pub size: i64,
    /// Records that it is behind: a current log its partition's high watermark, a future one the current log.
    pub offset_lag: i64,
}

/// A replica's logs on its broker; none of both: the broker has none, or in a directory that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaDirs {
    pub current: Option<ReplicaLog>,
    /// The copy being made in another directory.
    pub future: Option<ReplicaLog>,
}

impl Admin {
    /// What is being moved between brokers now.
    pub async fn list_reassignments(
        &self,
    ) -> Result<BTreeMap<TopicPartition, Reassignment>, ClientError> {
        let request = ListPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            topics: None,
            ..Default::default()
        };
        let answer = self
            .on_controller(&request, i16::MAX, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, answer.error_message.as_deref())?;
        let mut out = BTreeMap::new();
        for topic in answer.topics {
            for p in topic.partitions {
                out.insert(
                    TopicPartition::new(&topic.name, p.partition_index),
                    Reassignment {
                        replicas: p.replicas,
                        adding: p.adding_replicas,
                        removing: p.removing_replicas,
                    },
                );
            }
        }
        Ok(out)
    }

    /// Has each partition's replicas become these, the preferred leader first; None cancels what goes on. An answer tells
    /// that the move has begun, not that it is done.
    pub async fn alter_reassignments(
        &self,
        targets: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
    ) -> Result<Each<TopicPartition, ()>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
        for (partition, replicas) in targets {
            let of_topic = topics.entry(&partition.topic).or_default();
            of_topic.push(ReassignablePartition {
                partition_index: partition.partition,
                replicas: replicas.clone(),
                ..Default::default()
            });
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ReassignableTopic {
                name: name.to_owned(),
                partitions,
                ..Default::default()
            });
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            topics: topics.collect(),
            ..Default::default()
        };
        let answer = self
            .on_controller(&request, i16::MAX, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, answer.error_message.as_deref())?;
        let mut out = Vec::new();
        for topic in answer.responses {
            for p in topic.partitions {
                let result = ClientError::check(p.error_code, p.error_message.as_deref());
                out.push((TopicPartition::new(&topic.name, p.partition_index), result));
            }
        }
        Ok(out)
    }

    /// Has each replica's log moved to this directory of its broker.
    pub async fn alter_replica_log_dirs(
        &self,
        moves: &BTreeMap<Replica, String>,
    ) -> Result<Each<Replica, ()>, ClientError> {
        let mut by_broker: BTreeMap<i32, BTreeMap<&str, BTreeMap<&str, Vec<i32>>>> =
            BTreeMap::new();
        for (replica, dir) in moves {
            let dirs = by_broker.entry(replica.broker).or_default();
            let topics = dirs.entry(dir).or_default();
            let partitions = topics.entry(&replica.partition.topic).or_default();
            partitions.push(replica.partition.partition);
        }
        let mut out = Vec::new();
        for (broker, dirs) in by_broker {
            let topics = |topics: BTreeMap<&str, Vec<i32>>| {
                topics
                    .into_iter()
                    .map(|(name, partitions)| AlterReplicaLogDirTopic {
                        name: name.to_owned(),
                        partitions,
                        ..Default::default()
                    })
                    .collect()
            };
            let dirs = dirs.into_iter().map(|(path, named)| AlterReplicaLogDir {
                path: path.to_owned(),
                topics: topics(named),
                ..Default::default()
            });
            let request = AlterReplicaLogDirsRequest {
                dirs: dirs.collect(),
                ..Default::default()
            };
            let answer = self.cluster.broker(broker).await?.send(&request).await?;
            for topic in answer.results {
                for p in topic.partitions {
                    let partition = TopicPartition::new(&topic.topic_name, p.partition_index);
                    let result = ClientError::check(p.error_code, None);
                    out.push((Replica { broker, partition }, result));
                }
            }
        }
        Ok(out)
    }

    /// Where the replicas' logs are, each asked of its own broker; directories that failed are left out.
    pub async fn describe_replica_log_dirs(
        &self,
        replicas: &BTreeSet<Replica>,
    ) -> Result<BTreeMap<Replica, ReplicaDirs>, ClientError> {
        let mut out: BTreeMap<Replica, ReplicaDirs> = replicas
            .iter()
            .map(|replica| (replica.clone(), ReplicaDirs::default()))
            .collect();
        let mut by_broker: BTreeMap<i32, BTreeMap<&str, Vec<i32>>> = BTreeMap::new();
        for Replica { broker, partition } in replicas {
            let topics = by_broker.entry(*broker).or_default();
            let partitions = topics.entry(&partition.topic).or_default();
            partitions.push(partition.partition);
        }
        for (broker, topics) in by_broker {
            let topics = topics
                .into_iter()
                .map(|(topic, partitions)| DescribableLogDirTopic {
                    topic: topic.to_owned(),
                    partitions,
                    ..Default::default()
                });
            let dirs = self.describe_log_dirs(broker, Some(topics.collect()));
            for dir in dirs.await? {
                if dir.error_code != 0 {
                    continue;
                }
                for topic in dir.topics {
                    for p in topic.partitions {
                        let partition = TopicPartition::new(&topic.name, p.partition_index);
                        let Some(found) = out.get_mut(&Replica { broker, partition }) else {
                            continue;
                        };
                        let log = ReplicaLog {
                            dir: dir.log_dir.clone(),
                            size: p.partition_size,
                            offset_lag: p.offset_lag,
                        };
                        match p.is_future_key {
                            true => found.future = Some(log),
                            false => found.current = Some(log),
                        }
                    }
                }
            }
        }
        Ok(out)
    }
}
