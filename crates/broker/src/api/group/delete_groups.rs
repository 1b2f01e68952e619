//! DeleteGroups (42).

use std::sync::Arc;

use gracchus_groups::request::DeleteGroups;
use gracchus_kafka_proto::messages::delete_groups_response::DeletableGroupResult;
use gracchus_kafka_proto::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let delete = DeleteGroups {
        group_ids: request.groups_names,
    };
    let results = broker.groups.delete_groups(delete).await;
    DeleteGroupsResponse {
        results: results
            .into_iter()
            .map(|(group_id, error)| DeletableGroupResult {
                group_id,
                error_code: error.code(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
