//! All of a broker's logs together: directories, creation and deletion, checkpoints, failing disks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogError, LogManager, LogManagerConfig, SharedLog,
    StartError, TopicPartition, Uuid,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{files, plain, read_all};

fn load_with(dirs: &[PathBuf], config: LogConfig) -> Result<LogManager, StartError> {
    let config = Arc::new(config);
    let topic = config.clone();
    let dirs = LogDirs::open(dirs)?;
    LogManager::load(
        dirs,
        LogManagerConfig::default(),
        config,
        &move |_| topic.clone(),
        0,
        &LoadControl::default(),
    )
}

fn load(dirs: &[PathBuf]) -> LogManager {
    load_with(dirs, LogConfig::default()).unwrap()
}

fn make(manager: &LogManager, topic: &str, partition: i32) -> SharedLog {
    let partition = TopicPartition::new(topic, partition);
    let id = Some(Uuid::from_bytes([7; 16]));
    manager
        .get_or_create(&partition, true, id, Arc::default(), 0)
        .unwrap()
}

fn put(log: &SharedLog) -> Result<i64, LogError> {
    let mut log = log.lock();
    match log.append_as_leader(plain(1, 1, 100), 0, AppendOrigin::Client, 0) {
        Ok(info) => Ok(info.first_offset),
        Err(gracchus_log::AppendError::Log(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.path().is_dir())
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_emptiest_directory_takes_the_next_log() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().join("a"), root.path().join("b")];
    let manager = load(&dirs);
    for partition in 0..5 {
        make(&manager, "t", partition);
    }
    assert_eq!(names(&dirs[0]), ["t-0", "t-2", "t-4"]);
    assert_eq!(names(&dirs[1]), ["t-1", "t-3"]);
    let same = make(&manager, "t", 3);
    assert!(
        same.lock().dir().starts_with(&dirs[1]),
        "an existing one stays where it is"
    );
    let other = Uuid::from_bytes([8; 16]);
    let error = manager
        .get_or_create(
            &TopicPartition::new("t", 3),
            true,
            Some(other),
            Arc::default(),
            0,
        )
        .unwrap_err();
    assert!(
        matches!(error, LogError::InconsistentTopicId { .. }),
        "{error}"
    );
}

#[test]
fn offsets_come_back_after_a_stop_and_after_a_kill() {
    for clean in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let dirs = [root.path().to_path_buf()];
        let manager = load(&dirs);
        for partition in 0..3 {
            let log = make(&manager, "t", partition);
            for _ in 0..10 {
                put(&log).unwrap();
            }
            let mut log = log.lock();
            log.update_high_watermark(7 + i64::from(partition));
            log.delete_records(4).unwrap();
        }
        manager.checkpoint_high_watermarks();
        manager.checkpoint_log_starts();
        manager.checkpoint_recovery_points();
        if clean {
            manager.shutdown(0);
            assert!(dirs[0].join(".kafka_cleanshutdown").exists());
            assert!(!dirs[0].join(".lock").exists());
        }
        drop(manager);
        let manager = load(&dirs);
        assert!(!dirs[0].join(".kafka_cleanshutdown").exists());
        assert_eq!(manager.logs().len(), 3);
        for partition in 0..3 {
            let log = manager.get(&TopicPartition::new("t", partition)).unwrap();
            let log = log.lock();
            assert_eq!(log.log_end_offset(), 10);
            assert_eq!(log.high_watermark(), 7 + i64::from(partition));
            assert_eq!(log.log_start_offset(), 4);
            assert_eq!(log.topic_id(), Some(Uuid::from_bytes([7; 16])));
            assert_eq!(log.recovery_point(), if clean { 10 } else { 0 });
        }
    }
}

#[test]
fn a_deleted_log_goes_in_a_while_and_a_new_one_of_its_name_is_new() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().to_path_buf()];
    let manager = load(&dirs);
    let log = make(&manager, "t", 0);
    for _ in 0..10 {
        put(&log).unwrap();
    }
    log.lock().update_high_watermark(10);
    log.lock().delete_records(8).unwrap();
    manager.checkpoint_log_starts();
    let partition = TopicPartition::new("t", 0);
    assert!(manager.delete(&partition, 1000).unwrap());
    assert!(!manager.delete(&partition, 1000).unwrap());
    assert!(manager.get(&partition).is_none());
    let left = names(&dirs[0]);
    assert!(
        left[0].starts_with("t-0.") && left[0].ends_with("-delete"),
        "{left:?}"
    );
    assert!(put(&log).is_err(), "the old one takes nothing any more");
    let log = make(&manager, "t", 0);
    assert_eq!(put(&log).unwrap(), 0);
    assert_eq!(manager.run_file_deletion_once(1000 + 59_999), 0);
    // Killed now: the log start offset of the old one must not fall upon the new one.
    drop(manager);
    let manager = load(&dirs);
    assert_eq!(manager.get(&partition).unwrap().lock().log_end_offset(), 1);
    assert_eq!(manager.run_file_deletion_once(60_000), 1);
    assert_eq!(names(&dirs[0]), ["t-0"]);
}

