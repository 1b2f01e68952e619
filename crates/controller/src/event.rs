//! What a controller is told.

use gracchus_kafka_proto::messages::{
    AllocateProducerIdsRequest, AlterPartitionRequest, ControlledShutdownRequest,
    LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse,
};
use gracchus_registry::ZkResult;

use crate::config::ControllerConfig;
use crate::context::TopicPartition;

/// How a watched znode changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    Deleted,
    Data,
    Children,
}

/// A timer that was asked for with [`crate::Action::SetTimer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// Take part in elections again, after one that failed.
    Elect,
    /// Look whether leaders are spread as preferred.
    Rebalance,
}

/// Which leaders ElectLeaders asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionKind {
    Preferred,
    Unclean,
}

/// An API request that belongs to the controller. A controller that is not active answers NOT_CONTROLLER.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiRequest {
    /// The version says whether topics are named by name (0, 1) or id.
    AlterPartition {
        version: i16,
        request: AlterPartitionRequest,
    },
    AllocateProducerIds(AllocateProducerIdsRequest),
    ControlledShutdown(ControlledShutdownRequest),
    /// `None`: all partitions.
    ElectLeaders {
        kind: ElectionKind,
        partitions: Option<Vec<TopicPartition>>,
    },
    /// A null target cancels.
    Reassign(Vec<(TopicPartition, Option<Vec<i32>>)>),
    /// `None`: all that are under way.
    ListReassignments(Option<Vec<TopicPartition>>),
}

/// A broker's answer to what the controller sent it.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlAnswer {
    LeaderAndIsr(LeaderAndIsrResponse),
    UpdateMetadata(UpdateMetadataResponse),
    /// With the partitions that were to be deleted; versions below 3 need them to be told apart.
    StopReplica {
        deleted: Vec<TopicPartition>,
        response: StopReplicaResponse,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// This broker is registered for the first time: take part in elections.
    Startup,
    /// The ZooKeeper session is over. Clears the queue; a new session may be opened once the answer has
    /// [`crate::Action::Expired`].
    SessionExpired,
    /// This broker is registered again in a new session.
    Registered,
    /// A one-shot watch fired.
    Watch { path: String, change: Change },
    /// The results of [`crate::Action::Zk`].
    ZkResult { token: u64, results: Vec<ZkResult> },
    /// A broker answered; of an earlier controller epoch it is ignored.
    Answer {
        broker_id: i32,
        controller_epoch: i32,
        answer: ControlAnswer,
    },
    Timer(Timer),
    /// An API request; answered with [`crate::Action::Reply`] of the same token.
    Api { token: u64, request: ApiRequest },
    /// Configuration changed. Turning unclean election on brings leaderless partitions up.
    Config(ControllerConfig),
    /// A topic's configuration changed.
    TopicConfig { topic: String },
    /// The broker stops: resign. `/controller` goes with the session.
    Stop,
}
