//! AlterPartitionReassignments (45), by the active controller.

use std::sync::Arc;

use gracchus_controller::PartitionKey;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use gracchus_kafka_proto::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use crate::broker::Broker;
use crate::context::RequestContext;

/// Answers when the moves have begun, or were given up.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let mut wanted = Vec::new();
    for topic in request.topics {
        for partition in topic.partitions {
            let key = PartitionKey::new(&topic.name, partition.partition_index);
            wanted.push((key, partition.replicas));
        }
    }
    let altered = if broker.controller.is_active() {
        broker.controller.alter_reassignments(wanted).await
    } else {
        Err(ErrorCode::NotController)
    };
    let outcomes = match altered {
        Ok(outcomes) => outcomes,
        Err(error) => {
            return AlterPartitionReassignmentsResponse {
                error_code: error.code(),
                error_message: Some(error.message().to_owned()),
                ..Default::default()
            };
        }
    };
    let mut responses: Vec<ReassignableTopicResponse> = Vec::new();
    for (key, outcome) in outcomes {
        let (code, message) = match outcome {
            Ok(()) => (ErrorCode::None, None),
            Err((error, text)) => (error, Some(text)),
        };
        let partition = ReassignablePartitionResponse {
            partition_index: key.partition,
            error_code: code.code(),
            error_message: message,
            ..Default::default()
        };
        match responses.last_mut() {
            Some(last) if *last.name == *key.topic => last.partitions.push(partition),
            _ => responses.push(ReassignableTopicResponse {
                name: key.topic.to_string(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    AlterPartitionReassignmentsResponse {
        responses,
        ..Default::default()
    }
}
