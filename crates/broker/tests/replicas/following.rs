//! Followers, leaders and their ISR, over real logs.

use std::collections::BTreeMap;

use gracchus_broker::replica::fetcher::round::Round;
use gracchus_broker::replica::fetcher::steps::{Outcome, Step, What};
use gracchus_kafka_proto::ErrorCode;
use gracchus_log::TopicPartition;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::rig::{TOPIC_ID, batch, error, fetch_request, values};
use crate::trio::{BROKERS, Trio};

#[tokio::test]
async fn a_record_is_committed_when_the_isr_has_it() {
    let mut trio = Trio::new(&[]);
    trio.produce(1);
    assert_eq!(trio.rigs[&1].high_watermark("t"), 0);
    for follower in [2, 3] {
        trio.step(follower).await; // without an epoch in the log, it is cut to what is committed
        trio.step(follower).await;
        assert_eq!(trio.rigs[&follower].log_end("t"), 1);
        assert_eq!(trio.rigs[&follower].high_watermark("t"), 0);
    }
    trio.step(2).await;
    assert!(trio.acknowledged.is_empty(), "3 may not have it yet");
    trio.step(3).await;
    assert_eq!(trio.acknowledged.len(), 1);
    // The high watermark reaches followers with the next answer.
    trio.step(2).await;
    assert_eq!(trio.rigs[&2].high_watermark("t"), 1);
    trio.check("");
}

#[tokio::test]
async fn a_follower_that_fell_behind_leaves_the_isr_and_comes_back() {
    let mut trio = Trio::new(&[("replica.lag.time.max.ms", "10000")]);
    for follower in [2, 3] {
        trio.step(follower).await;
        trio.step(follower).await;
    }
    // Nobody writes: who has everything stays.
    trio.now += 60_000;
    trio.rigs[&1].replicas.shrink_isrs(trio.now);
    trio.alter();
    assert_eq!(trio.isr, [1, 2, 3]);
    trio.produce(1);
    trio.step(2).await;
    trio.step(2).await;
    trio.rigs[&1].replicas.shrink_isrs(trio.now);
    assert!(trio.acknowledged.is_empty(), "it counts until it is out");
    trio.alter();
    assert_eq!(trio.isr, [1, 2]);
    assert_eq!(trio.acknowledged.len(), 1);
    // It fetches what it lacks, then joins.
    trio.step(3).await;
    trio.alter();
    assert_eq!(trio.isr, [1, 2]);
    trio.step(3).await;
    trio.alter();
    assert_eq!(trio.isr, [1, 2, 3]);
    trio.check("");
}

#[tokio::test]
async fn too_small_an_isr_refuses_acks_all() {
    let mut trio = Trio::new(&[]);
    trio.kill(2);
    trio.kill(3);
    trio.elect(1);
    trio.tell();
    assert_eq!(trio.isr, [1]);
    let rig = &trio.rigs[&1];
    let refused = rig.produce_as(9, -1, "t", batch(&["a"])).await;
    assert_eq!(error(refused.error_code), ErrorCode::NotEnoughReplicas);
    // acks=1 is taken, but not shown: min.insync.replicas is 2 (KIP-966).
    assert_eq!(rig.produce_as(9, 1, "t", batch(&["b"])).await.error_code, 0);
    assert_eq!(rig.high_watermark("t"), 0);
    trio.settle().await;
    assert_eq!(trio.rigs[&1].high_watermark("t"), 1);
}

/// KIP-101: the old leader has records that nobody else had; it cuts them when it follows.
#[tokio::test]
async fn a_log_that_went_another_way_is_cut() {
    for protocol in ["3.9", "2.6", "2.0"] {
        let mut trio = Trio::new(&[("inter.broker.protocol.version", protocol)]);
        trio.produce(1);
        trio.settle().await;
        trio.produce(1);
        trio.produce(1);
        trio.kill(1);
        trio.elect(2);
        trio.tell();
        trio.produce(2);
        for _ in 0..3 {
            trio.step(3).await;
        }
        assert_eq!(trio.rigs[&2].high_watermark("t"), 2, "{protocol}");
        assert_eq!(trio.acknowledged.len(), 1, "{protocol}");
        trio.settle().await;
        assert_eq!(trio.records(1).len(), 2, "{protocol}");
        trio.check(protocol);
    }
}

