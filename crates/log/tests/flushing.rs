//! What is on the device when the recovery point moves, and what happens when the device refuses.
#![allow(clippy::unwrap_used)]

mod support;

use gracchus_kafka_proto::Uuid;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogError, LogManager, LogManagerConfig, PartitionLog,
    SharedLog, TopicPartition,
};
use std::path::Path;
use std::sync::Arc;
use support::plain;

fn load(dir: &Path) -> LogManager {
    LogManager::load(
        LogDirs::open(&[dir.to_path_buf()]).unwrap(),
        LogManagerConfig::default(),
        Arc::default(),
        &|_| Arc::default(),
        0,
        &LoadControl::default(),
    )
    .unwrap()
}

fn make(manager: &LogManager, config: LogConfig) -> SharedLog {
    let partition = TopicPartition::new("t", 0);
    let id = Some(Uuid::from_bytes([7; 16]));
    manager
        .get_or_create(&partition, true, id, Arc::new(config), 0)
        .unwrap()
}

fn put(log: &SharedLog) -> bool {
    let mut log = log.lock();
    let done = log.append_as_leader(plain(1, 1, 100), 3, AppendOrigin::Client, 0);
    done.unwrap().flush_due
}

/// The names of what a flush of everything gives to the device, and does so.
fn flushed(log: &mut PartitionLog) -> Vec<String> {
    let mut names = Vec::new();
    let end = log.log_end_offset();
    while let Some(task) = log.begin_flush(end, 0).unwrap() {
        let name = |p: &std::path::PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
        names.extend(task.paths().iter().map(name));
        task.run().unwrap();
        log.finish_flush(&task);
    }
    assert_eq!(log.recovery_point(), end);
    names
}

#[test]
fn names_are_flushed_with_the_records_that_need_them() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("logs");
    let manager = load(&dir);
    let log = make(&manager, LogConfig::default());
    log.lock().assign_epoch_start(3, 0).unwrap();
    assert_eq!(
        flushed(&mut log.lock()),
        [""; 0],
        "a log without records needs nothing"
    );
    put(&log);
    let segment = [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    ];
    let small = ["leader-epoch-checkpoint", "partition.metadata"];
    let first = flushed(&mut log.lock());
    assert_eq!(
        first,
        [&segment[..], &small[..], &["t-0", "logs"][..]].concat()
    );
    put(&log);
    assert_eq!(flushed(&mut log.lock()), segment, "the same files");
    // a new segment, its name and the snapshot at its start
    put(&log);
    log.lock().roll(0).unwrap();
    put(&log);
    let names = flushed(&mut log.lock());
    for wanted in [
        "00000000000000000000.log",
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "t-0",
    ] {
        assert!(names.iter().any(|n| n == wanted), "{wanted}: {names:?}");
    }
    assert!(!names.contains(&"logs".to_owned()), "{names:?}");
    // another leader epoch
    let mut log = log.lock();
    log.append_as_leader(plain(1, 1, 100), 4, AppendOrigin::Client, 0)
        .unwrap();
    let names = flushed(&mut log);
    assert!(names.contains(&small[0].to_owned()), "{names:?}");
    // a truncation
    log.truncate_to(4, 0).unwrap();
    log.append_as_leader(plain(1, 1, 100), 5, AppendOrigin::Client, 0)
        .unwrap();
    assert!(flushed(&mut log).contains(&"t-0".to_owned()));
}

#[test]
fn a_log_that_was_killed_does_not_trust_the_names_it_finds() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    put(&make(&manager, LogConfig::default()));
    drop(manager);
    let manager = load(root.path());
    let log = manager.get(&TopicPartition::new("t", 0)).unwrap();
    assert_eq!(
        manager.run_sealed_flush_once(0),
        0,
        "not for its own sake: thousands of logs may have been killed"
    );
    put(&log);
    assert!(flushed(&mut log.lock()).contains(&"t-0".to_owned()));
}

#[test]
fn many_segments_are_flushed_in_parts() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager, LogConfig::default());
    for _ in 0..50 {
        put(&log);
        log.lock().roll(0).unwrap();
    }
    let mut log = log.lock();
    let task = log.begin_flush(50, 0).unwrap().unwrap();
    assert!(task.paths().len() < 80, "{}", task.paths().len());
    task.run().unwrap();
    log.finish_flush(&task);
    assert_eq!(log.recovery_point(), 16);
    flushed(&mut log);
}

#[test]
fn appends_go_on_while_the_device_works() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager, LogConfig::default());
    put(&log);
    let task = log.lock().begin_flush(1, 0).unwrap().unwrap();
    put(&log);
    task.run().unwrap();
    log.lock().finish_flush(&task);
    assert_eq!(log.lock().recovery_point(), 1);
}

#[test]
fn flush_messages_is_told_to_who_appended() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let config = LogConfig {
        flush_messages: 2,
        ..LogConfig::default()
    };
    let log = make(&manager, config);
    assert!(!put(&log));
    assert!(put(&log));
    manager.flush(&log, 0).unwrap();
    assert_eq!(log.lock().recovery_point(), 2);
    assert!(!put(&log));
}

/// What could not be flushed may be lost, and a second fsync would not tell: the directory goes offline, whatever the
/// reason, and nothing is acknowledged from it any more.
#[test]
fn a_device_that_refuses_takes_the_directory_offline() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager, LogConfig::default());
    put(&log);
    // a file that opens and cannot be synced
    let path = log.lock().dir().join("00000000000000000000.snapshot");
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    let error = manager.flush(&log, 0).unwrap_err();
    assert!(
        matches!(error, LogError::Sync { .. }) && error.takes_dir_offline(),
        "{error}"
    );
    assert_eq!(log.lock().recovery_point(), 0);
    assert_eq!(manager.handle_error(&error).len(), 1);
    let refused = manager.flush(&log, 0).unwrap_err();
    assert!(matches!(refused, LogError::Offline { .. }), "{refused}");
    let full = LogError::Sync {
        path,
        source: std::io::ErrorKind::StorageFull.into(),
    };
    assert!(full.takes_dir_offline() && !full.is_out_of_space());
}
