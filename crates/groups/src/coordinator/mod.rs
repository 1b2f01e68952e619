//! The machine: events in, actions out. Groups never touch each other; one event is handled at a time.
//!
//! - [`mod@self`]: the way in, which groups are ours, timers;
//! - `join`, `sync`, `heartbeat`, `leave`: membership; `rebalance`: what they have in common;
//! - `commit`, `fetch`, `admin`: offsets and administration;
//! - `cleanup`: expiry and deletion; `append`: what waits for the log; `ownership`: partitions that come and go.

mod admin;
mod append;
mod cleanup;
mod commit;
mod fetch;
mod heartbeat;
mod join;
mod leave;
mod ownership;
mod rebalance;
mod sync;

use crate::config::GroupConfig;
use crate::event::{Action, AppendToken, Event, ReplyToken};
use crate::group::{Group, State};
use crate::partition::partition_for;
use crate::request::Request;
use crate::response::{JoinGroupResult, Response, SyncGroupResult};
use append::PendingAppend;
use gracchus_kafka_proto::ErrorCode;
use ownership::Ownership;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The group coordinator of one broker.
pub struct GroupCoordinator {
    groups: HashMap<Arc<str>, Group>,
    ownership: Ownership,
    active: bool,
    /// When to look at which group next.
    wakeups: BTreeSet<(i64, Arc<str>)>,
    core: Core,
}

/// Groups by state; Kafka's gauges `NumGroups`, `NumGroupsStable`, ..., and `NumOffsets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCounts {
    pub groups: usize,
    pub offsets: usize,
    pub empty: usize,
    pub preparing_rebalance: usize,
    pub completing_rebalance: usize,
    pub stable: usize,
}

/// What every group needs: settings, new ids, appends under way.
struct Core {
    config: GroupConfig,
    new_id: Box<dyn FnMut() -> String + Send>,
    appends: HashMap<AppendToken, PendingAppend>,
    next_append: u64,
    next_incarnation: u64,
    completed_rebalances: u64,
    wall_offset_ms: i64,
}

/// One call of [`GroupCoordinator::step`].
struct Step<'a> {
    core: &'a mut Core,
    /// For deadlines.
    now_ms: i64,
    /// For what is stored or compared with what was stored.
    wall_ms: i64,
    actions: Vec<Action>,
}

impl GroupCoordinator {
    /// `new_id` gives the random part of member ids: a version 4 UUID in lower case.
    pub fn new(config: GroupConfig, new_id: impl FnMut() -> String + Send + 'static) -> Self {
        GroupCoordinator {
            groups: HashMap::new(),
            ownership: Ownership::default(),
            active: false,
            wakeups: BTreeSet::new(),
            core: Core {
                config,
                new_id: Box::new(new_id),
                appends: HashMap::new(),
                next_append: 0,
                next_incarnation: 0,
                completed_rebalances: 0,
                wall_offset_ms: 0,
            },
        }
    }

    /// Handles one event at `now_ms`, in milliseconds of a clock that never jumps (see
    /// [`GroupCoordinator::set_wall_offset_ms`]). The actions are to be carried out in their order.
    pub fn step(&mut self, event: Event, now_ms: i64) -> Vec<Action> {
        let wall_ms = now_ms.saturating_add(self.core.wall_offset_ms);
        let mut step = Step {
            core: &mut self.core,
            now_ms,
            wall_ms,
            actions: Vec::new(),
        };
        // what is due happened before what comes now
        run_due(&mut self.groups, &mut self.wakeups, &mut step);
        match event {
            Event::Timer => {}
            Event::Started => self.active = true,
            Event::Stopped => self.active = false,
            Event::Request { token, request } => {
                let touched = request_group(&request).map(Arc::<str>::from);
                let mut desk = Desk {
                    groups: &mut self.groups,
                    ownership: &self.ownership,
                    active: self.active,
                };
                desk.serve(&mut step, token, request);
                if let Some(id) = touched {
                    rearm(&mut self.groups, &mut self.wakeups, &id);
                }
            }
            Event::AppendDone { token, result } => {
                if let Some(id) = append::done(&mut self.groups, &mut step, token, result) {
                    rearm(&mut self.groups, &mut self.wakeups, &id);
                }
            }
            Event::Elected {
                partition,
                leader_epoch,
            } => self.ownership.elected(&mut step, partition, leader_epoch),
            Event::Loaded {
                partition,
                leader_epoch,
                contents,
            } => {
                if self.ownership.loaded(partition, leader_epoch) {
                    let ids = ownership::take_in(&mut self.groups, &mut step, contents);
                    for id in ids {
                        rearm(&mut self.groups, &mut self.wakeups, &id);
                    }
                }
            }
            Event::Resigned {
                partition,
                leader_epoch,
            } => {
                if self.ownership.resigned(partition, leader_epoch) {
                    ownership::drop_partition(&mut self.groups, &mut step, partition);
                }
            }
            Event::PartitionsDeleted(partitions) => {
                cleanup::partitions_deleted(&mut self.groups, &mut step, &partitions);
            }
            Event::TransactionCompleted {
                producer_id,
                partitions,
                committed,
            } => {
                let count = step.core.config.offsets_partitions;
                for group in self.groups.values_mut() {
                    if partitions.contains(&partition_for(&group.id, count)) {
                        group.offsets.end_transaction(producer_id, committed);
                    }
                }
            }
            Event::ExpireOffsets => cleanup::expire_offsets(&mut self.groups, &mut step),
        }
        run_due(&mut self.groups, &mut self.wakeups, &mut step);
        step.actions
    }

