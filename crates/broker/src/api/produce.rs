//! Produce (0): appends batches, and waits for the in-sync replicas with acks=all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gracchus_kafka_proto::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use gracchus_kafka_proto::messages::{ProduceRequest, ProduceResponse};
use gracchus_kafka_proto::{ErrorCode, Records};
use gracchus_log::AppendOrigin;
use gracchus_log::tail::KEPT_AS_IT_CAME;
use gracchus_record::validate::{Fault, check_request};
use tokio::time::Instant;

use super::leader_hint::{LeaderNode, is_internal, leader_hint};
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::context::RequestContext;
use crate::metadata::Snapshot;
use crate::net::Outcome;
use crate::replica::ReplicaManager;
use crate::replica::{AppendFailure, AppendOutcome, Partition};

/// The client id that may write to internal topics (Kafka's own admin tools).
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// Versions from which the answer names the leader, where it is another (KIP-951).
const LEADER_HINTS_FROM: i16 = 10;
/// A batch that the log's tail may keep as it came has at least this part of its frame, or is copied: it would keep the
/// whole of it in memory.
const SHARE: usize = 4;

/// A partition that was appended to with acks=all: where its answer stands, and what has to be replicated.
struct Wait {
    topic: usize,
    partition: usize,
    replica: Arc<Partition>,
    needed: i64,
}

/// Answers; with acks=0 there is no answer, and an error closes the connection.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: ProduceRequest,
) -> Outcome {
    answer(&broker.replicas, ctx, request).await
}

/// The same, without the rest of the broker.
pub async fn answer(
    replicas: &Arc<ReplicaManager>,
    ctx: &RequestContext,
    request: ProduceRequest,
) -> Outcome {
    let acks = request.acks;
    if request.transactional_id.is_none() && has_transactional(&request) {
        return unauthorized(ctx, request);
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let cluster = replicas.metadata.snapshot();
    let mut waits = Vec::new();
    let mut responses = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let mut appended = append(
                replicas,
                &cluster,
                ctx,
                acks,
                &topic.name,
                data.index,
                data.records,
            );
            if let Ok(outcome) = &appended
                && let Err(code) = replicas.flush_appended(outcome).await
            {
                appended = Err(code.into());
            }
            partitions.push(match appended {
                Ok(AppendOutcome { partition, info }) => {
                    if acks == -1 {
                        waits.push(Wait {
                            topic: responses.len(),
                            partition: partitions.len(),
                            replica: partition,
                            needed: info.last_offset + 1,
                        });
                    }
                    PartitionProduceResponse {
                        index: data.index,
                        base_offset: info.first_offset,
                        log_append_time_ms: info.log_append_time,
                        log_start_offset: info.log_start_offset,
                        ..Default::default()
                    }
                }
                Err(failure) => refused(data.index, failure),
            });
        }
        responses.push(TopicProduceResponse {
            name: topic.name,
            partition_responses: partitions,
            ..Default::default()
        });
    }
    if !waits.is_empty() {
        wait(replicas, &waits, timeout, &mut responses).await;
    }
    let mut response = ProduceResponse {
        responses,
        ..Default::default()
    };
    if acks == 0 {
        return without_answer(&response);
    }
    if ctx.api_version >= LEADER_HINTS_FROM {
        name_leaders(replicas, ctx, &mut response);
    }
    super::reply::<ProduceRequest>(ctx, Some(response))
}

fn append(
    replicas: &ReplicaManager,
    cluster: &Snapshot,
    ctx: &RequestContext,
    acks: i16,
    topic: &str,
    partition: i32,
    records: Option<Records>,
) -> Result<AppendOutcome, AppendFailure> {
    if cluster.partition(topic, partition).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition.into());
    }
    let mut records = records
        .and_then(|records| records.as_bytes())
        .unwrap_or_default();
    check_request(ctx.api_version, &records).map_err(|refused| code_of(refused.fault))?;
    if !matches!(acks, -1..=1) {
        return Err(ErrorCode::InvalidRequiredAcks.into());
    }
    if is_internal(topic) && ctx.client_id() != ADMIN_CLIENT_ID {
        return Err(ErrorCode::InvalidTopicException.into());
    }
    if let Some(producer_id) = transaction(&records)
        && !is_in_transaction(replicas, topic, partition, producer_id)
    {
        // Without a transaction coordinator this is what Kafka answers while there is none to ask (KIP-890).
        let message = "Unable to verify the partition has been added to the transaction. Underlying error: COORDINATOR_NOT_AVAILABLE";
        return Err(AppendFailure {
            message: Some(message.to_owned()),
            ..ErrorCode::NotEnoughReplicas.into()
        });
    }
    if records.len() >= KEPT_AS_IT_CAME && records.len() < ctx.frame_len / SHARE {
        records = Bytes::copy_from_slice(&records);
    }
    let origin = AppendOrigin::Client;
    replicas.append(topic, partition, records, acks == -1, origin, now_ms())
}

