//! What the controller asks its shell to do, in order.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{
    AlterPartitionResponse, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest,
};
use gracchus_registry::json::BrokerRegistration;
use gracchus_registry::op::ZkOp;

use crate::context::PartitionKey;
use crate::event::{ApiToken, Timer};

/// A request to a broker, sent in order with the others to it and tried until it is answered or the broker is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlRequest {
    LeaderAndIsr(LeaderAndIsrRequest, i16),
    /// The same content goes to all brokers; only the addressee's epoch differs.
    UpdateMetadata {
        content: Arc<UpdateMetadataRequest>,
        broker_epoch: i64,
        version: i16,
    },
    StopReplica(StopReplicaRequest, i16),
}

/// One partition's answer: an error has a text.
pub type Outcome<T> = Result<T, (ErrorCode, String)>;

/// A reassignment under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reassigning {
    pub key: PartitionKey,
    /// The target, then those to be removed.
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
}

/// What an API event is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiResult {
    AlterPartition(AlterPartitionResponse),
    /// First id and length.
    ProducerIds(Result<(i64, i32), ErrorCode>),
    /// Partitions that the broker still leads.
    ControlledShutdown(Result<Vec<(String, i32)>, ErrorCode>),
    /// The leaders elected.
    Elections(Result<Vec<(PartitionKey, Outcome<i32>)>, ErrorCode>),
    /// Reassignments begun or given up.
    Reassigned(Result<Vec<(PartitionKey, Outcome<()>)>, ErrorCode>),
    Reassignments(Result<Vec<Reassigning>, ErrorCode>),
}

#[derive(Debug)]
pub enum Action {
    /// Run these, pipelined and in order, and come back with [`Event::ZkResult`](crate::Event::ZkResult), best while later
    /// ones are still under way.
    Zk {
        token: u64,
        ops: Vec<ZkOp>,
    },
    Send {
        broker_id: i32,
        request: ControlRequest,
    },
    /// Open (or replace) the send queue to a live broker.
    Connect {
        broker_id: i32,
        registration: BrokerRegistration,
    },
    /// Close it; what waits in it is dropped.
    Disconnect {
        broker_id: i32,
    },
    Reply {
        token: ApiToken,
        result: ApiResult,
    },
    SetTimer {
        timer: Timer,
        after_ms: u64,
    },
    /// This broker became the active controller (with this epoch), or is it no longer.
    Active(Option<i32>),
}
