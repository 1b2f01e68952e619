//! AlterPartition: leaders report their ISRs (KIP-497, KIP-704, KIP-841, KIP-903).

use gracchus_kafka_proto::messages::alter_partition_request as request;
use gracchus_kafka_proto::messages::alter_partition_response as response;
use gracchus_kafka_proto::messages::{AlterPartitionRequest, AlterPartitionResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::json::PartitionState;
use gracchus_registry::op::{MultiStep, ZkError, ZkOp, ZkResult};
use gracchus_registry::paths;

use crate::action::ApiResult;
use crate::context::{LeaderIsr, PartitionKey};
use crate::event::ApiToken;
use crate::machine::Controller;

/// An answer for the whole request.
pub(crate) fn refused(error: ErrorCode) -> AlterPartitionResponse {
    AlterPartitionResponse {
        error_code: error.code(),
        ..Default::default()
    }
}

/// Where a partition's answer goes: topic and place in it.
type Place = (usize, usize);

impl Controller {
    pub(crate) fn alter_partition(
        &mut self,
        token: ApiToken,
        request: AlterPartitionRequest,
        version: i16,
    ) {
        let known = self.cx.brokers.get(&request.broker_id).map(|b| b.epoch);
        if known != Some(request.broker_epoch) {
            return self.reply(
                token,
                ApiResult::AlterPartition(refused(ErrorCode::StaleBrokerEpoch)),
            );
        }
        let mut answer = AlterPartitionResponse::default();
        let mut writes: Vec<(Place, PartitionKey, PartitionState, i32)> = Vec::new();
        for (t, topic) in request.topics.iter().enumerate() {
            let by_id = version >= 2;
            let name = if by_id {
                Some(topic.topic_id)
                    .filter(|id| *id != Uuid::ZERO)
                    .and_then(|id| self.cx.topic_by_id(&id))
            } else {
                let known = self.cx.topics.get_key_value(topic.topic_name.as_str());
                known.map(|(name, _)| name.clone())
            };
            let mut partitions = Vec::new();
            for (p, data) in topic.partitions.iter().enumerate() {
                let mut out = response::PartitionData {
                    partition_index: data.partition_index,
                    ..Default::default()
                };
                match &name {
                    None if by_id => out.error_code = ErrorCode::UnknownTopicId.code(),
                    None => out.error_code = ErrorCode::UnknownTopicOrPartition.code(),
                    Some(name) => {
                        let key = PartitionKey::of(name, data.partition_index);
                        match self.check(&key, data, version) {
                            Verdict::Refuse(error) => out.error_code = error.code(),
                            Verdict::Same(found) => fill(&mut out, &found),
                            Verdict::Write(state) => {
                                writes.push(((t, p), key, state, data.partition_epoch))
                            }
                        }
                    }
                }
                partitions.push(out);
            }
            answer.topics.push(response::TopicData {
                topic_name: topic.topic_name.clone(),
                topic_id: topic.topic_id,
                partitions,
                ..Default::default()
            });
        }
        let fence = self.fence();
        let ops = writes
            .iter()
            .map(|(_, key, state, expected)| {
                let path = paths::partition_state(&key.topic, key.partition);
                ZkOp::fenced(
                    fence,
                    MultiStep::SetData {
                        path,
                        data: Some(state.to_bytes()),
                        version: *expected,
                    },
                )
            })
            .collect();
        self.zk(ops, move |me, results| {
            // other failures have step 0 too: a ZooKeeper that cannot write is no lost office
            let lost = |r: &ZkResult| {
                matches!(r, Err(f) if f.step == 0 && f.error == ZkError::BadVersion)
                    || matches!(r, Err(f) if f.error == ZkError::SessionExpired)
            };
            if results.iter().any(lost) {
                me.reply(
                    token,
                    ApiResult::AlterPartition(refused(ErrorCode::NotController)),
                );
                return me.fence_lost();
            }
            let mut changed = Vec::new();
            for (((t, p), key, state, expected), result) in writes.into_iter().zip(results) {
                let slot = answer
                    .topics
                    .get_mut(t)
                    .and_then(|topic| topic.partitions.get_mut(p));
                let Some(out) = slot else { continue };
                match result {
                    Ok(reply) => {
                        let partition_epoch =
                            reply.stat().map_or(expected.wrapping_add(1), |s| s.version);
                        let found = LeaderIsr {
                            state,
                            partition_epoch,
                        };
                        fill(out, &found);
                        if let Some(partition) = me.cx.partition_mut(&key) {
                            partition.leader_isr = Some(found);
                        }
                        changed.push(key.clone());
                    }
                    Err(failure) if failure.error == ZkError::BadVersion => {
                        out.error_code = ErrorCode::InvalidUpdateVersion.code();
                    }
                    Err(_) => out.error_code = ErrorCode::UnknownServerError.code(),
                }
                me.batch_metadata(&key);
            }
            me.flush();
            me.reply(token, ApiResult::AlterPartition(answer));
            me.complete_reassignments(changed);
        });
    }

    /// The checks of one partition, in Kafka's order.
    fn check(&self, key: &PartitionKey, data: &request::PartitionData, version: i16) -> Verdict {
        let Some(partition) = self.cx.partition(key) else {
            return Verdict::Refuse(ErrorCode::UnknownTopicOrPartition);
        };
        let Some(found) = &partition.leader_isr else {
            return Verdict::Refuse(ErrorCode::UnknownTopicOrPartition);
        };
        let isr: Vec<i32> = if version >= 3 {
            data.new_isr_with_epochs
                .iter()
                .map(|b| b.broker_id)
                .collect()
        } else {
            data.new_isr.clone()
        };
        let old = &found.state;
        let recovery = i32::from(data.leader_recovery_state);
        if data.leader_epoch > old.leader_epoch || data.partition_epoch > found.partition_epoch {
            return Verdict::Refuse(ErrorCode::NotController); // it knows of a newer controller
        }
        if data.leader_epoch < old.leader_epoch {
            return Verdict::Refuse(ErrorCode::FencedLeaderEpoch);
        }
        if same_members(&isr, &old.isr) && recovery == old.leader_recovery_state {
            return Verdict::Same(found.clone());
        }
        if data.partition_epoch < found.partition_epoch {
            return Verdict::Refuse(ErrorCode::InvalidUpdateVersion);
        }
        if recovery == 1 && (isr.len() > 1 || old.leader_recovery_state == 0) {
            return Verdict::Refuse(ErrorCode::InvalidRequest);
        }
        // what is no replica (any more) is checked by Kafka only in KRaft mode
        let may_be_in_sync = |b: &i32| {
            partition.replicas.contains(b)
                && self.cx.is_alive(*b)
                && !self.cx.shutting_down.contains(b)
        };
        if !isr.iter().all(may_be_in_sync) {
            return Verdict::Refuse(if version >= 2 {
                ErrorCode::IneligibleReplica
            } else {
                ErrorCode::OperationNotAttempted
            });
        }
        Verdict::Write(PartitionState {
            controller_epoch: self.epoch(),
            leader: old.leader,
            leader_epoch: old.leader_epoch,
            isr,
            leader_recovery_state: recovery,
        })
    }
}

enum Verdict {
    Refuse(ErrorCode),
    /// Nothing to write: a retry of what was done.
    Same(LeaderIsr),
    Write(PartitionState),
}

fn same_members(a: &[i32], b: &[i32]) -> bool {
    let sorted = |list: &[i32]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    sorted(a) == sorted(b)
}

fn fill(out: &mut response::PartitionData, found: &LeaderIsr) {
    out.leader_id = found.state.leader;
    out.leader_epoch = found.state.leader_epoch;
    out.isr = found.state.isr.clone();
    out.leader_recovery_state = found.state.leader_recovery_state as i8;
    out.partition_epoch = found.partition_epoch;
}