/// The producer id of a transactional batch of format v2, read in place: magic at 16, attributes at 21, id at 43.
fn transaction(records: &[u8]) -> Option<i64> {
    let number = |at: usize| {
        records
            .get(at..)?
            .first_chunk()
            .map(|bytes| i64::from_be_bytes(*bytes))
    };
    let is_transactional = records.get(22)? & 0x10 != 0;
    (*records.get(16)? == 2 && is_transactional).then(|| number(43))?
}

fn has_transactional(request: &ProduceRequest) -> bool {
    let mut data = request
        .topic_data
        .iter()
        .flat_map(|topic| &topic.partition_data);
    data.any(|data| {
        let records = data.records.as_ref().and_then(Records::as_bytes);
        records.is_some_and(|records| transaction(&records).is_some())
    })
}

/// Transactional batches in a request without a transactional id: nobody can be allowed to use it.
fn unauthorized(ctx: &RequestContext, request: ProduceRequest) -> Outcome {
    let code = ErrorCode::TransactionalIdAuthorizationFailed;
    let topics = request
        .topic_data
        .into_iter()
        .map(|topic| TopicProduceResponse {
            name: topic.name,
            partition_responses: topic
                .partition_data
                .into_iter()
                .map(|data| refused(data.index, code.into()))
                .collect(),
            ..Default::default()
        });
    let response = ProduceResponse {
        responses: topics.collect(),
        ..Default::default()
    };
    if request.acks == 0 {
        return without_answer(&response);
    }
    super::reply::<ProduceRequest>(ctx, Some(response))
}

/// Whether the log knows of an open transaction of this producer.
fn is_in_transaction(
    replicas: &ReplicaManager,
    topic: &str,
    partition: i32,
    producer_id: i64,
) -> bool {
    let producers = replicas.producers(topic, partition).unwrap_or_default();
    producers
        .iter()
        .any(|p| p.producer_id == producer_id && p.current_txn_start_offset >= 0)
}

fn code_of(fault: Fault) -> ErrorCode {
    match fault {
        Fault::CorruptMessage => ErrorCode::CorruptMessage,
        Fault::InvalidRecord => ErrorCode::InvalidRecord,
        Fault::InvalidTimestamp => ErrorCode::InvalidTimestamp,
        Fault::MessageTooLarge => ErrorCode::MessageTooLarge,
        Fault::UnsupportedForMessageFormat => ErrorCode::UnsupportedForMessageFormat,
        Fault::UnsupportedCompressionType => ErrorCode::UnsupportedCompressionType,
    }
}

fn refused(index: i32, failure: AppendFailure) -> PartitionProduceResponse {
    let record_errors =
        failure
            .records
            .into_iter()
            .map(|(batch_index, text)| BatchIndexAndErrorMessage {
                batch_index,
                batch_index_error_message: Some(text),
                ..Default::default()
            });
    PartitionProduceResponse {
        index,
        error_code: failure.code.code(),
        base_offset: -1,
        log_start_offset: failure.log_start_offset,
        record_errors: record_errors.collect(),
        error_message: failure.message,
        ..Default::default()
    }
}

async fn wait(
    replicas: &ReplicaManager,
    waits: &[Wait],
    timeout: Duration,
    responses: &mut [TopicProduceResponse],
) {
    let needed: Vec<_> = waits
        .iter()
        .map(|wait| (wait.replica.clone(), wait.needed))
        .collect();
    let codes = replicas
        .wait_replicated(&needed, Instant::now() + timeout)
        .await;
    for (wait, code) in waits.iter().zip(codes) {
        let answer = responses
            .get_mut(wait.topic)
            .and_then(|topic| topic.partition_responses.get_mut(wait.partition));
        if let Some(answer) = answer {
            answer.error_code = code.code();
        }
    }
}

fn without_answer(response: &ProduceResponse) -> Outcome {
    for topic in &response.responses {
        for partition in &topic.partition_responses {
            if partition.error_code != 0 {
                let code = ErrorCode::from_code(partition.error_code);
                return Outcome::Close(format!(
                    "a produce request with acks=0 failed for {}-{}: {code}; without an answer the client learns of it only so",
                    topic.name, partition.index
                ));
            }
        }
    }
    Outcome::Nothing
}

fn name_leaders(replicas: &ReplicaManager, ctx: &RequestContext, response: &mut ProduceResponse) {
    let mut nodes: Vec<LeaderNode> = Vec::new();
    for topic in &mut response.responses {
        for partition in &mut topic.partition_responses {
            if partition.error_code == ErrorCode::NotLeaderOrFollower.code() {
                let hint = leader_hint(replicas, ctx, &topic.name, partition.index, &mut nodes);
                partition.current_leader = LeaderIdAndEpoch {
                    leader_id: hint.leader_id,
                    leader_epoch: hint.leader_epoch,
                    ..Default::default()
                };
            }
        }
    }
    let endpoints = nodes.into_iter().map(|node| NodeEndpoint {
        node_id: node.id,
        host: node.host,
        port: node.port,
        rack: node.rack,
        ..Default::default()
    });
    response.node_endpoints = endpoints.collect();
}
