//! Fetch (1): records for consumers and followers, in sessions, with long poll.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::messages::fetch_request::FetchPartition;
use gracchus_kafka_proto::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use gracchus_kafka_proto::messages::{FetchRequest, FetchResponse};
use gracchus_kafka_proto::{ErrorCode, Records, Uuid};
use gracchus_log::ReadLimit;
use hashbrown::HashMap;

use super::fetch_convert::{Format, convert};
use super::leader_hint::{LeaderNode, leader_hint};
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::metadata::Snapshot;
use crate::metrics::TopicMetrics;
use crate::replica::ReplicaManager;
use crate::replica::fetch::{FetchParams, FetchTarget, Read};
use crate::replica::nearest::RACK_AWARE;
use crate::replica::session::{
    Context, NO_SESSION, SessionError, SessionKey, SessionRequest, Told, Wanted,
};

/// Versions from which partitions are named by topic id.
const TOPIC_IDS_FROM: i16 = 13;
/// Versions from which a consumer may read from a follower (KIP-392).
const FOLLOWERS_FROM: i16 = 11;
/// Versions from which the answer names the leader, where it is another (KIP-951).
const LEADER_HINTS_FROM: i16 = 16;

/// Answers at once, or when enough bytes are there, or after the longest wait.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    ctx: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    let now = now_ms();
    let params = params(replicas, ctx.api_version, &request);
    let session = session_request(ctx.api_version, request);
    let context = match replicas.sessions().begin(session, now) {
        Ok(context) => context,
        Err(error) => return failed(error),
    };

    // Topics by name; ids that nobody knows are errors, the others are read.
    let by_id = ctx.api_version >= TOPIC_IDS_FROM;
    let wanted = context.wanted();
    let cluster = replicas.metadata.snapshot();
    let mut targets = Vec::with_capacity(wanted.len());
    let mut places = Vec::with_capacity(wanted.len());
    let mut unknown = Vec::new();
    for (place, (key, wanted)) in wanted.iter().enumerate() {
        match target(&cluster, &params, key, wanted, by_id) {
            Ok(target) => {
                targets.push(target);
                places.push(place);
            }
            Err(code) => unknown.push((place, code)),
        }
    }
    // Partitions unknown here do not hurry the others: a client with a deleted topic would spin.
    let reads = replicas.fetch(&params, &targets, now).await;

    let names: Vec<Option<Arc<str>>> = names(replicas, wanted);
    let mut parts: Vec<(usize, PartitionData)> = Vec::with_capacity(wanted.len());
    let mut nodes = Vec::new();
    for (place, answer) in places.into_iter().zip(reads) {
        let Some((key, wanted)) = wanted.get(place) else {
            continue;
        };
        let name = names.get(place).cloned().flatten();
        let metrics = match (&answer, &name) {
            (Ok(read), _) => read.metrics.clone(),
            (Err(_), Some(name)) => replicas.topic_metrics(name, key.partition),
            (Err(_), None) => None,
        };
        let mut part = answer.map_or_else(
            |code| error_part(key.partition, code),
            |read| part(key.partition, read),
        );
        if params.replica_id < 0
            && let Some(name) = &name
        {
            in_its_format(replicas, ctx, wanted.offset, name, &mut part).await;
        }
        if let Some(metrics) = metrics {
            count(&metrics, &params, &part);
        }
        if ctx.api_version >= LEADER_HINTS_FROM
            && let Some(name) = name
        {
            hint(replicas, ctx, &name, &mut part, &mut nodes);
        }
        parts.push((place, part));
    }
    for (place, code) in unknown {
        if let Some((key, _)) = wanted.get(place) {
            let aborted_transactions = Some(Vec::new());
            let part = PartitionData {
                aborted_transactions,
                ..error_part(key.partition, code)
            };
            parts.push((place, part));
        }
    }
    finish(replicas, ctx, &params, &context, parts, nodes, now)
}

