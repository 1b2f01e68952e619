//! The event queue, continuations over ZooKeeper, and the term of office.

use std::collections::{HashSet, VecDeque};

use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::op::{ZkError, ZkOp, ZkResult};

use crate::action::{Action, ApiResult};
use crate::batch::Batch;
use crate::context::Context;
use crate::event::{Event, Timer, Watched};

/// Events that may wait; beyond it API events are refused. The others are bounded by themselves: watch events by what is
/// watched, answers by the requests sent.
const QUEUE_MAX: usize = 100_000;
/// Pause before an election is tried again after a failure, so that broken content never makes a hot loop.
const ELECTION_PAUSE_MS: u64 = 1000;

/// What the controller needs of the broker's configuration.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    pub broker_id: i32,
    /// `delete.topic.enable`
    pub delete_topic_enable: bool,
    /// `unclean.leader.election.enable`, the broker's default.
    pub unclean_leader_election: bool,
    /// Versions of LeaderAndIsr, UpdateMetadata and StopReplica by inter.broker.protocol.version.
    pub leader_and_isr_version: i16,
    pub update_metadata_version: i16,
    pub stop_replica_version: i16,
    /// inter.broker.protocol.version >= 2.7: there is a `/feature` node.
    pub has_features: bool,
    /// >= 3.3: that node has version 2.
    pub feature_version: i32,
    /// >= 2.8: topics have ids.
    pub has_topic_ids: bool,
    /// >= 3.2: unclean elections leave a recovery state.
    pub has_recovery_state: bool,
    /// `leader.imbalance.check.interval.seconds`, None without `auto.leader.rebalance.enable`.
    pub balance_every_ms: Option<u64>,
    /// `leader.imbalance.per.broker.percentage`
    pub balance_percentage: usize,
    /// Listener that control requests name the leaders' endpoints of.
    pub inter_broker_listener: String,
}

/// What goes on with the results of operations as they come.
trait Waiting: Send {
    /// The next results; false: there is nothing to go on with, and what is still to come is not looked at.
    fn part(&mut self, me: &mut Controller, results: Vec<ZkResult>) -> bool;
    /// All have come.
    fn end(self: Box<Self>, me: &mut Controller);
}

struct InParts<S, P, E> {
    state: S,
    part: P,
    end: E,
}

impl<S, P, E> Waiting for InParts<S, P, E>
where
    S: Send,
    P: FnMut(&mut Controller, &mut S, Vec<ZkResult>) -> bool + Send,
    E: FnOnce(&mut Controller, S) + Send,
{
    fn part(&mut self, me: &mut Controller, results: Vec<ZkResult>) -> bool {
        (self.part)(me, &mut self.state, results)
    }

    fn end(self: Box<Self>, me: &mut Controller) {
        (self.end)(me, self.state);
    }
}

/// Operations under way.
struct Pending {
    token: u64,
    /// Results that have not come yet.
    open: usize,
    waiting: Box<dyn Waiting>,
}

/// A broker's controller component: active or waiting for the post.
pub struct Controller {
    pub(crate) config: ControllerConfig,
    pub(crate) new_topic_id: Box<dyn FnMut() -> Uuid + Send>,
    /// Epoch of the present term, and the version of `/controller_epoch` that fences its writes.
    pub(crate) term: Option<Term>,
    pub(crate) cx: Context,
    pub(crate) batch: Batch,
    pub(crate) now_ms: i64,
    /// Registered and not stopped.
    pub(crate) is_candidate: bool,
    /// Epoch that was run for; `/controller` naming this broker with it means that the answer was lost, not the election.
    pub(crate) ran_for: Option<i32>,
    /// The post was given up for a pause: the deletion of `/controller` is no reason to stand again before it is over.
    pub(crate) is_resting: bool,
    /// The API event being worked on, and its answer should the term end first.
    serving: Option<(u64, ApiResult)>,
    queue: VecDeque<Event>,
    /// The event worked on last.
    at_work_on: &'static str,
    /// What the watch events in the queue are about.
    waiting: HashSet<Watched>,
    pending: Option<Pending>,
    next_token: u64,
    actions: Vec<Action>,
}

/// A term of office.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub epoch: i32,
    pub fence_version: i32,
}

impl Controller {
    /// `new_topic_id` gives random ids (not the reserved ones).
    pub fn new(
        config: ControllerConfig,
        new_topic_id: impl FnMut() -> Uuid + Send + 'static,
    ) -> Self {
        Controller {
            config,
            new_topic_id: Box::new(new_topic_id),
            term: None,
            cx: Context::default(),
            batch: Batch::default(),
            now_ms: 0,
            is_candidate: false,
            ran_for: None,
            is_resting: false,
            serving: None,
            queue: VecDeque::new(),
            at_work_on: "nothing",
            waiting: HashSet::new(),
            pending: None,
            next_token: 1,
            actions: Vec::new(),
        }
    }

    pub fn is_active(&self) -> bool {
        self.term.is_some()
    }

