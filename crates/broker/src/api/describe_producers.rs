//! DescribeProducers (61): producers with state in partitions led here (KIP-664).

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use gracchus_kafka_proto::messages::{DescribeProducersRequest, DescribeProducersResponse};

use super::leader_hint::{name_fault, text_of};
use crate::broker::Broker;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    _ctx: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            let producers = match name_fault(&topic.name) {
                Some(text) => Err((ErrorCode::InvalidTopicException, Some(text))),
                None => replicas
                    .producers(&topic.name, index)
                    .map_err(|code| (code, text_of(code))),
            };
            match producers {
                Ok(producers) => PartitionResponse {
                    partition_index: index,
                    active_producers: producers
                        .into_iter()
                        .map(|producer| ProducerState {
                            producer_id: producer.producer_id,
                            producer_epoch: producer.producer_epoch.into(),
                            last_sequence: producer.last_sequence,
                            last_timestamp: producer.last_timestamp,
                            coordinator_epoch: producer.coordinator_epoch,
                            current_txn_start_offset: producer.current_txn_start_offset,
                            ..Default::default()
                        })
                        .collect(),
                    ..Default::default()
                },
                Err((code, error_message)) => PartitionResponse {
                    partition_index: index,
                    error_code: code.code(),
                    error_message,
                    ..Default::default()
                },
            }
        });
        let partitions = partitions.collect();
        TopicResponse {
            name: topic.name,
            partitions,
            ..Default::default()
        }
    });
    DescribeProducersResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}
