//! Partitions move to other replicas, by request and by `/admin/reassign_partitions`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use gracchus_controller::{ApiResult, Event, PartitionKey};
use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::TopicAssignment;
use gracchus_registry::paths;
use support::{Harness, config};

fn key(partition: i32) -> PartitionKey {
    PartitionKey::new("t", partition)
}

/// Asks controller 1; the error of each partition.
fn ask(h: &mut Harness, wanted: &[(i32, Option<&[i32]>)]) -> Vec<ErrorCode> {
    let wanted = wanted
        .iter()
        .map(|(n, target)| (key(*n), target.map(<[i32]>::to_vec)))
        .collect();
    h.replies.remove(&1);
    h.event(1, Event::AlterReassignments { token: 1, wanted });
    h.settle();
    let Some(ApiResult::Reassigned(Ok(outcomes))) = h.replies.get(&1) else {
        panic!("{:?}", h.replies)
    };
    let code = |outcome: &Result<(), (ErrorCode, String)>| match outcome {
        Ok(()) => ErrorCode::None,
        Err((error, _)) => *error,
    };
    outcomes.iter().map(|(_, outcome)| code(outcome)).collect()
}

/// Replicas, adding and removing of partition 0, as the topic's node says.
fn node(h: &Harness) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
    let data = h.zk.data(&paths::topic("t")).unwrap();
    let found = TopicAssignment::parse(data.as_bytes()).unwrap();
    let of = |map: &std::collections::BTreeMap<i32, Vec<i32>>| map.get(&0).cloned();
    (
        found.partitions[&0].clone(),
        of(&found.adding_replicas).unwrap_or_default(),
        of(&found.removing_replicas).unwrap_or_default(),
    )
}

fn topic(replicas: &[i32]) -> Harness {
    let mut h = Harness::with_brokers(4);
    h.create_topic("t", &[replicas]);
    h.settle();
    h.forget();
    h
}

#[test]
fn a_move_is_told_then_ends_when_the_target_is_in_sync() {
    let mut h = topic(&[1]);
    assert_eq!(ask(&mut h, &[(0, Some(&[2, 3]))]), [ErrorCode::None]);
    // as Apache Kafka 3.9.2: the target first
    assert_eq!(node(&h), (vec![2, 3, 1], vec![2, 3], vec![1]));
    assert_eq!(h.led("t", 0), (1, 1, vec![1]));
    assert_eq!(
        h.writes(),
        [
            "fenced set /brokers/topics/t",
            "fenced set /brokers/topics/t/partitions/0/state"
        ]
    );
    assert_eq!(
        h.requests()[..3],
        [
            "1 LeaderAndIsr t-0:1/1[1]",
            "2 LeaderAndIsr t-0:1/1[1] new",
            "3 LeaderAndIsr t-0:1/1[1] new"
        ]
    );
    h.event(
        1,
        Event::ListReassignments {
            token: 2,
            wanted: None,
        },
    );
    h.settle();
    let Some(ApiResult::Reassignments(Ok(listed))) = h.replies.get(&2) else {
        panic!("{:?}", h.replies)
    };
    let [listed] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!((&listed.key, &listed.adding), (&key(0), &vec![2, 3]));

    assert_eq!(h.report_isr(1, "t", 0, &[1, 2]), 0);
    assert_eq!(node(&h).1, [2, 3], "not all are in sync");
    h.forget();
    assert_eq!(h.report_isr(1, "t", 0, &[1, 2, 3]), 0);
    assert_eq!(node(&h), (vec![2, 3], vec![], vec![]));
    let (leader, _, isr) = h.led("t", 0);
    assert_eq!((leader, isr), (2, vec![2, 3]));
    let sent = h.requests();
    assert!(
        sent.contains(&"1 StopReplica t-0/3 delete".to_owned()),
        "{sent:?}"
    );
    assert_eq!(
        sent.last().unwrap(),
        "4 UpdateMetadata [1, 2, 3, 4] t-0:2/3[2, 3]"
    );
    assert_eq!(
        ask(&mut h, &[(0, None)]),
        [ErrorCode::NoReassignmentInProgress]
    );
}

#[test]
fn a_leader_that_stays_is_kept() {
    let mut h = topic(&[1, 2]);
    ask(&mut h, &[(0, Some(&[3, 1]))]);
    h.report_isr(1, "t", 0, &[1, 2, 3]);
    assert_eq!(node(&h), (vec![3, 1], vec![], vec![]));
    let (leader, _, mut isr) = h.led("t", 0);
    isr.sort_unstable();
    assert_eq!((leader, isr), (1, vec![1, 3]));
}

#[test]
fn another_order_of_the_same_replicas_is_there_at_once() {
    let mut h = topic(&[1, 2]);
    assert_eq!(ask(&mut h, &[(0, Some(&[2, 1]))]), [ErrorCode::None]);
    assert_eq!(node(&h), (vec![2, 1], vec![], vec![]));
    assert_eq!(h.led("t", 0).0, 1);
}

