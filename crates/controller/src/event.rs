//! What the controller is told.

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::AlterPartitionRequest;
use gracchus_registry::op::ZkResult;
use gracchus_registry::paths;

use crate::context::PartitionKey;

/// Answers an API event; made by the shell.
pub type ApiToken = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// Try the election again after a failure.
    Reelect,
    /// Look whether leaders are where they are preferred; of this term.
    Balance { epoch: i32 },
}

#[derive(Debug)]
pub enum Event {
    /// The broker is registered (at start, and again after a lost session): takes part in elections.
    Registered,
    /// The session is over. Handled at once, ahead of everything that waits.
    SessionExpired,
    /// Results of [`Action::Zk`](crate::Action::Zk), in the order of its operations: all of them, or the next ones, with the
    /// others to follow.
    ZkResult {
        token: u64,
        results: Vec<ZkResult>,
    },
    Timer(Timer),

    // watches
    ControllerChanged,
    BrokersChanged,
    BrokerModified(i32),
    TopicsChanged,
    TopicModified(String),
    DeletionsRequested,
    IsrNotices,
    LogDirNotices,
    PreferredElectionRequested,
    ReassignmentRequested,

    // brokers' answers
    StopReplicaAnswered {
        broker_id: i32,
        partitions: Vec<(PartitionKey, ErrorCode)>,
    },
    LeaderAndIsrAnswered {
        broker_id: i32,
        partitions: Vec<(PartitionKey, ErrorCode)>,
    },

    /// A live broker did not take its requests; what waited for it is lost.
    RequestsDropped {
        broker_id: i32,
    },

    // requests of brokers and clients
    AlterPartition {
        token: ApiToken,
        request: AlterPartitionRequest,
        version: i16,
    },
    AllocateProducerIds {
        token: ApiToken,
        broker_id: i32,
        broker_epoch: i64,
    },
    ControlledShutdown {
        token: ApiToken,
        broker_id: i32,
        broker_epoch: i64,
    },
    ElectLeaders {
        token: ApiToken,
        partitions: Vec<PartitionKey>,
        unclean: bool,
    },
    /// To these replicas, or None to give a move up.
    AlterReassignments {
        token: ApiToken,
        wanted: Vec<(PartitionKey, Option<Vec<i32>>)>,
    },
    /// None: all.
    ListReassignments {
        token: ApiToken,
        wanted: Option<Vec<PartitionKey>>,
    },
    /// `unclean.leader.election.enable` was turned on for a topic, or (`None`) for all.
    UncleanElectionEnabled {
        topic: Option<String>,
    },
    /// Resigns and stops for good.
    Stop,
}

/// What a watch event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    Controller,
    Brokers,
    Broker(i32),
    Topics,
    Topic(String),
    Deletions,
    IsrNotices,
    LogDirNotices,
    PreferredElection,
    Reassignment,
}

impl Event {
    /// What it is, for log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Registered | Event::Timer(Timer::Reelect) | Event::ControllerChanged => {
                "an election"
            }
            Event::SessionExpired => "a lost session",
            Event::ZkResult { .. } => "ZooKeeper's answers",
            Event::Timer(Timer::Balance { .. }) => "the balance of leaders",
            Event::BrokersChanged => "brokers that came or went",
            Event::BrokerModified(_) => "a changed registration",
            Event::TopicsChanged => "topics that came or went",
            Event::TopicModified(_) => "a changed topic",
            Event::DeletionsRequested => "topics to delete",
            Event::IsrNotices => "notices of ISR changes",
            Event::LogDirNotices => "notices of failed log directories",
            Event::PreferredElectionRequested | Event::ElectLeaders { .. } => "elections asked for",
            Event::ReassignmentRequested | Event::AlterReassignments { .. } => {
                "reassignments asked for"
            }
            Event::ListReassignments { .. } => "a list of reassignments",
            Event::StopReplicaAnswered { .. } => "a broker's answer to StopReplica",
            Event::LeaderAndIsrAnswered { .. } => "a broker's answer to LeaderAndIsr",
            Event::RequestsDropped { .. } => "a broker that took no requests",
            Event::AlterPartition { .. } => "an AlterPartition request",
            Event::AllocateProducerIds { .. } => "a block of producer ids",
            Event::ControlledShutdown { .. } => "a broker's controlled shutdown",
            Event::UncleanElectionEnabled { .. } => "unclean elections newly allowed",
            Event::Stop => "the stop",
        }
    }

    /// For a watch event, what it is about: one that waits covers later ones, since it is read only when its turn comes.
    pub(crate) fn watched(&self) -> Option<Watched> {
        Some(match self {
            Event::ControllerChanged => Watched::Controller,
            Event::BrokersChanged => Watched::Brokers,
            Event::BrokerModified(id) => Watched::Broker(*id),
            Event::TopicsChanged => Watched::Topics,
            Event::TopicModified(topic) => Watched::Topic(topic.clone()),
            Event::DeletionsRequested => Watched::Deletions,
            Event::IsrNotices => Watched::IsrNotices,
            Event::LogDirNotices => Watched::LogDirNotices,
            Event::PreferredElectionRequested => Watched::PreferredElection,
            Event::ReassignmentRequested => Watched::Reassignment,
            _ => return None,
        })
    }

    /// The event of a one-shot watch on `path`, if the controller watches it.
    pub fn of_watch(path: &str) -> Option<Event> {
        Some(match path {
            paths::CONTROLLER => Event::ControllerChanged,
            paths::BROKER_IDS => Event::BrokersChanged,
            paths::TOPICS => Event::TopicsChanged,
            paths::DELETE_TOPICS => Event::DeletionsRequested,
            paths::ISR_CHANGE_NOTIFICATION => Event::IsrNotices,
            paths::LOG_DIR_EVENT_NOTIFICATION => Event::LogDirNotices,
            paths::PREFERRED_REPLICA_ELECTION => Event::PreferredElectionRequested,
            paths::REASSIGN_PARTITIONS => Event::ReassignmentRequested,
            _ => {
                if let Some(id) = paths::broker_id_of(path) {
                    Event::BrokerModified(id)
                } else {
                    Event::TopicModified(paths::topic_of(path)?.to_owned())
                }
            }
        })
    }
}
