//! Offsets in ZooKeeper (`/consumers/GROUP/offsets/TOPIC/PARTITION`), where version 0 of OffsetCommit and OffsetFetch keeps
//! them, for clients of the time before `__consumer_offsets`.

use std::sync::Arc;

use bytes::Bytes;
use gracchus_groups::request::{CommittedOffset, TopicPartition};
use gracchus_groups::response::FetchedOffset;
use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::{ANY_VERSION, Registry, ZkOp, ZkReply, ZkResult, paths};
use gracchus_zk_client::ZkError;

use crate::broker::Broker;

/// Writes offsets; one error a partition, in their order.
pub async fn commit(
    broker: &Arc<Broker>,
    group_id: &str,
    offsets: Vec<CommittedOffset>,
) -> Vec<(TopicPartition, ErrorCode)> {
    let longest = broker.groups.settings().group.offset_metadata_max;
    let mut outcomes = Vec::with_capacity(offsets.len());
    for offset in offsets {
        let metadata = offset.metadata.as_deref().unwrap_or_default();
        let error = if metadata.encode_utf16().count() > longest {
            ErrorCode::OffsetMetadataTooLarge
        } else {
            let path = path(group_id, &offset.partition);
            match write(&broker.registry, &path, offset.offset).await {
                Ok(_) => ErrorCode::None,
                Err(failure) => code(&path, failure.error),
            }
        };
        outcomes.push((offset.partition, error));
    }
    outcomes
}

/// Reads offsets, in their order; what is not there is UNKNOWN_TOPIC_OR_PARTITION in this version.
pub async fn fetch(
    broker: &Arc<Broker>,
    group_id: &str,
    partitions: Vec<TopicPartition>,
) -> Vec<FetchedOffset> {
    let metadata = broker.metadata.snapshot();
    let mut offsets = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let known = metadata
            .partition(&partition.topic, partition.partition)
            .is_some();
        let path = path(group_id, &partition);
        let (offset, error) = match known {
            false => (-1, ErrorCode::UnknownTopicOrPartition),
            true => match broker.registry.execute_one(ZkOp::get(path.clone())).await {
                Ok(ZkReply::Data { data, .. }) => number(&path, data.unwrap_or_default()),
                Ok(_) => (-1, ErrorCode::UnknownServerError),
                Err(failure) if failure.error == ZkError::NoNode => {
                    (-1, ErrorCode::UnknownTopicOrPartition)
                }
                Err(failure) => (-1, code(&path, failure.error)),
            },
        };
        offsets.push(FetchedOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            error,
        });
    }
    offsets
}

fn path(group_id: &str, partition: &TopicPartition) -> String {
    let TopicPartition { topic, partition } = partition;
    format!(
        "{}/{group_id}/offsets/{topic}/{partition}",
        paths::CONSUMERS
    )
}

async fn write(registry: &Registry, path: &str, offset: i64) -> ZkResult {
    let data = Some(Bytes::from(offset.to_string()));
    let set = ZkOp::SetData {
        path: path.to_owned(),
        data: data.clone(),
        version: ANY_VERSION,
    };
    match registry.execute_one(set).await {
        Err(failure) if failure.error == ZkError::NoNode => {
            registry.create_recursive(path, data).await
        }
        done => done,
    }
}

fn number(path: &str, data: Bytes) -> (i64, ErrorCode) {
    match std::str::from_utf8(&data)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        Some(offset) => (offset, ErrorCode::None),
        None => {
            tracing::warn!(
                path,
                "the znode holds no offset; write a number there, or delete it"
            );
            (-1, ErrorCode::UnknownServerError)
        }
    }
}

fn code(path: &str, error: ZkError) -> ErrorCode {
    tracing::warn!(path, %error, "an offset in ZooKeeper could not be read or written");
    ErrorCode::UnknownServerError
}
