//! ISR changes of the partitions led here, on their way to the controller (AlterPartition), or below
//! inter.broker.protocol.version 2.7-IV2 into the state nodes. One request is in flight; all that is pending goes with the
//! next. A change is tried until it is answered for good or the partition's state has moved on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::messages::alter_partition_request::{
    BrokerState, PartitionData, TopicData,
};
use gracchus_kafka_proto::messages::{AlterPartitionRequest, AlterPartitionResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::TopicPartition;
use gracchus_registry::json::PartitionState;
use gracchus_registry::op::ZkError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::manager::ReplicaManager;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::version::{MetadataVersion, version_of};
use crate::controller_link::ControllerLink;

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Notices of changed state nodes are written at most so often.
const NOTICE_EVERY: Duration = Duration::from_millis(2500);
/// Most partitions of a notice, far below `jute.maxbuffer`.
const NOTICE_MAX: usize = 3000;

/// The version of AlterPartition by inter.broker.protocol.version; from version 2 on topics go by id.
const ALTER_PARTITION: &[(&str, i16)] = &[
    ("3.5-IV1", 3),
    ("3.3-IV0", 2),
    ("3.2-IV0", 1),
    ("2.7-IV2", 0),
];

/// A new ISR, proposed in this state of the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// ZERO when the topic has none.
    pub topic_id: Uuid,
    /// Of this leader.
    pub leader_epoch: i32,
    /// Of the controller that made it leader.
    pub controller_epoch: i32,
    /// Version of the state node that the proposal goes by.
    pub partition_epoch: i32,
    /// The ISR.
    pub isr: Vec<i32>,
}

/// How a proposal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is in ZooKeeper.
    Confirmed {
        /// The leader's epoch, as the controller has it.
        leader_epoch: i32,
        /// The new version of the state node.
        partition_epoch: i32,
        /// The ISR.
        isr: Vec<i32>,
    },
    /// Refused for good: the old ISR holds.
    TakenBack,
    /// This leader is behind; a LeaderAndIsr will tell, and until then the change stays open.
    Open,
    /// To be tried again.
    Again,
}

/// What waits to be sent; at most one a partition.
#[derive(Debug, Default)]
pub struct IsrChanges {
    pending: Mutex<BTreeMap<TopicPartition, Proposal>>,
    wanted: Notify,
}

impl IsrChanges {
    /// Sends it with the next request; an older one of the partition is void.
    pub fn propose(&self, partition: TopicPartition, proposal: Proposal) {
        self.pending.lock().insert(partition, proposal);
        self.wanted.notify_one();
    }

    /// What is to be sent now.
    pub fn take(&self) -> BTreeMap<TopicPartition, Proposal> {
        std::mem::take(&mut self.pending.lock())
    }

    /// Puts back what has to be tried again, unless there is something newer.
    fn put_back(&self, again: BTreeMap<TopicPartition, Proposal>) {
        let mut pending = self.pending.lock();
        for (partition, proposal) in again {
            pending.entry(partition).or_insert(proposal);
        }
    }
}

/// Starts sending, and looking for followers that fell behind.
pub fn start(broker: &Arc<Broker>) {
    let protocol = MetadataVersion::parse(&broker.config.current().inter_broker_protocol_version);
    let by_request = protocol.is_none_or(|version| version.at_least("2.7-IV2"));
    let owner = broker.clone();
    broker.tasks.spawn(async move {
        let shutdown = owner.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = async {
                if by_request {
                    send_to_controller(&owner, version_of(protocol, ALTER_PARTITION)).await;
                } else {
                    write_states(&owner).await;
                }
            } => {}
        }
    });
    let owner = broker.clone();
    broker.tasks.spawn(async move {
        let shutdown = owner.shutdown.clone();
        loop {
            let lag = owner.config.current().replica_lag_time_max_ms;
            let pause = Duration::from_millis(u64::try_from(lag / 2).unwrap_or(0).max(1));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => owner.replicas.shrink_isrs(now_ms()),
            }
        }
    });
}

/// The proposals still true of their partitions.
fn current(replicas: &ReplicaManager) -> BTreeMap<TopicPartition, Proposal> {
    let mut proposals = replicas.isr_changes.take();
    proposals.retain(|partition, proposal| replicas.is_proposed(partition, proposal));
    proposals
}

