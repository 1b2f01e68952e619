//! Who is controller, and how the post is lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use gracchus_controller::Event;
use gracchus_registry::paths;
use support::{Harness, Tick, config};

#[test]
fn the_first_election_on_an_empty_cluster() {
    let mut h = Harness::new();
    h.start(config(1));
    h.forget();
    assert!(h.settle());
    assert_eq!(
        h.writes(),
        [
            "create /controller_epoch",
            "create /controller",
            "set /controller_epoch",
            "create /feature"
        ]
    );
    // as in Apache Kafka 3.9.2
    assert_eq!(
        h.zk.data(paths::CONTROLLER).unwrap(),
        r#"{"version":2,"brokerid":1,"timestamp":"1000","kraftControllerEpoch":-1}"#
    );
    assert_eq!(h.zk.data(paths::CONTROLLER_EPOCH).unwrap(), "1");
    assert_eq!(h.zk.version(paths::CONTROLLER_EPOCH), 1);
    assert_eq!(
        h.zk.data(paths::FEATURE).unwrap(),
        r#"{"features":{},"version":2,"status":1}"#
    );
    assert_eq!(h.requests(), ["1 UpdateMetadata [1]"]);
    assert_eq!(h.members[&1].active, Some(1));
}

#[test]
fn one_of_three_wins_and_its_death_elects_another() {
    let mut h = Harness::new();
    for id in 1..=3 {
        h.start(config(id));
    }
    h.settle();
    assert_eq!(h.active(), [1]);
    h.kill(1);
    h.settle();
    assert_eq!(h.active(), [2]);
    assert_eq!(h.members[&2].active, Some(2));
    assert_eq!(h.zk.data(paths::CONTROLLER_EPOCH).unwrap(), "2");
}

#[test]
fn notices_of_the_last_term_are_deleted_unread() {
    let mut h = Harness::new();
    h.zk.make(
        "/isr_change_notification/isr_change_0000000003",
        Some("not even json"),
    );
    h.zk.make(
        "/log_dir_event_notification/log_dir_event_0000000000",
        Some("{}"),
    );
    h.start(config(1));
    h.forget();
    h.settle();
    assert_eq!(
        h.writes()[4..],
        [
            "fenced delete /log_dir_event_notification/log_dir_event_0000000000",
            "fenced delete /isr_change_notification/isr_change_0000000003"
        ]
    );
}

#[test]
fn what_waits_for_zookeeper_has_a_name() {
    let mut h = Harness::new();
    h.start(config(1));
    h.members
        .get_mut(&1)
        .unwrap()
        .controller
        .step(Event::Registered, 0);
    let controller = &mut h.members.get_mut(&1).unwrap().controller;
    assert_eq!(controller.waits_with(), Some(("an election", 0)));
    controller.step(Event::TopicsChanged, 0);
    assert_eq!(controller.waits_with(), Some(("an election", 1)));
    controller.step(Event::SessionExpired, 0);
    assert_eq!(controller.waits_with(), None);
}

#[test]
fn an_election_whose_answer_was_lost_is_won_all_the_same() {
    let mut h = Harness::new();
    h.election_answer_is_lost = true;
    h.start(config(1));
    h.settle();
    assert_eq!(h.members[&1].active, Some(1));
    h.create_topic("t", &[&[1]]);
    h.settle();
    assert_eq!(h.led("t", 0), (1, 0, vec![1]));
}

