//! OffsetDelete (47, KIP-496).

use std::sync::Arc;

use gracchus_groups::request::{OffsetDelete, TopicPartition};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use gracchus_kafka_proto::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use indexmap::IndexMap;

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers: partitions that do not exist by themselves, the rest by the coordinator; its error for the group alone.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let metadata = broker.metadata.snapshot();
    let mut partitions = Vec::new();
    let mut topics: IndexMap<String, Vec<OffsetDeleteResponsePartition>> = IndexMap::new();
    for topic in request.topics {
        for partition in topic.partitions {
            let index = partition.partition_index;
            if metadata.partition(&topic.name, index).is_some() {
                partitions.push(TopicPartition::new(topic.name.clone(), index));
            } else {
                let slot = topics.entry(topic.name.clone()).or_default();
                slot.push(outcome(index, ErrorCode::UnknownTopicOrPartition));
            }
        }
    }
    let delete = OffsetDelete {
        group_id: request.group_id,
        partitions,
    };
    let result = broker.groups.delete_offsets(delete).await;
    if result.error != ErrorCode::None {
        return OffsetDeleteResponse {
            error_code: result.error.code(),
            ..Default::default()
        };
    }
    for (partition, error) in result.partitions {
        let slot = topics.entry(partition.topic).or_default();
        slot.push(outcome(partition.partition, error));
    }
    OffsetDeleteResponse {
        topics: topics
            .into_iter()
            .map(|(name, partitions)| OffsetDeleteResponseTopic { name, partitions })
            .collect(),
        ..Default::default()
    }
}

fn outcome(partition_index: i32, error: ErrorCode) -> OffsetDeleteResponsePartition {
    OffsetDeleteResponsePartition {
        partition_index,
        error_code: error.code(),
    }
}