    /// What it knows; empty unless active.
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// The event waits for ZooKeeper.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// The event that waits for ZooKeeper, and how many wait behind it.
    pub fn waits_with(&self) -> Option<(&'static str, usize)> {
        self.is_waiting()
            .then_some((self.at_work_on, self.queue.len()))
    }

    /// Changes of the broker's dynamic configuration.
    pub fn set_unclean_leader_election(&mut self, on: bool) {
        self.config.unclean_leader_election = on;
    }

    /// One event. `now_ms` is wall-clock time, written into `/controller`.
    pub fn step(&mut self, event: Event, now_ms: i64) -> Vec<Action> {
        self.now_ms = now_ms;
        match event {
            Event::ZkResult { token, results } => self.go_on(token, results),
            Event::SessionExpired => self.session_expired(),
            Event::Stop => {
                self.session_expired();
                self.is_candidate = false;
            }
            event if refusal(&event).is_some() && self.queue.len() >= QUEUE_MAX => {
                self.refuse(event);
            }
            event => {
                if event.watched().is_none_or(|what| self.waiting.insert(what)) {
                    self.queue.push_back(event);
                }
            }
        }
        while self.pending.is_none()
            && let Some(event) = self.queue.pop_front()
        {
            if let Some(what) = event.watched() {
                self.waiting.remove(&what);
            }
            self.process(event);
        }
        std::mem::take(&mut self.actions)
    }

    fn go_on(&mut self, token: u64, results: Vec<ZkResult>) {
        // others are of a term that is over
        let Some(mut pending) = self.pending.take_if(|p| p.token == token) else {
            return;
        };
        pending.open = pending.open.saturating_sub(results.len());
        if !pending.waiting.part(self, results) {
            return;
        }
        if pending.open == 0 {
            pending.waiting.end(self);
        } else {
            self.pending = Some(pending);
        }
    }

    fn process(&mut self, event: Event) {
        self.serving = refusal(&event);
        self.at_work_on = event.name();
        match event {
            Event::Registered => {
                self.is_candidate = true;
                self.is_resting = false;
                self.elect();
            }
            Event::Timer(Timer::Reelect) => {
                self.is_resting = false;
                if self.is_candidate {
                    self.elect();
                }
            }
            Event::ControllerChanged => {
                if self.is_candidate && !self.is_resting {
                    self.elect();
                }
            }
            event if self.term.is_none() => self.refuse(event),
            Event::BrokersChanged => self.brokers_changed(),
            Event::BrokerModified(id) => self.broker_modified(id),
            Event::TopicsChanged => self.topics_changed(),
            Event::TopicModified(topic) => self.topic_modified(topic),
            Event::DeletionsRequested => self.deletions_requested(),
            Event::IsrNotices => self.isr_notices(),
            Event::LogDirNotices => self.log_dir_notices(),
            Event::PreferredElectionRequested => self.preferred_election_requested(),
            Event::ReassignmentRequested => self.reassignment_requested(),
            Event::StopReplicaAnswered {
                broker_id,
                partitions,
            } => self.stop_replica_answered(broker_id, partitions),
            Event::LeaderAndIsrAnswered {
                broker_id,
                partitions,
            } => self.leader_and_isr_answered(broker_id, partitions),
            Event::RequestsDropped { broker_id } => {
                if self.cx.is_alive(broker_id) {
                    self.tell_anew(broker_id);
                }
            }
            Event::AlterPartition {
                token,
                request,
                version,
            } => self.alter_partition(token, request, version),
            Event::AllocateProducerIds {
                token,
                broker_id,
                broker_epoch,
            } => {
                self.allocate_producer_ids(token, broker_id, broker_epoch);
            }
            Event::ControlledShutdown {
                token,
                broker_id,
                broker_epoch,
            } => {
                self.controlled_shutdown(token, broker_id, broker_epoch);
            }
            Event::ElectLeaders {
                token,
                partitions,
                unclean,
            } => self.elect_on_request(token, partitions, unclean),
            Event::AlterReassignments { token, wanted } => self.alter_reassignments(token, wanted),
            Event::ListReassignments { token, wanted } => self.list_reassignments(token, wanted),
            Event::Timer(Timer::Balance { epoch }) => self.balance(epoch),
            Event::UncleanElectionEnabled { topic } => {
                self.elect_offline_of(topic);
            }
            Event::ZkResult { .. } | Event::SessionExpired | Event::Stop => {}
        }
    }

