//! AllocateProducerIds (67), by the active controller: a block of producer ids for a broker (KIP-730).

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers when the block is noted in ZooKeeper.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse {
    let allocated = if broker.controller.is_active() {
        broker
            .controller
            .allocate_producer_ids(request.broker_id, request.broker_epoch)
            .await
    } else {
        Err(ErrorCode::NotController)
    };
    match allocated {
        Ok((first, length)) => AllocateProducerIdsResponse {
            producer_id_start: first,
            producer_id_len: length,
            ..Default::default()
        },
        Err(error) => AllocateProducerIdsResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
