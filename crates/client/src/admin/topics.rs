//! Topics: list, describe, create, delete, more partitions; deletion of their oldest records.

use super::{Admin, Each};
use crate::{ClientError, TopicPartition};
use gracchus_kafka_proto::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use gracchus_kafka_proto::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use gracchus_kafka_proto::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use gracchus_kafka_proto::messages::delete_topics_request::DeleteTopicState;
use gracchus_kafka_proto::messages::elect_leaders_request::TopicPartitions;
use gracchus_kafka_proto::messages::metadata_response::MetadataResponseTopic;
use gracchus_kafka_proto::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    ElectLeadersRequest,
};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use std::collections::BTreeMap;

/// A topic to be created; `None` is the cluster's default.
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    pub name: String,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
    /// Replicas by partition, the preferred leader first; instead of the two above.
    pub assignment: BTreeMap<i32, Vec<i32>>,
    pub configs: Vec<(String, String)>,
}

/// More partitions for a topic.
#[derive(Debug, Clone, Default)]
pub struct NewPartitions {
    pub name: String,
    /// All partitions, old and new.
    pub count: i32,
    /// Replicas of each new one; chosen by the cluster when `None`.
    pub assignment: Option<Vec<Vec<i32>>>,
}

#[derive(Debug, Clone)]
pub struct TopicDescription {
    pub name: String,
    pub id: Uuid,
    pub internal: bool,
    /// In the order of their numbers.
    pub partitions: Vec<PartitionInfo>,
}

#[derive(Debug, Clone)]
pub struct PartitionInfo {
    pub partition: i32,
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub offline: Vec<i32>,
}

fn described(topic: MetadataResponseTopic) -> TopicDescription {
    let mut partitions: Vec<_> = topic
        .partitions
        .into_iter()
        .map(|p| PartitionInfo {
            partition: p.partition_index,
            leader: (p.leader_id >= 0).then_some(p.leader_id),
            leader_epoch: p.leader_epoch,
            replicas: p.replica_nodes,
            isr: p.isr_nodes,
            offline: p.offline_replicas,
        })
        .collect();
    partitions.sort_by_key(|p| p.partition);
    TopicDescription {
        name: topic.name.unwrap_or_default(),
        id: topic.topic_id,
        internal: topic.is_internal,
        partitions,
    }
}