/// An AlterPartition on its way.
pub struct Question {
    /// What is asked.
    pub request: AlterPartitionRequest,
    /// Its version.
    pub version: i16,
    proposals: BTreeMap<TopicPartition, Proposal>,
}

/// What is to be asked now by this broker (id and epoch), in this version or an older one that the topics need.
pub fn question(replicas: &ReplicaManager, broker: (i32, i64), version: i16) -> Option<Question> {
    let proposals = current(replicas);
    if proposals.is_empty() {
        return None;
    }
    let by_id = proposals.values().all(|p| !p.topic_id.is_zero());
    let version = if by_id { version } else { version.min(1) };
    Some(Question {
        request: request(broker, version, &proposals),
        version,
        proposals,
    })
}

/// Takes what came of a question; true when something is to be tried again, after a pause.
pub fn answered(
    replicas: &ReplicaManager,
    question: Question,
    answer: Result<AlterPartitionResponse, String>,
    now_ms: i64,
) -> bool {
    let again = match answer {
        Ok(answer) if answer.error_code == 0 => {
            let by_id = question.version >= 2;
            apply(replicas, question.proposals, &answer, by_id, now_ms)
        }
        refused => {
            let failure = match refused {
                Ok(answer) => ErrorCode::from_code(answer.error_code).name().to_owned(),
                Err(error) => error,
            };
            tracing::debug!("ISR changes are not taken yet: {failure}");
            question.proposals
        }
    };
    let has_failed = !again.is_empty();
    replicas.isr_changes.put_back(again);
    has_failed
}