/// What a fetch of an old leader brings is not for the log once the role has changed.
#[tokio::test(start_paused = true)]
async fn a_zombies_records_are_not_taken() {
    let mut trio = Trio::new(&[]);
    trio.settle().await;
    let zombie = trio.leader;
    trio.elect(if zombie == 2 { 3 } else { 2 });
    assert_ne!(trio.leader, zombie);
    // The controller's word has not reached the zombie; the others have it.
    let state = |trio: &Trio| {
        let mut state = crate::rig::Rig::state(trio.leader, trio.epoch, &BROKERS, &trio.isr);
        state.partition_epoch = trio.version;
        state
    };
    for id in BROKERS.into_iter().filter(|id| *id != zombie) {
        let told = state(&trio);
        trio.rigs[&id].know("t", TOPIC_ID, trio.leader, trio.epoch, &BROKERS);
        assert_eq!(trio.rigs[&id].assign("t", TOPIC_ID, told), ErrorCode::None);
    }
    let rig = &trio.rigs[&zombie];
    assert_eq!(
        rig.produce_as(9, -1, "t", batch(&["z"])).await.error_code,
        ErrorCode::RequestTimedOut.code(),
        "nobody fetches from it any more"
    );
    trio.settle().await;
    trio.check("");
}

/// An answer that was under way while the role changed.
#[tokio::test]
async fn a_step_of_an_earlier_epoch_is_not_done() {
    let mut trio = Trio::new(&[]);
    trio.produce(1);
    trio.settle().await;
    let follower = if trio.leader == 2 { 3 } else { 2 };
    let step = |leader_epoch| Step {
        partition: TopicPartition::new("t", 0),
        leader_epoch,
        what: What::Truncate(0),
    };
    let replicas = &trio.rigs[&follower].replicas;
    assert_eq!(
        replicas.follow_step(&step(trio.epoch - 1), 0),
        Outcome::Left
    );
    let leader = &trio.rigs[&trio.leader].replicas;
    assert_eq!(leader.follow_step(&step(trio.epoch), 0), Outcome::Left);
    assert_eq!(trio.rigs[&follower].log_end("t"), 1);
    let done = replicas.follow_step(&step(trio.epoch), 0);
    assert!(matches!(done, Outcome::Done(_)));
    assert_eq!(trio.rigs[&follower].log_end("t"), 0);
}

/// The leader's log begins after the follower's end: it starts anew there.
#[tokio::test]
async fn a_follower_behind_the_log_start_begins_anew() {
    let mut trio = Trio::new(&[]);
    trio.kill(3);
    trio.elect(1);
    trio.tell();
    for _ in 0..5 {
        trio.produce(1);
        trio.step(2).await;
        trio.step(2).await;
    }
    trio.step(2).await;
    assert_eq!(trio.acknowledged.len(), 5);
    trio.rigs[&1].replicas.delete_records("t", 0, 3).unwrap();
    trio.acknowledged = trio.acknowledged.split_off(&3);
    trio.settle().await;
    assert_eq!(trio.records(3).first().unwrap().0, 3);
    trio.check("");
}

#[tokio::test]
async fn a_dead_source_is_a_failed_round() {
    let mut trio = Trio::new(&[]);
    trio.step(2).await;
    trio.kill(1);
    assert!(matches!(trio.step(2).await, Round::Failed(_)));
    trio.revive(1);
    trio.elect(1);
    trio.tell();
    trio.produce(1);
    trio.settle().await;
    trio.check("");
}

/// A throttle of so many bytes a second for every replica of the topic.
fn throttle(rig: &crate::rig::Rig, side: &str, rate: &str) {
    let props = |key: String, value: &str| BTreeMap::from([(key, value.to_owned())]);
    let list = props(format!("{side}.replication.throttled.replicas"), "*");
    rig.config.set_topic("t", list).unwrap();
    let rate = props(format!("{side}.replication.throttled.rate"), rate);
    rig.config.set_dynamic(BTreeMap::new(), rate).unwrap();
    rig.replicas.broker_config_changed();
}

#[tokio::test]
async fn a_throttled_follower_that_is_behind_waits() {
    let mut trio = Trio::new(&[("replica.fetch.max.bytes", "1")]);
    trio.settle().await;
    let leader = trio.leader;
    let [first, second] = BROKERS
        .into_iter()
        .filter(|id| *id != leader)
        .collect::<Vec<_>>()[..]
    else {
        panic!("three brokers")
    };
    throttle(&trio.rigs[&first], "follower", "10");
    for _ in 0..3 {
        trio.produce(leader);
        trio.step(second).await;
    }
    trio.step(first).await;
    let end = trio.rigs[&first].log_end("t");
    assert_eq!(end, 1, "a batch at a time");
    // the leader's high watermark has not moved: nothing says yet that it is behind
    trio.kill(first);
    trio.elect(leader);
    trio.tell();
    for _ in 0..4 {
        trio.step(second).await;
    }
    assert_eq!(trio.rigs[&leader].high_watermark("t"), 3);
    trio.revive(first);
    throttle(&trio.rigs[&first], "follower", "10");
    trio.step(first).await;
    assert_eq!(trio.rigs[&first].log_end("t"), 2);
    let Round::Idle(until) = trio.step(first).await else {
        panic!("it does not wait")
    };
    trio.now = until;
    trio.step(first).await;
    assert_eq!(trio.rigs[&first].log_end("t"), 3);
    trio.settle().await;
    trio.check("");
}

