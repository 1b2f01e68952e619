//! What waits for the log: a record is appended, and only when the log has it (on all in-sync replicas) is it acted upon.

use super::Step;
use crate::event::{Action, AppendBatch, AppendToken, ReplyToken};
use crate::group::{Group, State};
use crate::member::Member;
use crate::offsets::CommittedValue;
use crate::record;
use crate::request::TopicPartition;
use crate::response::{Response, SyncGroupResult};
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use std::collections::HashMap;
use std::sync::Arc;

/// What to do when an append ends.
#[derive(Debug)]
pub(super) enum PendingAppend {
    /// The leader's assignment.
    Assignment {
        group: Arc<str>,
        incarnation: u64,
        generation: i32,
        member_id: String,
        assignment: HashMap<String, Bytes>,
    },
    /// A generation without members: nobody waits.
    EmptyGroup { group: Arc<str> },
    /// A static member replaced in a stable group.
    StaticMember(Box<ReplacedMember>),
    /// An offset commit.
    Offsets(Box<PendingOffsets>),
}

/// A static member that came back under a new id, and how to undo it.
#[derive(Debug)]
pub(super) struct ReplacedMember {
    pub(super) group: Arc<str>,
    pub(super) incarnation: u64,
    pub(super) instance_id: String,
    pub(super) old_id: String,
    pub(super) new_id: String,
    pub(super) old_protocols: Vec<(String, Bytes)>,
    pub(super) old_rebalance_timeout_ms: i32,
    pub(super) old_session_timeout_ms: i32,
    /// The leader before the replacement, as clients before JoinGroup version 9 are told.
    pub(super) old_leader: String,
    pub(super) support_skipping_assignment: bool,
}

/// An offset commit that waits for the log.
#[derive(Debug)]
pub(super) struct PendingOffsets {
    pub(super) group: Arc<str>,
    pub(super) incarnation: u64,
    pub(super) token: ReplyToken,
    pub(super) producer_id: Option<i64>,
    pub(super) offsets: Vec<(TopicPartition, CommittedValue)>,
    /// All partitions of the request, with the error of those that were not appended.
    pub(super) outcome: Vec<(TopicPartition, ErrorCode)>,
}

