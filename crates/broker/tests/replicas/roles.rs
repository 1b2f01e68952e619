//! LeaderAndIsr and StopReplica.

use std::sync::Arc;

use gracchus_broker::api::{leader_and_isr, stop_replica};
use gracchus_broker::replica::StorageNews;
use gracchus_kafka_proto::messages::leader_and_isr_request::LeaderAndIsrTopicState;
use gracchus_kafka_proto::messages::stop_replica_request::{
    StopReplicaPartitionState, StopReplicaPartitionV0, StopReplicaTopicState, StopReplicaTopicV1,
};
use gracchus_kafka_proto::messages::{LeaderAndIsrRequest, StopReplicaRequest};
use gracchus_kafka_proto::{ApiKey, ErrorCode, Uuid};
use parking_lot::Mutex;

use crate::rig::{Heard, ME, NOW, Rig, TOPIC_ID, batch, context, error, values};

fn assigning(controller_epoch: i32, leader_epoch: i32, id: Uuid) -> LeaderAndIsrRequest {
    LeaderAndIsrRequest {
        controller_epoch,
        topic_states: vec![LeaderAndIsrTopicState {
            topic_name: "t".into(),
            topic_id: id,
            partition_states: vec![Rig::state(ME, leader_epoch, &[ME], &[ME])],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Top-level error and the partition's.
async fn assign(rig: &Rig, request: LeaderAndIsrRequest) -> (ErrorCode, Option<ErrorCode>) {
    let ctx = context(ApiKey::LeaderAndIsr, 7);
    let answer = leader_and_isr::answer(&rig.replicas, 50, &ctx, request).await;
    let partition = answer
        .topics
        .first()
        .map(|t| error(t.partition_errors[0].error_code));
    (error(answer.error_code), partition)
}

#[tokio::test]
async fn fencing() {
    let rig = Rig::new();
    let none = Some(ErrorCode::None);
    let stale = Some(ErrorCode::StaleControllerEpoch);
    assert_eq!(
        assign(&rig, assigning(5, 3, TOPIC_ID)).await,
        (ErrorCode::None, none)
    );
    for (what, broker_epoch, controller_epoch, leader_epoch, expected) in [
        (
            "an earlier registration",
            49,
            5,
            4,
            (ErrorCode::StaleBrokerEpoch, None),
        ),
        (
            "an earlier controller",
            50,
            4,
            4,
            (ErrorCode::StaleControllerEpoch, None),
        ),
        ("the same leader epoch", 50, 5, 3, (ErrorCode::None, stale)),
        (
            "an earlier leader epoch",
            50,
            5,
            2,
            (ErrorCode::None, stale),
        ),
        ("a later registration", 51, 5, 4, (ErrorCode::None, none)),
        ("no registration", -1, 5, 5, (ErrorCode::None, none)),
        ("the next controller", 50, 6, 6, (ErrorCode::None, none)),
    ] {
        let mut request = assigning(controller_epoch, leader_epoch, TOPIC_ID);
        request.broker_epoch = broker_epoch;
        assert_eq!(assign(&rig, request).await, expected, "{what}");
    }
    let other = Uuid::from_bytes([1; 16]);
    let inconsistent = Some(ErrorCode::InconsistentTopicId);
    assert_eq!(
        assign(&rig, assigning(6, 9, other)).await,
        (ErrorCode::None, inconsistent)
    );
    let mut foreign = assigning(6, 9, TOPIC_ID);
    foreign.topic_states[0].partition_states[0].replicas = vec![2, 3];
    let unknown = Some(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(assign(&rig, foreign).await, (ErrorCode::None, unknown));
}

#[tokio::test]
async fn old_versions_answer_by_name() {
    let rig = Rig::new();
    let mut state = Rig::state(ME, 1, &[ME], &[ME]);
    state.topic_name = "t".into();
    let request = LeaderAndIsrRequest {
        controller_epoch: 1,
        ungrouped_partition_states: vec![state],
        ..Default::default()
    };
    let ctx = context(ApiKey::LeaderAndIsr, 1);
    let answer = leader_and_isr::answer(&rig.replicas, 50, &ctx, request).await;
    let [partition] = answer.partition_errors.as_slice() else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (partition.topic_name.as_str(), partition.error_code),
        ("t", 0)
    );
    // No id was given; the next request brings it, with the same epoch.
    assert_eq!(rig.replicas.partition("t", 0).unwrap().topic_id(), None);
    assert_eq!(
        assign(&rig, assigning(1, 1, TOPIC_ID)).await.1,
        Some(ErrorCode::None)
    );
    assert_eq!(
        rig.replicas.partition("t", 0).unwrap().topic_id(),
        Some(TOPIC_ID)
    );
}

async fn stop(rig: &Rig, version: i16, request: StopReplicaRequest) -> ErrorCode {
    let ctx = context(ApiKey::StopReplica, version);
    let answer = stop_replica::answer(&rig.replicas, 50, &ctx, request).await;
    match answer.partition_errors.first() {
        Some(partition) => error(partition.error_code),
        None => error(answer.error_code),
    }
}

fn stopping(leader_epoch: i32, delete_partition: bool) -> StopReplicaRequest {
    StopReplicaRequest {
        controller_epoch: 1,
        topic_states: vec![StopReplicaTopicState {
            topic_name: "t".into(),
            partition_states: vec![StopReplicaPartitionState {
                partition_index: 0,
                leader_epoch,
                delete_partition,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn observers_hear_of_roles_in_order() {
    let rig = Rig::new();
    let heard = Arc::new(Heard::default());
    rig.replicas.set_observers(vec![heard.clone()]);
    rig.lead("t", 1, &[ME, 2], &[ME]);
    rig.follow("t", 2, 2);
    rig.lead("t", 3, &[ME], &[ME]);
    rig.lead("t", 3, &[ME], &[ME]);
    stop(&rig, 4, stopping(-2, true)).await;
    let expected = [
        "t-0 leads 1",
        "t-0 lost Some(2)",
        "t-0 leads 3",
        "t-0 lost None",
    ];
    assert_eq!(*heard.0.lock(), expected);
}

#[tokio::test]
async fn stopping_and_deleting() {
    let rig = Rig::new();
    rig.lead("t", 5, &[ME], &[ME]);
    rig.produce("t", batch(&["a"])).await;
    let dir = rig.dir.path().join("t-0");
    assert_eq!(
        stop(&rig, 4, stopping(4, true)).await,
        ErrorCode::FencedLeaderEpoch
    );
    // Without deletion the replica only stops following.
    assert_eq!(stop(&rig, 4, stopping(5, false)).await, ErrorCode::None);
    assert!(dir.exists() && rig.replicas.partition("t", 0).is_ok());
    let mut stale = stopping(5, true);
    stale.controller_epoch = 0;
    assert_eq!(stop(&rig, 4, stale).await, ErrorCode::StaleControllerEpoch);
    let mut earlier = stopping(5, true);
    earlier.broker_epoch = 49;
    assert_eq!(stop(&rig, 4, earlier).await, ErrorCode::StaleBrokerEpoch);
    assert_eq!(stop(&rig, 4, stopping(-2, true)).await, ErrorCode::None);
    assert!(!dir.exists());
    assert_eq!(
        rig.replicas.partition("t", 0).err(),
        Some(ErrorCode::NotLeaderOrFollower)
    );
    // Again is fine, and so is a topic of the name with a new id.
    assert_eq!(stop(&rig, 4, stopping(-2, true)).await, ErrorCode::None);
    let renewed = Uuid::from_bytes([1; 16]);
    assert_eq!(
        assign(&rig, assigning(1, 0, renewed)).await.1,
        Some(ErrorCode::None)
    );
    assert_eq!(rig.log_end("t"), 0);
}

#[tokio::test]
async fn the_older_shapes_of_stop_replica() {
    for version in [0, 1, 3] {
        let rig = Rig::leading();
        let mut request = stopping(-1, true);
        if version < 3 {
            request.delete_partitions = true;
            request.topic_states.clear();
        }
        match version {
            0 => request.ungrouped_partitions.push(StopReplicaPartitionV0 {
                topic_name: "t".into(),
                ..Default::default()
            }),
            1 => request.topics.push(StopReplicaTopicV1 {
                name: "t".into(),
                partition_indexes: vec![0],
                ..Default::default()
            }),
            _ => {}
        }
        assert_eq!(
            stop(&rig, version, request).await,
            ErrorCode::None,
            "v{version}"
        );
        assert!(!rig.dir.path().join("t-0").exists(), "v{version}");
    }
}

/// What a leader wrote it still has as follower and as leader again; each term begins where the log ended.
#[tokio::test]
async fn terms_of_leadership() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a"])).await;
    rig.follow("t", 2, 2);
    let refused = rig.produce("t", batch(&["b"])).await;
    assert_eq!(error(refused.error_code), ErrorCode::NotLeaderOrFollower);
    rig.lead("t", 3, &[ME], &[ME]);
    assert_eq!(rig.produce("t", batch(&["c"])).await.base_offset, 1);
    let read = rig.fetch(11, "t", 0).await;
    assert_eq!(values(&read), [(0, "a".to_owned()), (1, "c".to_owned())]);
    let log = rig.replicas.partition("t", 0).unwrap().log().unwrap();
    assert_eq!(log.lock().epoch_for_offset(0), Some(1));
    assert_eq!(log.lock().epoch_for_offset(1), Some(3));
    assert_eq!(rig.replicas.counts().led, 1);
}

/// The high watermark comes from the checkpoint, before any follower has fetched.
#[tokio::test]
async fn a_restart_keeps_the_high_watermark() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    rig.produce("t", batch(&["a", "b"])).await;
    rig.produce("t", batch(&["c"])).await;
    rig.follower_fetch(2, "t", 2).await;
    assert_eq!((rig.high_watermark("t"), rig.log_end("t")), (2, 3));
    let rig = rig.restarted();
    rig.lead("t", 2, &[ME, 2], &[ME, 2]);
    assert_eq!((rig.high_watermark("t"), rig.log_end("t")), (2, 3));
    assert_eq!(values(&rig.fetch(11, "t", 0).await).len(), 2);
    // The topic was deleted and made again while this broker was down.
    let rig = rig.restarted();
    let renewed = Uuid::from_bytes([1; 16]);
    let inconsistent = Some(ErrorCode::InconsistentTopicId);
    assert_eq!(assign(&rig, assigning(1, 3, renewed)).await.1, inconsistent);
}

#[tokio::test]
async fn a_failed_log_directory() {
    let rig = Rig::leading();
    let heard = Arc::new(Heard::default());
    rig.replicas.set_observers(vec![heard.clone()]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    rig.replicas
        .on_storage_news(move |news| tell.lock().push(news));
    let broken = gracchus_log::LogError::Io {
        op: "write",
        path: rig.dir.path().join("t-0/00000000000000000000.log"),
        source: std::io::Error::from_raw_os_error(5),
    };
    rig.replicas.logs().handle_error(&broken);
    rig.replicas.take_dirs_offline();
    assert_eq!(*told.lock(), [StorageNews::AllDirsFailed]);
    assert_eq!(*heard.0.lock(), ["t-0 lost None"]);

    let storage = ErrorCode::KafkaStorageError;
    assert_eq!(
        error(rig.produce("t", batch(&["a"])).await.error_code),
        storage
    );
    assert_eq!(error(rig.fetch(11, "t", 0).await.error_code), storage);
    assert_eq!(
        assign(&rig, assigning(1, 9, TOPIC_ID)).await.1,
        Some(storage)
    );
    assert_eq!(stop(&rig, 4, stopping(-2, true)).await, storage);
    assert_eq!(rig.replicas.counts().offline, 1);
    // No other directory is left for a new partition.
    rig.know("u", Uuid::from_bytes([2; 16]), ME, 1, &[ME]);
    let state = Rig::state(ME, 1, &[ME], &[ME]);
    assert_eq!(rig.assign("u", Uuid::from_bytes([2; 16]), state), storage);
}

/// The log of the topic cannot be opened, once: what is written first goes to /dev/full, which says ENOSPC.
fn fill_disk(rig: &Rig, topic: &str) {
    let dir = rig.dir.path().join(format!("{topic}-0"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("partition.metadata"), "torn").unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.join("partition.metadata.tmp")).unwrap();
}

#[tokio::test]
async fn a_full_disk_dooms_no_partition() {
    let rig = Rig::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    rig.replicas
        .on_storage_news(move |news| tell.lock().push(news));
    let storage = ErrorCode::KafkaStorageError;
    fill_disk(&rig, "t");
    assert_eq!(rig.lead("t", 1, &[ME], &[ME]), storage);
    let refused = rig.produce("t", batch(&["a"])).await;
    assert_eq!(error(refused.error_code), storage);
    assert_eq!(rig.replicas.counts().offline, 1);
    fill_disk(&rig, "t");
    rig.replicas.retry_unopened(NOW);
    assert_eq!(*told.lock(), []);

    rig.replicas.retry_unopened(NOW);
    rig.replicas.retry_unopened(NOW);
    assert_eq!(*told.lock(), [StorageNews::LogsOpened], "told once");
    // The controller gives the same role again.
    assert_eq!(rig.lead("t", 1, &[ME], &[ME]), ErrorCode::None);
    assert_eq!(rig.produce("t", batch(&["a"])).await.base_offset, 0);

    // The controller may be first, too.
    fill_disk(&rig, "u");
    assert_eq!(rig.lead("u", 1, &[ME], &[ME]), storage);
    assert_eq!(rig.lead("u", 1, &[ME], &[ME]), ErrorCode::None);

    // Deleted while it waits: nothing is left to be tried.
    fill_disk(&rig, "v");
    assert_eq!(rig.lead("v", 1, &[ME], &[ME]), storage);
    let mut request = stopping(-2, true);
    request.topic_states[0].topic_name = "v".into();
    assert_eq!(stop(&rig, 4, request).await, ErrorCode::None);
    rig.replicas.retry_unopened(NOW);
    assert_eq!(told.lock().len(), 1);
    assert_eq!(rig.replicas.counts().offline, 0);
}
