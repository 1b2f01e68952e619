//! DescribeGroups (15).

use std::sync::Arc;

use gracchus_groups::request::DescribeGroup;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::describe_groups_response::{
    DescribedGroup, DescribedGroupMember,
};
use gracchus_kafka_proto::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// READ, DELETE, DESCRIBE: all that an ACL can give on a group, as bits; without an authorizer all are allowed.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in request.groups {
        let ask = DescribeGroup {
            group_id: group_id.clone(),
        };
        let described = broker.groups.describe_group(ask).await;
        let members = described.members.into_iter();
        let mut group = DescribedGroup {
            error_code: described.error.code(),
            group_id,
            group_state: described.state,
            protocol_type: described.protocol_type,
            protocol_data: described.protocol,
            members: members
                .map(|member| DescribedGroupMember {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    client_id: member.client_id,
                    client_host: member.client_host,
                    member_metadata: member.metadata,
                    member_assignment: member.assignment,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        if request.include_authorized_operations && described.error == ErrorCode::None {
            group.authorized_operations = GROUP_OPERATIONS;
        }
        groups.push(group);
    }
    DescribeGroupsResponse {
        groups,
        ..Default::default()
    }
}
