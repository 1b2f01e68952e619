//! Logs in use while others are still being loaded.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogError, LogManager, LogManagerConfig, PendingLogs,
    SharedLog, StartError, TopicPartition, checkpoint,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use support::plain;

const CLEAN: &str = ".kafka_cleanshutdown";

fn id(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn append(log: &SharedLog, count: usize) {
    let mut log = log.lock();
    for n in 0..count {
        log.append_as_leader(plain(n as i64, 1, 100), 1, AppendOrigin::Client, 0)
            .unwrap();
    }
}

/// The directories, opened, nothing loaded yet.
fn open(dirs: &[&Path]) -> Result<(LogManager, PendingLogs), StartError> {
    let paths: Vec<_> = dirs.iter().map(|d| d.to_path_buf()).collect();
    let settings = LogManagerConfig {
        recovery_threads: 1,
        ..LogManagerConfig::default()
    };
    let dirs = LogDirs::open(&paths).unwrap();
    LogManager::open(dirs, settings, Arc::default(), 0)
}

/// Loads what is pending; `loaded` sees each log as it comes. True if all were loaded.
fn load(
    manager: &LogManager,
    pending: PendingLogs,
    stop: &AtomicBool,
    loaded: impl Fn(&TopicPartition) + Sync,
) -> bool {
    let control = LoadControl {
        stop,
        loaded: &loaded,
        ..LoadControl::default()
    };
    manager.load_pending(pending, &|_| Arc::default(), 0, &control)
}

/// Five logs, the first the largest.
fn fill(dir: &Path) -> LogManager {
    let (manager, pending) = open(&[dir]).unwrap();
    assert!(load(&manager, pending, &AtomicBool::default(), |_| {}));
    for partition in 0..5 {
        let log = manager
            .get_or_create(&id(partition), true, None, Arc::default(), 0)
            .unwrap();
        append(&log, 100 - 10 * partition as usize);
        let end = log.lock().log_end_offset();
        log.lock().update_high_watermark(end);
    }
    manager
}

fn end(manager: &LogManager, partition: i32) -> i64 {
    let log = manager.get(&id(partition)).unwrap();
    let log = log.lock();
    log.log_end_offset()
}

fn noted(dir: &Path, file: &str) -> BTreeMap<TopicPartition, i64> {
    checkpoint::read(&dir.join(file))
        .unwrap()
        .into_iter()
        .collect()
}

#[test]
fn a_log_is_in_use_while_others_are_recovered() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    drop(fill(dir));
    let (manager, pending) = open(&[dir]).unwrap();
    assert_eq!(pending.len(), 5);
    assert!((0..5).all(|p| manager.is_pending(&id(p)) && manager.get(&id(p)).is_none()));
    let stop = AtomicBool::default();
    let seen = Mutex::new(Vec::new());
    let whole = load(&manager, pending, &stop, |partition| {
        seen.lock().unwrap().push(partition.partition);
        assert!(!manager.is_pending(partition));
        append(&manager.get(partition).unwrap(), 7);
        // as the timers do meanwhile
        manager.checkpoint_recovery_points();
        manager.checkpoint_high_watermarks();
        manager.run_sealed_flush_once(0);
        stop.store(partition.partition == 1, SeqCst);
    });
    assert!(!whole);
    assert_eq!(*seen.lock().unwrap(), [0, 1]);
    for left in [id(2), id(4)] {
        let made = manager.get_or_create(&left, true, None, Arc::default(), 0);
        assert!(matches!(made, Err(LogError::NotLoaded { .. })));
        let deleted = manager.delete(&left, 0);
        assert!(matches!(deleted, Err(LogError::NotLoaded { .. })));
    }
    manager.shutdown(0);
    assert!(
        !dir.join(CLEAN).exists(),
        "three logs have not been checked"
    );
    let points = noted(dir, checkpoint::RECOVERY_POINT);
    assert_eq!(
        (points.get(&id(0)), points.get(&id(1))),
        (Some(&107), Some(&97))
    );
    drop(manager);

    let (manager, pending) = open(&[dir]).unwrap();
    assert!(load(&manager, pending, &AtomicBool::default(), |_| {}));
    let ends: Vec<i64> = (0..5).map(|p| end(&manager, p)).collect();
    assert_eq!(ends, [107, 97, 80, 70, 60]);
}

