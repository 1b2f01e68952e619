//! What joining, syncing, leaving and failing have in common: a rebalance starts, gathers its members, and ends.

use super::Step;
use super::append::PendingAppend;
use crate::config::NEW_MEMBER_JOIN_TIMEOUT_MS;
use crate::event::ReplyToken;
use crate::group::{Group, JoinPhase, State};
use crate::member::Member;
use crate::response::{JoinGroupResult, SyncGroupResult};
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

impl Step<'_> {
    /// Starts a member's session anew: it is given `timeout_ms` from now on, unless it waits for us.
    pub(super) fn restart_session(&self, group: &mut Group, member_id: &str, timeout_ms: i64) {
        let at_ms = self.now_ms.saturating_add(timeout_ms.max(1));
        let Some(member) = group.get_mut(member_id) else {
            return;
        };
        if member.is_excused() {
            member.deadline_ms = None;
        } else {
            member.deadline_ms = Some(at_ms);
            group.note_deadline(at_ms);
        }
    }

    /// The member showed that it lives: its session timeout begins anew.
    pub(super) fn heard_from(&self, group: &mut Group, member_id: &str) {
        if let Some(timeout_ms) = group.get(member_id).map(|m| m.session_timeout_ms) {
            self.restart_session(group, member_id, i64::from(timeout_ms));
        }
    }

    /// Parks a JoinGroup on a member. One already parked there comes from a connection that gave up.
    pub(super) fn park_join(&mut self, group: &mut Group, member_id: &str, token: ReplyToken) {
        if let Some(earlier) = group.await_join(member_id, token) {
            let result = JoinGroupResult::error(member_id, ErrorCode::RebalanceInProgress);
            self.reply_join(earlier, result);
        }
    }

    /// Answers what a member waits for, if anything, and counts its session from now if it was excused.
    pub(super) fn answer_join(
        &mut self,
        group: &mut Group,
        member_id: &str,
        result: JoinGroupResult,
    ) {
        if let Some(token) = group.take_join(member_id) {
            self.reply_join(token, result);
            if group
                .get(member_id)
                .is_some_and(|m| m.deadline_ms.is_none())
            {
                self.heard_from(group, member_id);
            }
        }
    }

    /// As [`Step::answer_join`] for a SyncGroup; the session always counts from now.
    pub(super) fn answer_sync(
        &mut self,
        group: &mut Group,
        member_id: &str,
        result: SyncGroupResult,
    ) {
        if let Some(token) = group.take_sync(member_id) {
            self.reply_sync(token, result);
            self.heard_from(group, member_id);
        }
    }

    /// Takes a member out and tells it so if it waits.
    pub(super) fn remove(&mut self, group: &mut Group, member_id: &str) {
        if let Some(member) = group.remove(member_id) {
            self.dismiss(member, ErrorCode::UnknownMemberId);
        }
    }

    /// Answers all that a former member waits for.
    pub(super) fn dismiss(&mut self, member: Member, error: ErrorCode) {
        if let Some(token) = member.awaiting_join {
            let member_id = match error {
                ErrorCode::UnknownMemberId => String::new(),
                _ => member.member_id,
            };
            self.reply_join(token, JoinGroupResult::error(member_id, error));
        }
        if let Some(token) = member.awaiting_sync {
            self.reply_sync(token, SyncGroupResult::error(error));
        }
    }

    /// A member left or failed.
    pub(super) fn remove_and_rebalance(&mut self, group: &mut Group, member_id: &str, why: &str) {
        self.remove(group, member_id);
        match group.state() {
            State::Empty => {}
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(group, why),
            State::PreparingRebalance => self.complete_join_if_all_joined(group),
        }
    }

    /// An id that was given out is no longer waited for.
    pub(super) fn remove_pending(&mut self, group: &mut Group, member_id: &str) {
        group.remove(member_id);
        self.complete_join_if_all_joined(group);
    }

    /// A member that joins for the first time.
    pub(super) fn add_member(&mut self, group: &mut Group, member: Member, why: &str) {
        if group.is(State::PreparingRebalance) && group.generation == 0 {
            group.new_member_added = true;
        }
        let member_id = member.member_id.clone();
        group.add(member);
        self.restart_session(group, &member_id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        if !group.is(State::PreparingRebalance) {
            self.prepare_rebalance(group, why);
        }
    }

    /// Everybody must join again: members that wait for an assignment are told at once, the others by their
    /// next heartbeat.
    pub(super) fn prepare_rebalance(&mut self, group: &mut Group, why: &str) {
        if group.is(State::CompletingRebalance) {
            self.propagate_error(group, ErrorCode::RebalanceInProgress);
        }
        group.pending_sync.clear();
        group.sync_deadline_ms = None;

        let timeout_ms = group.rebalance_timeout_ms();
        let phase = match group.state() {
            State::Empty => {
                let delay_ms = i64::from(self.core.config.initial_rebalance_delay_ms.max(0));
                JoinPhase::Initial {
                    deadline_ms: self.now_ms.saturating_add(delay_ms),
                    delay_ms,
                    remaining_ms: (timeout_ms - delay_ms).max(0),
                }
            }
            _ => JoinPhase::Rejoin {
                deadline_ms: self.now_ms.saturating_add(timeout_ms.max(1)),
            },
        };
        tracing::info!(
            group = &*group.id,
            from = group.state().name(),
            generation = group.generation,
            reason = why,
            "preparing to rebalance"
        );
        group.transition_to(State::PreparingRebalance, self.wall_ms);
        self.enter_join_phase(group, phase);
        self.complete_join_if_all_joined(group);
    }

    fn enter_join_phase(&self, group: &mut Group, phase: JoinPhase) {
        group.join_phase = Some(phase);
        group.note_deadline(phase.deadline_ms());
    }

    /// Ends the gathering early if nobody is missing. Not during the initial delay, which is there for the unknown.
    pub(super) fn complete_join_if_all_joined(&mut self, group: &mut Group) {
        if matches!(group.join_phase, Some(JoinPhase::Rejoin { .. })) && group.all_joined() {
            self.complete_join(group);
        }
    }

    /// The time to join is over.
    fn join_phase_over(&mut self, group: &mut Group) {
        if let Some(JoinPhase::Initial {
            delay_ms,
            remaining_ms,
            ..
        }) = group.join_phase
            && group.new_member_added
            && remaining_ms != 0
        {
            group.new_member_added = false;
            let next_ms = i64::from(self.core.config.initial_rebalance_delay_ms.max(0))
                .min(remaining_ms)
                .max(1);
            let phase = JoinPhase::Initial {
                deadline_ms: self.now_ms.saturating_add(next_ms),
                delay_ms: next_ms,
                remaining_ms: (remaining_ms - delay_ms).max(0),
            };
            return self.enter_join_phase(group, phase);
        }
        self.complete_join(group);
    }

    /// The next generation begins with those who have joined. Dynamic members who have not are out; static ones stay.
    fn complete_join(&mut self, group: &mut Group) {
        let missing: Vec<String> = group
            .members()
            .filter(|m| m.awaiting_join.is_none() && m.group_instance_id.is_none())
            .map(|m| m.member_id.clone())
            .collect();
        if !missing.is_empty() {
            tracing::info!(
                group = &*group.id,
                members = ?missing,
                "removed members that did not join again in time"
            );
        }
        for member_id in &missing {
            self.remove(group, member_id);
        }

        if !group.elect_joined_leader() && !group.is_empty() {
            // only static members, none of them back: wait for one, or for their sessions to end
            tracing::warn!(
                group = &*group.id,
                members = group.len(),
                "the rebalance cannot complete because no member joined again; waiting once more"
            );
            let timeout_ms = group.rebalance_timeout_ms().max(1);
            let phase = JoinPhase::Rejoin {
                deadline_ms: self.now_ms.saturating_add(timeout_ms),
            };
            return self.enter_join_phase(group, phase);
        }

        group.next_generation(self.wall_ms);
        if group.is(State::Empty) {
            tracing::info!(
                group = &*group.id,
                generation = group.generation,
                "the group is now empty"
            );
            let append = PendingAppend::EmptyGroup {
                group: group.id.clone(),
            };
            self.store_group(group, |_| Bytes::new(), append);
            return;
        }
        tracing::info!(
            group = &*group.id,
            generation = group.generation,
            members = group.len(),
            "all members have joined; waiting for the leader's assignment"
        );
        for member_id in group.member_ids() {
            let result = self.joined(group, &member_id);
            self.answer_join(group, &member_id, result);
            if let Some(member) = group.get_mut(&member_id) {
                member.is_new = false;
            }
            self.heard_from(group, &member_id);
            group.pending_sync.insert(member_id);
        }
        let timeout_ms = group.rebalance_timeout_ms().max(1);
        let deadline_ms = self.now_ms.saturating_add(timeout_ms);
        group.sync_deadline_ms = Some(deadline_ms);
        group.note_deadline(deadline_ms);
    }

    /// The current generation as a member is told of it; the leader is told of all members.
    pub(super) fn joined(&self, group: &Group, member_id: &str) -> JoinGroupResult {
        JoinGroupResult {
            error: ErrorCode::None,
            member_id: member_id.to_owned(),
            generation_id: group.generation,
            protocol_type: group.protocol_type.clone(),
            protocol_name: group.protocol.clone(),
            leader_id: group.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            members: match group.is_leader(member_id) {
                true => group.joined_members(),
                false => Vec::new(),
            },
        }
    }

    /// Tells all who wait for an assignment that there will be none.
    pub(super) fn propagate_error(&mut self, group: &mut Group, error: ErrorCode) {
        for member_id in group.member_ids() {
            if let Some(member) = group.get_mut(&member_id) {
                member.assignment = Bytes::new();
            }
            self.answer_sync(group, &member_id, SyncGroupResult::error(error));
        }
    }

    /// A member's SyncGroup is there; when all are, nothing is waited for any more.
    pub(super) fn sync_arrived(&self, group: &mut Group, member_id: &str) {
        group.pending_sync.shift_remove(member_id);
        if group.pending_sync.is_empty() {
            group.sync_deadline_ms = None;
        }
    }

    /// Members that have joined but never asked for their assignment are out (KAFKA-13435's guard).
    fn sync_deadline_passed(&mut self, group: &mut Group) {
        group.sync_deadline_ms = None;
        let missing: Vec<String> = group.pending_sync.iter().cloned().collect();
        if missing.is_empty() {
            return;
        }
        for member_id in &missing {
            self.remove(group, member_id);
        }
        self.prepare_rebalance(
            group,
            &format!("removing members {missing:?} that did not send their SyncGroup in time"),
        );
    }

    /// A member's session is over.
    fn session_over(&mut self, group: &mut Group, member_id: &str) {
        let Some(member) = group.get_mut(member_id) else {
            return;
        };
        member.deadline_ms = None;
        if member.is_excused() {
            return;
        }
        tracing::info!(
            group = &*group.id,
            member = member_id,
            "the member has failed: it was not heard from within its session timeout"
        );
        let why = format!("removing member {member_id} on heartbeat expiration");
        self.remove_and_rebalance(group, member_id, &why);
    }
}

