//! Roles given while the logs are still being loaded.

use std::sync::Arc;

use gracchus_broker::replica::assignment::Stop;
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::TopicPartition;

use crate::rig::{Heard, ME, NOW, Rig, TOPIC_ID, batch, error, values};

/// Led in epoch 1, with two records, after a crash; nothing is loaded yet.
async fn crashed() -> (Rig, gracchus_log::PendingLogs) {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b"])).await;
    rig.recovering()
}

async fn read(rig: &Rig, topic: &str) -> Vec<String> {
    let fetched = values(&rig.fetch(12, topic, 0).await);
    fetched.into_iter().map(|(_, value)| value).collect()
}

fn stop(rig: &Rig, leader_epoch: i32, delete: bool) -> ErrorCode {
    let stop = Stop {
        id: TopicPartition::new("t", 0),
        leader_epoch,
        delete,
    };
    rig.replicas.stop(1, vec![stop], NOW).unwrap().remove(0).1
}

#[tokio::test]
async fn a_role_is_taken_when_the_log_is_loaded() {
    let (rig, pending) = crashed().await;
    let heard = Arc::new(Heard::default());
    rig.replicas.set_observers(vec![heard.clone()]);
    assert_eq!(rig.lead("t", 2, &[ME], &[ME]), ErrorCode::None);
    // clients ask for the leader again, and come back
    let early = rig.produce("t", batch(&["early"])).await;
    assert_eq!(error(early.error_code), ErrorCode::NotLeaderOrFollower);
    let early = rig.fetch(12, "t", 0).await;
    assert_eq!(error(early.error_code), ErrorCode::NotLeaderOrFollower);
    assert!(heard.0.lock().is_empty());
    // another partition is served meanwhile
    assert_eq!(rig.lead("u", 1, &[ME], &[ME]), ErrorCode::None);
    rig.produce("u", batch(&["x"])).await;
    assert_eq!(read(&rig, "u").await, ["x"]);

    rig.load(pending);
    assert_eq!(*heard.0.lock(), ["u-0 leads 1", "t-0 leads 2"]);
    rig.produce("t", batch(&["c"])).await;
    assert_eq!(read(&rig, "t").await, ["a", "b", "c"]);
    let role = rig.replicas.partition("t", 0).unwrap();
    assert_eq!(role.leader_epoch(), 2);
}

#[tokio::test]
async fn the_last_word_counts() {
    let (rig, pending) = crashed().await;
    assert_eq!(rig.lead("t", 3, &[ME, 2], &[ME]), ErrorCode::None);
    for (epoch, answer) in [
        (2, ErrorCode::StaleControllerEpoch),
        (3, ErrorCode::StaleControllerEpoch),
        (4, ErrorCode::None),
    ] {
        assert_eq!(rig.follow("t", epoch, 2), answer, "{epoch}");
    }
    let foreign = rig.assign("t", TOPIC_ID, Rig::state(2, 5, &[2, 3], &[2]));
    assert_eq!(foreign, ErrorCode::UnknownTopicOrPartition);
    rig.load(pending);
    let partition = rig.replicas.partition("t", 0).unwrap();
    assert_eq!(partition.leader_epoch(), 4);
    let led = rig.produce("t", batch(&["c"])).await;
    assert_eq!(error(led.error_code), ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn a_stop_ends_the_role_that_waits() {
    let (rig, pending) = crashed().await;
    assert_eq!(rig.lead("t", 3, &[ME], &[ME]), ErrorCode::None);
    assert_eq!(stop(&rig, 2, false), ErrorCode::FencedLeaderEpoch);
    assert_eq!(stop(&rig, 3, false), ErrorCode::None);
    rig.load(pending);
    assert!(rig.replicas.partition("t", 0).is_err());
    assert!(
        rig.replicas
            .logs()
            .get(&TopicPartition::new("t", 0))
            .is_some()
    );
}

/// The topic is deleted and made anew while the log of the former is still being loaded.
#[tokio::test]
async fn a_deletion_is_done_before_the_role_that_came_after_it() {
    let (rig, pending) = crashed().await;
    assert_eq!(rig.lead("t", 2, &[ME], &[ME]), ErrorCode::None);
    assert_eq!(stop(&rig, -2, true), ErrorCode::None);
    let new_id = Uuid::from_bytes([9; 16]);
    rig.know("t", new_id, ME, 0, &[ME]);
    let again = rig.assign("t", new_id, Rig::state(ME, 0, &[ME], &[ME]));
    assert_eq!(again, ErrorCode::None);
    rig.load(pending);
    assert_eq!(rig.log_end("t"), 0);
    rig.produce("t", batch(&["new"])).await;
    assert_eq!(read(&rig, "t").await, ["new"]);
}

#[tokio::test]
async fn a_deletion_alone() {
    let (rig, pending) = crashed().await;
    assert_eq!(stop(&rig, -2, true), ErrorCode::None);
    rig.load(pending);
    assert!(rig.replicas.logs().logs().is_empty());
    assert!(!rig.dir.path().join("t-0").exists());
}