#[tokio::test(start_paused = true)]
async fn a_leader_holds_a_throttled_follower_back_that_is_not_in_sync() {
    let rig = crate::rig::Rig::new();
    rig.lead("t", 1, &[1, 2, 3], &[1, 2]);
    rig.produce("t", batch(&["a"])).await;
    throttle(&rig, "leader", "10");
    let fetch = async |follower: i32, wait: i32| {
        let mut request = fetch_request("t", 0);
        request.replica_id = follower;
        request.max_wait_ms = wait;
        let mut answer = rig.fetch_request(12, request).await;
        let part = answer.responses.remove(0).partitions.remove(0);
        assert_eq!(part.error_code, 0);
        values(&part).len()
    };
    assert_eq!(fetch(3, 0).await, 1, "nothing went before");
    assert_eq!(fetch(3, 0).await, 0);
    assert_eq!(fetch(2, 0).await, 1, "in sync");
    let began = tokio::time::Instant::now();
    assert_eq!(fetch(3, 5000).await, 0);
    assert_eq!(began.elapsed().as_millis(), 5000, "no hot loop");
    rig.config
        .set_dynamic(BTreeMap::new(), BTreeMap::new())
        .unwrap();
    rig.replicas.broker_config_changed();
    assert_eq!(fetch(3, 0).await, 1);
}

/// Crashes, elections, fetches and ISR changes in any order: while never all members of an ISR are lost for good, what was
/// acknowledged stays where it was, and the logs agree.
#[tokio::test]
async fn no_order_of_failures_loses_or_changes_what_was_acknowledged() {
    let seeds: u64 = std::env::var("REPLICATION_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60);
    for seed in 0..seeds {
        let mut rng = SmallRng::seed_from_u64(seed);
        let protocol = ["3.9", "3.9", "3.0", "2.6"][rng.random_range(0..4)];
        let mut trio = Trio::new(&[
            ("inter.broker.protocol.version", protocol),
            ("replica.lag.time.max.ms", "2000"),
        ]);
        for _ in 0..rng.random_range(20..160) {
            trio.now += rng.random_range(0..300);
            let id = rng.random_range(1..4);
            match rng.random_range(0..100) {
                0..30 => trio.produce(id),
                30..72 => {
                    trio.step(id).await;
                }
                72..82 => trio.alter(),
                82..86 => {
                    if let Some(rig) = trio.rigs.get(&id) {
                        rig.replicas.shrink_isrs(trio.now);
                    }
                }
                86..90 => trio.kill(id),
                90..95 => trio.revive(id),
                _ => {
                    trio.elect(id);
                    trio.tell();
                }
            }
        }
        trio.settle().await;
        trio.check(&format!("seed {seed}, protocol {protocol}"));
    }
}

/// `flush.messages` hold for followers, and a cut below what was flushed is on disk before the next append.
#[tokio::test]
async fn a_follower_flushes_and_its_cuts_lower_the_recovery_point() {
    let mut trio = Trio::new(&[("log.flush.interval.messages", "2")]);
    for _ in 0..4 {
        trio.produce(1);
    }
    trio.settle().await;
    let rig = &trio.rigs[&2];
    let recovery_point = || {
        let log = rig.replicas.partition("t", 0).unwrap().log().unwrap();
        let log = log.lock();
        log.recovery_point()
    };
    assert_eq!(recovery_point(), 4);
    rig.replicas.logs().checkpoint_recovery_points();
    let checkpoint =
        || std::fs::read_to_string(rig.dir.path().join("recovery-point-offset-checkpoint"));
    assert!(checkpoint().unwrap().contains("t 0 4\n"));
    let cut = Step {
        partition: TopicPartition::new("t", 0),
        leader_epoch: trio.epoch,
        what: What::Truncate(1),
    };
    rig.replicas.follow_step(&cut, 0);
    assert!(checkpoint().unwrap().contains("t 0 1\n"));
}