fn params(replicas: &ReplicaManager, version: i16, request: &FetchRequest) -> FetchParams {
    let replica_id = match version {
        15.. => request.replica_state.replica_id,
        _ => request.replica_id,
    };
    let positive = |bytes: i32| u32::try_from(bytes).unwrap_or(0);
    let asked = positive(request.max_bytes);
    let is_follower = replica_id >= 0;
    let config = replicas.config.current();
    let by_rack = config.replica_selector_class.as_deref() == Some(RACK_AWARE);
    let max_bytes = if is_follower {
        asked
    } else {
        asked.min(positive(config.fetch_max_bytes))
    };
    FetchParams {
        replica_id,
        limit: match request.isolation_level {
            _ if is_follower => ReadLimit::LogEnd,
            1 => ReadLimit::LastStable,
            _ => ReadLimit::HighWatermark,
        },
        min_bytes: positive(request.min_bytes).min(max_bytes).into(),
        max_bytes,
        hard_max: version <= 2,
        max_wait: Duration::from_millis(positive(request.max_wait_ms).into()),
        only_leader: is_follower || version < FOLLOWERS_FROM,
        rack: Some(&request.rack_id)
            .filter(|rack| by_rack && !is_follower && !rack.is_empty())
            .map(|rack| rack.as_str().into()),
        hurry_high_watermark: is_follower && by_rack,
    }
}

fn session_request(version: i16, request: FetchRequest) -> SessionRequest {
    let uses_topic_ids = version >= TOPIC_IDS_FROM;
    // A partition named twice counts once, at its first place, as it was named last.
    let mut wanted: Vec<(SessionKey, Wanted)> = Vec::new();
    let mut places: HashMap<SessionKey, usize> = HashMap::new();
    let many = request.topics.len() > 1 || request.topics.iter().any(|t| t.partitions.len() > 1);
    for topic in request.topics {
        let name: Arc<str> = topic.topic.into();
        for partition in topic.partitions {
            let key = SessionKey {
                topic_id: topic.topic_id,
                topic: name.clone(),
                partition: partition.partition,
            };
            let newer = wanted_of(&partition);
            if many {
                if let Some((_, known)) = places.get(&key).and_then(|at| wanted.get_mut(*at)) {
                    *known = newer;
                    continue;
                }
                places.insert(key.clone(), wanted.len());
            }
            wanted.push((key, newer));
        }
    }
    let mut forgotten = Vec::new();
    for topic in request.forgotten_topics_data {
        let name: Arc<str> = topic.topic.into();
        for partition in topic.partitions {
            forgotten.push(SessionKey {
                topic_id: topic.topic_id,
                topic: name.clone(),
                partition,
            });
        }
    }
    SessionRequest {
        session_id: request.session_id,
        epoch: request.session_epoch,
        uses_topic_ids,
        wanted,
        forgotten,
    }
}

fn wanted_of(partition: &FetchPartition) -> Wanted {
    Wanted {
        offset: partition.fetch_offset,
        max_bytes: partition.partition_max_bytes,
        current_leader_epoch: partition.current_leader_epoch,
        last_fetched_epoch: partition.last_fetched_epoch,
        log_start_offset: partition.log_start_offset,
    }
}

fn names(replicas: &ReplicaManager, wanted: &[(SessionKey, Wanted)]) -> Vec<Option<Arc<str>>> {
    let snapshot = replicas.metadata.snapshot();
    let name = |key: &SessionKey| {
        if key.topic_id.is_zero() {
            Some(key.topic.clone())
        } else {
            snapshot.topic_name(&key.topic_id).cloned()
        }
    };
    wanted.iter().map(|(key, _)| name(key)).collect()
}