#[test]
fn checkpoints_keep_what_they_say_of_logs_that_are_not_loaded() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    fill(dir).shutdown(0);
    let files = [checkpoint::RECOVERY_POINT, checkpoint::HIGH_WATERMARK];
    let before = files.map(|file| noted(dir, file));
    assert_eq!(before[1].len(), 5);
    let (manager, _pending) = open(&[dir]).unwrap();
    // a new log makes all files be written
    manager
        .get_or_create(&id(9), true, None, Arc::default(), 0)
        .unwrap();
    manager.checkpoint_recovery_points();
    manager.checkpoint_high_watermarks();
    manager.checkpoint_log_starts();
    for (file, mut before) in files.into_iter().zip(before) {
        before.insert(id(9), 0);
        assert_eq!(noted(dir, file), before, "{file}");
    }
    // nothing was loaded, and all was checked before
    manager.shutdown(0);
    assert!(dir.join(CLEAN).exists());
}

#[test]
fn what_is_wanted_is_loaded_first() {
    let root = tempfile::tempdir().unwrap();
    drop(fill(root.path()));
    let (manager, pending) = open(&[root.path()]).unwrap();
    manager.want(&id(4));
    manager.want(&id(77));
    let order = Mutex::new(Vec::new());
    load(&manager, pending, &AtomicBool::default(), |partition| {
        order.lock().unwrap().push(partition.partition);
        if partition.partition == 4 {
            manager.want(&id(2));
            manager.want(&id(3));
        }
    });
    // the others the largest first
    assert_eq!(*order.lock().unwrap(), [4, 2, 3, 0, 1]);
}

#[test]
fn a_config_that_changes_while_the_log_is_opened_is_not_missed() {
    let root = tempfile::tempdir().unwrap();
    drop(fill(root.path()));
    let (manager, pending) = open(&[root.path()]).unwrap();
    let changed = Arc::new(LogConfig {
        max_message_bytes: 4711,
        ..LogConfig::default()
    });
    let changes = AtomicBool::default();
    let topic_config = |_: &str| match changes.swap(true, SeqCst) {
        true => changed.clone(),
        false => {
            manager.update_topic_config("t", changed.clone());
            Arc::default()
        }
    };
    manager.load_pending(pending, &topic_config, 0, &LoadControl::default());
    for (partition, log) in manager.logs() {
        assert_eq!(log.lock().config().max_message_bytes, 4711, "{partition}");
    }
}

/// A directory that fails takes its logs with it, those that are not loaded among them.
#[test]
fn a_directory_that_fails_while_it_is_loaded() {
    let (bad, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(fill(bad.path()));
    // a log's file that cannot be one
    let file = bad.path().join("t-2/00000000000000000000.log");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let (manager, pending) = open(&[bad.path(), good.path()]).unwrap();
    let failed = AtomicBool::default();
    let control = LoadControl {
        dir_failed: &|| failed.store(true, SeqCst),
        ..LoadControl::default()
    };
    assert!(manager.load_pending(pending, &|_| Arc::default(), 0, &control));
    assert!(failed.load(SeqCst));
    assert!(manager.logs().is_empty() && !manager.is_pending(&id(4)));
    let lost = manager.take_newly_offline();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].1.len(), 5, "{lost:?}");
    // and nobody writes into it
    manager.shutdown(0);
    assert!(!bad.path().join(CLEAN).exists() && good.path().join(CLEAN).exists());
}
