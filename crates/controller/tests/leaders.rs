//! Leaders when brokers die and return.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use gracchus_controller::{Event, PartitionKey};
use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::paths;
use support::{Harness, config};

#[test]
fn a_dead_leader_is_followed_by_an_isr_member() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[2, 1]]);
    h.settle();
    h.forget();
    h.kill(2);
    h.settle();
    assert_eq!(h.led("t", 0), (1, 1, vec![1]));
    assert_eq!(
        h.writes(),
        ["fenced set /brokers/topics/t/partitions/0/state"]
    );
    assert_eq!(
        h.requests(),
        [
            "1 LeaderAndIsr t-0:1/1[1]",
            "1 UpdateMetadata [1] t-0:1/1[1]"
        ]
    );
}

#[test]
fn a_dead_follower_is_cut_from_the_isr() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.kill(2);
    h.settle();
    assert_eq!(h.led("t", 0), (1, 1, vec![1]));
}

#[test]
fn the_last_isr_member_stays_listed_and_leads_when_it_returns() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[2]]);
    h.settle();
    h.kill(2);
    h.settle();
    assert_eq!(h.led("t", 0), (-1, 1, vec![2]));
    h.forget();
    h.register(2);
    h.settle();
    assert_eq!(h.led("t", 0), (2, 2, vec![2]));
    assert_eq!(
        h.requests(),
        [
            "1 UpdateMetadata [1, 2]",
            "2 UpdateMetadata [1, 2] t-0:-1/1[2]",
            "2 LeaderAndIsr t-0:2/2[2]",
            "1 UpdateMetadata [1, 2] t-0:2/2[2]",
            "2 UpdateMetadata [1, 2] t-0:2/2[2]",
        ]
    );
}

#[test]
fn a_bounced_broker_failed_and_started() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[2, 1]]);
    h.settle();
    h.kill(2);
    h.register(2); // before the controller looked
    h.settle();
    assert_eq!(h.led("t", 0), (1, 1, vec![1]));
}

/// Broker 2 is alive but out of the ISR, and the ISR is dead.
fn without_isr() -> Harness {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[2, 3]]);
    h.settle();
    h.kill(2);
    h.settle();
    h.register(2);
    h.settle();
    assert_eq!(h.led("t", 0), (3, 1, vec![3]));
    h
}

#[test]
fn no_unclean_election_unless_allowed() {
    let mut h = without_isr();
    h.kill(3);
    h.settle();
    assert_eq!(h.led("t", 0), (-1, 2, vec![3]));
    h.event(1, Event::UncleanElectionEnabled { topic: None }); // but it is not
    h.settle();
    assert_eq!(h.led("t", 0), (-1, 2, vec![3]));
    h.zk.set(
        &paths::topic_config("t"),
        r#"{"version":1,"config":{"unclean.leader.election.enable":"true"}}"#,
    );
    h.event(
        1,
        Event::UncleanElectionEnabled {
            topic: Some("other".into()),
        },
    );
    h.settle();
    assert_eq!(h.led("t", 0).0, -1);
    h.event(
        1,
        Event::UncleanElectionEnabled {
            topic: Some("t".into()),
        },
    );
    h.settle();
    assert_eq!(
        h.zk.data(&paths::partition_state("t", 0)).unwrap(),
        r#"{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":3,"isr":[2]}"#
    );
}

#[test]
fn the_topic_has_its_say_on_unclean_elections_before_the_broker() {
    let mut h = without_isr();
    h.members
        .get_mut(&1)
        .unwrap()
        .controller
        .set_unclean_leader_election(true);
    h.zk.set(
        &paths::topic_config("t"),
        r#"{"version":1,"config":{"unclean.leader.election.enable":"false"}}"#,
    );
    h.kill(3);
    h.settle();
    assert_eq!(h.led("t", 0).0, -1);

    let mut h = without_isr();
    h.members
        .get_mut(&1)
        .unwrap()
        .controller
        .set_unclean_leader_election(true);
    h.kill(3);
    h.settle();
    assert_eq!(h.led("t", 0), (2, 2, vec![2]));
    assert_eq!(h.state("t", 0).leader_recovery_state, 1);
}