#[test]
fn a_fenced_write_after_another_controller_won_has_no_effect_and_ends_the_term() {
    let mut h = Harness::with_brokers(2);
    h.zk.set(paths::CONTROLLER_EPOCH, "2");
    h.zk.delete(paths::CONTROLLER);
    h.zk.make(
        paths::CONTROLLER,
        Some(r#"{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}"#),
    );
    h.deliver_watches();
    h.members.get_mut(&1).unwrap().inbox.clear(); // the news is on its way
    h.create_topic("t", &[&[1, 2]]);
    h.settle();
    assert!(h.active().is_empty());
    assert_eq!(h.writes(), [] as [&str; 0]);
    assert_eq!(h.requests(), [] as [&str; 0]);
    assert!(!h.members[&1].timer);
    h.zk.delete(paths::CONTROLLER);
    h.settle();
    assert_eq!(h.members[&1].active, Some(3));
    assert_eq!(h.led("t", 0), (1, 0, vec![1, 2]));
}

#[test]
fn a_deleted_controller_node_means_a_new_term() {
    let mut h = Harness::with_brokers(1);
    h.zk.delete(paths::CONTROLLER);
    h.settle();
    assert_eq!(h.members[&1].active, Some(2));
    assert_eq!(h.zk.data(paths::CONTROLLER_EPOCH).unwrap(), "2");
}

#[test]
fn an_epoch_written_by_hand_costs_the_term_but_not_the_cluster() {
    let mut h = Harness::with_brokers(2);
    h.zk.set(paths::CONTROLLER_EPOCH, "50");
    h.create_topic("t", &[&[2, 1]]);
    h.settle();
    assert_eq!(h.timers_set, 1);
    h.fire_timers();
    h.settle();
    assert_eq!(h.members[&1].active, Some(51));
    assert_eq!(h.led("t", 0), (2, 0, vec![2, 1]));
    assert_eq!(h.timers_set, 1);
}

#[test]
fn a_take_over_that_fails_is_not_tried_in_a_hot_loop() {
    let mut h = Harness::new();
    h.zk.delete(paths::ISR_CHANGE_NOTIFICATION);
    h.start(config(1));
    assert!(h.settle());
    assert!(h.active().is_empty());
    assert_eq!(h.zk.data(paths::CONTROLLER_EPOCH).unwrap(), "1");
    assert!(!h.zk.exists(paths::CONTROLLER));
    assert_eq!(h.timers_set, 1);
    h.zk.make(paths::ISR_CHANGE_NOTIFICATION, None);
    h.fire_timers();
    h.settle();
    assert_eq!(h.members[&1].active, Some(2));
}

#[test]
fn an_unreadable_epoch_is_waited_for() {
    let mut h = Harness::new();
    h.zk.make(paths::CONTROLLER_EPOCH, Some("seven"));
    h.start(config(1));
    assert!(h.settle());
    assert_eq!((h.active(), h.timers_set), (vec![], 1));
    h.zk.set(paths::CONTROLLER_EPOCH, "7");
    h.fire_timers();
    h.settle();
    assert_eq!(h.members[&1].active, Some(8));
}

#[test]
fn a_lost_fence_deletes_no_other_holders_node() {
    let mut h = Harness::with_brokers(2);
    h.zk.set(paths::CONTROLLER_EPOCH, "50");
    h.create_topic("t", &[&[2, 1]]);
    // up to the reading of /controller and its epoch, which still name broker 1
    h.budget = Some(8);
    assert!(!h.settle());
    let other = r#"{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}"#;
    h.zk.set(paths::CONTROLLER_EPOCH, "51");
    h.zk.delete(paths::CONTROLLER);
    h.zk.make(paths::CONTROLLER, Some(other));
    h.budget = None;
    h.settle();
    assert_eq!(h.zk.data(paths::CONTROLLER).unwrap(), other);
    assert!(h.active().is_empty());
}

#[test]
fn no_flood_of_events_loses_a_watch() {
    let mut h = Harness::with_brokers(2);
    h.event(1, Event::TopicsChanged); // waits for ZooKeeper, and with it the rest
    for _ in 0..100_001 {
        h.event(1, Event::BrokersChanged);
    }
    h.create_topic("t", &[&[2, 1]]);
    while !h.members[&1].inbox.is_empty() {
        h.tick(Tick::Event(1));
    }
    h.settle();
    assert_eq!(h.led("t", 0), (2, 0, vec![2, 1]));
}