    /// An event that only the active controller could carry out.
    fn refuse(&mut self, event: Event) {
        if let Some((token, result)) = refusal(&event) {
            self.reply(token, result);
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn reply(&mut self, token: u64, result: ApiResult) {
        self.serving.take_if(|(serving, _)| *serving == token);
        self.act(Action::Reply { token, result });
    }

    /// Asks for operations and goes on with their results. Without operations it goes on at once.
    pub(crate) fn zk(
        &mut self,
        ops: Vec<ZkOp>,
        go_on: impl FnOnce(&mut Controller, Vec<ZkResult>) + Send + 'static,
    ) {
        self.zk_in_parts(ops, Vec::new(), keep, go_on);
    }

    /// Like [`Self::zk`]; `part` works on the results as they come, while later operations are still under way, and must ask
    /// for none itself. `state` is handed on to `end`.
    pub(crate) fn zk_in_parts<S: Send + 'static>(
        &mut self,
        ops: Vec<ZkOp>,
        state: S,
        mut part: impl FnMut(&mut Controller, &mut S, Vec<ZkResult>) + Send + 'static,
        end: impl FnOnce(&mut Controller, S) + Send + 'static,
    ) {
        let part = move |me: &mut Controller, state: &mut S, results| {
            part(me, state, results);
            true
        };
        self.wait_for(ops, InParts { state, part, end });
    }

    fn wait_for(&mut self, ops: Vec<ZkOp>, waiting: impl Waiting + 'static) {
        let waiting: Box<dyn Waiting> = Box::new(waiting);
        if ops.is_empty() {
            return waiting.end(self);
        }
        let token = self.next_token;
        self.next_token += 1;
        self.pending = Some(Pending {
            token,
            open: ops.len(),
            waiting,
        });
        self.act(Action::Zk { token, ops });
    }

    /// Like [`Self::zk`], for writes behind the fence: when it is lost, the term ends and `go_on` is not called.
    pub(crate) fn zk_fenced(
        &mut self,
        ops: Vec<ZkOp>,
        go_on: impl FnOnce(&mut Controller, Vec<ZkResult>) + Send + 'static,
    ) {
        self.zk_fenced_in_parts(ops, Vec::new(), keep, go_on);
    }

    /// [`Self::zk_in_parts`] for writes behind the fence: when it is found lost, the term ends at once.
    pub(crate) fn zk_fenced_in_parts<S: Send + 'static>(
        &mut self,
        ops: Vec<ZkOp>,
        state: S,
        mut part: impl FnMut(&mut Controller, &mut S, Vec<ZkResult>) + Send + 'static,
        end: impl FnOnce(&mut Controller, S) + Send + 'static,
    ) {
        let part = move |me: &mut Controller, state: &mut S, results: Vec<ZkResult>| {
            let lost = results.iter().any(|r| {
                matches!(r, Err(f) if f.step == 0 && matches!(f.error, ZkError::BadVersion))
                    || matches!(r, Err(f) if f.error == ZkError::SessionExpired)
            });
            if lost {
                me.fence_lost();
                return false;
            }
            part(me, state, results);
            true
        };
        self.wait_for(ops, InParts { state, part, end });
    }

    /// The version that fenced writes check; none is made when the term is over.
    pub(crate) fn fence(&self) -> i32 {
        self.term.map_or(-2, |t| t.fence_version)
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.term.map_or(-1, |t| t.epoch)
    }

    /// Sends what was collected for the brokers.
    pub(crate) fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        for (broker_id, request) in
            crate::requests::build(batch, &self.cx, &self.config, self.epoch())
        {
            self.act(Action::Send { broker_id, request });
        }
    }

    /// Forgets everything; ZooKeeper is not touched.
    pub(crate) fn resign(&mut self) {
        self.ran_for = None;
        if let Some((token, result)) = self.serving.take() {
            self.reply(token, result);
        }
        if self.term.take().is_some() {
            tracing::info!(broker = self.config.broker_id, "no longer the controller");
            for broker_id in std::mem::take(&mut self.cx).brokers.into_keys() {
                self.act(Action::Disconnect { broker_id });
            }
            self.act(Action::Active(None));
        }
        self.cx = Context::default();
        self.batch = Batch::default();
    }

    fn session_expired(&mut self) {
        self.pending = None;
        self.is_candidate = false;
        self.waiting.clear();
        for event in std::mem::take(&mut self.queue) {
            self.refuse(event);
        }
        self.resign();
    }

    pub(crate) fn reelect_later(&mut self) {
        self.act(Action::SetTimer {
            timer: Timer::Reelect,
            after_ms: ELECTION_PAUSE_MS,
        });
    }
}

/// All results are wanted at the end.
fn keep(_: &mut Controller, all: &mut Vec<ZkResult>, mut results: Vec<ZkResult>) {
    all.append(&mut results);
}

/// NOT_CONTROLLER for an API event, with its token.
fn refusal(event: &Event) -> Option<(u64, ApiResult)> {
    let error = ErrorCode::NotController;
    Some(match event {
        Event::AlterPartition { token, .. } => (
            *token,
            ApiResult::AlterPartition(crate::isr::refused(error)),
        ),
        Event::AllocateProducerIds { token, .. } => (*token, ApiResult::ProducerIds(Err(error))),
        Event::ControlledShutdown { token, .. } => {
            (*token, ApiResult::ControlledShutdown(Err(error)))
        }
        Event::ElectLeaders { token, .. } => (*token, ApiResult::Elections(Err(error))),
        Event::AlterReassignments { token, .. } => (*token, ApiResult::Reassigned(Err(error))),
        Event::ListReassignments { token, .. } => (*token, ApiResult::Reassignments(Err(error))),
        _ => return None,
    })
}
