//! Replicas that move to another log directory (AlterReplicaLogDirs).

use std::path::Path;
use std::sync::Arc;

use gracchus_broker::api::{alter_replica_log_dirs, describe_log_dirs};
use gracchus_broker::replica::assignment::{EPOCH_DURING_DELETE, Stop};
use gracchus_broker::replica::moves::{Job, Outcome};
use gracchus_kafka_proto::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use gracchus_kafka_proto::messages::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest};
use gracchus_kafka_proto::{ApiKey, ErrorCode};
use gracchus_log::{LogError, PartitionLog, ReadLimit, SharedLog, TopicPartition};

use crate::rig::{ME, NOW, Rig, TOPIC_ID, batch, bytes_of, context, error, values_of};

fn id() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// A rig with three directories that leads `t-0`, which is in the first.
fn leading() -> Rig {
    let rig = Rig::with_dirs(3);
    assert_eq!(rig.lead("t", 1, &[ME], &[ME]), ErrorCode::None);
    assert_eq!(names(&rig, 0), ["t-0"]);
    rig
}

async fn alter(rig: &Rig, topic: &str, dir: &Path) -> ErrorCode {
    let request = AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: dir.display().to_string(),
            topics: vec![AlterReplicaLogDirTopic {
                name: topic.into(),
                partitions: vec![0],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let ctx = context(ApiKey::AlterReplicaLogDirs, 2);
    let answer = alter_replica_log_dirs::answer(&rig.replicas, &ctx, request).await;
    assert_eq!(answer.results[0].topic_name, topic);
    error(answer.results[0].partitions[0].error_code)
}

/// Partition directories, the unique parts as `*`.
fn names(rig: &Rig, at: usize) -> Vec<String> {
    let entries = std::fs::read_dir(rig.log_dir(at)).unwrap();
    let dirs = entries.map(|e| e.unwrap()).filter(|e| e.path().is_dir());
    let plain = |name: String| match name.rsplit_once('.') {
        Some((topic, end)) if end.len() > 32 => format!("{topic}.*{}", &end[32..]),
        _ => name,
    };
    let mut names: Vec<String> = dirs
        .map(|e| plain(e.file_name().into_string().unwrap()))
        .collect();
    names.sort();
    names
}

fn log(rig: &Rig) -> SharedLog {
    rig.replicas.partition("t", 0).unwrap().log().unwrap()
}

fn all(log: &mut PartitionLog) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    let mut from = log.log_start_offset();
    while from < log.log_end_offset() {
        let data = log.read(from, 1 << 20, ReadLimit::LogEnd, true).unwrap();
        found.extend(values_of(data.parts));
        from = found.last().unwrap().0 + 1;
    }
    found
}

/// Steps until the move has ended.
fn finish(rig: &Rig) {
    let mut job = Job::new(id());
    for _ in 0..1000 {
        if rig.replicas.step_move(&mut job, NOW) == Outcome::Ended {
            return;
        }
    }
    panic!("the move does not end");
}

/// Future, size and lag of `t-0` in a directory.
async fn described(rig: &Rig, at: usize) -> Vec<(bool, i64)> {
    let ctx = context(ApiKey::DescribeLogDirs, 4);
    let request = DescribeLogDirsRequest {
        topics: None,
        ..Default::default()
    };
    let answer = describe_log_dirs::answer(&rig.replicas, &ctx, request).await;
    let dir = rig.log_dir(at).display().to_string();
    let found = answer.results.iter().find(|r| r.log_dir == dir).unwrap();
    let partitions = found.topics.iter().flat_map(|t| &t.partitions);
    partitions
        .map(|p| (p.is_future_key, p.offset_lag))
        .collect()
}

#[tokio::test]
async fn a_log_moves_with_all_it_has() {
    let rig = leading();
    for n in 0..20 {
        rig.produce("t", batch(&[&format!("v{n}")])).await;
    }
    log(&rig).lock().delete_records(3).unwrap();
    assert_eq!(alter(&rig, "t", &rig.log_dir(1)).await, ErrorCode::None);
    assert_eq!(names(&rig, 1), ["t-0.*-future"]);
    assert_eq!(described(&rig, 0).await, [(false, 0)]);
    assert_eq!(described(&rig, 1).await, [(true, 20)]);
    // Asked for again, it goes on.
    assert_eq!(alter(&rig, "t", &rig.log_dir(1)).await, ErrorCode::None);
    assert_eq!(names(&rig, 1), ["t-0.*-future"]);

    let before = all(&mut log(&rig).lock());
    let mut job = Job::new(id());
    assert!(matches!(
        rig.replicas.step_move(&mut job, NOW),
        Outcome::Copied(1..)
    ));
    assert_eq!(described(&rig, 1).await, [(true, 0)]);
    // What comes meanwhile is copied too, and an epoch that began without a record.
    rig.produce("t", batch(&["late"])).await;
    assert_eq!(described(&rig, 1).await, [(true, 1)]);
    assert_eq!(rig.lead("t", 5, &[ME], &[ME]), ErrorCode::None);
    finish(&rig);
    assert_eq!(names(&rig, 0), ["t-0.*-delete"]);
    assert_eq!(names(&rig, 1), ["t-0"]);
    let log = log(&rig);
    assert!(log.lock().dir().starts_with(rig.log_dir(1)));
    let mut expected = before;
    expected.push((20, "late".into()));
    assert_eq!(all(&mut log.lock()), expected);
    assert_eq!(log.lock().log_start_offset(), 3);
    assert_eq!(log.lock().high_watermark(), 21);
    assert_eq!(log.lock().latest_epoch(), Some(5));
    assert_eq!(log.lock().topic_id(), Some(TOPIC_ID));
    assert_eq!(described(&rig, 1).await, [(false, 0)]);
    assert_eq!(rig.produce("t", batch(&["after"])).await.base_offset, 21);
    drop(log);

    // And is there after a crash, its start with it.
    let rig = rig.crashed(ME, &[]);
    assert_eq!(rig.lead("t", 6, &[ME], &[ME]), ErrorCode::None);
    let log = rig.replicas.partition("t", 0).unwrap().log().unwrap();
    let mut log = log.lock();
    assert!(log.dir().starts_with(rig.log_dir(1)));
    expected.push((21, "after".into()));
    assert_eq!(all(&mut log), expected);
    assert_eq!(log.log_start_offset(), 3);
}

#[tokio::test]
async fn what_is_refused() {
    let rig = leading();
    let (here, there) = (rig.log_dir(0), rig.log_dir(1));
    assert_eq!(
        alter(&rig, "t", Path::new("/no/such")).await,
        ErrorCode::LogDirNotFound
    );
    assert_eq!(
        alter(&rig, &"t".repeat(220), &there).await,
        ErrorCode::InvalidTopicException
    );
    assert_eq!(
        alter(&rig, "none", &there).await,
        ErrorCode::UnknownTopicOrPartition
    );
    assert_eq!(alter(&rig, "t", &here).await, ErrorCode::None);
    assert_eq!(names(&rig, 0), ["t-0"], "it is there");

    // One that is to come is made where it is wanted, though other directories are emptier.
    rig.know("later", TOPIC_ID, 7, 1, &[7]);
    assert_eq!(
        alter(&rig, "later", &here).await,
        ErrorCode::ReplicaNotAvailable
    );
    assert_eq!(rig.lead("later", 2, &[ME], &[ME]), ErrorCode::None);
    assert_eq!(names(&rig, 0), ["later-0", "t-0"]);

    fail(&rig, 2);
    assert_eq!(
        alter(&rig, "t", &rig.log_dir(2)).await,
        ErrorCode::KafkaStorageError
    );
    // The directory that failed may hold another copy.
    assert_eq!(alter(&rig, "t", &there).await, ErrorCode::KafkaStorageError);
    assert_eq!(names(&rig, 1), Vec::<String>::new());
}

/// The disk of a directory breaks.
fn fail(rig: &Rig, at: usize) {
    rig.replicas.logs().handle_error(&LogError::Io {
        op: "write",
        path: rig.log_dir(at).join("file"),
        source: std::io::Error::from_raw_os_error(5),
    });
    rig.replicas.take_dirs_offline();
}

#[tokio::test]
async fn given_up_and_sent_elsewhere() {
    let rig = leading();
    rig.produce("t", batch(&["a", "b"])).await;
    alter(&rig, "t", &rig.log_dir(1)).await;
    let mut job = Job::new(id());
    rig.replicas.step_move(&mut job, NOW);
    assert!(log(&rig).lock().is_moving());
    assert_eq!(alter(&rig, "t", &rig.log_dir(2)).await, ErrorCode::None);
    assert_eq!(names(&rig, 1), ["t-0.*-delete"]);
    assert_eq!(names(&rig, 2), ["t-0.*-future"]);
    // By the directory where it is, it stays there.
    assert_eq!(alter(&rig, "t", &rig.log_dir(0)).await, ErrorCode::None);
    assert_eq!(names(&rig, 2), ["t-0.*-delete"]);
    assert_eq!(rig.replicas.step_move(&mut job, NOW), Outcome::Ended);
    assert!(!log(&rig).lock().is_moving());
    assert_eq!(names(&rig, 0), ["t-0"]);
    alter(&rig, "t", &rig.log_dir(2)).await;
    finish(&rig);
    assert_eq!(names(&rig, 2), ["t-0", "t-0.*-delete"]);
}

#[tokio::test]
async fn a_log_that_is_cut_meanwhile_is_followed() {
    let rig = leading();
    for n in 0..10 {
        rig.produce("t", batch(&[&format!("v{n}")])).await;
    }
    assert_eq!(rig.follow("t", 2, 9), ErrorCode::None);
    alter(&rig, "t", &rig.log_dir(1)).await;
    let mut job = Job::new(id());
    rig.replicas.step_move(&mut job, NOW);
    let future = rig.replicas.logs().future(&id()).unwrap();
    assert_eq!(future.lock().log_end_offset(), 10);

    // The leader of epoch 3 has only seven of them, and more of its own than the copy has.
    let theirs = Rig::broker(9, &[]);
    theirs.know("t", TOPIC_ID, 9, 3, &[9]);
    let led = theirs.assign("t", TOPIC_ID, Rig::state(9, 3, &[9], &[9]));
    assert_eq!(led, ErrorCode::None);
    for n in 0..14 {
        theirs.produce("t", batch(&[&format!("w{n}")])).await;
    }
    let data = log(&theirs)
        .lock()
        .read(7, 1 << 20, ReadLimit::LogEnd, true);
    let records = gracchus_kafka_proto::Records {
        parts: data.unwrap().parts,
    };
    let log = log(&rig);
    log.lock().truncate_to(7, NOW).unwrap();
    log.lock()
        .append_as_follower(bytes_of(&records), NOW)
        .unwrap();
    assert!(matches!(
        rig.replicas.step_move(&mut job, NOW),
        Outcome::Copied(1..)
    ));
    let (ours, copied) = (all(&mut log.lock()), all(&mut future.lock()));
    assert_eq!(copied, ours);
    assert_eq!(copied[6..8], [(6, "v6".into()), (7, "w7".into())]);

    // Everything cut, and begun anew further on.
    log.lock().truncate_fully_and_start_at(50, NOW).unwrap();
    finish(&rig);
    assert_eq!(names(&rig, 1), ["t-0"]);
    assert_eq!(future.lock().log_start_offset(), 50);
    assert_eq!(future.lock().log_end_offset(), 50);
}

#[tokio::test]
async fn a_topic_deleted_in_the_middle() {
    let rig = leading();
    rig.produce("t", batch(&["a"])).await;
    alter(&rig, "t", &rig.log_dir(1)).await;
    let mut job = Job::new(id());
    rig.replicas.step_move(&mut job, NOW);
    let stop = Stop {
        id: id(),
        leader_epoch: EPOCH_DURING_DELETE,
        delete: true,
    };
    assert_eq!(
        rig.replicas.stop(1, vec![stop], NOW).unwrap()[0].1,
        ErrorCode::None
    );
    assert_eq!(rig.replicas.step_move(&mut job, NOW), Outcome::Ended);
    assert_eq!(names(&rig, 0), ["t-0.*-delete"]);
    assert_eq!(names(&rig, 1), ["t-0.*-delete"]);
}

#[tokio::test]
async fn the_target_fails_and_the_log_goes_on() {
    let rig = leading();
    rig.produce("t", batch(&["a"])).await;
    alter(&rig, "t", &rig.log_dir(1)).await;
    let mut job = Job::new(id());
    rig.replicas.step_move(&mut job, NOW);
    fail(&rig, 1);
    assert_eq!(rig.replicas.step_move(&mut job, NOW), Outcome::Ended);
    assert!(!log(&rig).lock().is_moving());
    assert_eq!(rig.produce("t", batch(&["b"])).await.base_offset, 1);
}

#[tokio::test]
async fn the_source_fails_and_the_partition_is_offline() {
    let rig = leading();
    rig.produce("t", batch(&["a"])).await;
    alter(&rig, "t", &rig.log_dir(1)).await;
    fail(&rig, 0);
    assert_eq!(
        rig.replicas.step_move(&mut Job::new(id()), NOW),
        Outcome::Ended
    );
    assert_eq!(
        rig.replicas.partition("t", 0).err(),
        Some(ErrorCode::KafkaStorageError)
    );
    assert_eq!(names(&rig, 1), ["t-0.*-future"], "for the time after");
    assert_eq!(described(&rig, 1).await, [(true, -1)]);
}

#[tokio::test]
async fn neither_retention_nor_compaction_while_it_moves() {
    let rig = leading();
    let config = gracchus_log::LogConfig {
        segment_bytes: 200,
        retention_ms: 1,
        ..Default::default()
    };
    let logs = rig.replicas.logs().clone();
    alter(&rig, "t", &rig.log_dir(1)).await;
    // of the copy too
    logs.update_topic_config("t", Arc::new(config));
    for _ in 0..10 {
        rig.produce("t", batch(&["value"])).await;
    }
    assert_eq!(logs.run_retention_once(NOW + 1_000_000), 0);
    finish(&rig);
    assert!(logs.run_retention_once(NOW + 1_000_000) > 0);
}
