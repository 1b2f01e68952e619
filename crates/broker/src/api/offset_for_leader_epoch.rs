//! OffsetForLeaderEpoch (23): where a leader epoch ends in the leader's log (KIP-101, KIP-320).

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use gracchus_kafka_proto::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|wanted| {
            let end = broker.replicas.epoch_end(
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