    /// What makes the time since 1970 of `now_ms`; 0 unless set. Sessions are counted without it, so that setting the
    /// wall clock does not throw everybody out; what is stored is dated with it.
    pub fn set_wall_offset_ms(&mut self, offset_ms: i64) {
        self.core.wall_offset_ms = offset_ms;
    }

    /// When to send [`Event::Timer`] at the latest.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.wakeups.first().map(|(at_ms, _)| *at_ms)
    }

    /// The partition of `__consumer_offsets` that a group belongs to.
    pub fn partition_for(&self, group_id: &str) -> i32 {
        partition_for(group_id, self.core.config.offsets_partitions)
    }

    /// Takes a changed setting (the number of partitions is fixed while groups are loaded).
    pub fn config_mut(&mut self) -> &mut GroupConfig {
        &mut self.core.config
    }

    /// For metrics and tests.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// For metrics and tests.
    pub fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)
    }

    /// For metrics: how many groups there are, by state, and offsets.
    pub fn counts(&self) -> GroupCounts {
        let mut counts = GroupCounts::default();
        for group in self.groups.values() {
            counts.groups += 1;
            counts.offsets += group.offsets.len();
            let slot = match group.state() {
                State::Empty => &mut counts.empty,
                State::PreparingRebalance => &mut counts.preparing_rebalance,
                State::CompletingRebalance => &mut counts.completing_rebalance,
                State::Stable => &mut counts.stable,
            };
            *slot += 1;
        }
        counts
    }

    /// For metrics: rebalances completed since the start.
    pub fn completed_rebalances(&self) -> u64 {
        self.core.completed_rebalances
    }

    /// For metrics and tests: appends that have not ended.
    pub fn appends_in_flight(&self) -> usize {
        self.core.appends.len()
    }
}

/// The group a request may change the deadlines of.
fn request_group(request: &Request) -> Option<&str> {
    match request {
        Request::JoinGroup(request) => Some(&request.group_id),
        Request::SyncGroup(request) => Some(&request.group_id),
        Request::Heartbeat(request) => Some(&request.group_id),
        Request::LeaveGroup(request) => Some(&request.group_id),
        Request::OffsetCommit(request) => Some(&request.group_id),
        Request::TxnOffsetCommit(request) => Some(&request.group_id),
        Request::OffsetFetch(_)
        | Request::OffsetDelete(_)
        | Request::ListGroups(_)
        | Request::DescribeGroup(_)
        | Request::DeleteGroups(_) => None,
    }
}

/// Moves a group's wake-up forward if something was noted that is due earlier.
fn rearm(groups: &mut HashMap<Arc<str>, Group>, wakeups: &mut BTreeSet<(i64, Arc<str>)>, id: &str) {
    let Some(group) = groups.get_mut(id) else {
        return;
    };
    let Some(earliest) = group.take_earliest() else {
        return;
    };
    if group.wakeup.is_none_or(|at_ms| earliest < at_ms) {
        if let Some(at_ms) = group.wakeup.replace(earliest) {
            wakeups.remove(&(at_ms, group.id.clone()));
        }
        wakeups.insert((earliest, group.id.clone()));
    }
}

/// Runs everything that is due.
fn run_due(
    groups: &mut HashMap<Arc<str>, Group>,
    wakeups: &mut BTreeSet<(i64, Arc<str>)>,
    step: &mut Step<'_>,
) {
    while let Some((at_ms, id)) = wakeups.first().cloned() {
        if at_ms > step.now_ms {
            break;
        }
        wakeups.pop_first();
        let Some(group) = groups.get_mut(&id) else {
            continue;
        };
        // a wake-up of an earlier group of this name
        if group.wakeup != Some(at_ms) {
            continue;
        }
        while rebalance::expire_next(group, step) {}
        group.take_earliest();
        group.wakeup = group.next_deadline_ms();
        if let Some(next_ms) = group.wakeup {
            wakeups.insert((next_ms, id));
        }
    }
}

