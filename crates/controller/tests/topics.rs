//! Topics appear, grow and vanish.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use gracchus_controller::{ControlRequest, Event, PartitionKey};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::paths;
use support::{Harness, answer, assignment, config, registration};

#[test]
fn a_created_topic_gets_states_in_order_and_leaders() {
    let mut h = Harness::with_brokers(3);
    h.create_topic("t", &[&[1, 2], &[2, 3], &[3, 1]]);
    h.settle();
    assert_eq!(
        h.writes(),
        [
            "fenced create /brokers/topics/t/partitions",
            "fenced create /brokers/topics/t/partitions/0",
            "fenced create /brokers/topics/t/partitions/1",
            "fenced create /brokers/topics/t/partitions/2",
            "fenced create /brokers/topics/t/partitions/0/state",
            "fenced create /brokers/topics/t/partitions/1/state",
            "fenced create /brokers/topics/t/partitions/2/state",
        ]
    );
    assert_eq!(
        h.zk.data(&paths::partition_state("t", 0)).unwrap(),
        r#"{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}"#
    );
    let all = "UpdateMetadata [1, 2, 3] t-0:1/0[1, 2] t-1:2/0[2, 3] t-2:3/0[3, 1]";
    assert_eq!(
        h.requests(),
        [
            "1 LeaderAndIsr t-0:1/0[1, 2] new t-2:3/0[3, 1] new".to_owned(),
            "2 LeaderAndIsr t-0:1/0[1, 2] new t-1:2/0[2, 3] new".to_owned(),
            "3 LeaderAndIsr t-1:2/0[2, 3] new t-2:3/0[3, 1] new".to_owned(),
            format!("1 {all}"),
            format!("2 {all}"),
            format!("3 {all}"),
        ]
    );
}

#[test]
fn dead_replicas_are_left_out_and_a_partition_without_live_ones_waits() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[3, 2], &[3]]);
    h.settle();
    assert_eq!(h.led("t", 0), (2, 0, vec![2]));
    assert!(!h.zk.exists(&paths::partition_state("t", 1)));
    h.register(3);
    h.settle();
    assert_eq!(h.led("t", 1), (3, 0, vec![3]));
}

#[test]
fn a_topic_of_an_old_tool_gets_an_id() {
    let mut h = Harness::with_brokers(1);
    h.zk.make(
        "/brokers/topics/old",
        Some(r#"{"version":1,"partitions":{"0":[1]}}"#),
    );
    h.settle();
    assert_eq!(h.writes()[0], "fenced set /brokers/topics/old");
    let id = h.members[&1].controller.context().topics["old"].id;
    assert_eq!(
        h.zk.data("/brokers/topics/old").unwrap(),
        assignment(Some(id), &[&[1]])
    );
    assert_eq!(h.led("old", 0), (1, 0, vec![1]));
}

#[test]
fn a_malformed_topic_does_not_hold_up_others_and_is_taken_in_when_repaired() {
    let mut h = Harness::with_brokers(1);
    h.create_topic("broken", &[&[1]]);
    h.settle();
    let good = h.zk.data("/brokers/topics/broken").unwrap();
    h.kill(1);
    h.zk.set("/brokers/topics/broken", "{");
    h.create_topic("fine", &[&[1]]);
    h.start(config(1));
    h.settle();
    assert_eq!(h.led("fine", 0), (1, 0, vec![1]));
    let before = h.led("broken", 0);
    assert_eq!(before, (1, 0, vec![1]));
    h.forget();
    h.zk.set("/brokers/topics/broken", &good);
    h.settle();
    // its state node is there already
    assert_eq!(h.writes(), [] as [&str; 0]);
    assert_eq!(
        h.requests(),
        [
            "1 LeaderAndIsr broken-0:1/0[1]",
            "1 UpdateMetadata [1] broken-0:1/0[1]"
        ]
    );
}

#[test]
fn partitions_are_added_and_never_removed() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.forget();
    let id = h.members[&1].controller.context().topics["t"].id;
    h.zk.set("/brokers/topics/t", &assignment(Some(id), &[&[2], &[2, 1]]));
    h.settle();
    assert_eq!(
        h.requests(),
        [
            "1 LeaderAndIsr t-1:2/0[2, 1] new",
            "2 LeaderAndIsr t-1:2/0[2, 1] new",
            "1 UpdateMetadata [1, 2] t-1:2/0[2, 1]",
            "2 UpdateMetadata [1, 2] t-1:2/0[2, 1]",
        ]
    );
    h.forget();
    h.zk.set("/brokers/topics/t", &assignment(Some(id), &[&[1, 2]]));
    h.settle();
    assert_eq!((h.requests(), h.writes()), (vec![], vec![]));
    assert_eq!(h.led("t", 1), (2, 0, vec![2, 1]));
}

