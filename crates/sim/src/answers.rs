//! A broker's handlers, as its dispatcher calls them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gracchus_broker::api::{
    fetch, leader_and_isr, list_offsets, offset_for_leader_epoch, produce, stop_replica,
    update_metadata,
};
use gracchus_broker::context::{ConnectionInfo, Principal, RequestContext};
use gracchus_broker::metadata::MetadataCache;
use gracchus_broker::net::Outcome;
use gracchus_broker::replica::ReplicaManager;
use gracchus_controller::ControlRequest;
use gracchus_kafka_proto::messages::{
    FetchRequest, ProduceRequest, ProduceResponse, UpdateMetadataRequest,
};
use gracchus_kafka_proto::{
    ApiKey, Message, Records, Request as _, decode_response_header, encode_response,
};
use gracchus_log::in_memory;

use crate::process::learn;
use crate::requests::{Request, Response};

const PRODUCE_VERSION: i16 = 9;

fn context(key: ApiKey, version: i16) -> RequestContext {
    RequestContext {
        api_key: key.as_i16(),
        api_version: version,
        correlation_id: 1,
        client_id: Some("sim".into()),
        connection: Arc::new(ConnectionInfo {
            peer: "127.0.0.1:5000".parse().expect("an address"),
            local: "127.0.0.1:9092".parse().expect("an address"),
            listener_name: "PLAINTEXT".into(),
            privileged: true,
            principal: Principal::anonymous(),
            client_software: parking_lot::Mutex::new(None),
        }),
        received: Instant::now(),
        frame_len: 0,
    }
}

/// The controller's word.
pub fn control(
    replicas: &ReplicaManager,
    metadata: &MetadataCache,
    broker_epoch: i64,
    request: ControlRequest,
    now_ms: i64,
) -> Response {
    match request {
        ControlRequest::LeaderAndIsr(request, version) => Response::LeaderAndIsr(
            leader_and_isr::apply(replicas, broker_epoch, version, request, now_ms),
        ),
        ControlRequest::StopReplica(request, _) => {
            Response::StopReplica(stop_replica::apply(replicas, broker_epoch, request, now_ms))
        }
        ControlRequest::UpdateMetadata {
            content,
            broker_epoch: addressed,
            ..
        } => {
            let request = UpdateMetadataRequest {
                broker_epoch: addressed,
                ..content.as_ref().clone()
            };
            if update_metadata::refusal(replicas, broker_epoch, &request).is_none() {
                learn(metadata, &request);
            }
            Response::UpdateMetadata
        }
    }
}

/// Requests that only the replicas answer; some wait.
pub async fn of_replicas(replicas: &Arc<ReplicaManager>, request: Request) -> Response {
    match request {
        Request::Fetch(request, version) => {
            let ctx = context(ApiKey::Fetch, version);
            let mut answer = fetch::answer(replicas, &ctx, request).await;
            for topic in &mut answer.responses {
                for part in &mut topic.partitions {
                    part.records = part.records.as_ref().map(|r| Records::from(bytes_of(r)));
                }
            }
            // through the wire's form
            let frame = encode_response(1, FetchRequest::KEY, version, &answer)
                .expect("the answer has a wire form");
            let bytes = frame.into_bytes().expect("bytes").slice(4..);
            let (_, mut reader) =
                decode_response_header(bytes, FetchRequest::KEY, version).expect("a header");
            Response::Fetch(Message::decode(&mut reader, version).expect("an answer"))
        }
        Request::Epochs(request, version) => {
            let ctx = context(ApiKey::OffsetForLeaderEpoch, version);
            Response::Epochs(offset_for_leader_epoch::answer(replicas, &ctx, request).await)
        }
        Request::Offsets(request, version) => {
            let ctx = context(ApiKey::ListOffsets, version);
            Response::Offsets(list_offsets::answer(replicas, &ctx, request).await)
        }
        Request::Produce(request, _) => {
            let ctx = context(ApiKey::Produce, PRODUCE_VERSION);
            Response::Produce(match produce::answer(replicas, &ctx, request).await {
                Outcome::Reply(frame) => {
                    let bytes = frame.into_bytes().expect("bytes").slice(4..);
                    let key = ProduceRequest::KEY;
                    let (_, mut reader) =
                        decode_response_header(bytes, key, PRODUCE_VERSION).expect("a header");
                    ProduceResponse::decode(&mut reader, PRODUCE_VERSION).expect("an answer")
                }
                _ => ProduceResponse::default(),
            })
        }
        Request::Control(_) | Request::AlterPartition(..) | Request::Leader => {
            Response::Leader(None)
        }
    }
}

/// The records' bytes, from memory or file.
pub fn bytes_of(records: &Records) -> Bytes {
    in_memory(&records.parts).expect("the region is there")
}
