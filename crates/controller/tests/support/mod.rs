//! Controllers over a ZooKeeper in memory, stepped by hand: every order of things can be played and repeated.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod shown;
pub mod zookeeper;

pub use shown::shown;

use std::collections::{BTreeMap, VecDeque};

use gracchus_controller::{
    Action, ApiResult, ControlRequest, Controller, ControllerConfig, Event, PartitionKey, Timer,
};
use gracchus_kafka_proto::messages::alter_partition_request::{
    AlterPartitionRequest, PartitionData, TopicData,
};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::json::{PartitionState, TopicAssignment};
use gracchus_registry::op::{CreateMode, MultiStep, ZkOp, ZkResult};
use gracchus_registry::paths;
use zookeeper::ZooKeeper;

pub fn config(broker_id: i32) -> ControllerConfig {
    ControllerConfig {
        broker_id,
        delete_topic_enable: true,
        unclean_leader_election: false,
        leader_and_isr_version: 7,
        update_metadata_version: 8,
        stop_replica_version: 4,
        has_features: true,
        feature_version: 2,
        has_topic_ids: true,
        has_recovery_state: true,
        balance_every_ms: None,
        balance_percentage: 10,
        inter_broker_listener: "PLAINTEXT".into(),
    }
}

pub fn registration(id: i32) -> String {
    let port = 9092 + id;
    format!(
        r#"{{"features":{{}},"listener_security_protocol_map":{{"PLAINTEXT":"PLAINTEXT"}},"endpoints":["PLAINTEXT://b{id}:{port}"],"jmx_port":-1,"port":{port},"host":"b{id}","version":5,"timestamp":"1"}}"#
    )
}

/// Operations on their way to ZooKeeper, in the session that asked for them.
struct InFlight {
    session: i64,
    token: u64,
    ops: VecDeque<ZkOp>,
    results: Vec<ZkResult>,
}

/// A broker's process that has a controller component.
pub struct Member {
    pub controller: Controller,
    pub session: i64,
    pub inbox: VecDeque<Event>,
    in_flight: VecDeque<InFlight>,
    pub active: Option<i32>,
    pub timer: bool,
}

/// One thing that can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// ZooKeeper executes this member's next operation.
    Op(i32),
    /// The member takes its next event.
    Event(i32),
}

pub struct Sent {
    pub from: i32,
    pub to: i32,
    pub request: ControlRequest,
}

pub struct Harness {
    pub zk: ZooKeeper,
    pub members: BTreeMap<i32, Member>,
    /// Sessions of registered brokers, with or without a controller component.
    pub sessions: BTreeMap<i32, i64>,
    pub sent: Vec<Sent>,
    pub replies: BTreeMap<u64, ApiResult>,
    /// Requests are answered without error as soon as they are sent.
    pub answers: bool,
    pub timers_set: usize,
    /// Timers other than for elections: who, which, after how long.
    pub others_set: Vec<(i32, Timer, u64)>,
    /// Operations that may still be executed before everything stops; `None`: no limit.
    pub budget: Option<usize>,
    /// The election's write is sent twice: the connection broke before its first answer.
    pub election_answer_is_lost: bool,
    /// For API events.
    pub tokens: u64,
    ids: u8,
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}

impl Harness {
    /// An empty cluster: what a broker makes at its start.
    pub fn new() -> Self {
        let mut zk = ZooKeeper::default();
        for path in paths::AT_START {
            zk.make(path, None);
        }
        Harness {
            zk,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            sent: Vec::new(),
            replies: BTreeMap::new(),
            answers: true,
            timers_set: 0,
            others_set: Vec::new(),
            budget: None,
            election_answer_is_lost: false,
            tokens: 0,
            ids: 0,
        }
    }

    /// Brokers 1..=n, of which broker 1 is the controller.
    pub fn with_brokers(n: i32) -> Self {
        let mut h = Harness::new();
        for id in 2..=n {
            h.register(id);
        }
        h.start(config(1));
        h.settle();
        assert_eq!(h.members[&1].active, Some(1));
        h.forget();
        h
    }

    /// Registers a broker in a new session; gives its epoch.
    pub fn register(&mut self, id: i32) -> i64 {
        let session = self.zk.open_session();
        self.sessions.insert(id, session);
        let path = paths::broker(id);
        let ops = ZkOp::Multi(vec![
            MultiStep::Create {
                path: path.clone(),
                data: None,
                mode: CreateMode::Ephemeral,
            },
            MultiStep::SetData {
                path,
                data: Some(registration(id).into()),
                version: 0,
            },
        ]);
        self.zk
            .execute(session, &ops)
            .unwrap()
            .stat()
            .unwrap()
            .czxid
    }

    /// Starts a broker with a controller component.
    pub fn start(&mut self, config: ControllerConfig) {
        let id = config.broker_id;
        self.register(id);
        self.ids += 1;
        let (start, mut count) = (self.ids, 0u8);
        let controller = Controller::new(config, move || {
            count = count.wrapping_add(1);
            let mut bytes = [start; 16];
            bytes[15] = count;
            Uuid::from_bytes(bytes)
        });
        let member = Member {
            controller,
            session: self.sessions[&id],
            inbox: VecDeque::from([Event::Registered]),
            in_flight: VecDeque::new(),
            active: None,
            timer: false,
        };
        self.members.insert(id, member);
    }

