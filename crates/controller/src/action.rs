//! What a controller wants done.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{
    AllocateProducerIdsResponse, AlterPartitionResponse, ControlledShutdownResponse,
    LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest,
};
use gracchus_registry::ZkOp;
use gracchus_registry::json::BrokerRegistration;

use crate::context::{Reassignment, TopicPartition};
use crate::event::Timer;

/// A request to one broker, and the version to write it in.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlRequest {
    LeaderAndIsr {
        version: i16,
        request: LeaderAndIsrRequest,
    },
    UpdateMetadata {
        version: i16,
        request: UpdateMetadataRequest,
    },
    /// `deleted` goes back with the answer.
    StopReplica {
        version: i16,
        request: StopReplicaRequest,
        deleted: Vec<TopicPartition>,
    },
}

/// An answer to an [`crate::ApiRequest`].
#[derive(Debug, Clone, PartialEq)]
pub enum ApiReply {
    AlterPartition(AlterPartitionResponse),
    AllocateProducerIds(AllocateProducerIdsResponse),
    ControlledShutdown(ControlledShutdownResponse),
    /// The outer error answers the whole request. A leader that was elected comes with its id, for the wait until it is
    /// known.
    ElectLeaders(Result<Vec<(TopicPartition, Result<i32, (ErrorCode, String)>)>, ErrorCode>),
    Reassign(Result<Vec<(TopicPartition, Result<(), (ErrorCode, String)>)>, ErrorCode>),
    ListReassignments(Result<Vec<(TopicPartition, Reassignment)>, ErrorCode>),
}

/// One thing to be done by the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Run these in order, pipelined; answer with [`crate::Event::ZkResult`].
    Zk { token: u64, ops: Vec<ZkOp> },
    /// A live broker: start a connection to it, with an empty queue. A connection to an earlier life of it ends.
    AddBroker {
        broker_id: i32,
        registration: Arc<BrokerRegistration>,
    },
    /// The broker's addresses changed.
    UpdateBroker {
        broker_id: i32,
        registration: Arc<BrokerRegistration>,
    },
    /// End its connection; what is queued is dropped.
    RemoveBroker { broker_id: i32 },
    /// Put into the broker's queue; sent in order, one at a time, until answered.
    Send {
        broker_id: i32,
        controller_epoch: i32,
        request: ControlRequest,
    },
    /// Answers an API request.
    Reply { token: u64, reply: ApiReply },
    /// Replaces a timer of the same kind.
    SetTimer { timer: Timer, after_ms: i64 },
    CancelTimer { timer: Timer },
    /// The end of the session has been seen: a new one may be opened.
    Expired,
}