impl Step<'_> {
    /// Appends records, to be followed up when the log reports back.
    pub(super) fn append(&mut self, partition: i32, batch: AppendBatch, pending: PendingAppend) {
        let token = AppendToken(self.core.next_append);
        self.core.next_append += 1;
        self.core.appends.insert(token, pending);
        self.actions.push(Action::Append {
            partition,
            batch,
            token: Some(token),
        });
    }

    /// Appends tombstones: whether they arrive does not matter, they would be written again.
    pub(super) fn append_tombstones(&mut self, partition: i32, keys: Vec<Bytes>) {
        if keys.is_empty() {
            return;
        }
        self.actions.push(Action::Append {
            partition,
            batch: AppendBatch {
                timestamp_ms: self.wall_ms,
                records: keys.into_iter().map(|key| (key, None)).collect(),
                transactional: None,
                base_sequence: -1,
            },
            token: None,
        });
    }

    pub(super) fn partition_of(&self, group_id: &str) -> i32 {
        crate::partition::partition_for(group_id, self.core.config.offsets_partitions)
    }

    /// Stores a group with the assignment given to each member.
    pub(super) fn store_group(
        &mut self,
        group: &mut Group,
        assignment: impl Fn(&Member) -> Bytes,
        pending: PendingAppend,
    ) {
        let versions = self.core.config.record_versions;
        let record = record::group_key(&group.id).and_then(|key| {
            let value = record::group_value(group.to_stored(assignment), versions)?;
            Ok((key, Some(value)))
        });
        match record {
            Ok(record) => {
                let batch = AppendBatch {
                    timestamp_ms: self.wall_ms,
                    records: vec![record],
                    transactional: None,
                    base_sequence: -1,
                };
                self.append(self.partition_of(&group.id), batch, pending);
            }
            Err(error) => {
                tracing::error!(group = &*group.id, %error, "the group cannot be stored");
                self.group_stored(group, pending, Err(ErrorCode::UnknownServerError));
            }
        }
    }

    /// A group's record is in the log, or is not.
    fn group_stored(
        &mut self,
        group: &mut Group,
        pending: PendingAppend,
        result: Result<(), ErrorCode>,
    ) {
        match pending {
            PendingAppend::Assignment {
                incarnation,
                generation,
                member_id,
                assignment,
                ..
            } => {
                let current = group.incarnation == incarnation
                    && group.generation == generation
                    && group.is(State::CompletingRebalance);
                if !current {
                    return;
                }
                match result {
                    Ok(()) => self.assignment_stored(group, assignment),
                    Err(error) => {
                        self.propagate_error(group, error);
                        let why = format!(
                            "{} when storing the assignment of leader {member_id}",
                            error.name()
                        );
                        self.prepare_rebalance(group, &why);
                    }
                }
            }
            PendingAppend::StaticMember(replaced) => {
                if group.incarnation == replaced.incarnation {
                    self.static_member_stored(group, *replaced, result);
                }
            }
            PendingAppend::EmptyGroup { .. } => {
                if let Err(error) = result {
                    // if this broker fails now, the members of the last generation come back to life and time out
                    tracing::warn!(
                        group = &*group.id,
                        error = error.name(),
                        "could not store that the group is empty"
                    );
                }
            }
            PendingAppend::Offsets(_) => {}
        }
    }

    fn assignment_stored(&mut self, group: &mut Group, mut assignment: HashMap<String, Bytes>) {
        let protocol_type = group.protocol_type.clone();
        let protocol_name = group.protocol.clone();
        for member_id in group.member_ids() {
            let part = assignment.remove(&member_id).unwrap_or_default();
            if let Some(member) = group.get_mut(&member_id) {
                member.assignment = part.clone();
            }
            let result = SyncGroupResult {
                error: ErrorCode::None,
                protocol_type: protocol_type.clone(),
                protocol_name: protocol_name.clone(),
                assignment: part,
            };
            self.answer_sync(group, &member_id, result);
        }
        group.transition_to(State::Stable, self.wall_ms);
    }

    fn static_member_stored(
        &mut self,
        group: &mut Group,
        replaced: ReplacedMember,
        result: Result<(), ErrorCode>,
    ) {
        let ReplacedMember {
            instance_id,
            old_id,
            new_id,
            old_protocols,
            old_rebalance_timeout_ms,
            old_session_timeout_ms,
            old_leader,
            support_skipping_assignment,
            ..
        } = replaced;
        // replaced once more or gone meanwhile: that was answered then
        if group.static_member(&instance_id) != Some(new_id.as_str()) {
            return;
        }
        let mut answer = self.joined(group, &new_id);
        if let Err(error) = result {
            tracing::warn!(
                group = &*group.id,
                instance = instance_id,
                error = error.name(),
                "could not store the new member id of a static member; it keeps the old one"
            );
            let token = group.take_join(&new_id);
            group.update(
                &new_id,
                old_protocols,
                old_rebalance_timeout_ms,
                old_session_timeout_ms,
            );
            group.replace_static_member(&instance_id, &new_id, &old_id);
            self.heard_from(group, &old_id);
            if let Some(token) = token {
                answer.error = error;
                answer.member_id = String::new();
                answer.leader_id = old_leader;
                answer.members.clear();
                self.reply_join(token, answer);
            }
            return;
        }
        // if a rebalance has begun, the member has joined it and is answered at its end
        if group.is(State::PreparingRebalance) {
            return;
        }
        if support_skipping_assignment {
            answer.skip_assignment = group.is_leader(&new_id);
        } else {
            // older clients would take themselves for the leader and send an assignment that nobody reads
            answer.leader_id = old_leader;
            answer.members.clear();
        }
        self.answer_join(group, &new_id, answer);
    }

    /// An offset commit is in the log, or is not. The group may be gone.
    fn offsets_stored(
        &mut self,
        group: Option<&mut Group>,
        pending: PendingOffsets,
        result: Result<i64, ErrorCode>,
    ) {
        let PendingOffsets {
            incarnation,
            token,
            producer_id,
            offsets,
            mut outcome,
            ..
        } = pending;
        if let Some(group) = group.filter(|group| group.incarnation == incarnation) {
            match (result, producer_id) {
                (Ok(at), None) => group.offsets.complete(offsets, at),
                (Err(_), None) => group.offsets.fail(&offsets),
                (Ok(at), Some(id)) => group.offsets.appended_transactional(id, &offsets, at),
                (Err(_), Some(id)) => group.offsets.fail_transactional(id, &offsets),
            }
        }
        let error = match result {
            Ok(_) => ErrorCode::None,
            Err(error) => commit_error(error),
        };
        for (_, slot) in &mut outcome {
            if *slot == ErrorCode::None {
                *slot = error;
            }
        }
        self.reply(token, Response::OffsetCommit(outcome));
    }
}

/// The log has reported; returns the group it was about.
pub(super) fn done(
    groups: &mut HashMap<Arc<str>, Group>,
    step: &mut Step<'_>,
    token: AppendToken,
    result: Result<i64, ErrorCode>,
) -> Option<Arc<str>> {
    let pending = step.core.appends.remove(&token)?;
    let id = match &pending {
        PendingAppend::Assignment { group, .. } | PendingAppend::EmptyGroup { group } => group,
        PendingAppend::StaticMember(replaced) => &replaced.group,
        PendingAppend::Offsets(offsets) => &offsets.group,
    }
    .clone();
    let group = groups.get_mut(&id);
    match pending {
        PendingAppend::Offsets(offsets) => step.offsets_stored(group, *offsets, result),
        pending => {
            if let Some(group) = group {
                step.group_stored(group, pending, result.map(|_| ()).map_err(store_error));
            }
        }
    }
    Some(id)
}

/// What a client is told when an offset commit could not be appended.
pub(super) fn commit_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::InvalidCommitOffsetSize,
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        other => other,
    }
}

/// What members are told when their group could not be stored.
pub(super) fn store_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::RequestTimedOut => ErrorCode::RebalanceInProgress,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::UnknownServerError,
        other => other,
    }
}
