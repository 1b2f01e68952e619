//! Three brokers over one ZooKeeper, everything interleaved at random by a seed, with deaths, lost sessions, topics that
//! come and go. `GRACCHUS_TEST_LONG=1` plays 5,000 seeds instead of 200; a failure names its seed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use gracchus_controller::Event;
use gracchus_registry::json::PartitionState;
use gracchus_registry::paths;
use support::{Harness, config};

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
    match random.below(7) {
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