#[test]
fn a_new_controller_elects_in_place_of_its_dead_predecessor() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.kill(1);
    h.start(config(3));
    h.settle();
    assert_eq!(h.led("t", 0), (2, 1, vec![2]));
    assert_eq!(h.state("t", 0).controller_epoch, 2);
    let state = paths::partition_state("t", 0);
    assert_eq!(h.zk.version(&state), 1, "one write, none without a leader");
}

#[test]
fn a_preferred_election_moves_the_leader_and_deletes_its_node() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.zk.set(
        &paths::partition_state("t", 0),
        r#"{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":4,"isr":[1,2]}"#,
    );
    h.zk.make(
        "/isr_change_notification/isr_change_0000000000",
        Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#),
    );
    h.settle();
    assert!(
        !h.zk
            .exists("/isr_change_notification/isr_change_0000000000")
    );
    h.zk.make(paths::PREFERRED_REPLICA_ELECTION, Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"no","partition":1}]}"#));
    h.settle();
    assert_eq!(h.led("t", 0), (1, 5, vec![1, 2]));
    assert!(!h.zk.exists(paths::PREFERRED_REPLICA_ELECTION));
}

#[test]
fn a_new_controller_cuts_a_dead_follower_and_keeps_a_dead_last_member() {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[2, 1], &[1]]);
    h.settle();
    h.kill(1);
    h.start(config(4));
    h.settle();
    assert_eq!(h.led("t", 0), (2, 1, vec![2]));
    assert_eq!(h.led("t", 1), (-1, 1, vec![1]));
}

/// A broker whose directory failed, or could not be opened for a while, writes a notice and is asked for its replicas.
#[test]
fn replicas_in_a_failed_directory_lose_their_roles_and_get_them_back() {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[2, 3], &[2]]);
    h.settle();
    h.forget();
    let notice = "/log_dir_event_notification/log_dir_event_0000000000";
    h.answers = false;
    h.zk.make(notice, Some(r#"{"version":1,"broker":2,"event":1}"#));
    h.settle();
    assert!(!h.zk.exists(notice));
    let asked = "2 LeaderAndIsr t-0:2/0[2, 3] t-1:2/0[2]";
    assert_eq!(h.requests()[0], asked);
    let answer = |error| Event::LeaderAndIsrAnswered {
        broker_id: 2,
        partitions: vec![
            (PartitionKey::new("t", 0), error),
            (PartitionKey::new("t", 1), error),
        ],
    };
    h.event(1, answer(ErrorCode::KafkaStorageError));
    h.settle();
    assert_eq!(h.led("t", 0), (3, 1, vec![3]));
    assert_eq!(h.led("t", 1), (-1, 1, vec![2]));
    h.forget();
    h.event(1, answer(ErrorCode::StaleControllerEpoch));
    h.settle();
    assert_eq!(h.led("t", 1).0, -1, "that answer says nothing of the disk");
    h.event(1, answer(ErrorCode::None));
    h.settle();
    assert_eq!(h.led("t", 0), (3, 1, vec![3]));
    assert_eq!(h.led("t", 1), (2, 2, vec![2]));
    let told = h.requests();
    assert_eq!(told[0], "2 LeaderAndIsr t-1:2/2[2]");
    assert_eq!(told[1], "1 UpdateMetadata [1, 2, 3] t-0:3/1[3] t-1:2/2[2]");
}

/// Reads every node once, and writes each state that the dead broker was part of once.
#[test]
fn a_takeover_costs_what_its_nodes_cost() {
    let partitions: usize = std::env::var("PARTITIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(600);
    let mut h = Harness::with_brokers(3);
    let replicas: [&[i32]; 3] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]];
    let per_topic: Vec<&[i32]> = (0..100).map(|n| replicas[n % 3]).collect();
    for topic in 0..partitions / 100 {
        h.create_topic(&format!("t{topic}"), &per_topic);
    }
    h.settle();
    h.kill(1);
    h.start(config(4));
    h.forget();
    let before = h.zk.executed;
    h.settle();
    let executed = h.zk.executed - before;
    // 1 was in every ISR, and led a third
    assert_eq!(
        h.writes().iter().filter(|w| w.ends_with("/state")).count(),
        partitions
    );
    assert_eq!(h.led("t0", 0), (2, 1, vec![2, 3]));
    assert_eq!(h.led("t0", 1), (2, 1, vec![2, 3]));
    let most = partitions + partitions + partitions / 100 + 40;
    assert!(
        executed <= most,
        "{executed} operations, at most {most} are due"
    );
}