#[test]
fn a_topic_is_deleted_step_by_step() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.forget();
    h.answers = false;
    h.request_deletion("t");
    h.settle();
    assert_eq!(h.writes(), [] as [&str; 0]);
    let sent = std::mem::take(&mut h.sent);
    let told: Vec<String> = sent
        .iter()
        .map(|s| format!("{} {}", s.to, support::shown(&s.request)))
        .collect();
    assert_eq!(
        told,
        [
            "1 UpdateMetadata [1, 2] t-0:-2/0[1, 2]",
            "2 UpdateMetadata [1, 2] t-0:-2/0[1, 2]",
            "1 StopReplica t-0/-2",
            "2 StopReplica t-0/-2",
            "1 StopReplica t-0/-2 delete",
            "2 StopReplica t-0/-2 delete",
        ]
    );
    h.event(1, answer(1, &sent[4].request, ErrorCode::None).unwrap());
    h.settle();
    assert_eq!(h.writes(), [] as [&str; 0]);
    h.event(1, answer(2, &sent[5].request, ErrorCode::None).unwrap());
    h.settle();
    assert_eq!(
        h.writes(),
        [
            "fenced delete /brokers/topics/t/partitions/0/state",
            "fenced delete /brokers/topics/t/partitions/0",
            "fenced delete /brokers/topics/t/partitions",
            "fenced delete /brokers/topics/t",
            "fenced delete /config/topics/t",
            "fenced delete /admin/delete_topics/t",
        ]
    );
    assert_eq!(h.requests(), [] as [&str; 0]);
}

#[test]
fn a_controller_killed_anywhere_in_a_deletion_is_succeeded_by_one_that_finishes_it() {
    let mut n = 0;
    loop {
        let mut h = Harness::with_brokers(3);
        h.create_topic("t", &[&[2, 3], &[3, 2]]);
        h.settle();
        h.forget();
        h.request_deletion("t");
        h.budget = Some(n);
        let finished = h.settle();
        h.budget = None;
        h.kill(1);
        h.start(config(4));
        h.settle();
        assert_eq!(h.members[&4].active, Some(2));
        let left: Vec<&str> =
            h.zk.paths()
                .filter(|p| p.split('/').any(|part| part == "t"))
                .collect();
        assert_eq!(left, [] as [&str; 0], "killed after {n} operations");
        for broker in [2, 3] {
            for partition in [0, 1] {
                let told = h.sent.iter().any(|s| {
                    let ControlRequest::StopReplica(r, _) = &s.request else {
                        return false;
                    };
                    s.to == broker
                        && r.topic_states
                            .iter()
                            .flat_map(|t| &t.partition_states)
                            .any(|p| p.partition_index == partition && p.delete_partition)
                });
                assert!(
                    told,
                    "killed after {n} operations: broker {broker} keeps t-{partition}"
                );
            }
        }
        if finished {
            break;
        }
        n += 1;
    }
    assert!(n > 8, "only {n} operations");
}

#[test]
fn a_dead_replica_holds_a_deletion_up_until_it_returns() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.kill(2);
    h.settle();
    h.request_deletion("t");
    h.settle();
    assert!(h.zk.exists("/brokers/topics/t") && h.zk.exists("/admin/delete_topics/t"));
    h.register(2);
    h.settle();
    assert!(!h.zk.exists("/brokers/topics/t") && !h.zk.exists("/admin/delete_topics/t"));
}

#[test]
fn a_replica_that_cannot_be_deleted_is_tried_again_when_its_broker_restarts() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.forget();
    h.answers = false;
    h.request_deletion("t");
    h.settle();
    let sent = std::mem::take(&mut h.sent);
    h.event(1, answer(1, &sent[4].request, ErrorCode::None).unwrap());
    h.event(
        1,
        answer(2, &sent[5].request, ErrorCode::KafkaStorageError).unwrap(),
    );
    h.settle();
    assert!(h.zk.exists("/brokers/topics/t"));
    h.answers = true;
    h.kill(2);
    h.settle();
    h.forget();
    h.register(2);
    h.settle();
    assert!(
        h.requests()
            .contains(&"2 StopReplica t-0/-2 delete".to_owned())
    );
    assert!(!h.zk.exists("/brokers/topics/t") && !h.zk.exists("/admin/delete_topics/t"));
}

