//! Three brokers over one ZooKeeper, everything interleaved at random by a seed, with deaths, lost sessions, topics that
//! come, move and go, ISRs that change, directories that fail. `GRACCHUS_TEST_LONG=1` plays 5,000 seeds instead of 200; a failure names its seed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use gracchus_controller::{Event, PartitionKey};
use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::PartitionState;
use gracchus_registry::paths;
use support::{Harness, alter_partition, config};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

const ASSIGNMENTS: [&[i32]; 6] = [&[1, 2, 3], &[2, 3, 1], &[3, 1], &[2, 1], &[3], &[1, 3, 2]];

#[derive(Default)]
struct Watched {
    leader_epochs: BTreeMap<String, i32>,
    fences: BTreeMap<i32, i64>,
    seen_fences: usize,
}

impl Watched {
    /// What must hold after every single step.
    fn check(&mut self, h: &mut Harness, seed: u64) {
        for (session, version) in &h.zk.fences[self.seen_fences..] {
            let holder = self.fences.entry(*version).or_insert(*session);
            assert_eq!(
                holder, session,
                "seed {seed}: two controllers wrote in one term"
            );
        }
        self.seen_fences = h.zk.fences.len();
        for write in h.writes() {
            let Some(path) = write
                .split(' ')
                .next_back()
                .filter(|p| p.ends_with("/state"))
            else {
                continue;
            };
            let Some(data) = h.zk.data(path) else {
                self.leader_epochs.remove(path);
                continue;
            };
            let state = PartitionState::parse(data.as_bytes()).unwrap();
            let last = self
                .leader_epochs
                .insert(path.to_owned(), state.leader_epoch);
            assert!(
                last.is_none_or(|last| last <= state.leader_epoch),
                "seed {seed}: {path} fell from {last:?}: {data}"
            );
            assert!(
                state.leader == -1 || state.isr.contains(&state.leader),
                "seed {seed}: {path} {data}"
            );
            let (topic, partition) = paths::partition_of_state(path).unwrap();
            let node = h.zk.data(&paths::topic(topic)).unwrap();
            let assignment =
                gracchus_registry::json::TopicAssignment::parse(node.as_bytes()).unwrap();
            let replicas = &assignment.partitions[&partition];
            assert!(
                !state.isr.is_empty() && state.isr.iter().all(|b| replicas.contains(b)),
                "seed {seed}: {path} {data} {replicas:?}"
            );
        }
    }
}

fn fault(h: &mut Harness, random: &mut Random) {
    let id = 1 + random.below(3) as i32;
    let topic = format!("t{}", random.below(3));
    match random.below(14) {
        7 | 8 => request_move(h, random, &topic),
        9..=11 => grow_isr(h, random, &topic),
        12 => elect(h, random, &topic),
        13 => fail_directory(h, random, id, &topic),
        0 => h.kill(id),
        1 if h.sessions.contains_key(&id) => h.expire(id),
        2 | 3 => revive(h, id),
        4 | 5
            if !h.zk.exists(&paths::topic(&topic))
                && !h.zk.exists(&paths::delete_topic(&topic))
                && !h.zk.exists(&paths::topic_config(&topic)) =>
        {
            let partitions: Vec<&[i32]> = (0..=random.below(3))
                .map(|_| ASSIGNMENTS[random.below(6)])
                .collect();
            h.create_topic(&topic, &partitions);
        }
        6 if h.zk.exists(&paths::topic(&topic)) && !h.zk.exists(&paths::delete_topic(&topic)) => {
            h.request_deletion(&topic)
        }
        _ => {}
    }
}

fn replicas(h: &Harness, topic: &str) -> BTreeMap<i32, Vec<i32>> {
    let node = h.zk.data(&paths::topic(topic)).unwrap_or_default();
    let found = gracchus_registry::json::TopicAssignment::parse(node.as_bytes());
    found.map(|found| found.partitions).unwrap_or_default()
}

