//! OffsetForLeaderEpoch (23): where a leader epoch ends in the leader's log (KIP-101, KIP-320).

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use gracchus_kafka_proto::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    _ctx: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|wanted| {
            let end = replicas.epoch_end(
                &topic.topic,
                wanted.partition,
                wanted.current_leader_epoch,
                wanted.leader_epoch,
            );
            let (leader_epoch, end_offset, code) = match end {
                Ok(end) => (end.epoch, end.end_offset, ErrorCode::None),
                Err(code) => (-1, -1, code),
            };
            EpochEndOffset {
                error_code: code.code(),
                partition: wanted.partition,
                leader_epoch,
                end_offset,
                ..Default::default()
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
            ..Default::default()
        }
    });
    OffsetForLeaderEpochResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}
