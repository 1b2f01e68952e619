//! Offsets: those of a log (by time, first, last) and those a group has committed.

use super::{Admin, Each};
use crate::{ClientError, TopicPartition};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsTopic,
};
use gracchus_kafka_proto::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use gracchus_kafka_proto::messages::offset_fetch_request::OffsetFetchRequestTopic;
use gracchus_kafka_proto::messages::{ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Which offset of a log is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    Latest,
    Earliest,
    /// Of the record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// First one that is on the broker's own disk (KIP-405).
    EarliestLocal,
    /// Last one that is in the remote tier (KIP-1005).
    LatestTiered,
    /// First one at or after a time (ms).
    AtOrAfter(i64),
}

impl OffsetSpec {
    fn timestamp(self) -> i64 {
        match self {
            OffsetSpec::Latest => -1,
            OffsetSpec::Earliest => -2,
            OffsetSpec::MaxTimestamp => -3,
            OffsetSpec::EarliestLocal => -4,
            OffsetSpec::LatestTiered => -5,
            OffsetSpec::AtOrAfter(ms) => ms,
        }
    }
}

/// Numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(i8)]
pub enum IsolationLevel {
    #[default]
    ReadUncommitted = 0,
    ReadCommitted = 1,
}

/// Offset -1 when no record fits the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    pub offset: i64,
    pub timestamp: i64,
    pub leader_epoch: i32,
}

/// What a group has committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    /// -1 when not known.
    pub leader_epoch: i32,
    pub metadata: String,
}

impl Admin {
    /// Partitions whose leader moves meanwhile are asked for again.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
        isolation: IsolationLevel,
    ) -> Result<Each<TopicPartition, ListedOffset>, ClientError> {
        let config = self.cluster.config();
        let deadline = Instant::now() + config.api_timeout;
        let mut left: BTreeMap<TopicPartition, OffsetSpec> = wanted.iter().cloned().collect();
        let mut out = BTreeMap::new();
        loop {
            let last = match self.list_offsets_once(&left, isolation).await {
                Ok(results) => {
                    let mut last = None;
                    for (tp, result) in results {
                        match result {
                            Err(e) if e.is_retriable() => last = Some(e),
                            done => {
                                left.remove(&tp);
                                out.insert(tp, done);
                            }
                        }
                    }
                    last
                }
                Err(e) if e.is_retriable() => Some(e),
                Err(e) => return Err(e),
            };
            if left.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                let error =
                    last.unwrap_or_else(|| ClientError::api(ErrorCode::RequestTimedOut, None));
                out.extend(left.into_keys().map(|tp| (tp, Err(error.clone()))));
                break;
            }
            for tp in left.keys() {
                self.cluster.forget_leader(tp);
            }
            tokio::time::sleep(config.retry_backoff).await;
        }
        Ok(out.into_iter().collect())
    }

    async fn list_offsets_once(
        &self,
        wanted: &BTreeMap<TopicPartition, OffsetSpec>,
        isolation: IsolationLevel,
    ) -> Result<Each<TopicPartition, ListedOffset>, ClientError> {
        let partitions: Vec<_> = wanted.keys().cloned().collect();
        let mut out = Vec::new();
        for (broker, partitions) in self.cluster.by_leader(&partitions).await? {
            let mut topics: BTreeMap<String, Vec<ListOffsetsPartition>> = BTreeMap::new();
            for tp in &partitions {
                let spec = wanted.get(tp).copied().unwrap_or(OffsetSpec::Latest);
                topics
                    .entry(tp.topic.clone())
                    .or_default()
                    .push(ListOffsetsPartition {
                        partition_index: tp.partition,
                        current_leader_epoch: -1,
                        timestamp: spec.timestamp(),
                        ..Default::default()
                    });
            }
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level: isolation as i8,
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| ListOffsetsTopic {
                        name,
                        partitions,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            };
            let answer = self.cluster.broker(broker).await?.send(&request).await?;
            for topic in answer.topics {
                for p in topic.partitions {
                    let listed = ListedOffset {
                        offset: p.offset,
                        timestamp: p.timestamp,
                        leader_epoch: p.leader_epoch,
                    };
                    let result = ClientError::check(p.error_code, None).map(|()| listed);
                    out.push((TopicPartition::new(&topic.name, p.partition_index), result));
                }
            }
        }
        Ok(out)
    }

    /// What the group has committed, of all partitions (`None`) or some; partitions without a commit are left out.
    pub async fn committed_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, Committed>, ClientError> {
        let topics = partitions.map(|list| {
            let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for tp in list {
                topics.entry(&tp.topic).or_default().push(tp.partition);
            }
            topics
                .into_iter()
                .map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                    name: name.to_owned(),
                    partition_indexes,
                    ..Default::default()
                })
                .collect()
        });
        let request = OffsetFetchRequest {
            group_id: group.to_owned(),
            topics,
            ..Default::default()
        };
        // version 8 asks for several groups at once
        let answer = self
            .on_coordinator(group, &request, 7, |a| a.error_code)
            .await?;
        ClientError::check(answer.error_code, None)?;
        let mut out = BTreeMap::new();
        for topic in answer.topics {
            for p in topic.partitions {
                ClientError::check(p.error_code, None)?;
                if p.committed_offset >= 0 {
                    out.insert(
                        TopicPartition::new(&topic.name, p.partition_index),
                        Committed {
                            offset: p.committed_offset,
                            leader_epoch: p.committed_leader_epoch,
                            metadata: p.metadata.unwrap_or_default(),
                        },
                    );
                }
            }
        }
        Ok(out)
    }

    /// Commits for a group without members, as tools do.
    pub async fn alter_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, Committed)],
    ) -> Result<Each<TopicPartition, ()>, ClientError> {
        let request = commit_request(group, -1, "", None, offsets);
        let answer = self
            .on_coordinator(group, &request, 9, |a| {
                let first = a.topics.first().and_then(|t| t.partitions.first());
                first.map_or(0, |p| p.error_code)
            })
            .await?;
        let mut out = Vec::new();
        for topic in answer.topics {
            for p in topic.partitions {
                let tp = TopicPartition::new(&topic.name, p.partition_index);
                out.push((tp, ClientError::check(p.error_code, None)));
            }
        }
        Ok(out)
    }
}

/// An OffsetCommit of a member, or of nobody (generation -1, empty member id).
pub(crate) fn commit_request(
    group: &str,
    generation: i32,
    member: &str,
    instance: Option<&str>,
    offsets: &[(TopicPartition, Committed)],
) -> OffsetCommitRequest {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (tp, committed) in offsets {
        topics
            .entry(&tp.topic)
            .or_default()
            .push(OffsetCommitRequestPartition {
                partition_index: tp.partition,
                committed_offset: committed.offset,
                committed_leader_epoch: committed.leader_epoch,
                committed_metadata: Some(committed.metadata.clone()),
                ..Default::default()
            });
    }
    OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: generation,
        member_id: member.to_owned(),
        group_instance_id: instance.map(str::to_owned),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| OffsetCommitRequestTopic {
                name: name.to_owned(),
                partitions,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
