//! DeleteRecords (21): raises the start of logs (KIP-107).

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use gracchus_kafka_proto::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tokio::time::Instant;

use super::leader_hint::is_internal;
use crate::broker::Broker;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// Answers when all live replicas have deleted, or after the request's timeout.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    _ctx: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut deletions = Vec::new();
    let mut places = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let code = match delete(replicas, &topic.name, wanted.partition_index, wanted.offset) {
                Ok(deletion) => {
                    deletions.push(deletion);
                    places.push((topics.len(), partitions.len()));
                    ErrorCode::None
                }
                Err(code) => code,
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index: wanted.partition_index,
                low_watermark: -1,
                error_code: code.code(),
                ..Default::default()
            });
        }
        topics.push(DeleteRecordsTopicResult {
            name: topic.name,
            partitions,
            ..Default::default()
        });
    }
    let outcomes = replicas
        .wait_deleted(&deletions, Instant::now() + timeout)
        .await;
    for ((topic, partition), outcome) in places.into_iter().zip(outcomes) {
        let place = topics
            .get_mut(topic)
            .and_then(|topic| topic.partitions.get_mut(partition));
        if let Some(place) = place {
            match outcome {
                Ok(low_watermark) => place.low_watermark = low_watermark,
                Err(code) => place.error_code = code.code(),
            }
        }
    }
    DeleteRecordsResponse {
        topics,
        ..Default::default()
    }
}

fn delete(
    replicas: &ReplicaManager,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<crate::replica::offsets::Deletion, ErrorCode> {
    if replicas
        .metadata
        .snapshot()
        .partition(topic, partition)
        .is_none()
    {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    replicas.delete_records(topic, partition, offset)
}
