//! JoinGroup.

use super::append::{PendingAppend, ReplacedMember};
use super::{Desk, Step, check_member};
use crate::event::ReplyToken;
use crate::group::{Group, State};
use crate::member::Member;
use crate::request::JoinGroup;
use crate::response::{JoinGroupResult, SyncGroupResult};
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

impl Desk<'_> {
    pub(super) fn join(&mut self, step: &mut Step<'_>, token: ReplyToken, request: JoinGroup) {
        if let Err(error) = self.check(step, &request.group_id, false) {
            let result = JoinGroupResult::error(request.member_id, error);
            return step.reply_join(token, result);
        }
        let config = &step.core.config;
        let allowed = config.min_session_timeout_ms..=config.max_session_timeout_ms;
        if !allowed.contains(&request.session_timeout_ms) {
            let error = ErrorCode::InvalidSessionTimeout;
            return step.reply_join(token, JoinGroupResult::error(request.member_id, error));
        }
        // only a newcomer makes a group
        let group = if request.member_id.is_empty() {
            self.group_or_new(step, &request.group_id)
        } else {
            match self.groups.get_mut(request.group_id.as_str()) {
                Some(group) => group,
                None => {
                    let error = ErrorCode::UnknownMemberId;
                    let result = JoinGroupResult::error(request.member_id, error);
                    return step.reply_join(token, result);
                }
            }
        };
        if !accepts(group, &request.member_id, step.core.config.max_size) {
            step.remove(group, &request.member_id);
            step.reply_join(
                token,
                JoinGroupResult::error("", ErrorCode::GroupMaxSizeReached),
            );
        } else if request.member_id.is_empty() {
            step.join_new(group, token, request);
        } else {
            step.join_again(group, token, request);
        }
        step.complete_join_if_all_joined(group);
    }
}

/// Whether the group has room (`group.max.size`). During a rebalance those who joined first stay, so that a group
/// that is over the limit sheds its latest.
fn accepts(group: &Group, member_id: &str, max_size: i32) -> bool {
    let max_size = usize::try_from(max_size).unwrap_or(0);
    match group.state() {
        State::Empty => true,
        State::PreparingRebalance => {
            let waits = group
                .get(member_id)
                .is_some_and(|m| m.awaiting_join.is_some());
            waits || group.awaiting_join_count() < max_size
        }
        State::CompletingRebalance | State::Stable => {
            group.has(member_id) || group.len() < max_size
        }
    }
}