#[test]
fn a_move_that_is_given_up_drops_the_new_replicas() {
    let mut h = topic(&[1, 2]);
    ask(&mut h, &[(0, Some(&[3, 4]))]);
    h.report_isr(1, "t", 0, &[1, 2, 3]);
    h.forget();
    assert_eq!(ask(&mut h, &[(0, None)]), [ErrorCode::None]);
    assert_eq!(node(&h), (vec![1, 2], vec![], vec![]));
    let (leader, epoch, isr) = h.led("t", 0);
    assert_eq!((leader, isr), (1, vec![1, 2]));
    let sent = h.requests();
    let stops: Vec<&String> = sent.iter().filter(|r| r.ends_with("delete")).collect();
    assert_eq!(stops.len(), 2, "{sent:?}");
    assert!(epoch > 1);
}

#[test]
fn what_a_request_may_not_ask() {
    let mut h = topic(&[1, 2]);
    let invalid = ErrorCode::InvalidReplicaAssignment;
    for (wanted, expected) in [
        ((0, Some(&[][..])), invalid),
        ((0, Some(&[1, 1])), invalid),
        ((0, Some(&[1, -2])), invalid),
        ((0, Some(&[1, 9])), invalid),
        ((7, Some(&[1, 2])), ErrorCode::UnknownTopicOrPartition),
        ((7, None), ErrorCode::NoReassignmentInProgress),
        ((0, None), ErrorCode::NoReassignmentInProgress),
    ] {
        assert_eq!(ask(&mut h, &[wanted]), [expected], "{wanted:?}");
    }
    assert_eq!(h.writes(), [] as [&str; 0]);
    // a dead broker may stay, but not come
    h.kill(2);
    h.settle();
    assert_eq!(ask(&mut h, &[(0, Some(&[3, 2]))]), [ErrorCode::None]);
}

#[test]
fn the_node_of_the_old_tools_goes_when_all_is_done() {
    let mut h = topic(&[1]);
    let request = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},{"topic":"no","partition":0,"replicas":[2]}]}"#;
    h.zk.make(paths::REASSIGN_PARTITIONS, Some(request));
    h.settle();
    assert_eq!(node(&h), (vec![2, 1], vec![2], vec![1]));
    assert_eq!(
        h.zk.data(paths::REASSIGN_PARTITIONS).unwrap(),
        r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}"#
    );
    h.report_isr(1, "t", 0, &[1, 2]);
    assert_eq!(node(&h), (vec![2], vec![], vec![]));
    assert!(!h.zk.exists(paths::REASSIGN_PARTITIONS));
    // and the next one is seen
    let request = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}"#;
    h.zk.make(paths::REASSIGN_PARTITIONS, Some(request));
    h.settle();
    assert_eq!(node(&h), (vec![3, 2], vec![3], vec![2]));
    // the newest word holds
    assert_eq!(ask(&mut h, &[(0, Some(&[4]))]), [ErrorCode::None]);
    assert!(!h.zk.exists(paths::REASSIGN_PARTITIONS));
    assert_eq!(node(&h), (vec![4, 2], vec![4], vec![2]));
}

#[test]
fn a_request_that_cannot_be_read_does_not_stand_in_the_way_of_the_next() {
    let mut h = topic(&[1]);
    h.zk.make(paths::REASSIGN_PARTITIONS, Some("{oops"));
    h.settle();
    assert!(!h.zk.exists(paths::REASSIGN_PARTITIONS));
    h.zk.make(
        paths::REASSIGN_PARTITIONS,
        Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}"#),
    );
    h.settle();
    assert_eq!(node(&h).1, [2]);
}

#[test]
fn an_isr_that_the_leader_wrote_itself_ends_a_move_too() {
    let mut h = topic(&[1]);
    ask(&mut h, &[(0, Some(&[2]))]);
    h.zk.set(
        &paths::partition_state("t", 0),
        r#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[1,2]}"#,
    );
    h.zk.make(
        "/isr_change_notification/isr_change_0000000000",
        Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#),
    );
    h.settle();
    assert_eq!(node(&h), (vec![2], vec![], vec![]));
}

#[test]
fn the_deletion_of_a_topic_waits_for_its_move() {
    let mut h = topic(&[1]);
    ask(&mut h, &[(0, Some(&[2]))]);
    h.request_deletion("t");
    h.settle();
    assert!(h.zk.exists(&paths::topic("t")));
    assert_eq!(
        ask(&mut h, &[(0, Some(&[3]))]),
        [ErrorCode::UnknownTopicOrPartition]
    );
    h.report_isr(1, "t", 0, &[1, 2]);
    assert!(!h.zk.exists(&paths::topic("t")));
}