/// To whoever believes to be controller.
fn tell_active(h: &mut Harness, random: &mut Random, event: impl FnOnce(u64) -> Event) {
    let active = h.active();
    if let Some(id) = active.get(random.below(active.len().max(1))) {
        h.tokens += 1;
        let event = event(h.tokens);
        h.event(*id, event);
    }
}

/// A partition moves, by the old tools' node or by request; or the move is given up.
fn request_move(h: &mut Harness, random: &mut Random, topic: &str) {
    let target = ASSIGNMENTS[random.below(6)].to_vec();
    if random.below(3) == 0 && !h.zk.exists(paths::REASSIGN_PARTITIONS) {
        let node = format!(
            r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":{target:?}}}]}}"#
        );
        h.zk.make(paths::REASSIGN_PARTITIONS, Some(&node));
        return;
    }
    let target = (random.below(4) > 0).then_some(target);
    let wanted = vec![(PartitionKey::new(topic, 0), target)];
    tell_active(h, random, |token| Event::AlterReassignments {
        token,
        wanted,
    });
}

/// The leader of a partition reports every live replica in sync.
fn grow_isr(h: &mut Harness, random: &mut Random, topic: &str) {
    let live: BTreeSet<i32> = h.sessions.keys().copied().collect();
    for (partition, replicas) in replicas(h, topic) {
        let path = paths::partition_state(topic, partition);
        let Some(data) = h.zk.data(&path) else {
            continue;
        };
        let state = PartitionState::parse(data.as_bytes()).unwrap();
        let active = h.active();
        let Some(controller) = active.get(random.below(active.len().max(1))) else {
            return;
        };
        let cx = h.members[controller].controller.context();
        let Some(epoch) = cx.brokers.get(&state.leader).map(|b| b.epoch) else {
            continue;
        };
        let mut isr = state.isr.clone();
        isr.extend(
            replicas
                .iter()
                .filter(|b| live.contains(b) && !state.isr.contains(b)),
        );
        let request = alter_partition(
            (state.leader, epoch),
            topic,
            partition,
            &isr,
            (state.leader_epoch, h.zk.version(&path)),
        );
        tell_active(h, random, |token| Event::AlterPartition {
            token,
            request,
            version: 0,
        });
    }
}

fn elect(h: &mut Harness, random: &mut Random, topic: &str) {
    let partitions = vec![PartitionKey::new(topic, 0), PartitionKey::new(topic, 1)];
    tell_active(h, random, |token| Event::ElectLeaders {
        token,
        partitions,
        unclean: false,
    });
}

/// A broker can't open a log; the next time it can.
fn fail_directory(h: &mut Harness, random: &mut Random, broker_id: i32, topic: &str) {
    let active = h.active();
    let Some(controller) = active.get(random.below(active.len().max(1))).copied() else {
        return;
    };
    for error in [ErrorCode::KafkaStorageError, ErrorCode::None] {
        let partitions = vec![(PartitionKey::new(topic, 0), error)];
        h.event(
            controller,
            Event::LeaderAndIsrAnswered {
                broker_id,
                partitions,
            },
        );
    }
}

/// A dead broker starts; one without session gets another, once it knows that it lost the first.
fn revive(h: &mut Harness, id: i32) {
    match h.members.get(&id) {
        None => h.start(config(id)),
        Some(member) => {
            let knows = !member
                .inbox
                .iter()
                .any(|e| matches!(e, Event::SessionExpired));
            if knows && !h.sessions.contains_key(&id) {
                h.come_back(id);
            }
        }
    }
}

fn settle(h: &mut Harness, random: &mut Random, watched: &mut Watched, seed: u64) {
    for round in 0.. {
        let ticks = h.ticks();
        if ticks.is_empty() {
            return;
        }
        h.tick(ticks[random.below(ticks.len())]);
        watched.check(h, seed);
        assert!(round < 50_000, "seed {seed}: no rest");
    }
}

