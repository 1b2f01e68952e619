//! A log that moves to another directory: what is on disk at each step, and what a start makes of it after a crash there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, ReadLimit, SharedLog,
    StartError, TopicPartition, Uuid,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{bytes_of, copy_dir, plain, read_all, records};

const ID: Uuid = Uuid::from_bytes([7; 16]);

fn id() -> TopicPartition {
    TopicPartition::new("t", 0)
}

struct Rig {
    _root: tempfile::TempDir,
    dirs: [PathBuf; 2],
}

impl Rig {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dirs = [root.path().join("a"), root.path().join("b")];
        Self { _root: root, dirs }
    }

    fn load(&self) -> LogManager {
        self.try_load().unwrap()
    }

    fn try_load(&self) -> Result<LogManager, StartError> {
        let config = Arc::new(LogConfig::default());
        let topic = config.clone();
        LogManager::load(
            LogDirs::open(&self.dirs)?,
            LogManagerConfig::default(),
            config,
            &move |_| topic.clone(),
            0,
            &LoadControl::default(),
        )
    }

    /// Partition directories and their unique parts as `*`.
    fn names(&self) -> [Vec<String>; 2] {
        let names = |dir: &PathBuf| {
            let mut names: Vec<String> = std::fs::read_dir(dir)
                .unwrap()
                .map(|e| e.unwrap())
                .filter(|e| e.path().is_dir())
                .map(|e| e.file_name().into_string().unwrap())
                .map(|name| match name.rsplit_once('.') {
                    Some((topic, end)) => format!("{topic}.*{}", &end[32..]),
                    None => name,
                })
                .collect();
            names.sort();
            names
        };
        [names(&self.dirs[0]), names(&self.dirs[1])]
    }
}

fn put(log: &SharedLog, epoch: i32, count: usize) {
    for _ in 0..count {
        log.lock()
            .append_as_leader(plain(1, 1, 100), epoch, AppendOrigin::Client, 0)
            .unwrap();
    }
    let mut log = log.lock();
    let end = log.log_end_offset();
    log.update_high_watermark(end);
}

fn copy(from: &SharedLog, to: &SharedLog, offset: i64) {
    let mut to = to.lock();
    while to.log_end_offset() < offset {
        let at = to.log_end_offset();
        let data = from.lock().read(at, 1, ReadLimit::LogEnd, true).unwrap();
        let bytes = Bytes::from(bytes_of(&data.parts));
        to.append_as_follower(bytes, 0).unwrap();
    }
}

/// A log of ten records in the first directory, with a copy of `copied` of them in the second.
fn moving(rig: &Rig, copied: i64) -> LogManager {
    let manager = rig.load();
    let config = Arc::new(LogConfig::default());
    let log = manager
        .get_or_create(&id(), true, Some(ID), config.clone(), 0)
        .unwrap();
    put(&log, 3, 10);
    let future = manager
        .create_future(&id(), &rig.dirs[1], &config, 0)
        .unwrap();
    copy(&log, &future, copied);
    log.lock().delete_records(2).unwrap();
    manager
}

fn all(log: &SharedLog) -> Vec<support::Plain> {
    let mut log = log.lock();
    let start = log.log_start_offset();
    let mut all = records(&read_all(&mut log, start));
    all.retain(|(offset, ..)| *offset >= start);
    all
}

#[test]
fn a_copy_is_found_again_after_a_stop_and_after_a_kill() {
    for clean in [true, false] {
        let rig = Rig::new();
        let manager = moving(&rig, 6);
        assert_eq!(rig.names(), [vec!["t-0"], vec!["t-0.*-future"]]);
        manager.checkpoint_recovery_points();
        manager.checkpoint_log_starts();
        if clean {
            manager.shutdown(0);
        }
        drop(manager);
        let manager = rig.load();
        let future = manager.future(&id()).unwrap();
        assert_eq!(future.lock().log_end_offset(), 6);
        assert_eq!(future.lock().topic_id(), Some(ID));
        let log = manager.get(&id()).unwrap();
        assert!(log.lock().is_moving());
        assert!(manager.replace_with_future(&id(), 0).is_err(), "not yet");
        copy(&log, &future, 10);
        let swapped = manager.replace_with_future(&id(), 0).unwrap();
        manager.finish_swap(&swapped);
        assert_eq!(rig.names(), [vec!["t-0.*-delete"], vec!["t-0"]]);
        let log = manager.get(&id()).unwrap();
        assert!(Arc::ptr_eq(&log, &future) && !log.lock().is_moving());
        assert_eq!(all(&log).len(), 8);
    }
}

#[test]
fn offsets_go_with_the_log_to_the_checkpoints_of_its_new_directory() {
    let rig = Rig::new();
    let manager = moving(&rig, 10);
    manager.checkpoint_log_starts();
    manager.checkpoint_high_watermarks();
    for dir in &rig.dirs {
        std::fs::write(dir.join("cleaner-offset-checkpoint"), "0\n0\n").unwrap();
    }
    let swapped = manager.replace_with_future(&id(), 0).unwrap();
    manager.finish_swap(&swapped);
    let line = |dir: &Path, name: &str| {
        let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        text.lines().nth(2).map(str::to_owned)
    };
    for (name, expected) in [
        ("replication-offset-checkpoint", "t 0 10"),
        ("log-start-offset-checkpoint", "t 0 2"),
        ("recovery-point-offset-checkpoint", "t 0 0"),
    ] {
        assert_eq!(line(&rig.dirs[0], name), None, "{name}");
        assert_eq!(line(&rig.dirs[1], name).unwrap(), expected, "{name}");
    }
    drop(manager);
    let log = rig.load().get(&id()).unwrap();
    assert_eq!(log.lock().log_start_offset(), 2);
    assert_eq!(log.lock().high_watermark(), 10);
    assert_eq!(log.lock().epochs().entries().len(), 1);
}