    /// The process is gone, and its session with it.
    pub fn kill(&mut self, id: i32) {
        self.members.remove(&id);
        if let Some(session) = self.sessions.remove(&id) {
            self.zk.close_session(session);
        }
        self.deliver_watches();
    }

    /// ZooKeeper ends the session; the process learns of it and does not register again by itself.
    pub fn expire(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.zk.close_session(session);
        }
        self.deliver_watches();
        if let Some(member) = self.members.get_mut(&id) {
            member.inbox.push_back(Event::SessionExpired);
        }
    }

    /// After [`Self::expire`]: a new session.
    pub fn come_back(&mut self, id: i32) {
        self.register(id);
        let session = self.sessions[&id];
        let member = self.members.get_mut(&id).unwrap();
        member.session = session;
        member.inbox.push_back(Event::Registered);
    }

    pub fn event(&mut self, id: i32, event: Event) {
        self.members.get_mut(&id).unwrap().inbox.push_back(event);
    }

    pub fn fire_timers(&mut self) {
        for member in self.members.values_mut() {
            if std::mem::take(&mut member.timer) {
                member.inbox.push_back(Event::Timer(Timer::Reelect));
            }
        }
    }

    /// What can happen next.
    pub fn ticks(&mut self) -> Vec<Tick> {
        self.deliver_watches();
        let mut ticks = Vec::new();
        for (id, member) in &self.members {
            if !member.inbox.is_empty() {
                ticks.push(Tick::Event(*id));
            }
            if !member.in_flight.is_empty() {
                ticks.push(Tick::Op(*id));
            }
        }
        ticks
    }

    /// Lets one thing happen; false: the budget is used up.
    pub fn tick(&mut self, tick: Tick) -> bool {
        match tick {
            Tick::Event(id) => {
                let Some(member) = self.members.get_mut(&id) else {
                    return true;
                };
                let Some(event) = member.inbox.pop_front() else {
                    return true;
                };
                let session = member.session;
                let actions = member.controller.step(event, 1000);
                for action in actions {
                    self.act(id, session, action);
                }
            }
            Tick::Op(id) => {
                match &mut self.budget {
                    Some(0) => return false,
                    Some(left) => *left -= 1,
                    None => {}
                }
                let Some(member) = self.members.get_mut(&id) else {
                    return true;
                };
                let Some(batch) = member.in_flight.front_mut() else {
                    return true;
                };
                if let Some(op) = batch.ops.pop_front() {
                    let mut result = self.zk.execute(batch.session, &op);
                    if self.election_answer_is_lost
                        && op.path() == paths::CONTROLLER_EPOCH
                        && matches!(op, ZkOp::Multi(_))
                    {
                        result = self.zk.execute(batch.session, &op);
                    }
                    batch.results.push(result);
                }
                self.deliver_watches();
                let member = self.members.get_mut(&id).unwrap();
                let Some(batch) = member.in_flight.front_mut() else {
                    return true;
                };
                // every second batch comes back result by result
                let (token, is_done) = (batch.token, batch.ops.is_empty());
                if is_done || token % 2 == 0 {
                    let results = std::mem::take(&mut batch.results);
                    member.inbox.push_back(Event::ZkResult { token, results });
                }
                if is_done {
                    member.in_flight.pop_front();
                }
            }
        }
        true
    }

    /// Goes on until nothing is left to do; false: stopped by the budget.
    pub fn settle(&mut self) -> bool {
        for _ in 0..100_000 {
            match self.ticks().first() {
                None => return true,
                Some(tick) if !self.tick(*tick) => return false,
                Some(_) => {}
            }
        }
        panic!("the controllers never come to rest");
    }

    fn act(&mut self, id: i32, session: i64, action: Action) {
        let member = self.members.get_mut(&id).unwrap();
        match action {
            Action::Zk { token, ops } => {
                let batch = InFlight {
                    session,
                    token,
                    ops: ops.into(),
                    results: Vec::new(),
                };
                member.in_flight.push_back(batch);
            }
            Action::Send { broker_id, request } => {
                if self.answers
                    && self.sessions.contains_key(&broker_id)
                    && let Some(event) = answer(broker_id, &request, ErrorCode::None)
                {
                    member.inbox.push_back(event);
                }
                self.sent.push(Sent {
                    from: id,
                    to: broker_id,
                    request,
                });
            }
            Action::Reply { token, result } => {
                assert!(
                    self.replies.insert(token, result).is_none(),
                    "{token} answered twice"
                );
            }
            Action::SetTimer {
                timer: Timer::Reelect,
                ..
            } => {
                member.timer = true;
                self.timers_set += 1;
            }
            Action::SetTimer { timer, after_ms } => self.others_set.push((id, timer, after_ms)),
            Action::Active(epoch) => member.active = epoch,
            Action::Connect { .. } | Action::Disconnect { .. } => {}
        }
    }

    pub fn deliver_watches(&mut self) {
        for (session, path) in self.zk.take_fired() {
            for member in self.members.values_mut().filter(|m| m.session == session) {
                if let Some(event) = Event::of_watch(&path) {
                    member.inbox.push_back(event);
                }
            }
        }
    }

    // what outsiders write

    pub fn create_topic(&mut self, topic: &str, replicas: &[&[i32]]) {
        self.zk.make(
            &paths::topic_config(topic),
            Some(r#"{"version":1,"config":{}}"#),
        );
        self.ids += 1;
        let node = assignment(Some(Uuid::from_bytes([100 + self.ids % 100; 16])), replicas);
        self.zk.make(&paths::topic(topic), Some(&node));
        self.deliver_watches();
    }

    pub fn request_deletion(&mut self, topic: &str) {
        self.zk.make(&paths::delete_topic(topic), None);
        self.deliver_watches();
    }

    /// The leader of a partition reports an ISR; the answer's error.
    pub fn report_isr(&mut self, controller: i32, topic: &str, partition: i32, isr: &[i32]) -> i16 {
        let path = paths::partition_state(topic, partition);
        let state = self.state(topic, partition);
        let broker_epoch =
            self.members[&controller].controller.context().brokers[&state.leader].epoch;
        let epochs = (state.leader_epoch, self.zk.version(&path));
        let request = alter_partition((state.leader, broker_epoch), topic, partition, isr, epochs);
        const TOKEN: u64 = 1_000_000;
        self.replies.remove(&TOKEN);
        let (token, version) = (TOKEN, 0);
        self.event(
            controller,
            Event::AlterPartition {
                token,
                request,
                version,
            },
        );
        self.settle();
        match self.replies.get(&TOKEN) {
            Some(ApiResult::AlterPartition(r)) => r.topics[0].partitions[0].error_code,
            other => panic!("{other:?}"),
        }
    }

    // what is seen

    pub fn state(&self, topic: &str, partition: i32) -> PartitionState {
        let data = self
            .zk
            .data(&paths::partition_state(topic, partition))
            .expect("a state node");
        PartitionState::parse(data.as_bytes()).unwrap()
    }

    /// Leader, leader epoch and ISR.
    pub fn led(&self, topic: &str, partition: i32) -> (i32, i32, Vec<i32>) {
        let state = self.state(topic, partition);
        (state.leader, state.leader_epoch, state.isr)
    }

    pub fn active(&self) -> Vec<i32> {
        self.members
            .iter()
            .filter(|(_, m)| m.active.is_some())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Forgets what was sent and written so far.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.zk.log.clear();
    }

    /// Requests since [`Self::forget`], as text, in order.
    pub fn requests(&mut self) -> Vec<String> {
        std::mem::take(&mut self.sent)
            .iter()
            .map(|s| format!("{} {}", s.to, shown(&s.request)))
            .collect()
    }

    /// Writes that took effect since [`Self::forget`].
    pub fn writes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.zk.log)
    }
}

