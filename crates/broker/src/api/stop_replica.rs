//! StopReplica (5): replicas stop following, or go.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::stop_replica_response::StopReplicaPartitionError;
use gracchus_kafka_proto::messages::{StopReplicaRequest, StopReplicaResponse};
use gracchus_log::TopicPartition;

use super::leader_and_isr::is_stale;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;
use crate::replica::assignment::{NO_EPOCH, Stop};

/// Answers after the replicas have stopped and logs to be deleted have been put aside.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: StopReplicaRequest,
) -> StopReplicaResponse {
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
    _ctx: &RequestContext,
    request: StopReplicaRequest,
) -> StopReplicaResponse {
    let replicas = replicas.clone();
    let applied =
        tokio::task::spawn_blocking(move || apply(&replicas, broker_epoch, request, now_ms()));
    applied.await.unwrap_or_else(|error| {
        tracing::error!(%error, "StopReplica failed");
        failed(ErrorCode::UnknownServerError)
    })
}

/// The replicas are stopped, which is file work.
pub fn apply(
    replicas: &ReplicaManager,
    broker_epoch: i64,
    request: StopReplicaRequest,
    now_ms: i64,
) -> StopReplicaResponse {
    if is_stale(broker_epoch, request.broker_epoch) {
        tracing::warn!(
            got = request.broker_epoch,
            current = broker_epoch,
            controller = request.controller_id,
            "StopReplica for an earlier registration of this broker ignored"
        );
        return failed(ErrorCode::StaleBrokerEpoch);
    }
    let (epoch, controller) = (request.controller_epoch, request.controller_id);
    match replicas.stop(epoch, stops(request), now_ms) {
        Ok(outcomes) => StopReplicaResponse {
            partition_errors: outcomes
                .into_iter()
                .map(|(id, code)| StopReplicaPartitionError {
                    topic_name: id.topic.to_string(),
                    partition_index: id.partition,
                    error_code: code.code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
        Err(stale) => {
            tracing::warn!(
                got = epoch,
                seen = stale.seen,
                controller,
                "StopReplica of an earlier controller ignored"
            );
            failed(ErrorCode::StaleControllerEpoch)
        }
    }
}

/// The partitions, whichever of the three shapes the version has.
fn stops(request: StopReplicaRequest) -> Vec<Stop> {
    let delete = request.delete_partitions;
    let mut stops = Vec::new();
    for partition in request.ungrouped_partitions {
        let id = TopicPartition::new(partition.topic_name, partition.partition_index);
        stops.push(Stop {
            id,
            leader_epoch: NO_EPOCH,
            delete,
        });
    }
    for topic in request.topics {
        let name: Arc<str> = topic.name.into();
        for partition in topic.partition_indexes {
            let id = TopicPartition::new(name.clone(), partition);
            stops.push(Stop {
                id,
                leader_epoch: NO_EPOCH,
                delete,
            });
        }
    }
    for topic in request.topic_states {
        let name: Arc<str> = topic.topic_name.into();
        for state in topic.partition_states {
            let id = TopicPartition::new(name.clone(), state.partition_index);
            let (leader_epoch, delete) = (state.leader_epoch, state.delete_partition);
            stops.push(Stop {
                id,
                leader_epoch,
                delete,
            });
        }
    }
    stops
}

fn failed(code: ErrorCode) -> StopReplicaResponse {
    StopReplicaResponse {
        error_code: code.code(),
        ..Default::default()
    }
}