fn play(seed: u64) {
    let mut random = Random(seed);
    let mut h = Harness::new();
    let mut watched = Watched::default();
    for id in 1..=3 {
        h.start(config(id));
    }
    let calm = 5 + random.below(60);
    for _ in 0..600 {
        if random.below(calm) == 0 {
            fault(&mut h, &mut random);
            watched.check(&mut h, seed);
        }
        let ticks = h.ticks();
        if !ticks.is_empty() {
            h.tick(ticks[random.below(ticks.len())]);
            watched.check(&mut h, seed);
        }
        if random.below(50) == 0 {
            h.fire_timers();
        }
    }
    // at rest with whoever is left: a live ISR member means a live leader
    settle(&mut h, &mut random, &mut watched, seed);
    h.fire_timers();
    settle(&mut h, &mut random, &mut watched, seed);
    let live: BTreeSet<i32> = h.sessions.keys().copied().collect();
    led(&h, &live, seed);
    assert_eq!(
        h.active().len(),
        usize::from(!live.is_empty()),
        "seed {seed}"
    );
    // and everything comes back
    for id in 1..=3 {
        revive(&mut h, id);
    }
    settle(&mut h, &mut random, &mut watched, seed);
    h.fire_timers();
    settle(&mut h, &mut random, &mut watched, seed);
    assert_eq!(h.sessions.len(), 3);
    led(&h, &BTreeSet::from([1, 2, 3]), seed);
    // moves end when the new replicas are in sync
    for _ in 0..4 {
        for topic in ["t0", "t1", "t2"] {
            grow_isr(&mut h, &mut random, topic);
        }
        settle(&mut h, &mut random, &mut watched, seed);
    }
    for topic in h.zk.children(paths::TOPICS) {
        let node = h.zk.data(&paths::topic(&topic)).unwrap();
        assert!(
            node.contains(r#""adding_replicas":{},"removing_replicas":{}"#),
            "seed {seed}: {topic} still moves: {node} {:?}",
            h.state(&topic, 0)
        );
        for (partition, replicas) in replicas(&h, &topic) {
            let state = h.state(&topic, partition);
            assert!(
                replicas.contains(&state.leader),
                "seed {seed}: {topic}-{partition} {state:?}"
            );
        }
    }
    assert!(!h.zk.exists(paths::REASSIGN_PARTITIONS), "seed {seed}");
    let pending = h.zk.children(paths::DELETE_TOPICS);
    assert!(pending.is_empty(), "seed {seed}: not deleted: {pending:?}");
    for topic in h.zk.children("/config/topics") {
        assert!(
            h.zk.exists(&paths::topic(&topic)),
            "seed {seed}: the configuration of {topic} was left behind"
        );
    }
}

fn led(h: &Harness, live: &BTreeSet<i32>, seed: u64) {
    if live.is_empty() {
        return;
    }
    for topic in
        h.zk.children(paths::TOPICS)
            .iter()
            .filter(|t| !h.zk.exists(&paths::delete_topic(t)))
    {
        let node = h.zk.data(&paths::topic(topic)).unwrap();
        let assignment = gracchus_registry::json::TopicAssignment::parse(node.as_bytes()).unwrap();
        for (partition, replicas) in assignment.partitions {
            if !replicas.iter().any(|b| live.contains(b)) {
                continue;
            }
            let data = h.zk.data(&paths::partition_state(topic, partition));
            let state = data
                .as_deref()
                .map(|d| PartitionState::parse(d.as_bytes()).unwrap());
            let Some(state) = state else {
                panic!("seed {seed}: {topic}-{partition} has no state")
            };
            let could = state.isr.iter().any(|b| live.contains(b));
            assert_eq!(
                could,
                live.contains(&state.leader),
                "seed {seed}: {topic}-{partition} {data:?}, live {live:?}"
            );
        }
    }
}

#[test]
fn any_order_of_things_keeps_the_cluster_sound() {
    let seeds = if std::env::var_os("GRACCHUS_TEST_LONG").is_some() {
        5_000
    } else {
        200
    };
    for seed in 0..seeds {
        play(seed);
    }
}
