//! The dispatch table and one file a request.
//!
//! A handler is `pub async fn handle(broker: &Arc<Broker>, ctx: &RequestContext, request: XRequest) -> XResponse` in
//! `api/<snake_case_name>.rs` (or in the folder of its subject); one that may answer nothing (Produce with acks=0)
//! returns `Option<XResponse>`, and `None` sends nothing. It is entered in [`served`] below with one line: decoding, the
//! versions, the encoding and what ApiVersions advertises follow from that line. A handler never panics and does not
//! block its thread on the network; short file work (an append, a read of cached pages) is done in place.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gracchus_kafka_proto::messages as m;
use gracchus_kafka_proto::{ApiKey, Request, decode_request_header, encode_response};

use crate::broker::Broker;
use crate::context::{ConnectionInfo, RequestContext};
use crate::net::Outcome;

/// AllocateProducerIds (67).
pub mod allocate_producer_ids;
/// AlterPartition (56).
pub mod alter_partition;
/// AlterReplicaLogDirs (34).
pub mod alter_replica_log_dirs;
/// ApiVersions (18).
pub mod api_versions;
/// Configurations of topics and brokers.
pub mod configs;
/// ControlledShutdown (7).
pub mod controlled_shutdown;
/// CreatePartitions (37).
pub mod create_partitions;
/// CreateTopics (19).
pub mod create_topics;
/// DeleteRecords (21).
pub mod delete_records;
/// DeleteTopics (20).
pub mod delete_topics;
/// DescribeCluster (60).
pub mod describe_cluster;
/// DescribeLogDirs (35).
pub mod describe_log_dirs;
/// DescribeProducers (61).
pub mod describe_producers;
/// ElectLeaders (43).
pub mod elect_leaders;
/// Fetch (1).
pub mod fetch;
/// Records for old consumers.
pub mod fetch_convert;
/// Groups and committed offsets.
pub mod group;
/// InitProducerId (22).
pub mod init_producer_id;
/// LeaderAndIsr (4).
pub mod leader_and_isr;
/// Who leads instead.
pub mod leader_hint;
/// ListOffsets (2).
pub mod list_offsets;
/// Metadata (3).
pub mod metadata;
/// OffsetForLeaderEpoch (23).
pub mod offset_for_leader_epoch;
/// Produce (0).
pub mod produce;
/// Partitions that move to other replicas.
pub mod reassignments;
/// ConsumerGroupHeartbeat, ConsumerGroupDescribe (68, 69), Envelope (58): advertised and refused, as Kafka does here.
pub mod refused;
/// StopReplica (5).
pub mod stop_replica;
/// UpdateMetadata (6).
pub mod update_metadata;

/// Lists what is served: `kind Request => handler`. `boxed` is the rule; `inline` keeps the two hot handlers' futures in
/// the connection's own task, which costs memory in each connection; `whole` is inline too, and its handler decides about
/// the connection itself.
macro_rules! served {
    ($($kind:ident $request:ident => $handler:path;)*) => {
        /// What ApiVersions advertises: key, first and last version; Kafka's three refused keys included.
        pub const SERVED: &[(ApiKey, i16, i16)] = &[
            $((<m::$request as Request>::KEY, <m::$request as Request>::MIN_VERSION, <m::$request as Request>::MAX_VERSION),)*
            (ApiKey::Envelope, 0, 0),
        ];

        async fn run(broker: &Arc<Broker>, key: ApiKey, ctx: &RequestContext, body: gracchus_kafka_proto::Reader) -> Outcome {
            match key {
                $(<m::$request as Request>::KEY => served!(@$kind m::$request, $handler, broker, ctx, body),)*
                ApiKey::Envelope => refused::envelope(),
                _ => Outcome::Close(format!("{key:?} is not served by this broker")),
            }
        }
    };
    (@inline $request:ty, $handler:path, $broker:ident, $ctx:ident, $body:ident) => {{
        let mut body = $body;
        match decode::<$request>(&mut body, $ctx) {
            Ok(request) => reply::<$request>($ctx, $handler($broker, $ctx, request).await.into()),
            Err(outcome) => outcome,
        }
    }};
    (@whole $request:ty, $handler:path, $broker:ident, $ctx:ident, $body:ident) => {{
        let mut body = $body;
        match decode::<$request>(&mut body, $ctx) {
            Ok(request) => $handler($broker, $ctx, request).await,
            Err(outcome) => outcome,
        }
    }};
    (@boxed $request:ty, $handler:path, $broker:ident, $ctx:ident, $body:ident) => {
        Box::pin(async move { served!(@inline $request, $handler, $broker, $ctx, $body) }).await
    };
}

