//! LeaveGroup (13): one member up to version 2, several from 3 on.

use std::sync::Arc;

use gracchus_groups::request::{LeaveGroup, LeavingMember};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::leave_group_response::MemberResponse;
use gracchus_kafka_proto::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let several = ctx.api_version >= 3;
    let members = if several {
        let members = request.members.into_iter();
        members
            .map(|member| LeavingMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                reason: member.reason,
            })
            .collect()
    } else {
        vec![LeavingMember {
            member_id: request.member_id,
            ..Default::default()
        }]
    };
    let leave = LeaveGroup {
        group_id: request.group_id,
        members,
    };
    let result = broker.groups.leave_group(leave).await;
    if several {
        let members = result.members.into_iter();
        return LeaveGroupResponse {
            error_code: result.error.code(),
            members: members
                .map(|member| MemberResponse {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    error_code: member.error.code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
    }
    let error = match (result.error, result.members.first()) {
        (ErrorCode::None, Some(member)) => member.error,
        (error, _) => error,
    };
    LeaveGroupResponse {
        error_code: error.code(),
        ..Default::default()
    }
}
