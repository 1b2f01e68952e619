//! OffsetFetch (9): from the coordinator, in version 0 from ZooKeeper; several groups from version 8 on.

use std::sync::Arc;

use gracchus_groups::request::{OffsetFetch, TopicPartition};
use gracchus_groups::response::{FetchedOffset, OffsetFetchResult};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use gracchus_kafka_proto::messages::{OffsetFetchRequest, OffsetFetchResponse};
use indexmap::IndexMap;

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::group::legacy;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    match ctx.api_version {
        0..8 => one_group(broker, ctx.api_version, request).await,
        _ => several_groups(broker, request).await,
    }
}

async fn several_groups(broker: &Arc<Broker>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let partitions = group.topics.map(|topics| {
            let topics = topics.into_iter().map(|t| (t.name, t.partition_indexes));
            flat(topics)
        });
        let fetch = OffsetFetch {
            group_id: group.group_id.clone(),
            require_stable: request.require_stable,
            partitions,
        };
        let result = broker.groups.fetch_offsets(fetch).await;
        let topics = by_topic(result.offsets).map(|(name, offsets)| OffsetFetchResponseTopics {
            name,
            partitions: offsets
                .into_iter()
                .map(|o| OffsetFetchResponsePartitions {
                    partition_index: o.partition.partition,
                    committed_offset: o.offset,
                    committed_leader_epoch: o.leader_epoch,
                    metadata: Some(o.metadata),
                    error_code: o.error.code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        groups.push(OffsetFetchResponseGroup {
            group_id: group.group_id,
            topics: topics.collect(),
            error_code: result.error.code(),
            ..Default::default()
        });
    }
    OffsetFetchResponse {
        groups,
        ..Default::default()
    }
}

async fn one_group(
    broker: &Arc<Broker>,
    version: i16,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let partitions = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|t| (t.name, t.partition_indexes));
        flat(topics)
    });
    let mut result = if version == 0 {
        OffsetFetchResult {
            error: ErrorCode::None,
            offsets: legacy::fetch(broker, &request.group_id, partitions.unwrap_or_default()).await,
        }
    } else {
        let fetch = OffsetFetch {
            group_id: request.group_id,
            require_stable: request.require_stable,
            partitions: partitions.clone(),
        };
        let mut result = broker.groups.fetch_offsets(fetch).await;
        if version == 1 && result.error != ErrorCode::None {
            // no error of the group in this version: each partition has it
            let asked = partitions.unwrap_or_default().into_iter();
            result.offsets = asked
                .map(|partition| FetchedOffset {
                    partition,
                    offset: -1,
                    leader_epoch: -1,
                    metadata: String::new(),
                    error: result.error,
                })
                .collect();
        }
        result
    };
    let topics = by_topic(std::mem::take(&mut result.offsets)).map(|(name, offsets)| {
        OffsetFetchResponseTopic {
            name,
            partitions: offsets
                .into_iter()
                .map(|o| OffsetFetchResponsePartition {
                    partition_index: o.partition.partition,
                    committed_offset: o.offset,
                    committed_leader_epoch: o.leader_epoch,
                    metadata: Some(o.metadata),
                    error_code: o.error.code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: result.error.code(),
        ..Default::default()
    }
}

fn flat(topics: impl Iterator<Item = (String, Vec<i32>)>) -> Vec<TopicPartition> {
    topics
        .flat_map(|(name, indexes)| {
            let of_topic = move |index| TopicPartition::new(name.clone(), index);
            indexes.into_iter().map(of_topic)
        })
        .collect()
}

fn by_topic(offsets: Vec<FetchedOffset>) -> impl Iterator<Item = (String, Vec<FetchedOffset>)> {
    let mut topics: IndexMap<String, Vec<FetchedOffset>> = IndexMap::new();
    for offset in offsets {
        let topic = offset.partition.topic.clone();
        topics.entry(topic).or_default().push(offset);
    }
    topics.into_iter()
}
