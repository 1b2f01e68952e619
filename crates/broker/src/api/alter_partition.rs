//! AlterPartition (56), by the active controller: a leader's change of its in-sync replicas.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{AlterPartitionRequest, AlterPartitionResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers when the change is in ZooKeeper, or refused.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse {
    if !broker.controller.is_active() {
        return AlterPartitionResponse {
            error_code: ErrorCode::NotController.code(),
            ..Default::default()
        };
    }
    broker
        .controller
        .alter_partition(request, ctx.api_version)
        .await
}