fn target(
    snapshot: &Snapshot,
    params: &FetchParams,
    key: &SessionKey,
    wanted: &Wanted,
    by_id: bool,
) -> Result<FetchTarget, ErrorCode> {
    let topic = if !key.topic_id.is_zero() {
        snapshot
            .topic_name(&key.topic_id)
            .cloned()
            .ok_or(ErrorCode::UnknownTopicId)?
    } else if by_id {
        return Err(ErrorCode::UnknownTopicId);
    } else {
        key.topic.clone()
    };
    // A follower may know of a partition before this broker's metadata does.
    if params.replica_id < 0 && snapshot.partition(&topic, key.partition).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    Ok(FetchTarget {
        topic,
        topic_id: key.topic_id,
        partition: key.partition,
        offset: wanted.offset,
        max_bytes: wanted.max_bytes,
        current_leader_epoch: wanted.current_leader_epoch,
        last_fetched_epoch: wanted.last_fetched_epoch,
        log_start_offset: wanted.log_start_offset,
    })
}

/// One partition's part of the answer.
fn part(partition: i32, read: Read) -> PartitionData {
    let aborted = read.data.aborted.map(|aborted| {
        let aborted = aborted.into_iter().map(|txn| AbortedTransaction {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
            ..Default::default()
        });
        aborted.collect()
    });
    let mut part = PartitionData {
        partition_index: partition,
        high_watermark: read.data.high_watermark,
        last_stable_offset: read.data.last_stable_offset,
        log_start_offset: read.data.log_start_offset,
        aborted_transactions: aborted,
        preferred_read_replica: read.nearer.unwrap_or(-1),
        records: Some(Records {
            parts: read.data.parts,
        }),
        ..Default::default()
    };
    if let Some(diverging) = read.diverging {
        part.diverging_epoch = EpochEndOffset {
            epoch: diverging.epoch,
            end_offset: diverging.end_offset,
            ..Default::default()
        };
    }
    part
}

/// Brings the records of a consumer's answer into the format that its version of the request knows.
async fn in_its_format(
    replicas: &ReplicaManager,
    ctx: &RequestContext,
    first_offset: i64,
    name: &str,
    part: &mut PartitionData,
) {
    let Some(records) = part.records.take_if(|_| part.error_code == 0) else {
        return;
    };
    let topic = replicas.config.topic(name);
    let format = Format {
        version: ctx.api_version,
        first_offset,
    };
    match convert(&topic, format, records).await {
        Ok(records) => part.records = Some(records),
        // As Kafka has it: null records here, empty ones with all other errors.
        Err(code) => {
            *part = PartitionData {
                aborted_transactions: Some(Vec::new()),
                records: None,
                ..error_part(part.partition_index, code)
            };
        }
    }
}

fn count(metrics: &TopicMetrics, params: &FetchParams, part: &PartitionData) {
    metrics.add(|c| &c.fetch_requests, 1);
    let is_ours = [
        ErrorCode::KafkaStorageError.code(),
        ErrorCode::UnknownServerError.code(),
    ];
    if is_ours.contains(&part.error_code) {
        metrics.add(|c| &c.failed_fetch_requests, 1);
    }
    let bytes = part.records.as_ref().map_or(0, Records::len);
    if bytes > 0 && params.replica_id < 0 {
        metrics.add(|c| &c.bytes_out, bytes);
    } else if bytes > 0 {
        metrics.add(|c| &c.replication_bytes_out, bytes);
    }
}

fn error_part(partition_index: i32, code: ErrorCode) -> PartitionData {
    PartitionData {
        partition_index,
        error_code: code.code(),
        high_watermark: -1,
        aborted_transactions: None,
        records: Some(Records::empty()),
        ..Default::default()
    }
}