served! {
    whole ProduceRequest => produce::handle;
    inline FetchRequest => fetch::handle;
    boxed ListOffsetsRequest => list_offsets::handle;
    boxed LeaderAndIsrRequest => leader_and_isr::handle;
    boxed StopReplicaRequest => stop_replica::handle;
    boxed UpdateMetadataRequest => update_metadata::handle;
    boxed DeleteRecordsRequest => delete_records::handle;
    boxed OffsetForLeaderEpochRequest => offset_for_leader_epoch::handle;
    boxed AlterReplicaLogDirsRequest => alter_replica_log_dirs::handle;
    boxed DescribeLogDirsRequest => describe_log_dirs::handle;
    boxed DescribeProducersRequest => describe_producers::handle;
    boxed ApiVersionsRequest => api_versions::handle;
    boxed DescribeConfigsRequest => configs::describe::handle;
    boxed AlterConfigsRequest => configs::alter::handle;
    boxed IncrementalAlterConfigsRequest => configs::incremental::handle;
    boxed DescribeClusterRequest => describe_cluster::handle;
    boxed MetadataRequest => metadata::handle;
    boxed OffsetCommitRequest => group::offset_commit::handle;
    boxed OffsetFetchRequest => group::offset_fetch::handle;
    boxed FindCoordinatorRequest => group::find_coordinator::handle;
    boxed JoinGroupRequest => group::join_group::handle;
    boxed HeartbeatRequest => group::heartbeat::handle;
    boxed LeaveGroupRequest => group::leave_group::handle;
    boxed SyncGroupRequest => group::sync_group::handle;
    boxed DescribeGroupsRequest => group::describe_groups::handle;
    boxed ListGroupsRequest => group::list_groups::handle;
    boxed DeleteGroupsRequest => group::delete_groups::handle;
    boxed OffsetDeleteRequest => group::offset_delete::handle;
    boxed ControlledShutdownRequest => controlled_shutdown::handle;
    boxed CreateTopicsRequest => create_topics::handle;
    boxed DeleteTopicsRequest => delete_topics::handle;
    boxed CreatePartitionsRequest => create_partitions::handle;
    boxed ElectLeadersRequest => elect_leaders::handle;
    boxed AlterPartitionReassignmentsRequest => reassignments::alter::handle;
    boxed ListPartitionReassignmentsRequest => reassignments::list::handle;
    boxed AlterPartitionRequest => alter_partition::handle;
    boxed AllocateProducerIdsRequest => allocate_producer_ids::handle;
    boxed InitProducerIdRequest => init_producer_id::handle;
    boxed ConsumerGroupHeartbeatRequest => refused::consumer_group_heartbeat;
    boxed ConsumerGroupDescribeRequest => refused::consumer_group_describe;
}

fn decode<R: Request>(
    body: &mut gracchus_kafka_proto::Reader,
    ctx: &RequestContext,
) -> Result<R, Outcome> {
    R::decode(body, ctx.api_version).map_err(|e| {
        Outcome::Close(format!(
            "{:?} version {} cannot be read: {e}",
            R::KEY,
            ctx.api_version
        ))
    })
}

fn reply<R: Request>(ctx: &RequestContext, response: Option<R::Response>) -> Outcome {
    let Some(response) = response else {
        return Outcome::Nothing;
    };
    match encode_response(ctx.correlation_id, R::KEY, ctx.api_version, &response) {
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => {
            tracing::error!(api = ?R::KEY, version = ctx.api_version, %error, "an answer cannot be written in the version asked for");
            Outcome::Close(format!(
                "the answer to {:?} version {} cannot be written: {error}",
                R::KEY,
                ctx.api_version
            ))
        }
    }
}

/// One frame from a client to what goes back.
pub async fn dispatch(
    broker: &Arc<Broker>,
    connection: &Arc<ConnectionInfo>,
    frame: Bytes,
) -> Outcome {
    let (received, frame_len) = (Instant::now(), frame.len());
    let (header, body) = match decode_request_header(frame) {
        Ok(read) => read,
        Err(error) => {
            return Outcome::Close(format!("a request header that cannot be read: {error}"));
        }
    };
    let (api_key, version) = (header.request_api_key, header.request_api_version);
    let Some(key) = ApiKey::from_i16(api_key) else {
        return Outcome::Close(format!("unknown api key {api_key}"));
    };
    let ctx = RequestContext {
        api_key,
        api_version: version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.map(Arc::from),
        connection: connection.clone(),
        received,
        frame_len,
    };
    let Some((_, first, last)) = SERVED.iter().find(|(k, _, _)| *k == key) else {
        return Outcome::Close(format!("{key:?} ({api_key}) is not served by this broker"));
    };
    if !(*first..=*last).contains(&version) {
        if key == ApiKey::ApiVersions {
            return api_versions::unsupported_version(ctx.correlation_id);
        }
        return Outcome::Close(format!(
            "{key:?} version {version} is not supported (from {first} to {last} are)"
        ));
    }
    let outcome = run(broker, key, &ctx, body).await;
    broker.metrics.requests.record(api_key, received.elapsed());
    outcome
}
