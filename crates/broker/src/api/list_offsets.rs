//! ListOffsets (2): offsets by time, and the log's ends.

use std::collections::HashSet;
use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::list_offsets_request::ListOffsetsPartition;
use gracchus_kafka_proto::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use gracchus_kafka_proto::messages::{ListOffsetsRequest, ListOffsetsResponse};
use gracchus_log::ReadLimit;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::replica::ReplicaManager;
use crate::replica::offsets::{BeforeQuery, FoundOffset, OffsetQuery, is_timestamp_known};

/// Replica id of a consumer.
const CONSUMER: i32 = -1;
/// Replica id of a debugging tool: any replica answers it.
const DEBUGGING: i32 = -2;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    ctx: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (topic.name.clone(), partition.partition_index);
            if !seen.insert(key.clone()) {
                twice.insert(key);
            }
        }
    }
    let (replica_id, isolation) = (request.replica_id, request.isolation_level);
    let topics = request.topics.into_iter().map(|topic| {
        let answer = |wanted: ListOffsetsPartition| {
            if ctx.api_version == 0 {
                return version_0(replicas, &topic.name, &wanted, replica_id);
            }
            let key = (topic.name.clone(), wanted.partition_index);
            let found = if twice.contains(&key) {
                Err(ErrorCode::InvalidRequest)
            } else {
                find(replicas, ctx, &topic.name, &wanted, replica_id, isolation)
            };
            let (found, code) = match found {
                Ok(found) => (found, ErrorCode::None),
                Err(code) => (FoundOffset::NONE, code),
            };
            ListOffsetsPartitionResponse {
                partition_index: wanted.partition_index,
                error_code: code.code(),
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: if ctx.api_version >= 4 {
                    found.leader_epoch
                } else {
                    -1
                },
                ..Default::default()
            }
        };
        let partitions = topic.partitions.into_iter().map(answer).collect();
        ListOffsetsTopicResponse {
            name: topic.name,
            partitions,
            ..Default::default()
        }
    });
    ListOffsetsResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}

fn find(
    replicas: &ReplicaManager,
    ctx: &RequestContext,
    topic: &str,
    wanted: &ListOffsetsPartition,
    replica_id: i32,
    isolation: i8,
) -> Result<FoundOffset, ErrorCode> {
    if !is_timestamp_known(wanted.timestamp, ctx.api_version) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let limit = (replica_id == CONSUMER).then_some(match isolation {
        1 => ReadLimit::LastStable,
        _ => ReadLimit::HighWatermark,
    });
    let query = OffsetQuery {
        timestamp: wanted.timestamp,
        limit,
        current_leader_epoch: wanted.current_leader_epoch,
        only_leader: replica_id != DEBUGGING,
    };
    let found = replicas.find_offset(topic, wanted.partition_index, query);
    found.map_err(|code| match code {
        // Clients before version 5 do not know the newer code.
        ErrorCode::OffsetNotAvailable if ctx.api_version < 5 => ErrorCode::LeaderNotAvailable,
        code => code,
    })
}

fn version_0(
    replicas: &ReplicaManager,
    topic: &str,
    wanted: &ListOffsetsPartition,
    replica_id: i32,
) -> ListOffsetsPartitionResponse {
    let query = BeforeQuery {
        timestamp: wanted.timestamp,
        most: wanted.max_num_offsets,
        is_consumer: replica_id == CONSUMER,
        only_leader: replica_id != DEBUGGING,
        now_ms: now_ms(),
    };
    let offsets = replicas.offsets_before(topic, wanted.partition_index, query);
    let (old_style_offsets, code) = match offsets {
        Ok(offsets) => (offsets, ErrorCode::None),
        Err(code) => (Vec::new(), code),
    };
    ListOffsetsPartitionResponse {
        partition_index: wanted.partition_index,
        error_code: code.code(),
        old_style_offsets,
        ..Default::default()
    }
}
