//! FindCoordinator (10): which broker coordinates a group. The offsets topic is made on the way if it is not there.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::find_coordinator_response::Coordinator;
use gracchus_kafka_proto::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::group::topic::{self, Node};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// Answers: one key up to version 3, several from 4 on.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let (version, kind) = (ctx.api_version, request.key_type);
    if version < 4 {
        let found = find(broker, ctx, kind, &request.key).await;
        // Kafka has a text even for success here
        let error = found.as_ref().err().copied().unwrap_or(ErrorCode::None);
        let text = match error {
            ErrorCode::None => "NONE",
            error => error.message(),
        };
        let node = found.unwrap_or_default();
        return FindCoordinatorResponse {
            error_code: error.code(),
            error_message: Some(text.to_owned()),
            node_id: node.id,
            host: node.host,
            port: node.port,
            ..Default::default()
        };
    }
    let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
    for key in request.coordinator_keys {
        let found = find(broker, ctx, kind, &key).await;
        let mut coordinator = Coordinator {
            key,
            error_code: found.as_ref().err().map_or(0, |error| error.code()),
            ..Default::default()
        };
        if found == Err(ErrorCode::InvalidRequest) {
            let text = ErrorCode::InvalidRequest.message();
            coordinator.error_message = Some(text.to_owned());
        }
        let node = found.unwrap_or_default();
        coordinator.node_id = node.id;
        coordinator.host = node.host;
        coordinator.port = node.port;
        coordinators.push(coordinator);
    }
    FindCoordinatorResponse {
        coordinators,
        ..Default::default()
    }
}

async fn find(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    kind: i8,
    key: &str,
) -> Result<Node, ErrorCode> {
    match kind {
        GROUP => topic::coordinator(broker, ctx.listener_name(), key).await,
        TRANSACTION => topic::transaction_coordinator(broker, ctx.listener_name(), key),
        SHARE if ctx.api_version >= 6 => Err(ErrorCode::CoordinatorNotAvailable),
        _ => Err(ErrorCode::InvalidRequest),
    }
}
