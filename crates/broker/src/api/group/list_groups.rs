//! ListGroups (16): the groups coordinated here.

use std::sync::Arc;

use gracchus_groups::request::ListGroups;
use gracchus_kafka_proto::messages::list_groups_response::ListedGroup;
use gracchus_kafka_proto::messages::{ListGroupsRequest, ListGroupsResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let filters = ListGroups {
        states: request.states_filter.into_iter().collect(),
        types: request.types_filter.into_iter().collect(),
    };
    let result = broker.groups.list_groups(filters).await;
    ListGroupsResponse {
        error_code: result.error.code(),
        groups: result
            .groups
            .into_iter()
            .map(|group| ListedGroup {
                group_id: group.group_id,
                protocol_type: group.protocol_type,
                group_state: group.state,
                group_type: group.group_type,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
