//! Random clients, a log that is slow and fails, a partition that moves away and back: whatever happens, one
//! generation has one assignment, no committed offset is lost, and nobody waits for ever.

use crate::harness::*;
use bytes::Bytes;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_groups::response::*;
use gracchus_groups::{Event, ReplyToken, Request, Response};
use gracchus_kafka_proto::ErrorCode;
use std::collections::{BTreeMap, HashMap};

/// xorshift64*: enough for choices, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Out,
    Joining(ReplyToken),
    Syncing(ReplyToken),
    In,
}

#[derive(Debug)]
struct Client {
    instance: Option<String>,
    version: i16,
    member_id: String,
    generation: i32,
    phase: Phase,
    others: Vec<String>,
}

struct World {
    bench: Bench,
    dice: Dice,
    clients: Vec<Client>,
    epoch: i32,
    /// The assignment of each generation, as its leader made it. Generations may be repeated after a reload that
    /// lost an unfinished one, so the leader's id is part of the key.
    plans: HashMap<(i32, String), BTreeMap<String, Bytes>>,
    /// The first answer to each member of a generation and leader.
    granted: HashMap<(i32, String, String), Bytes>,
    commits: HashMap<ReplyToken, i64>,
    acknowledged: i64,
    next_value: i64,
    other_tokens: Vec<ReplyToken>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let delay = [0, 1_000, 3_000][dice.roll(3) as usize];
        let clients = (0..1 + dice.roll(6))
            .map(|i| Client {
                instance: dice.one_in(3).then(|| format!("s{i}")),
                version: dice.roll(10) as i16,
                member_id: String::new(),
                generation: -1,
                phase: Phase::Out,
                others: Vec::new(),
            })
            .collect();
        let max_size = if dice.one_in(4) { 3 } else { i32::MAX };
        World {
            bench: Bench::with(|config| {
                config.initial_rebalance_delay_ms = delay;
                config.max_size = max_size;
            }),
            dice,
            clients,
            epoch: 1,
            plans: HashMap::new(),
            granted: HashMap::new(),
            commits: HashMap::new(),
            acknowledged: -1,
            next_value: 0,
            other_tokens: Vec::new(),
        }
    }

    fn join(&mut self, i: usize) {
        let client = &self.clients[i];
        let token = self.bench.send_join(JoinGroup {
            group_instance_id: client.instance.clone(),
            require_known_member_id: client.version >= 4 && client.instance.is_none(),
            support_skipping_assignment: client.version >= 9,
            rebalance_timeout_ms: 20_000,
            ..rejoin(&client.member_id)
        });
        self.clients[i].phase = Phase::Joining(token);
    }

    fn act(&mut self, i: usize) {
        match self.clients[i].phase.clone() {
            Phase::Out => {
                if self.dice.one_in(2) {
                    self.join(i);
                }
            }
            Phase::Joining(token) if !self.bench.waits(token) => self.joined(i, token),
            Phase::Syncing(token) if !self.bench.waits(token) => self.synced(i, token),
            // a connection breaks: the client comes again, the old request is forgotten by it
            Phase::Joining(token) | Phase::Syncing(token) => {
                if self.dice.one_in(20) {
                    self.other_tokens.push(token);
                    self.join(i);
                }
            }
            Phase::In => self.inside(i),
        }
    }

    fn joined(&mut self, i: usize, token: ReplyToken) {
        let result = self.bench.join_reply(token);
        let client = &mut self.clients[i];
        match result.error {
            ErrorCode::None => {
                client.member_id = result.member_id.clone();
                client.generation = result.generation_id;
                client.others = result.members.into_iter().map(|m| m.member_id).collect();
                let leads = result.leader_id == client.member_id && !result.skip_assignment;
                let key = (result.generation_id, result.leader_id.clone());
                let mut request = SyncGroup {
                    group_id: G.into(),
                    generation_id: client.generation,
                    member_id: client.member_id.clone(),
                    group_instance_id: client.instance.clone(),
                    ..Default::default()
                };
                if leads {
                    assert!(client.others.contains(&client.member_id));
                    let plan = self.plans.entry(key).or_insert_with(|| {
                        client
                            .others
                            .iter()
                            .map(|id| {
                                (
                                    id.clone(),
                                    Bytes::from(format!("{}:{id}", result.generation_id)),
                                )
                            })
                            .collect()
                    });
                    request.assignments = plan.clone().into_iter().collect();
                }
                let token = self.bench.send(Request::SyncGroup(request));
                self.clients[i].phase = Phase::Syncing(token);
            }
            ErrorCode::MemberIdRequired => {
                client.member_id = result.member_id;
                self.join(i);
            }
            error => self.failed(i, error),
        }
    }

    fn synced(&mut self, i: usize, token: ReplyToken) {
        let SyncGroupResult {
            error, assignment, ..
        } = self.bench.sync_reply(token);
        if error != ErrorCode::None {
            return self.failed(i, error);
        }
        let client = &mut self.clients[i];
        client.phase = Phase::In;
        let own = format!("{}:{}", client.generation, client.member_id);
        if client.instance.is_none() {
            // a dynamic member gets what the leader of its generation gave it, or nothing
            assert!(
                assignment.is_empty() || assignment == own,
                "{own} got {assignment:?}"
            );
        }
        let key = (client.generation, client.member_id.clone(), String::new());
        let before = self
            .granted
            .entry(key)
            .or_insert_with(|| assignment.clone());
        assert_eq!(
            *before, assignment,
            "{own} got two assignments in one generation"
        );
    }

    fn failed(&mut self, i: usize, error: ErrorCode) {
        use ErrorCode as E;
        let client = &mut self.clients[i];
        client.phase = Phase::Out;
        match error {
            E::UnknownMemberId | E::FencedInstanceId | E::GroupMaxSizeReached => {
                client.member_id.clear()
            }
            E::RebalanceInProgress
            | E::IllegalGeneration
            | E::NotCoordinator
            | E::CoordinatorLoadInProgress
            | E::CoordinatorNotAvailable
            | E::UnknownServerError => {}
            other => panic!("unexpected {other:?}"),
        }
    }

    fn inside(&mut self, i: usize) {
        let client = &self.clients[i];
        let (id, generation, instance) = (
            client.member_id.clone(),
            client.generation,
            client.instance.clone(),
        );
        match self.dice.roll(12) {
            0 => {
                let member = LeavingMember {
                    member_id: id,
                    group_instance_id: instance,
                    reason: None,
                };
                self.bench.leave(vec![member]);
                self.clients[i].phase = Phase::Out;
                self.clients[i].member_id.clear();
            }
            // gone without a word; perhaps back under the same instance id
            1 => {
                self.clients[i].phase = Phase::Out;
                self.clients[i].member_id.clear();
            }
            2 | 3 => {
                self.next_value += 1;
                let commit = OffsetCommit {
                    group_instance_id: instance,
                    ..member_commit(G, &id, generation, "t", self.next_value)
                };
                let token = self.bench.send(Request::OffsetCommit(commit));
                self.commits.insert(token, self.next_value);
            }
            4 => self.join(i),
            _ => {
                let error = self
                    .bench
                    .heartbeat_of(&id, generation, instance.as_deref());
                if error == ErrorCode::RebalanceInProgress {
                    self.join(i);
                } else if error != ErrorCode::None {
                    self.failed(i, error);
                }
            }
        }
    }

    fn settle_commits(&mut self) {
        let done: Vec<_> = self
            .commits
            .keys()
            .copied()
            .filter(|t| !self.bench.waits(*t))
            .collect();
        for token in done {
            let value = self.commits.remove(&token).unwrap();
            match self.bench.reply(token) {
                Response::OffsetCommit(result) if result[0].1 == ErrorCode::None => {
                    self.acknowledged = self.acknowledged.max(value);
                }
                _ => {}
            }
        }
    }

    /// The partition moves away and back: what is known then is what the log holds.
    fn reload(&mut self) {
        let partition = self.bench.coordinator.partition_for(G);
        self.epoch += 2;
        self.bench.event(Event::Resigned {
            partition,
            leader_epoch: Some(self.epoch),
        });
        while !self.bench.held.is_empty() {
            self.bench.release();
        }
        self.settle_commits();
        self.bench.event(Event::Elected {
            partition,
            leader_epoch: self.epoch + 1,
        });
        let contents = self.bench.load_from_log(partition);
        self.bench.finish_load(partition, self.epoch + 1, contents);
        self.epoch += 1;
        // a generation that the log does not know may be counted again
        self.granted.clear();
        self.plans.clear();
    }

    fn check(&mut self) {
        self.settle_commits();
        let offset = self.bench.offset(G, "t");
        assert!(
            offset >= self.acknowledged,
            "offset {} was acknowledged, {offset} is known",
            self.acknowledged
        );
        if let Some(group) = self.bench.coordinator.group(G) {
            let waiting = group
                .members()
                .filter(|m| m.awaiting_join.is_some())
                .count();
            assert_eq!(waiting, group.awaiting_join_count());
            match group.state() {
                State::Empty => assert!(group.is_empty()),
                State::PreparingRebalance => assert!(group.join_phase.is_some()),
                State::CompletingRebalance | State::Stable => {
                    assert!(group.join_phase.is_none());
                    assert!(group.leader.as_deref().is_some_and(|id| group.has(id)));
                    assert!(group.select_protocol().is_some());
                }
            }
            for member in group.members() {
                assert!(
                    member.deadline_ms.is_some() || member.is_excused(),
                    "nothing would ever end the session of {member:?}"
                );
            }
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            let i = self.dice.roll(self.clients.len() as u64) as usize;
            self.act(i);
            let pause = [0, 10, 500, 2_500][self.dice.roll(4) as usize];
            self.bench.pass(pause);
            self.bench.hold = self.dice.one_in(3);
            self.bench.log_error = self.dice.one_in(15).then_some(ErrorCode::NotEnoughReplicas);
            if !self.bench.held.is_empty() && self.dice.one_in(2) {
                self.bench.release();
            }
            if self.dice.one_in(80) {
                self.reload();
            }
            if self.dice.one_in(200) {
                self.bench.event(Event::ExpireOffsets);
            }
            self.check();
        }
        // no client does anything any more; the log works
        self.bench.hold = false;
        self.bench.log_error = None;
        while !self.bench.held.is_empty() {
            self.bench.release();
        }
        self.bench.pass(11 * 60 * 1000);
        self.check();
        for client in &self.clients {
            if let Phase::Joining(token) | Phase::Syncing(token) = client.phase {
                assert!(!self.bench.waits(token), "waits for ever: {client:?}");
            }
        }
        for token in &self.other_tokens {
            assert!(
                !self.bench.waits(*token),
                "an abandoned request is never answered"
            );
        }
        assert!(self.commits.is_empty());
        assert_eq!(self.bench.coordinator.appends_in_flight(), 0);
        if let Some(group) = self.bench.coordinator.group(G) {
            assert_eq!(group.state(), State::Empty, "all members are gone");
        }
        self.reload();
        self.check();
    }
}

#[test]
fn random_clients() {
    let long = std::env::var_os("GRACCHUS_TEST_LONG").is_some_and(|v| v != "0");
    for seed in 1..=if long { 20_000 } else { 300 } {
        let outcome = std::panic::catch_unwind(|| World::new(seed).run(250));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