/// Where requests are served: all groups, and which partitions are ours.
struct Desk<'a> {
    groups: &'a mut HashMap<Arc<str>, Group>,
    ownership: &'a Ownership,
    active: bool,
}

impl Desk<'_> {
    fn serve(&mut self, step: &mut Step<'_>, token: ReplyToken, request: Request) {
        match request {
            Request::JoinGroup(request) => self.join(step, token, request),
            Request::SyncGroup(request) => self.sync(step, token, request),
            Request::Heartbeat(request) => {
                let error = self.heartbeat(step, &request);
                step.reply(token, Response::Heartbeat(error));
            }
            Request::LeaveGroup(request) => {
                let result = self.leave(step, request);
                step.reply(token, Response::LeaveGroup(result));
            }
            Request::OffsetCommit(request) => self.commit(step, token, request),
            Request::TxnOffsetCommit(request) => self.txn_commit(step, token, request),
            Request::OffsetFetch(request) => {
                let result = self.fetch(step, request);
                step.reply(token, Response::OffsetFetch(result));
            }
            Request::OffsetDelete(request) => {
                let result = self.delete_offsets(step, request);
                step.reply(token, Response::OffsetDelete(result));
            }
            Request::ListGroups(request) => {
                let result = self.list(&request);
                step.reply(token, Response::ListGroups(result));
            }
            Request::DescribeGroup(request) => {
                let result = self.describe(step, &request);
                step.reply(token, Response::DescribeGroup(result));
            }
            Request::DeleteGroups(request) => {
                let result = self.delete_groups(step, request);
                step.reply(token, Response::DeleteGroups(result));
            }
        }
    }

    /// What every request is checked for first: a group id that fits, a coordinator that runs, has loaded the
    /// group's partition, and owns it.
    fn check(
        &self,
        step: &Step<'_>,
        group_id: &str,
        empty_id_allowed: bool,
    ) -> Result<(), ErrorCode> {
        if group_id.is_empty() && !empty_id_allowed {
            return Err(ErrorCode::InvalidGroupId);
        }
        if !self.active {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let partition = partition_for(group_id, step.core.config.offsets_partitions);
        if self.ownership.is_loading(partition) {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        if !self.ownership.is_owned(partition) {
            return Err(ErrorCode::NotCoordinator);
        }
        Ok(())
    }

    /// The group, made empty if it is not there.
    fn group_or_new(&mut self, step: &mut Step<'_>, group_id: &str) -> &mut Group {
        let id: Arc<str> = Arc::from(group_id);
        let wall_ms = step.wall_ms;
        self.groups
            .entry(id.clone())
            .or_insert_with(|| Group::new(id, step.core.incarnation(), wall_ms))
    }
}

impl Core {
    fn incarnation(&mut self) -> u64 {
        self.next_incarnation += 1;
        self.next_incarnation
    }
}

impl Step<'_> {
    fn reply(&mut self, token: ReplyToken, response: Response) {
        self.actions.push(Action::Reply { token, response });
    }

    fn reply_join(&mut self, token: ReplyToken, result: JoinGroupResult) {
        self.reply(token, Response::JoinGroup(result));
    }

    fn reply_sync(&mut self, token: ReplyToken, result: SyncGroupResult) {
        self.reply(token, Response::SyncGroup(result));
    }
}

/// KIP-345 and plain membership: the instance id, if given, must be held by this member id; the member must exist.
fn check_member(
    group: &Group,
    member_id: &str,
    group_instance_id: Option<&str>,
) -> Result<(), ErrorCode> {
    if let Some(instance_id) = group_instance_id {
        match group.static_member(instance_id) {
            Some(current) if current != member_id => return Err(ErrorCode::FencedInstanceId),
            Some(_) => {}
            None => return Err(ErrorCode::UnknownMemberId),
        }
    }
    match group.has(member_id) {
        true => Ok(()),
        false => Err(ErrorCode::UnknownMemberId),
    }
}

/// As [`check_member`], and of this generation.
fn check_member_of(
    group: &Group,
    member_id: &str,
    group_instance_id: Option<&str>,
    generation_id: i32,
) -> Result<(), ErrorCode> {
    check_member(group, member_id, group_instance_id)?;
    match generation_id == group.generation {
        true => Ok(()),
        false => Err(ErrorCode::IllegalGeneration),
    }
}
