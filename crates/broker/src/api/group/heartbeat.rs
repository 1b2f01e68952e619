//! Heartbeat (12).

use std::sync::Arc;

use gracchus_groups::request::Heartbeat;
use gracchus_kafka_proto::messages::{HeartbeatRequest, HeartbeatResponse};

use super::check_instance_id;
use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let error = match check_instance_id(broker, request.group_instance_id.as_ref()) {
        Err(error) => error,
        Ok(()) => {
            let heartbeat = Heartbeat {
                group_id: request.group_id,
                generation_id: request.generation_id,
                member_id: request.member_id,
                group_instance_id: request.group_instance_id,
            };
            broker.groups.heartbeat(heartbeat).await
        }
    };
    HeartbeatResponse {
        error_code: error.code(),
        ..Default::default()
    }
}
