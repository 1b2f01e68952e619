//! ControlledShutdown (7), by the active controller: moves leaders away from a broker that is about to stop.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::controlled_shutdown_response::RemainingPartition;
use gracchus_kafka_proto::messages::{ControlledShutdownRequest, ControlledShutdownResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers the partitions that the broker still leads.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: ControlledShutdownRequest,
) -> ControlledShutdownResponse {
    let remaining = if broker.controller.is_active() {
        broker
            .controller
            .controlled_shutdown(request.broker_id, request.broker_epoch)
            .await
    } else {
        Err(ErrorCode::NotController)
    };
    match remaining {
        Ok(partitions) => ControlledShutdownResponse {
            remaining_partitions: partitions
                .into_iter()
                .map(|(topic_name, partition_index)| RemainingPartition {
                    topic_name,
                    partition_index,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
        Err(error) => ControlledShutdownResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
