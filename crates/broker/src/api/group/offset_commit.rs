//! OffsetCommit (8): to the coordinator, in version 0 to ZooKeeper.

use std::sync::Arc;

use gracchus_groups::request::{CommittedOffset, OffsetCommit, TopicPartition};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use gracchus_kafka_proto::messages::{OffsetCommitRequest, OffsetCommitResponse};
use indexmap::IndexMap;

use super::check_instance_id;
use crate::broker::Broker;
use crate::context::RequestContext;
use crate::group::legacy;

/// Answers: partitions that do not exist by themselves, the rest by the coordinator.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let mut outcomes: IndexMap<String, Vec<OffsetCommitResponsePartition>> = IndexMap::new();
    let refused = check_instance_id(broker, request.group_instance_id.as_ref()).err();
    let metadata = broker.metadata.snapshot();
    let mut offsets = Vec::new();
    for topic in request.topics {
        for partition in topic.partitions {
            let index = partition.partition_index;
            let error = match refused {
                Some(error) => error,
                None if metadata.partition(&topic.name, index).is_none() => {
                    ErrorCode::UnknownTopicOrPartition
                }
                None => {
                    offsets.push(CommittedOffset {
                        partition: TopicPartition::new(topic.name.clone(), index),
                        offset: partition.committed_offset,
                        leader_epoch: partition.committed_leader_epoch,
                        metadata: partition.committed_metadata,
                        timestamp: partition.commit_timestamp,
                    });
                    continue;
                }
            };
            let slot = outcomes.entry(topic.name.clone()).or_default();
            slot.push(outcome(index, error));
        }
    }
    if !offsets.is_empty() {
        let asked: Vec<_> = offsets.iter().map(|o| o.partition.clone()).collect();
        let mut results = if ctx.api_version == 0 {
            legacy::commit(broker, &request.group_id, offsets).await
        } else {
            let commit = OffsetCommit {
                group_id: request.group_id,
                generation_id: request.generation_id_or_member_epoch,
                member_id: request.member_id,
                group_instance_id: request.group_instance_id,
                retention_ms: (request.retention_time_ms != -1)
                    .then_some(request.retention_time_ms),
                offsets,
            };
            broker.groups.commit_offsets(commit).await
        };
        if results.is_empty() {
            // the broker stops
            let stopped = |partition| (partition, ErrorCode::CoordinatorNotAvailable);
            results = asked.into_iter().map(stopped).collect();
        }
        for (partition, error) in results {
            let slot = outcomes.entry(partition.topic).or_default();
            slot.push(outcome(partition.partition, error));
        }
    }
    OffsetCommitResponse {
        topics: outcomes
            .into_iter()
            .map(|(name, partitions)| OffsetCommitResponseTopic {
                name,
                partitions,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn outcome(partition_index: i32, error: ErrorCode) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition {
        partition_index,
        error_code: error.code(),
        ..Default::default()
    }
}
