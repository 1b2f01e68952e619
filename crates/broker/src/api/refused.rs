//! Keys that Kafka advertises in ZooKeeper mode and refuses: the new consumer groups need KRaft, forwarding a migration.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::consumer_group_describe_response::DescribedGroup;
use gracchus_kafka_proto::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::net::Outcome;

/// UNSUPPORTED_VERSION; clients fall back to the classic protocol.
pub async fn consumer_group_heartbeat(
    _: &Arc<Broker>,
    _: &RequestContext,
    _: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..Default::default()
    }
}

/// UNSUPPORTED_VERSION for each group.
pub async fn consumer_group_describe(
    _: &Arc<Broker>,
    _: &RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let groups = request
        .group_ids
        .into_iter()
        .map(|group_id| DescribedGroup {
            group_id,
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        })
        .collect();
    ConsumerGroupDescribeResponse {
        groups,
        ..Default::default()
    }
}

/// Kafka treats it as a request that cannot be read, unless a migration to KRaft goes on.
pub fn envelope() -> Outcome {
    Outcome::Close("Envelope requests are taken only during a migration to KRaft".into())
}
