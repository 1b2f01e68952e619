//! LeaderAndIsr (4): the controller gives this broker's replicas their roles.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::messages::leader_and_isr_response::{
    LeaderAndIsrPartitionError, LeaderAndIsrTopicError,
};
use gracchus_kafka_proto::messages::{LeaderAndIsrRequest, LeaderAndIsrResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::TopicPartition;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::lifecycle::dynamic;
use crate::replica::ReplicaManager;
use crate::replica::assignment::Assignment;

/// Answers after the roles have changed.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: LeaderAndIsrRequest,
) -> LeaderAndIsrResponse {
    let topics = request.topic_states.iter().map(|t| t.topic_name.as_str());
    let ungrouped = request
        .ungrouped_partition_states
        .iter()
        .map(|p| p.topic_name.as_str());
    dynamic::learn_topics(broker, topics.chain(ungrouped)).await;
    answer(
        &broker.replicas,
        broker.identity.broker_epoch(),
        ctx,
        request,
    )
    .await
}

/// The same, without the rest of the broker; `broker_epoch` is of its present registration.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    broker_epoch: i64,
    ctx: &RequestContext,
    request: LeaderAndIsrRequest,
) -> LeaderAndIsrResponse {
    let (replicas, version) = (replicas.clone(), ctx.api_version);
    let applied = tokio::task::spawn_blocking(move || {
        apply(&replicas, broker_epoch, version, request, now_ms())
    });
    applied.await.unwrap_or_else(|error| {
        tracing::error!(%error, "LeaderAndIsr failed");
        failed(ErrorCode::UnknownServerError)
    })
}

/// The roles are changed, which is file work.
pub fn apply(
    replicas: &ReplicaManager,
    broker_epoch: i64,
    version: i16,
    request: LeaderAndIsrRequest,
    now_ms: i64,
) -> LeaderAndIsrResponse {
    if is_stale(broker_epoch, request.broker_epoch) {
        tracing::warn!(
            got = request.broker_epoch,
            current = broker_epoch,
            controller = request.controller_id,
            "LeaderAndIsr for an earlier registration of this broker ignored"
        );
        return failed(ErrorCode::StaleBrokerEpoch);
    }
    let mut assignments = Vec::new();
    for state in request.ungrouped_partition_states {
        let id = TopicPartition::new(state.topic_name.as_str(), state.partition_index);
        assignments.push(Assignment {
            id,
            topic_id: Uuid::ZERO,
            state,
        });
    }
    for topic in request.topic_states {
        let name: Arc<str> = topic.topic_name.into();
        for state in topic.partition_states {
            let id = TopicPartition::new(name.clone(), state.partition_index);
            assignments.push(Assignment {
                id,
                topic_id: topic.topic_id,
                state,
            });
        }
    }
    let epoch = request.controller_epoch;
    let outcomes = match replicas.assign(epoch, assignments, now_ms) {
        Ok(outcomes) => outcomes,
        Err(stale) => {
            tracing::warn!(
                got = epoch,
                seen = stale.seen,
                controller = request.controller_id,
                "LeaderAndIsr of an earlier controller ignored"
            );
            return failed(ErrorCode::StaleControllerEpoch);
        }
    };
    let mut response = LeaderAndIsrResponse::default();
    if version < 5 {
        let errors = outcomes
            .into_iter()
            .map(|(id, _, code)| LeaderAndIsrPartitionError {
                topic_name: id.topic.to_string(),
                partition_index: id.partition,
                error_code: code.code(),
                ..Default::default()
            });
        response.partition_errors = errors.collect();
        return response;
    }
    let mut topics: BTreeMap<Uuid, Vec<LeaderAndIsrPartitionError>> = BTreeMap::new();
    for (id, topic_id, code) in outcomes {
        topics
            .entry(topic_id)
            .or_default()
            .push(LeaderAndIsrPartitionError {
                partition_index: id.partition,
                error_code: code.code(),
                ..Default::default()
            });
    }
    let topics = topics
        .into_iter()
        .map(|(topic_id, partition_errors)| LeaderAndIsrTopicError {
            topic_id,
            partition_errors,
            ..Default::default()
        });
    response.topics = topics.collect();
    response
}

/// A request for an earlier registration of this broker; -1 is a controller that does not say. A later one than is known
/// here is fine: the answer to the registration may be under way still.
pub fn is_stale(current: i64, got: i64) -> bool {
    got != -1 && got < current
}

fn failed(code: ErrorCode) -> LeaderAndIsrResponse {
    LeaderAndIsrResponse {
        error_code: code.code(),
        ..Default::default()
    }
}
