//! JoinGroup (11): waits until the rebalance is over.

use std::sync::Arc;

use gracchus_groups::request::JoinGroup;
use gracchus_groups::response::JoinGroupResult;
use gracchus_kafka_proto::messages::join_group_response::JoinGroupResponseMember;
use gracchus_kafka_proto::messages::{JoinGroupRequest, JoinGroupResponse};

use super::check_instance_id;
use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let version = ctx.api_version;
    if let Err(error) = check_instance_id(broker, request.group_instance_id.as_ref()) {
        return response(version, JoinGroupResult::error("", error));
    }
    let join = JoinGroup {
        require_known_member_id: version >= 4 && request.group_instance_id.is_none(),
        support_skipping_assignment: version >= 9,
        group_id: request.group_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        client_id: ctx.client_id().to_owned(),
        client_host: ctx.client_host(),
        rebalance_timeout_ms: match version {
            0 => request.session_timeout_ms,
            _ => request.rebalance_timeout_ms,
        },
        session_timeout_ms: request.session_timeout_ms,
        protocol_type: request.protocol_type,
        protocols: request
            .protocols
            .into_iter()
            .map(|protocol| (protocol.name, protocol.metadata))
            .collect(),
        reason: request.reason.filter(|reason| !reason.is_empty()),
    };
    response(version, broker.groups.join_group(join).await)
}

fn response(version: i16, result: JoinGroupResult) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: result.error.code(),
        generation_id: result.generation_id,
        protocol_type: result.protocol_type,
        // null where there is none, as far as the version can say so
        protocol_name: match version {
            0..7 => Some(result.protocol_name.unwrap_or_default()),
            _ => result.protocol_name.filter(|name| !name.is_empty()),
        },
        leader: result.leader_id,
        skip_assignment: result.skip_assignment,
        member_id: result.member_id,
        members: result
            .members
            .into_iter()
            .map(|member| JoinGroupResponseMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                metadata: member.metadata,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