#[test]
fn directories_that_are_none_of_ours_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().to_path_buf()];
    for name in [
        "lost+found",
        "x-0.0123456789abcdef0123456789abcdef-stray",
        "remote-log-index-cache",
    ] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    let manager = load(&dirs);
    assert!(manager.logs().is_empty());
    assert_eq!(names(root.path()).len(), 3);
}

#[test]
fn logs_of_two_topics_of_one_name_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().join("a"), root.path().join("b")];
    for (dir, id) in dirs.iter().zip([7, 8]) {
        let manager = load(std::slice::from_ref(dir));
        let id = Some(Uuid::from_bytes([id; 16]));
        let partition = TopicPartition::new("t", 0);
        manager
            .get_or_create(&partition, true, id, Arc::default(), 0)
            .unwrap();
        manager.shutdown(0);
    }
    let error = load_with(&dirs, LogConfig::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("t-0") && error.contains("two directories"),
        "{error}"
    );
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_space() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().to_path_buf()];
    let manager = load(&dirs);
    let log = make(&manager, "t", 0);
    for _ in 0..5 {
        put(&log).unwrap();
    }
    let path = log.lock().dir().join("00000000000000000000.log");
    let kept = root.path().join("kept");
    let close = || {
        manager.run_idle_once(0);
        manager.run_idle_once(0);
    };
    // A file that takes no byte.
    close();
    std::fs::rename(&path, &kept).unwrap();
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    for _ in 0..2 {
        let error = put(&log).unwrap_err();
        assert!(
            error.is_out_of_space() && !error.takes_dir_offline(),
            "{error}"
        );
        assert!(
            error.to_string().contains("00000000000000000000.log"),
            "{error}"
        );
        assert!(manager.handle_error(&error).is_empty());
        assert_eq!(log.lock().log_end_offset(), 5);
    }
    close();
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(&kept, &path).unwrap();
    assert_eq!(put(&log).unwrap(), 5);
    let entries = read_all(&mut log.lock(), 0);
    assert_eq!(entries.len(), 6);
}

#[test]
fn a_broken_disk_takes_its_directory_offline_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().join("a"), root.path().join("b")];
    let manager = load(&dirs);
    let (first, second) = (make(&manager, "t", 0), make(&manager, "t", 1));
    put(&first).unwrap();
    put(&second).unwrap();
    manager.run_idle_once(0);
    manager.run_idle_once(0);
    let path = first.lock().dir().join("00000000000000000000.log");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = put(&first).unwrap_err();
    assert!(error.takes_dir_offline(), "{error}");
    let lost = manager.handle_error(&error);
    assert_eq!(
        lost.into_iter().collect::<Vec<_>>(),
        [TopicPartition::new("t", 0)]
    );
    assert!(manager.handle_error(&error).is_empty(), "told once");
    assert_eq!(manager.take_newly_offline().len(), 1);
    assert!(manager.take_newly_offline().is_empty());
    assert!(matches!(put(&first), Err(LogError::Offline { .. })));
    put(&second).unwrap();
    assert_eq!(manager.offline_dirs(), [dirs[0].clone()]);
    // A replica that may have been on the lost disk is not made anew; a new topic's is.
    let partition = TopicPartition::new("u", 0);
    let refused = manager.get_or_create(&partition, false, None, Arc::default(), 0);
    assert!(matches!(refused, Err(LogError::Offline { .. })));
    manager
        .get_or_create(&partition, true, None, Arc::default(), 0)
        .unwrap();
    manager.shutdown(0);
    assert!(!dirs[0].join(".kafka_cleanshutdown").exists());
    assert!(dirs[1].join(".kafka_cleanshutdown").exists());
}

#[test]
fn damaged_small_files_do_not_stop_a_start() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().to_path_buf()];
    let manager = load(&dirs);
    let log = make(&manager, "t", 0);
    log.lock().assign_epoch_start(3, 0).unwrap();
    {
        let mut log = log.lock();
        for epoch in [3, 3, 5] {
            log.append_as_leader(plain(1, 1, 100), epoch, AppendOrigin::Client, 0)
                .unwrap();
        }
    }
    manager.shutdown(0);
    for name in [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
        "t-0/partition.metadata",
    ] {
        std::fs::write(root.path().join(name), b"").unwrap();
    }
    let manager = load(&dirs);
    let log = manager.get(&TopicPartition::new("t", 0)).unwrap();
    let mut log = log.lock();
    assert_eq!(log.log_end_offset(), 3);
    let epochs: Vec<_> = log
        .epochs()
        .entries()
        .iter()
        .map(|e| (e.epoch, e.start_offset))
        .collect();
    assert_eq!(epochs, [(3, 0), (5, 2)]);
    assert_eq!(log.topic_id(), None);
    log.assign_topic_id(Uuid::from_bytes([7; 16])).unwrap();
}

