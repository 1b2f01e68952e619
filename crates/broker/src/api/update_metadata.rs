//! UpdateMetadata (6): the controller tells what the cluster looks like.

use std::sync::Arc;

use gracchus_groups::request::TopicPartition;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::update_metadata_request::UpdateMetadataPartitionState;
use gracchus_kafka_proto::messages::{UpdateMetadataRequest, UpdateMetadataResponse};

use super::leader_and_isr::is_stale;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::lifecycle::dynamic;
use crate::metadata::update;
use crate::replica::ReplicaManager;

/// Answers when the cache shows it.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: UpdateMetadataRequest,
) -> UpdateMetadataResponse {
    let current = broker.identity.broker_epoch();
    if let Some(code) = refusal(&broker.replicas, current, &request) {
        return answer(code);
    }
    let elections = &broker.metadata.elections;
    elections.heard(request.controller_epoch, request.controller_id, now_ms());
    let leaving =
        |partition: &UpdateMetadataPartitionState| partition.leader == update::LEADER_DURING_DELETE;
    let staying = request
        .topic_states
        .iter()
        .filter(|t| !t.partition_states.iter().any(leaving));
    let ungrouped = request
        .ungrouped_partition_states
        .iter()
        .filter(|p| !leaving(p));
    let topics = staying
        .map(|t| t.topic_name.as_str())
        .chain(ungrouped.map(|p| p.topic_name.as_str()));
    dynamic::learn_topics(broker, topics).await;
    let mut removed = Vec::new();
    broker
        .metadata
        .update(|snapshot| removed = update::apply(snapshot, &request));
    let snapshot = broker.metadata.snapshot();
    for (topic, _) in removed
        .iter()
        .filter(|(t, _)| !snapshot.topics.contains_key(t.as_str()))
    {
        broker.config.forget_topic(topic);
    }
    let removed = removed
        .into_iter()
        .map(|(topic, partition)| TopicPartition::new(topic, partition));
    broker.groups.partitions_deleted(removed.collect());
    answer(ErrorCode::None)
}

/// Why it is not heeded: it is for an earlier registration of this broker, or of an earlier controller.
pub fn refusal(
    replicas: &ReplicaManager,
    broker_epoch: i64,
    request: &UpdateMetadataRequest,
) -> Option<ErrorCode> {
    if is_stale(broker_epoch, request.broker_epoch) {
        tracing::warn!(
            got = request.broker_epoch,
            current = broker_epoch,
            controller = request.controller_id,
            "UpdateMetadata for an earlier registration of this broker ignored"
        );
        return Some(ErrorCode::StaleBrokerEpoch);
    }
    let stale = replicas.admit_controller(request.controller_epoch).err()?;
    tracing::warn!(
        got = request.controller_epoch,
        seen = stale.seen,
        controller = request.controller_id,
        "UpdateMetadata of an earlier controller ignored"
    );
    Some(ErrorCode::StaleControllerEpoch)
}

fn answer(code: ErrorCode) -> UpdateMetadataResponse {
    UpdateMetadataResponse {
        error_code: code.code(),
        ..Default::default()
    }
}