#[test]
fn a_new_replica_that_was_down_is_told_when_it_starts() {
    let mut h = topic(&[1]);
    ask(&mut h, &[(0, Some(&[2]))]);
    h.kill(2);
    h.settle();
    h.forget();
    h.register(2);
    h.settle();
    let sent = h.requests();
    assert!(
        sent.iter()
            .any(|r| r.starts_with("2 LeaderAndIsr") && r.ends_with("new")),
        "{sent:?}"
    );
    h.report_isr(1, "t", 0, &[1, 2]);
    assert_eq!(node(&h), (vec![2], vec![], vec![]));
}

/// The controller dies after each number of operations, before and after the new replicas are in sync.
#[test]
fn whoever_comes_next_goes_on_with_a_move() {
    let mut steps = 0;
    loop {
        let mut h = topic(&[2, 3]);
        h.budget = Some(steps);
        let wanted = vec![(key(0), Some(vec![4, 3]))];
        h.event(1, Event::AlterReassignments { token: 1, wanted });
        let whole = h.settle();
        h.budget = None;
        h.kill(1);
        h.start(config(5));
        h.settle();
        if node(&h).1.is_empty() {
            assert_eq!(node(&h), (vec![2, 3], vec![], vec![]), "{steps}: not begun");
        } else {
            assert_eq!(node(&h), (vec![4, 3, 2], vec![4], vec![2]), "{steps}");
            h.report_isr(5, "t", 0, &[2, 3, 4]);
            assert_eq!(node(&h), (vec![4, 3], vec![], vec![]), "{steps}");
            let (leader, _, mut isr) = h.led("t", 0);
            isr.sort_unstable();
            assert_eq!((leader, isr), (4, vec![3, 4]), "{steps}");
        }
        if whole {
            break;
        }
        steps += 1;
    }
    assert!(steps > 3, "it took only {steps} operations");

    let mut steps = 0;
    loop {
        let mut h = topic(&[2, 3]);
        ask(&mut h, &[(0, Some(&[4, 3]))]);
        // the leader has written the ISR itself, and the controller is about to hear of it
        h.zk.set(
            &paths::partition_state("t", 0),
            r#"{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":1,"isr":[2,3,4]}"#,
        );
        h.zk.make(
            "/isr_change_notification/isr_change_0000000000",
            Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#),
        );
        h.budget = Some(steps);
        let whole = h.settle();
        h.budget = None;
        h.kill(1);
        h.start(config(5));
        h.settle();
        assert_eq!(node(&h), (vec![4, 3], vec![], vec![]), "{steps}");
        let (leader, _, mut isr) = h.led("t", 0);
        isr.sort_unstable();
        assert_eq!((leader, isr), (4, vec![3, 4]), "{steps}");
        if whole {
            break;
        }
        steps += 1;
    }
    assert!(steps > 5, "it took only {steps} operations");
}

/// A move of a partition without a leader, in a topic that is to be deleted: each waited for the other.
#[test]
fn a_deletion_does_not_keep_the_move_it_waits_for_from_ending() {
    let mut h = topic(&[2]);
    ask(&mut h, &[(0, Some(&[3]))]);
    h.request_deletion("t");
    h.settle();
    h.kill(2);
    h.settle();
    assert_eq!(h.led("t", 0).0, -1);
    h.register(2);
    h.settle();
    assert_eq!(h.led("t", 0).0, 2);
    h.report_isr(1, "t", 0, &[2, 3]);
    assert!(!h.zk.exists(&paths::topic("t")));
}

/// The only replica in sync is a new one, and the move is given up.
#[test]
fn the_last_in_sync_replica_is_not_given_up() {
    let mut h = topic(&[2, 4]);
    ask(&mut h, &[(0, Some(&[3, 4]))]);
    h.zk.set(
        &paths::partition_state("t", 0),
        r#"{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":2,"isr":[3]}"#,
    );
    h.zk.make(
        "/isr_change_notification/isr_change_0000000000",
        Some(r#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#),
    );
    h.settle();
    for turned in [None, Some(&[1][..])] {
        assert_eq!(
            ask(&mut h, &[(0, turned)]),
            [ErrorCode::InvalidReplicaAssignment]
        );
    }
    assert_eq!(node(&h).1, [3]);
    h.report_isr(1, "t", 0, &[3, 2]);
    assert_eq!(ask(&mut h, &[(0, None)]), [ErrorCode::None]);
    assert_eq!(node(&h), (vec![4, 2], vec![], vec![]));
    assert_eq!(h.led("t", 0).0, 2);
}

/// It waits for its one broker, and is moved to another.
#[test]
fn a_partition_that_never_had_a_leader_moves_to_where_it_can_be_led() {
    let mut h = topic(&[9]);
    assert!(!h.zk.exists(&paths::partition_state("t", 0)));
    assert_eq!(ask(&mut h, &[(0, Some(&[3]))]), [ErrorCode::None]);
    let (leader, _, isr) = h.led("t", 0);
    assert_eq!((leader, isr), (3, vec![3]));
}