fn hint(
    replicas: &ReplicaManager,
    ctx: &RequestContext,
    topic: &str,
    part: &mut PartitionData,
    nodes: &mut Vec<LeaderNode>,
) {
    let elsewhere = [
        ErrorCode::NotLeaderOrFollower.code(),
        ErrorCode::FencedLeaderEpoch.code(),
    ];
    if elsewhere.contains(&part.error_code) {
        let hint = leader_hint(replicas, ctx, topic, part.partition_index, nodes);
        part.current_leader = LeaderIdAndEpoch {
            leader_id: hint.leader_id,
            leader_epoch: hint.leader_epoch,
            ..Default::default()
        };
    }
}

fn told(part: &PartitionData) -> Told {
    Told {
        high_watermark: part.high_watermark,
        log_start_offset: part.log_start_offset,
        has_records: part
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty()),
        special: part.error_code != 0
            || part.diverging_epoch.epoch >= 0
            || part.preferred_read_replica >= 0,
        // what came with a divergence is not taken over by every follower
        error: part.error_code != 0 || part.diverging_epoch.epoch >= 0,
    }
}

/// The session's part: which parts are sent, under which session id.
fn finish(
    replicas: &ReplicaManager,
    ctx: &RequestContext,
    params: &FetchParams,
    context: &Context,
    parts: Vec<(usize, PartitionData)>,
    nodes: Vec<LeaderNode>,
    now_ms: i64,
) -> FetchResponse {
    let wanted = context.wanted();
    let entries = |parts: &[(usize, PartitionData)]| -> Vec<(SessionKey, Wanted, Told)> {
        let entry = |(place, part): &(usize, PartitionData)| {
            wanted
                .get(*place)
                .map(|(key, wanted)| (key.clone(), *wanted, told(part)))
        };
        parts.iter().filter_map(entry).collect()
    };
    let (session_id, parts) = match context {
        Context::Sessionless(_) => (NO_SESSION, parts),
        Context::Full { uses_topic_ids, .. } => {
            let draw = || rand::random_range(1..i32::MAX);
            let privileged = params.replica_id >= 0;
            let entries = entries(&parts).into_iter();
            let sessions = replicas.sessions();
            (
                sessions.create(*uses_topic_ids, entries, privileged, now_ms, draw),
                parts,
            )
        }
        Context::Incremental {
            session_id, epoch, ..
        } => {
            let told: Vec<_> = entries(&parts)
                .into_iter()
                .map(|(key, _, told)| (key, told))
                .collect();
            match replicas.sessions().changed(*session_id, *epoch, &told) {
                Err(error) => return failed(error),
                Ok(changed) => {
                    let mut changed = changed.into_iter();
                    let sent = parts.into_iter().filter(|_| changed.next().unwrap_or(true));
                    (*session_id, sent.collect())
                }
            }
        }
    };
    let by_id = ctx.api_version >= TOPIC_IDS_FROM;
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    for (place, part) in parts {
        let Some((key, _)) = wanted.get(place) else {
            continue;
        };
        match responses.last_mut() {
            Some(last) if last.topic_id == key.topic_id && (by_id || *last.topic == *key.topic) => {
                last.partitions.push(part);
            }
            _ => responses.push(FetchableTopicResponse {
                topic: if by_id {
                    String::new()
                } else {
                    key.topic.to_string()
                },
                topic_id: if by_id { key.topic_id } else { Uuid::ZERO },
                partitions: vec![part],
                ..Default::default()
            }),
        }
    }
    let endpoints = nodes.into_iter().map(|node| NodeEndpoint {
        node_id: node.id,
        host: node.host,
        port: node.port,
        rack: node.rack,
        ..Default::default()
    });
    FetchResponse {
        session_id,
        responses,
        node_endpoints: endpoints.collect(),
        ..Default::default()
    }
}

fn failed(error: SessionError) -> FetchResponse {
    let code = match error {
        SessionError::NotFound => ErrorCode::FetchSessionIdNotFound,
        SessionError::WrongEpoch => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicIds => ErrorCode::FetchSessionTopicIdError,
    };
    FetchResponse {
        error_code: code.code(),
        ..Default::default()
    }
}