#[test]
fn requests_to_delete_are_dropped_when_switched_off_or_void() {
    let mut h = Harness::new();
    h.start(gracchus_controller::ControllerConfig {
        delete_topic_enable: false,
        ..config(1)
    });
    h.create_topic("t", &[&[1]]);
    h.settle();
    h.forget();
    h.request_deletion("t");
    h.settle();
    assert_eq!(h.writes(), ["fenced delete /admin/delete_topics/t"]);
    assert_eq!(h.requests(), [] as [&str; 0]);

    let mut h = Harness::with_brokers(1);
    h.request_deletion("never-was");
    h.settle();
    assert_eq!(h.writes(), ["fenced delete /admin/delete_topics/never-was"]);
}

#[test]
fn growth_during_a_deletion_is_taken_back() {
    let mut h = Harness::with_brokers(1);
    h.create_topic("t", &[&[1]]);
    h.settle();
    h.answers = false;
    h.request_deletion("t");
    h.settle();
    let before = h.zk.data("/brokers/topics/t").unwrap();
    let id = h.members[&1].controller.context().topics["t"].id;
    h.zk.set("/brokers/topics/t", &assignment(Some(id), &[&[1], &[1]]));
    h.settle();
    assert_eq!(h.zk.data("/brokers/topics/t").unwrap(), before);
    h.event(1, Event::TopicsChanged);
    assert!(h.settle());
}

#[test]
fn a_deletion_goes_on_when_a_broker_changes_its_address() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.forget();
    h.answers = false;
    h.request_deletion("t");
    h.settle();
    let sent = std::mem::take(&mut h.sent);
    h.event(1, answer(1, &sent[4].request, ErrorCode::None).unwrap());
    h.settle();
    // what waited for broker 2 goes with the link to its old address
    h.answers = true;
    h.zk.set(&paths::broker(2), &registration(2).replace("b2", "b3"));
    h.settle();
    assert!(!h.zk.exists("/brokers/topics/t") && !h.zk.exists("/admin/delete_topics/t"));
}

#[test]
fn a_topic_made_again_by_hand_before_anyone_looked_is_another_topic() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    h.forget();
    h.zk.delete(&paths::partition_state("t", 0));
    h.zk.delete(&paths::partition("t", 0));
    h.zk.delete(&paths::topic_partitions("t"));
    h.zk.delete(&paths::topic("t"));
    let id = Uuid::from_bytes([9; 16]);
    h.zk.make(&paths::topic("t"), Some(&assignment(Some(id), &[&[2, 1]])));
    h.settle();
    assert_eq!(h.led("t", 0), (2, 0, vec![2, 1]));
    let ids: Vec<Uuid> = h
        .sent
        .iter()
        .filter_map(|sent| match &sent.request {
            ControlRequest::LeaderAndIsr(r, _) => Some(r.topic_states[0].topic_id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [id, id]);
}

#[test]
fn the_deletion_of_a_topic_that_cannot_be_read_waits() {
    let mut h = Harness::with_brokers(1);
    h.create_topic("t", &[&[1]]);
    h.settle();
    let good = h.zk.data(&paths::topic("t")).unwrap();
    h.zk.set(&paths::topic("t"), "{oops");
    h.kill(1);
    h.start(config(1));
    h.settle();
    h.request_deletion("t");
    h.settle();
    assert!(h.zk.exists(&paths::topic("t")));
    assert!(h.zk.exists(&paths::delete_topic("t")));
    h.zk.set(&paths::topic("t"), &good);
    h.settle();
    assert!(!h.zk.exists(&paths::topic("t")));
    assert!(!h.zk.exists(&paths::delete_topic("t")));
}

#[test]
fn a_broker_whose_requests_were_dropped_is_told_everything_anew() {
    let mut h = Harness::with_brokers(2);
    h.create_topic("t", &[&[1, 2]]);
    h.create_topic("gone", &[&[1, 2]]);
    h.settle();
    h.answers = false;
    h.request_deletion("gone");
    h.settle();
    h.event(1, stopped(1, "gone"));
    h.settle();
    h.forget();
    h.event(1, Event::RequestsDropped { broker_id: 2 });
    h.event(1, Event::RequestsDropped { broker_id: 7 });
    h.settle();
    let told = h.requests();
    assert_eq!(told[0], "2 LeaderAndIsr t-0:1/0[1, 2]");
    let metadata = "2 UpdateMetadata [1, 2] gone-0:-2/0[1, 2] t-0:1/0[1, 2]";
    assert!(told.contains(&metadata.to_owned()));
    assert!(told.contains(&"2 StopReplica gone-0/-2 delete".to_owned()));
    h.event(1, stopped(1, "gone"));
    h.event(1, stopped(2, "gone"));
    h.settle();
    assert!(!h.zk.exists(&paths::topic("gone")));
}

fn stopped(broker_id: i32, topic: &str) -> Event {
    Event::StopReplicaAnswered {
        broker_id,
        partitions: vec![(PartitionKey::new(topic, 0), ErrorCode::None)],
    }
}