#[test]
fn checkpoints_are_written_only_when_they_change() {
    let root = tempfile::tempdir().unwrap();
    let dirs = [root.path().to_path_buf()];
    let manager = load(&dirs);
    let log = make(&manager, "t", 0);
    put(&log).unwrap();
    manager.checkpoint_high_watermarks();
    let path = root.path().join("replication-offset-checkpoint");
    assert_eq!(std::fs::read(&path).unwrap(), b"0\n1\nt 0 0\n");
    std::fs::remove_file(&path).unwrap();
    manager.checkpoint_high_watermarks();
    assert!(!path.exists());
    log.lock().update_high_watermark(1);
    manager.checkpoint_high_watermarks();
    assert_eq!(std::fs::read(&path).unwrap(), b"0\n1\nt 0 1\n");
}

#[test]
fn rolled_segments_and_due_logs_are_flushed() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(&[root.path().to_path_buf()]);
    let log = make(&manager, "t", 0);
    put(&log).unwrap();
    // a new log waits for its first flush with everything
    assert_eq!(manager.run_sealed_flush_once(0), 0);
    assert_eq!(log.lock().recovery_point(), 0);
    log.lock().roll(0).unwrap();
    put(&log).unwrap();
    assert_eq!(manager.run_sealed_flush_once(0), 1);
    assert_eq!(log.lock().recovery_point(), 1);
    // from then on its epochs do not wait for records
    log.lock().assign_epoch_start(7, 2).unwrap();
    assert_eq!(manager.run_sealed_flush_once(0), 1);
    assert_eq!(manager.run_sealed_flush_once(0), 0);
    assert_eq!(manager.run_flush_once(0), 0, "flush.ms is not set");
    let config = LogConfig {
        flush_ms: 100,
        ..LogConfig::default()
    };
    manager.update_topic_config("t", Arc::new(config));
    assert_eq!(manager.run_flush_once(99), 0);
    assert_eq!(manager.run_flush_once(100), 1);
    assert_eq!(log.lock().recovery_point(), 2);
    assert_eq!(manager.run_flush_once(300), 0, "nothing new");
}

#[test]
fn retention_by_time_size_and_start() {
    let small = LogConfig {
        segment_bytes: 400,
        retention_ms: 1000,
        ..LogConfig::default()
    };
    let root = tempfile::tempdir().unwrap();
    let manager = load_with(&[root.path().to_path_buf()], small.clone()).unwrap();
    let partition = TopicPartition::new("t", 0);
    let log = manager
        .get_or_create(&partition, true, None, Arc::new(small.clone()), 0)
        .unwrap();
    for timestamp in 0..12 {
        log.lock()
            .append_as_leader(plain(timestamp * 100, 1, 100), 0, AppendOrigin::Client, 0)
            .unwrap();
    }
    let start = |log: &SharedLog| log.lock().log_start_offset();
    assert_eq!(
        manager.run_retention_once(10_000),
        0,
        "not beyond the high watermark"
    );
    log.lock().update_high_watermark(12);
    // Two records a segment; the last of a segment decides: 100, 300, 500, ...
    assert_eq!(manager.run_retention_once(1100), 0);
    assert_eq!(manager.run_retention_once(1101), 1);
    assert_eq!(start(&log), 2);
    assert_eq!(manager.run_retention_once(1501), 2);
    assert_eq!(start(&log), 6);
    let config = LogConfig {
        retention_ms: -1,
        retention_bytes: 500,
        ..small.clone()
    };
    log.lock().update_config(Arc::new(config));
    // Three segments of 342 bytes: one may go and 500 are still left.
    assert_eq!(manager.run_retention_once(0), 1);
    assert_eq!(start(&log), 8);
    log.lock().delete_records(11).unwrap();
    assert_eq!(manager.run_retention_once(0), 1);
    assert_eq!(start(&log), 11);
    // All of it too old: a new segment is begun, the offsets go on.
    log.lock().update_config(Arc::new(small));
    assert_eq!(manager.run_retention_once(1 << 40), 1);
    assert_eq!(start(&log), 12);
    assert_eq!(put(&log).unwrap(), 12);
    let deleted = files(root.path())
        .into_keys()
        .filter(|p| p.extension().is_some_and(|e| e == "deleted"))
        .count();
    assert!(deleted > 0);
    assert_eq!(manager.run_file_deletion_once(i64::MAX), deleted);
}