impl Step<'_> {
    /// A member without an id.
    fn join_new(&mut self, group: &mut Group, token: ReplyToken, request: JoinGroup) {
        if !group.supports_protocols(&request.protocol_type, &request.protocols) {
            let error = ErrorCode::InconsistentGroupProtocol;
            return self.reply_join(token, JoinGroupResult::error("", error));
        }
        let id = (self.core.new_id)();
        let member_id = match &request.group_instance_id {
            Some(instance_id) => format!("{instance_id}-{id}"),
            None => format!("{}-{id}", request.client_id),
        };
        let held_by = request
            .group_instance_id
            .as_deref()
            .and_then(|instance_id| group.static_member(instance_id))
            .map(str::to_owned);
        match (held_by, &request.group_instance_id) {
            (Some(old_id), Some(instance_id)) => {
                let instance_id = instance_id.clone();
                self.replace_static(group, token, request, instance_id, old_id, member_id);
            }
            (_, None) if request.require_known_member_id => {
                let deadline_ms = self
                    .now_ms
                    .saturating_add(i64::from(request.session_timeout_ms.max(1)));
                group.pending_members.insert(member_id.clone(), deadline_ms);
                group.note_deadline(deadline_ms);
                let error = ErrorCode::MemberIdRequired;
                self.reply_join(token, JoinGroupResult::error(member_id, error));
            }
            _ => self.add_joining(group, token, request, member_id),
        }
    }

    /// A member with an id, given out or in use.
    fn join_again(&mut self, group: &mut Group, token: ReplyToken, request: JoinGroup) {
        let member_id = request.member_id.clone();
        let instance_id = request.group_instance_id.as_deref();
        if !group.supports_protocols(&request.protocol_type, &request.protocols) {
            let error = ErrorCode::InconsistentGroupProtocol;
            return self.reply_join(token, JoinGroupResult::error(member_id, error));
        }
        if group.pending_members.contains_key(&member_id) {
            // ids are only given out to dynamic members (Kafka fails the request with an internal error)
            if instance_id.is_some() {
                let error = ErrorCode::UnknownServerError;
                return self.reply_join(token, JoinGroupResult::error(member_id, error));
            }
            return self.add_joining(group, token, request, member_id);
        }
        if let Err(error) = check_member(group, &member_id, instance_id) {
            return self.reply_join(token, JoinGroupResult::error(member_id, error));
        }
        let same = group
            .get(&member_id)
            .is_some_and(|member| member.protocols == request.protocols);
        match group.state() {
            // a leader may ask for a rebalance by joining again, e.g. because partitions were added
            State::Stable if same && !group.is_leader(&member_id) => {
                let result = self.joined(group, &member_id);
                self.reply_join(token, result);
            }
            // it may have missed the answer
            State::CompletingRebalance if same => {
                let result = self.joined(group, &member_id);
                self.reply_join(token, result);
            }
            State::Empty => {
                let error = ErrorCode::UnknownMemberId;
                self.reply_join(token, JoinGroupResult::error(member_id, error));
            }
            state => {
                group.update(
                    &member_id,
                    request.protocols,
                    request.rebalance_timeout_ms,
                    request.session_timeout_ms,
                );
                self.park_join(group, &member_id, token);
                if state != State::PreparingRebalance {
                    let reason = request.reason.as_deref().unwrap_or("not provided");
                    let why = format!("member {member_id} joins again; client reason: {reason}");
                    self.prepare_rebalance(group, &why);
                }
            }
        }
    }

    fn add_joining(
        &mut self,
        group: &mut Group,
        token: ReplyToken,
        request: JoinGroup,
        member_id: String,
    ) {
        // the first member says what kind of group it is
        if group.is_empty() {
            group.protocol_type = Some(request.protocol_type);
        }
        let reason = request.reason.as_deref().unwrap_or("not provided");
        let why = format!("adding new member {member_id}; client reason: {reason}");
        let member = Member {
            member_id,
            group_instance_id: request.group_instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols,
            assignment: Bytes::new(),
            awaiting_join: Some(token),
            awaiting_sync: None,
            is_new: true,
            deadline_ms: None,
        };
        self.add_member(group, member, &why);
    }

    /// KIP-345: a static member restarted. Its place is kept; a stable group does not even rebalance, unless the
    /// protocol would change.
    fn replace_static(
        &mut self,
        group: &mut Group,
        token: ReplyToken,
        request: JoinGroup,
        instance_id: String,
        old_id: String,
        new_id: String,
    ) {
        tracing::info!(
            group = &*group.id,
            instance = instance_id,
            old = old_id,
            new = new_id,
            state = group.state().name(),
            "a static member joins under a new member id"
        );
        let old_leader = group.leader.clone().unwrap_or_default();
        // whoever still waits under the old id is a double
        if let Some(earlier) = group.take_join(&old_id) {
            let result = JoinGroupResult::error(old_id.as_str(), ErrorCode::FencedInstanceId);
            self.reply_join(earlier, result);
        }
        if let Some(earlier) = group.take_sync(&old_id) {
            self.reply_sync(earlier, SyncGroupResult::error(ErrorCode::FencedInstanceId));
        }
        let old = group.get(&old_id).map(|member| {
            (
                member.protocols.clone(),
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
            )
        });
        let (old_protocols, old_rebalance_timeout_ms, old_session_timeout_ms) =
            old.unwrap_or_default();
        group.replace_static_member(&instance_id, &old_id, &new_id);
        self.heard_from(group, &new_id);
        group.update(
            &new_id,
            request.protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
        );
        self.park_join(group, &new_id, token);
        match group.state() {
            State::Stable if group.protocol == group.select_protocol() => {
                let replaced = ReplacedMember {
                    group: group.id.clone(),
                    incarnation: group.incarnation,
                    instance_id,
                    old_id,
                    new_id,
                    old_protocols,
                    old_rebalance_timeout_ms,
                    old_session_timeout_ms,
                    old_leader,
                    support_skipping_assignment: request.support_skipping_assignment,
                };
                let pending = PendingAppend::StaticMember(Box::new(replaced));
                self.store_group(group, |member| member.assignment.clone(), pending);
            }
            State::Stable => {
                let why = format!("static member {instance_id} came back with other protocols");
                self.prepare_rebalance(group, &why);
            }
            // the leader may already have been told of the old id
            State::CompletingRebalance => {
                let why = format!("static member {instance_id} came back during a rebalance");
                self.prepare_rebalance(group, &why);
            }
            State::PreparingRebalance | State::Empty => {}
        }
    }
}