/// Runs the earliest thing that is due in a group; false when nothing is.
pub(super) fn expire_next(group: &mut Group, step: &mut Step<'_>) -> bool {
    enum Due {
        Session(String),
        Pending(String),
        Join,
        Sync,
    }
    let now_ms = step.now_ms;
    let sessions = group
        .members()
        .filter_map(|m| Some((m.deadline_ms.filter(|at_ms| *at_ms <= now_ms)?, m)))
        .map(|(at_ms, m)| (at_ms, Due::Session(m.member_id.clone())));
    let pending = group
        .pending_members
        .iter()
        .filter(|(_, at_ms)| **at_ms <= now_ms)
        .map(|(id, at_ms)| (*at_ms, Due::Pending(id.clone())));
    let join = group
        .join_phase
        .map(|phase| (phase.deadline_ms(), Due::Join));
    let sync = group.sync_deadline_ms.map(|at_ms| (at_ms, Due::Sync));
    let due = sessions
        .chain(pending)
        .chain(join)
        .chain(sync)
        .min_by_key(|(at_ms, _)| *at_ms);
    match due {
        Some((at_ms, due)) if at_ms <= now_ms => match due {
            Due::Session(member_id) => step.session_over(group, &member_id),
            Due::Pending(member_id) => {
                tracing::info!(
                    group = &*group.id,
                    member = member_id,
                    "a member id that was given out was not used within the session timeout"
                );
                step.remove_pending(group, &member_id);
            }
            Due::Join => step.join_phase_over(group),
            Due::Sync => step.sync_deadline_passed(group),
        },
        _ => return false,
    }
    true
}
