//! ListPartitionReassignments (46), by the active controller.

use std::sync::Arc;

use gracchus_controller::PartitionKey;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use gracchus_kafka_proto::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers what is under way.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let wanted = request.topics.map(|topics| {
        let keys = topics.iter().flat_map(|topic| {
            let key = |number: &i32| PartitionKey::new(&topic.name, *number);
            topic.partition_indexes.iter().map(key)
        });
        keys.collect()
    });
    let listed = if broker.controller.is_active() {
        broker.controller.list_reassignments(wanted).await
    } else {
        Err(ErrorCode::NotController)
    };
    let found = match listed {
        Ok(found) => found,
        Err(error) => {
            return ListPartitionReassignmentsResponse {
                error_code: error.code(),
                error_message: Some(error.message().to_owned()),
                ..Default::default()
            };
        }
    };
    let mut topics: Vec<OngoingTopicReassignment> = Vec::new();
    for moving in found {
        let partition = OngoingPartitionReassignment {
            partition_index: moving.key.partition,
            replicas: moving.replicas,
            adding_replicas: moving.adding,
            removing_replicas: moving.removing,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last) if *last.name == *moving.key.topic => last.partitions.push(partition),
            _ => topics.push(OngoingTopicReassignment {
                name: moving.key.topic.to_string(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    ListPartitionReassignmentsResponse {
        topics,
        ..Default::default()
    }
}