#[test]
fn a_crash_between_the_renames_leaves_one_log_with_all_records() {
    // A power cut may keep the later one alone.
    for (first, second) in [(false, false), (true, false), (false, true), (true, true)] {
        let rig = Rig::new();
        let manager = moving(&rig, 10);
        let before = all(&manager.get(&id()).unwrap());
        drop(manager);
        let future = std::fs::read_dir(&rig.dirs[1])
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.is_dir())
            .unwrap();
        if first {
            std::fs::rename(&future, rig.dirs[1].join("t-0")).unwrap();
        }
        if second {
            let unique = "0".repeat(32);
            let to = rig.dirs[0].join(format!("t-0.{unique}-delete"));
            std::fs::rename(rig.dirs[0].join("t-0"), to).unwrap();
        }
        let manager = rig.load();
        let log = manager.get(&id()).unwrap();
        let found = all(&log);
        assert!(found.ends_with(&before), "{first} {second}: {found:?}");
        let live = rig.names().concat();
        let live = live.iter().filter(|name| *name == "t-0").count();
        assert_eq!(live, 1, "{:?}", rig.names());
        put(&log, 3, 1);
        drop(manager);
        let log = rig.load().get(&id()).unwrap();
        assert_eq!(log.lock().log_end_offset(), 11);
    }
}

#[test]
fn of_two_logs_the_one_with_the_later_records_is_kept() {
    // The old directory failed after the swap, and is back with what it had then.
    for (epoch, count, kept) in [(3, 5, "t-0.*-delete"), (4, 1, "t-0.*-delete")] {
        let rig = Rig::new();
        let manager = moving(&rig, 10);
        let old = tempfile::tempdir().unwrap();
        copy_dir(&rig.dirs[0].join("t-0"), old.path());
        let swapped = manager.replace_with_future(&id(), 0).unwrap();
        manager.finish_swap(&swapped);
        put(&swapped.log, epoch, count);
        drop(manager);
        copy_dir(old.path(), &rig.dirs[0].join("t-0"));
        let manager = rig.load();
        let log = manager.get(&id()).unwrap();
        assert!(log.lock().dir().starts_with(&rig.dirs[1]));
        assert_eq!(log.lock().log_end_offset(), 10 + count as i64);
        assert!(
            rig.names()[0].contains(&kept.to_owned()),
            "{:?}",
            rig.names()
        );
    }
}

#[test]
fn what_only_the_loser_has_is_kept_aside() {
    let rig = Rig::new();
    let manager = moving(&rig, 10);
    let swapped = manager.replace_with_future(&id(), 0).unwrap();
    manager.finish_swap(&swapped);
    swapped.log.lock().truncate_to(5, 0).unwrap();
    put(&swapped.log, 9, 1);
    drop(manager);
    let doomed = std::fs::read_dir(&rig.dirs[0])
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.is_dir())
        .unwrap();
    std::fs::rename(doomed, rig.dirs[0].join("t-0")).unwrap();
    let manager = rig.load();
    let log = manager.get(&id()).unwrap();
    assert_eq!(log.lock().log_end_offset(), 6);
    assert_eq!(rig.names(), [vec!["t-0.*-stray"], vec!["t-0"]]);
}

#[test]
fn what_a_copy_cannot_be_made_of() {
    let rig = Rig::new();
    drop(moving(&rig, 3));
    let [a, b] = &rig.dirs;
    // A second copy with less in it, and one beside the log itself.
    let copy = std::fs::read_dir(b)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.is_dir())
        .unwrap();
    let name = |digit: &str| format!("t-0.{}-future", digit.repeat(32));
    std::fs::create_dir(b.join(name("1"))).unwrap();
    std::fs::create_dir(a.join(name("2"))).unwrap();
    let manager = rig.load();
    assert_eq!(
        manager.future(&id()).unwrap().lock().dir(),
        copy,
        "the one with more in it"
    );
    assert_eq!(
        rig.names(),
        [
            vec!["t-0", "t-0.*-future"],
            vec!["t-0.*-delete", "t-0.*-future"]
        ]
    );
}

#[test]
fn compacted_away_up_to_the_end() {
    let rig = Rig::new();
    let manager = moving(&rig, 10);
    let log = manager.get(&id()).unwrap();
    log.lock().skip_to(25, 0).unwrap();
    let future = manager.future(&id()).unwrap();
    future.lock().skip_to(25, 0).unwrap();
    put(&log, 3, 1);
    copy(&log, &future, 26);
    let swapped = manager.replace_with_future(&id(), 0).unwrap();
    manager.finish_swap(&swapped);
    drop(manager);
    let log = rig.load().get(&id()).unwrap();
    assert_eq!(log.lock().log_end_offset(), 26);
    let all = all(&log);
    assert_eq!((all[7].0, all[8].0), (9, 25));
}
