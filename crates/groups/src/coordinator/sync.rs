//! SyncGroup.

use super::append::PendingAppend;
use super::{Desk, Step, check_member_of};
use crate::event::ReplyToken;
use crate::group::{Group, State};
use crate::request::SyncGroup;
use crate::response::SyncGroupResult;
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use std::collections::HashMap;

impl Desk<'_> {
    pub(super) fn sync(&mut self, step: &mut Step<'_>, token: ReplyToken, request: SyncGroup) {
        let checked = match self.check(step, &request.group_id, false) {
            // the rebalance was lost with the old coordinator; old clients do not know "loading" here
            Err(ErrorCode::CoordinatorLoadInProgress) => Err(ErrorCode::RebalanceInProgress),
            Err(error) => Err(error),
            Ok(()) => match self.groups.get_mut(request.group_id.as_str()) {
                Some(group) => check(group, &request).map(|()| group),
                None => Err(ErrorCode::UnknownMemberId),
            },
        };
        match checked {
            Ok(group) => step.sync_in(group, token, request),
            Err(error) => step.reply_sync(token, SyncGroupResult::error(error)),
        }
    }
}

fn check(group: &Group, request: &SyncGroup) -> Result<(), ErrorCode> {
    check_member_of(
        group,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    )?;
    let agrees =
        |asked: &Option<String>, current: &Option<String>| asked.is_none() || asked == current;
    match agrees(&request.protocol_type, &group.protocol_type)
        && agrees(&request.protocol_name, &group.protocol)
    {
        true => Ok(()),
        false => Err(ErrorCode::InconsistentGroupProtocol),
    }
}

impl Step<'_> {
    /// A SyncGroup of a member of the current generation.
    fn sync_in(&mut self, group: &mut Group, token: ReplyToken, request: SyncGroup) {
        let member_id = request.member_id;
        match group.state() {
            State::Empty => {
                self.reply_sync(token, SyncGroupResult::error(ErrorCode::UnknownMemberId));
            }
            State::PreparingRebalance => {
                let error = ErrorCode::RebalanceInProgress;
                self.reply_sync(token, SyncGroupResult::error(error));
            }
            State::Stable => {
                self.sync_arrived(group, &member_id);
                let assignment = group.get(&member_id).map(|m| m.assignment.clone());
                let result = SyncGroupResult {
                    error: ErrorCode::None,
                    protocol_type: group.protocol_type.clone(),
                    protocol_name: group.protocol.clone(),
                    assignment: assignment.unwrap_or_default(),
                };
                self.reply_sync(token, result);
                self.heard_from(group, &member_id);
            }
            State::CompletingRebalance => {
                let earlier = group
                    .get_mut(&member_id)
                    .and_then(|member| member.awaiting_sync.replace(token));
                if let Some(earlier) = earlier {
                    // from a connection that gave up
                    let error = ErrorCode::RebalanceInProgress;
                    self.reply_sync(earlier, SyncGroupResult::error(error));
                }
                self.sync_arrived(group, &member_id);
                if group.is_leader(&member_id) {
                    self.store_assignment(group, member_id, request.assignments);
                }
            }
        }
    }

    fn store_assignment(
        &mut self,
        group: &mut Group,
        leader_id: String,
        assignments: Vec<(String, Bytes)>,
    ) {
        let assignment: HashMap<String, Bytes> = assignments.into_iter().collect();
        let missing: Vec<&str> = group
            .members()
            .map(|member| member.member_id.as_str())
            .filter(|member_id| !assignment.contains_key(*member_id))
            .collect();
        tracing::info!(
            group = &*group.id,
            leader = leader_id,
            generation = group.generation,
            members = group.len(),
            static_members = group.static_member_count(),
            without_assignment = ?missing,
            "assignment received from the leader"
        );
        self.core.completed_rebalances += 1;
        let pending = PendingAppend::Assignment {
            group: group.id.clone(),
            incarnation: group.incarnation,
            generation: group.generation,
            member_id: leader_id,
            assignment: assignment.clone(),
        };
        let part = |member_id: &str| assignment.get(member_id).cloned().unwrap_or_default();
        self.store_group(group, |member| part(&member.member_id), pending);
    }
}
