//! Elections that somebody asks for.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use gracchus_controller::{ApiResult, ControllerConfig, Event, PartitionKey, Timer};
use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::paths;
use support::{Harness, config};

/// The leaders elected, or the errors.
fn elect(
    h: &mut Harness,
    partitions: &[(&str, i32)],
    unclean: bool,
) -> Vec<Result<i32, ErrorCode>> {
    let partitions = partitions
        .iter()
        .map(|(topic, n)| PartitionKey::new(topic, *n))
        .collect();
    h.replies.clear();
    h.event(
        1,
        Event::ElectLeaders {
            token: 1,
            partitions,
            unclean,
        },
    );
    h.settle();
    let Some(ApiResult::Elections(Ok(outcomes))) = h.replies.get(&1) else {
        panic!("{:?}", h.replies)
    };
    let mut outcomes = outcomes.clone();
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    outcomes
        .into_iter()
        .map(|(_, outcome)| outcome.map_err(|(error, _)| error))
        .collect()
}

/// Partition 0 is led by 3 instead of 2; partition 1 by 3, as it should.
fn moved(config: ControllerConfig) -> Harness {
    let mut h = Harness::new();
    h.start(config);
    h.register(2);
    h.register(3);
    h.settle();
    h.create_topic("t", &[&[2, 3], &[3, 2]]);
    h.settle();
    h.kill(2);
    h.settle();
    h.register(2);
    h.settle();
    assert_eq!(h.led("t", 0).0, 3);
    h
}

#[test]
fn preferred_leaders_by_request() {
    let mut h = moved(config(1));
    // 2 is not in the ISR yet
    assert_eq!(
        elect(&mut h, &[("t", 0), ("t", 1), ("u", 0)], false),
        [
            Err(ErrorCode::PreferredLeaderNotAvailable),
            Err(ErrorCode::ElectionNotNeeded),
            Err(ErrorCode::UnknownTopicOrPartition)
        ]
    );
    assert_eq!(h.report_isr(1, "t", 0, &[3, 2]), 0);
    assert_eq!(elect(&mut h, &[("t", 0)], false), [Ok(2)]);
    assert_eq!(h.led("t", 0).0, 2);
    h.kill(3);
    h.settle();
    h.request_deletion("t"); // waits for broker 3
    h.settle();
    assert_eq!(
        elect(&mut h, &[("t", 0)], false),
        [Err(ErrorCode::InvalidTopicException)]
    );
}

#[test]
fn unclean_elections_by_request() {
    let mut h = moved(config(1));
    assert_eq!(
        elect(&mut h, &[("t", 0)], true),
        [Err(ErrorCode::ElectionNotNeeded)]
    );
    h.kill(3);
    h.settle();
    assert_eq!(h.led("t", 0), (-1, 2, vec![3]));
    assert_eq!(elect(&mut h, &[("t", 0)], true), [Ok(2)]);
    assert_eq!(h.led("t", 0), (2, 3, vec![2]));
    assert_eq!(h.state("t", 0).leader_recovery_state, 1);
    h.kill(2);
    h.settle();
    assert_eq!(
        elect(&mut h, &[("t", 0)], true),
        [Err(ErrorCode::EligibleLeadersNotAvailable)]
    );
}

fn balancing(percentage: usize) -> ControllerConfig {
    ControllerConfig {
        balance_every_ms: Some(300_000),
        balance_percentage: percentage,
        ..config(1)
    }
}

#[test]
fn leaders_go_back_to_where_they_are_preferred() {
    let mut h = moved(balancing(10));
    assert_eq!(h.others_set, [(1, Timer::Balance { epoch: 1 }, 5000)]);
    h.event(1, Event::Timer(Timer::Balance { epoch: 1 }));
    h.settle();
    assert_eq!(h.led("t", 0).0, 3, "it is not in sync yet");
    h.report_isr(1, "t", 0, &[3, 2]);
    h.event(1, Event::Timer(Timer::Balance { epoch: 0 }));
    h.settle();
    assert_eq!(h.led("t", 0).0, 3, "a timer of an earlier term");
    h.event(1, Event::Timer(Timer::Balance { epoch: 1 }));
    h.settle();
    assert_eq!(h.led("t", 0).0, 2);
    assert_eq!(
        h.others_set[1..],
        [(1, Timer::Balance { epoch: 1 }, 300_000); 2]
    );
}

#[test]
fn a_little_imbalance_is_left_and_a_move_too() {
    let mut h = moved(balancing(100)); // one of one
    h.report_isr(1, "t", 0, &[3, 2]);
    h.event(1, Event::Timer(Timer::Balance { epoch: 1 }));
    h.settle();
    assert_eq!(h.led("t", 0).0, 3);
    let mut h = moved(balancing(10));
    h.report_isr(1, "t", 0, &[3, 2]);
    let wanted = vec![(PartitionKey::new("t", 1), Some(vec![1]))];
    h.event(1, Event::AlterReassignments { token: 9, wanted });
    h.event(1, Event::Timer(Timer::Balance { epoch: 1 }));
    h.settle();
    assert_eq!(h.led("t", 0).0, 3);
}

#[test]
fn the_node_of_the_old_tools_goes_whatever_came_of_it() {
    let mut h = moved(config(1));
    h.report_isr(1, "t", 0, &[3, 2]);
    h.zk.make(
        paths::PREFERRED_REPLICA_ELECTION,
        Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"no","partition":1}]}"#),
    );
    h.settle();
    assert_eq!(h.led("t", 0).0, 2);
    assert!(!h.zk.exists(paths::PREFERRED_REPLICA_ELECTION));
}
