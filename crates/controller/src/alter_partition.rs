//! AlterPartition (KIP-497, KIP-704): leaders change their ISR. The leader epoch does not move.

use std::collections::BTreeMap;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::alter_partition_request as req;
use gracchus_kafka_proto::messages::alter_partition_response as res;
use gracchus_kafka_proto::messages::{AlterPartitionRequest, AlterPartitionResponse};
use gracchus_registry::json::PartitionState;
use gracchus_registry::op::ZkError;

use crate::context::{Leadership, TopicPartition};
use crate::core::{Core, Failure};

enum Verdict {
    Refused(ErrorCode),
    /// What is asked for is so already.
    Already,
    Write(PartitionState, i32),
}

impl Core {
    pub async fn alter_partition(
        &mut self,
        version: i16,
        request: AlterPartitionRequest,
    ) -> Result<AlterPartitionResponse, Failure> {
        let epoch = self.cx.brokers.get(&request.broker_id).map(|b| b.epoch);
        if epoch != Some(request.broker_epoch) {
            tracing::warn!(
                "AlterPartition of broker {} refused: its epoch is {}, known is {epoch:?}",
                request.broker_id,
                request.broker_epoch
            );
            return Ok(AlterPartitionResponse {
                error_code: ErrorCode::StaleBrokerEpoch.code(),
                ..Default::default()
            });
        }
        let mut verdicts: BTreeMap<TopicPartition, ErrorCode> = BTreeMap::new();
        let mut writes = Vec::new();
        // names of the topics, in the request's order
        let mut names = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let name = if version >= 2 {
                self.cx.topic_name(&topic.topic_id).cloned()
            } else {
                Some(topic.topic_name.as_str().into())
            };
            names.push(name.clone());
            let Some(name) = name else { continue };
            for data in &topic.partitions {
                let tp = TopicPartition::new(name.clone(), data.partition_index);
                match self.judge(&tp, request.broker_id, version, data) {
                    Verdict::Refused(error) => {
                        verdicts.insert(tp, error);
                    }
                    Verdict::Already => {
                        verdicts.insert(tp, ErrorCode::None);
                    }
                    Verdict::Write(state, expected) => writes.push((tp, state, expected)),
                }
            }
        }
        let tps: Vec<_> = writes.iter().map(|(tp, ..)| tp.clone()).collect();
        let outcomes = self.write_states(writes).await?;
        for (tp, outcome) in tps.iter().zip(outcomes) {
            let error = match outcome {
                Ok(()) => ErrorCode::None,
                Err(ZkError::BadVersion) => {
                    // somebody wrote it behind our back: know better the next time
                    self.load_states(std::slice::from_ref(tp)).await?;
                    ErrorCode::InvalidUpdateVersion
                }
                Err(error) => {
                    tracing::error!("the ISR of {tp} cannot be written: {error}");
                    ErrorCode::UnknownServerError
                }
            };
            verdicts.insert(tp.clone(), error);
        }
        let good: Vec<TopicPartition> = verdicts
            .iter()
            .filter(|(_, error)| **error == ErrorCode::None)
            .map(|(tp, _)| tp.clone())
            .collect();
        if !good.is_empty() {
            let live = self.cx.live_or_shutting_down();
            self.update_metadata(&live, &good);
        }
        let mut topics = Vec::with_capacity(request.topics.len());
        for (topic, name) in request.topics.iter().zip(names) {
            let partitions = topic
                .partitions
                .iter()
                .map(|data| match &name {
                    None => res::PartitionData {
                        partition_index: data.partition_index,
                        error_code: ErrorCode::UnknownTopicId.code(),
                        ..Default::default()
                    },
                    Some(name) => {
                        let tp = TopicPartition::new(name.clone(), data.partition_index);
                        let error = verdicts
                            .get(&tp)
                            .copied()
                            .unwrap_or(ErrorCode::UnknownServerError);
                        self.answer_for(&tp, error)
                    }
                })
                .collect();
            topics.push(res::TopicData {
                topic_name: topic.topic_name.clone(),
                topic_id: topic.topic_id,
                partitions,
                ..Default::default()
            });
        }
        self.complete_reassignments(&good).await?;
        Ok(AlterPartitionResponse {
            topics,
            ..Default::default()
        })
    }

    fn answer_for(&self, tp: &TopicPartition, error: ErrorCode) -> res::PartitionData {
        let mut answer = res::PartitionData {
            partition_index: tp.partition,
            error_code: error.code(),
            ..Default::default()
        };
        if error == ErrorCode::None
            && let Some(Leadership {
                state,
                partition_epoch,
            }) = self.cx.partition(tp).and_then(|p| p.leadership.as_ref())
        {
            answer.leader_id = state.leader;
            answer.leader_epoch = state.leader_epoch;
            answer.isr = state.isr.clone();
            answer.leader_recovery_state = i8::try_from(state.leader_recovery_state).unwrap_or(0);
            answer.partition_epoch = *partition_epoch;
        }
        answer
    }

    fn judge(
        &self,
        tp: &TopicPartition,
        leader: i32,
        version: i16,
        data: &req::PartitionData,
    ) -> Verdict {
        let Some(Leadership {
            state,
            partition_epoch,
        }) = self.cx.partition(tp).and_then(|p| p.leadership.as_ref())
        else {
            return Verdict::Refused(ErrorCode::UnknownTopicOrPartition);
        };
        let isr: Vec<i32> = if version >= 3 {
            data.new_isr_with_epochs.iter().map(|b| b.broker_id).collect()
        } else {
            data.new_isr.clone()
        };
        let recovery = i32::from(data.leader_recovery_state);
        if data.leader_epoch > state.leader_epoch || data.partition_epoch > *partition_epoch {
            // the broker knows more than we do: another controller is at work
            return Verdict::Refused(ErrorCode::NotController);
        }
        if data.leader_epoch < state.leader_epoch {
            return Verdict::Refused(ErrorCode::FencedLeaderEpoch);
        }
        let wanted = PartitionState {
            controller_epoch: self.cx.epoch,
            leader,
            leader_epoch: data.leader_epoch,
            isr,
            leader_recovery_state: recovery,
        };
        if wanted.leader == state.leader
            && wanted.isr == state.isr
            && wanted.leader_recovery_state == state.leader_recovery_state
        {
            return Verdict::Already;
        }
        if data.partition_epoch < *partition_epoch {
            return Verdict::Refused(ErrorCode::InvalidUpdateVersion);
        }
        let bad_recovery = !(0..=1).contains(&recovery)
            || (recovery == 1 && wanted.isr.len() > 1)
            || (recovery == 1 && state.leader_recovery_state == 0);
        if bad_recovery || wanted.isr.is_empty() {
            return Verdict::Refused(ErrorCode::InvalidRequest);
        }
        if wanted.isr.iter().any(|id| !self.cx.is_live(*id)) {
            return Verdict::Refused(if version > 1 {
                ErrorCode::IneligibleReplica
            } else {
                ErrorCode::OperationNotAttempted
            });
        }
        Verdict::Write(wanted, *partition_epoch)
    }
}