impl Admin {
    /// All topics, by name.
    pub async fn list_topics(&self) -> Result<Vec<TopicDescription>, ClientError> {
        let answer = self
            .cluster
            .retry(|| async { self.cluster.metadata(None).await })
            .await?;
        let mut topics: Vec<_> = answer.topics.into_iter().map(described).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// The topics of these names, in their order.
    pub async fn describe_topics(
        &self,
        names: &[String],
    ) -> Result<Each<String, TopicDescription>, ClientError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self
            .cluster
            .retry(|| async { self.cluster.metadata(Some(names)).await })
            .await?;
        let mut found: BTreeMap<String, _> = answer
            .topics
            .into_iter()
            .map(|t| (t.name.clone().unwrap_or_default(), t))
            .collect();
        Ok(names
            .iter()
            .map(|name| {
                let result = match found.remove(name) {
                    None => Err(ClientError::api(ErrorCode::UnknownTopicOrPartition, None)),
                    Some(t) => ClientError::check(t.error_code, None).map(|()| described(t)),
                };
                (name.clone(), result)
            })
            .collect())
    }

    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Each<String, ()>, ClientError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: self.timeout_ms(),
            validate_only,
            ..Default::default()
        };
        let answer = self
            .on_controller(&request, i16::MAX, |a| {
                a.topics.first().map_or(0, |t| t.error_code)
            })
            .await?;
        Ok(answer
            .topics
            .into_iter()
            .map(|t| {
                let result = ClientError::check(t.error_code, t.error_message.as_deref());
                (t.name, result)
            })
            .collect())
    }

    pub async fn delete_topics(&self, names: &[String]) -> Result<Each<String, ()>, ClientError> {
        // version 6 has topic ids beside names; 5 and older take names alone
        let with_ids = DeleteTopicsRequest {
            topics: names
                .iter()
                .map(|name| DeleteTopicState {
                    name: Some(name.clone()),
                    ..Default::default()
                })
                .collect(),
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let by_name = DeleteTopicsRequest {
            topic_names: names.to_vec(),
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let version = self
            .cluster
            .retry(|| async { self.cluster.any().await })
            .await?
            .version::<DeleteTopicsRequest>(i16::MAX)?;
        let request = if version >= 6 { with_ids } else { by_name };
        let answer = self
            .on_controller(&request, version, |a| {
                a.responses.first().map_or(0, |t| t.error_code)
            })
            .await?;
        Ok(answer
            .responses
            .into_iter()
            .map(|t| {
                let result = ClientError::check(t.error_code, t.error_message.as_deref());
                (t.name.unwrap_or_default(), result)
            })
            .collect())
    }

    /// Raises the topics' partitions.
    pub async fn create_partitions(
        &self,
        topics: &[NewPartitions],
    ) -> Result<Each<String, ()>, ClientError> {
        let request = CreatePartitionsRequest {
            topics: topics
                .iter()
                .map(|t| CreatePartitionsTopic {
                    name: t.name.clone(),
                    count: t.count,
                    assignments: t.assignment.as_ref().map(|list| {
                        list.iter()
                            .map(|ids| CreatePartitionsAssignment {
                                broker_ids: ids.clone(),
                                ..Default::default()
                            })
                            .collect()
                    }),
                    ..Default::default()
                })
                .collect(),
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let answer = self
            .on_controller(&request, i16::MAX, |a| {
                a.results.first().map_or(0, |t| t.error_code)
            })
            .await?;
        Ok(answer
            .results
            .into_iter()
            .map(|t| {
                let result = ClientError::check(t.error_code, t.error_message.as_deref());
                (t.name, result)
            })
            .collect())
    }

    /// Has leaders elected: the preferred ones, or with `unclean` any live replica where none in sync is left. None: for all
    /// partitions that need it. ELECTION_NOT_NEEDED tells of those that were named and don't.
    pub async fn elect_leaders(
        &self,
        unclean: bool,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Each<TopicPartition, ()>, ClientError> {
        let topics = partitions.map(|partitions| {
            let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for tp in partitions {
                topics.entry(&tp.topic).or_default().push(tp.partition);
            }
            let topics = topics
                .into_iter()
                .map(|(topic, partitions)| TopicPartitions {
                    topic: topic.to_owned(),
                    partitions,
                    ..Default::default()
                });
            topics.collect()
        });
        let request = ElectLeadersRequest {
            election_type: i8::from(unclean),
            topic_partitions: topics,
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let answer = self
            .on_controller(&request, i16::MAX, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, None)?;
        let mut out = Vec::new();
        for topic in answer.replica_election_results {
            for p in topic.partition_result {
                let result = ClientError::check(p.error_code, p.error_message.as_deref());
                out.push((TopicPartition::new(&topic.topic, p.partition_id), result));
            }
        }
        Ok(out)
    }

    /// Deletes what lies before the offset of each partition (-1: everything up to the high watermark); gives the new
    /// first offset.
    pub async fn delete_records(
        &self,
        before: &[(TopicPartition, i64)],
    ) -> Result<Each<TopicPartition, i64>, ClientError> {
        let offsets: BTreeMap<_, _> = before.iter().cloned().collect();
        let mut out = Vec::new();
        let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for tp in offsets.keys() {
            // one that does not exist fails alone
            match self.cluster.leader(tp).await {
                Ok(leader) => by_leader.entry(leader.broker).or_default().push(tp.clone()),
                Err(e) if e.code().is_some() => out.push((tp.clone(), Err(e))),
                Err(e) => return Err(e),
            }
        }
        for (broker, partitions) in by_leader {
            let mut topics: BTreeMap<String, Vec<DeleteRecordsPartition>> = BTreeMap::new();
            for tp in &partitions {
                topics
                    .entry(tp.topic.clone())
                    .or_default()
                    .push(DeleteRecordsPartition {
                        partition_index: tp.partition,
                        offset: offsets.get(tp).copied().unwrap_or(-1),
                        ..Default::default()
                    });
            }
            let request = DeleteRecordsRequest {
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| DeleteRecordsTopic {
                        name,
                        partitions,
                        ..Default::default()
                    })
                    .collect(),
                timeout_ms: self.timeout_ms(),
                ..Default::default()
            };
            let answer = self.cluster.broker(broker).await?.send(&request).await?;
            for topic in answer.topics {
                for p in topic.partitions {
                    let result = ClientError::check(p.error_code, None).map(|()| p.low_watermark);
                    out.push((TopicPartition::new(&topic.name, p.partition_index), result));
                }
            }
        }
        Ok(out)
    }
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions: topic.partitions.unwrap_or(-1),
        replication_factor: topic.replication_factor.unwrap_or(-1),
        assignments: topic
            .assignment
            .iter()
            .map(|(partition, ids)| CreatableReplicaAssignment {
                partition_index: *partition,
                broker_ids: ids.clone(),
                ..Default::default()
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: name.clone(),
                value: Some(value.clone()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