async fn send_to_controller(broker: &Broker, version: i16) {
    let link = ControllerLink::default();
    let replicas = &broker.replicas;
    loop {
        replicas.isr_changes.wanted.notified().await;
        loop {
            let identity = &broker.identity;
            let own = (identity.broker_id, identity.broker_epoch());
            let Some(question) = question(replicas, own, version) else {
                break;
            };
            let answer = link.send(broker, question.version, &question.request).await;
            if answered(replicas, question, answer, now_ms()) {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn request(
    broker: (i32, i64),
    version: i16,
    proposals: &BTreeMap<TopicPartition, Proposal>,
) -> AlterPartitionRequest {
    let mut topics: Vec<TopicData> = Vec::new();
    for (partition, proposal) in proposals {
        let data = PartitionData {
            partition_index: partition.partition,
            leader_epoch: proposal.leader_epoch,
            new_isr: if version < 3 {
                proposal.isr.clone()
            } else {
                Vec::new()
            },
            new_isr_with_epochs: if version < 3 {
                Vec::new()
            } else {
                let member = |id: &i32| BrokerState {
                    broker_id: *id,
                    broker_epoch: -1,
                    ..Default::default()
                };
                proposal.isr.iter().map(member).collect()
            },
            partition_epoch: proposal.partition_epoch,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last)
                if last.topic_name == *partition.topic && last.topic_id == proposal.topic_id =>
            {
                last.partitions.push(data);
            }
            _ => topics.push(TopicData {
                topic_name: partition.topic.to_string(),
                topic_id: proposal.topic_id,
                partitions: vec![data],
                ..Default::default()
            }),
        }
    }
    if version >= 2 {
        for topic in &mut topics {
            topic.topic_name.clear();
        }
    } else {
        for topic in &mut topics {
            topic.topic_id = Uuid::ZERO;
        }
    }
    AlterPartitionRequest {
        broker_id: broker.0,
        broker_epoch: broker.1,
        topics,
        ..Default::default()
    }
}

/// Takes the answers in; gives back what is to be tried again, which is also what was not answered.
fn apply(
    replicas: &ReplicaManager,
    proposals: BTreeMap<TopicPartition, Proposal>,
    response: &AlterPartitionResponse,
    by_id: bool,
    now_ms: i64,
) -> BTreeMap<TopicPartition, Proposal> {
    let mut found = HashMap::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            let topic = (topic.topic_id, topic.topic_name.as_str());
            found.insert((topic, partition.partition_index), partition);
        }
    }
    let mut again = BTreeMap::new();
    for (partition, proposal) in proposals {
        let topic = if by_id {
            (proposal.topic_id, "")
        } else {
            (Uuid::ZERO, &*partition.topic)
        };
        let Some(found) = found.get(&(topic, partition.partition)) else {
            again.insert(partition, proposal);
            continue;
        };
        let answer = match ErrorCode::from_code(found.error_code) {
            ErrorCode::None => Answer::Confirmed {
                leader_epoch: found.leader_epoch,
                partition_epoch: found.partition_epoch,
                isr: found.isr.clone(),
            },
            code => after(code),
        };
        if found.error_code != 0 {
            tracing::info!(
                "ISR {:?} of {partition} is not taken: {}",
                proposal.isr,
                ErrorCode::from_code(found.error_code).name()
            );
        }
        if answer == Answer::Again {
            again.insert(partition, proposal);
        } else {
            replicas.isr_answered(&partition, &proposal, answer, now_ms);
        }
    }
    again
}

/// What an error of AlterPartition means for the change.
pub fn after(code: ErrorCode) -> Answer {
    match code {
        ErrorCode::OperationNotAttempted | ErrorCode::IneligibleReplica => Answer::TakenBack,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId
        | ErrorCode::FencedLeaderEpoch
        | ErrorCode::InvalidUpdateVersion
        | ErrorCode::InvalidRequest => Answer::Open,
        _ => Answer::Again,
    }
}

/// The leader writes the state nodes itself and leaves notices for the controller.
async fn write_states(broker: &Broker) {
    let replicas = &broker.replicas;
    let mut changed = Vec::new();
    let mut told = Instant::now();
    loop {
        let next_notice = told + NOTICE_EVERY;
        tokio::select! {
            () = replicas.isr_changes.wanted.notified() => {}
            () = tokio::time::sleep_until(next_notice), if !changed.is_empty() => {}
        }
        for (partition, proposal) in current(replicas) {
            let state = PartitionState {
                controller_epoch: proposal.controller_epoch,
                leader: broker.identity.broker_id,
                leader_epoch: proposal.leader_epoch,
                isr: proposal.isr.clone(),
                leader_recovery_state: 0,
            };
            let named = gracchus_registry::json::TopicPartition {
                topic: partition.topic.to_string(),
                partition: partition.partition,
            };
            let written = broker
                .registry
                .set_partition_state(&named, &state, proposal.partition_epoch)
                .await;
            let answer = match written {
                Ok(partition_epoch) => {
                    changed.push(named);
                    Answer::Confirmed {
                        leader_epoch: proposal.leader_epoch,
                        partition_epoch,
                        isr: proposal.isr.clone(),
                    }
                }
                Err(error) if error.zk() == Some(ZkError::BadVersion) => Answer::Open,
                Err(error) => {
                    tracing::warn!(%partition, %error, "the ISR cannot be written now; trying again");
                    let again = BTreeMap::from([(partition, proposal)]);
                    replicas.isr_changes.put_back(again);
                    replicas.isr_changes.wanted.notify_one();
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            replicas.isr_answered(&partition, &proposal, answer, now_ms());
        }
        if !changed.is_empty() && told.elapsed() >= NOTICE_EVERY {
            told = Instant::now();
            let now = changed.split_off(changed.len().saturating_sub(NOTICE_MAX));
            if let Err(error) = broker.registry.notify_isr_changes(now.clone()).await {
                tracing::warn!(%error, "the controller cannot be told of changed ISRs now; trying again");
                changed.extend(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_answers_mean() {
        for (code, expected) in [
            (ErrorCode::IneligibleReplica, Answer::TakenBack),
            (ErrorCode::OperationNotAttempted, Answer::TakenBack),
            (ErrorCode::FencedLeaderEpoch, Answer::Open),
            (ErrorCode::InvalidUpdateVersion, Answer::Open),
            (ErrorCode::UnknownTopicId, Answer::Open),
            (ErrorCode::NotController, Answer::Again),
            (ErrorCode::UnknownServerError, Answer::Again),
        ] {
            assert_eq!(after(code), expected, "{}", code.name());
        }
    }

    #[test]
    fn a_newer_proposal_is_not_replaced_by_one_put_back() {
        let proposal = |partition_epoch| Proposal {
            topic_id: Uuid::ZERO,
            leader_epoch: 1,
            controller_epoch: 1,
            partition_epoch,
            isr: vec![1],
        };
        let changes = IsrChanges::default();
        let at = TopicPartition::new("t", 0);
        changes.propose(at.clone(), proposal(1));
        let taken = changes.take();
        changes.propose(at.clone(), proposal(2));
        changes.put_back(taken);
        assert_eq!(changes.take()[&at].partition_epoch, 2);
    }
}
