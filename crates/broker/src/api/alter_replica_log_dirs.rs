//! AlterReplicaLogDirs (34): replicas move to other log directories of this broker (KIP-113).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use gracchus_kafka_proto::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};
use gracchus_log::TopicPartition;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// Answers when the moves have begun.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    _ctx: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // One directory a partition: the last that was named.
    let mut wanted: BTreeMap<TopicPartition, PathBuf> = BTreeMap::new();
    for dir in request.dirs {
        let path = PathBuf::from(dir.path);
        for topic in dir.topics {
            let name: Arc<str> = topic.name.into();
            for partition in topic.partitions {
                wanted.insert(TopicPartition::new(name.clone(), partition), path.clone());
            }
        }
    }
    let ids: Vec<TopicPartition> = wanted.keys().cloned().collect();
    let manager = replicas.clone();
    let altering = move || manager.alter_log_dirs(wanted.into_iter().collect(), now_ms());
    let altered = tokio::task::spawn_blocking(altering).await;
    let altered = altered.unwrap_or_else(|error| {
        tracing::error!(%error, "AlterReplicaLogDirs failed");
        let failed = |id| (id, ErrorCode::UnknownServerError);
        ids.into_iter().map(failed).collect()
    });
    let mut topics: BTreeMap<Arc<str>, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for (id, code) in altered {
        let partitions = topics.entry(id.topic).or_default();
        partitions.push(AlterReplicaLogDirPartitionResult {
            partition_index: id.partition,
            error_code: code.code(),
            ..Default::default()
        });
    }
    AlterReplicaLogDirsResponse {
        results: topics
            .into_iter()
            .map(|(name, partitions)| AlterReplicaLogDirTopicResult {
                topic_name: name.to_string(),
                partitions,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