/// A leader (with its broker epoch) reports an ISR, in the state of these leader and partition epochs; version 0.
pub fn alter_partition(
    (broker_id, broker_epoch): (i32, i64),
    topic: &str,
    partition: i32,
    isr: &[i32],
    (leader_epoch, partition_epoch): (i32, i32),
) -> AlterPartitionRequest {
    AlterPartitionRequest {
        broker_id,
        broker_epoch,
        topics: vec![TopicData {
            topic_name: topic.into(),
            partitions: vec![PartitionData {
                partition_index: partition,
                leader_epoch,
                new_isr: isr.to_vec(),
                partition_epoch,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn assignment(topic_id: Option<Uuid>, replicas: &[&[i32]]) -> String {
    let assignment = TopicAssignment {
        topic_id,
        partitions: (0..).zip(replicas).map(|(n, r)| (n, r.to_vec())).collect(),
        adding_replicas: BTreeMap::new(),
        removing_replicas: BTreeMap::new(),
    };
    String::from_utf8(assignment.to_bytes().to_vec()).unwrap()
}

/// A broker's answer; only orders to delete are reported back, as the shell does.
pub fn answer(broker_id: i32, request: &ControlRequest, error: ErrorCode) -> Option<Event> {
    match request {
        ControlRequest::StopReplica(r, _) => {
            let partitions: Vec<_> = r
                .topic_states
                .iter()
                .flat_map(|t| t.partition_states.iter().map(move |p| (t, p)))
                .filter(|(_, p)| p.delete_partition)
                .map(|(t, p)| (PartitionKey::new(&t.topic_name, p.partition_index), error))
                .collect();
            (!partitions.is_empty()).then_some(Event::StopReplicaAnswered {
                broker_id,
                partitions,
            })
        }
        ControlRequest::LeaderAndIsr(r, _) => Some(Event::LeaderAndIsrAnswered {
            broker_id,
            partitions: r
                .topic_states
                .iter()
                .flat_map(|t| t.partition_states.iter().map(move |p| (t, p)))
                .map(|(t, p)| (PartitionKey::new(&t.topic_name, p.partition_index), error))
                .collect(),
        }),
        ControlRequest::UpdateMetadata { .. } => None,
    }
}
