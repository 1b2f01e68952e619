//! SyncGroup (14): waits for the leader's assignment.

use std::sync::Arc;

use gracchus_groups::request::SyncGroup;
use gracchus_groups::response::SyncGroupResult;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{SyncGroupRequest, SyncGroupResponse};

use super::check_instance_id;
use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    if let Err(error) = check_instance_id(broker, request.group_instance_id.as_ref()) {
        return response(SyncGroupResult::error(error));
    }
    // KIP-559: mandatory from version 5 on
    if ctx.api_version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none())
    {
        let error = ErrorCode::InconsistentGroupProtocol;
        return response(SyncGroupResult::error(error));
    }
    let sync = SyncGroup {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: request
            .assignments
            .into_iter()
            .map(|part| (part.member_id, part.assignment))
            .collect(),
    };
    response(broker.groups.sync_group(sync).await)
}

fn response(result: SyncGroupResult) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: result.error.code(),
        protocol_type: result.protocol_type,
        protocol_name: result.protocol_name,
        assignment: result.assignment,
        ..Default::default()
    }
}
