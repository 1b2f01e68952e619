//! A small disk filled to the last byte: appends are refused, reads go on, a start works, and so does the log when there is
//! space again. Needs a tmpfs of its own, so root; skipped by name without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendError, AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, TopicPartition,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use support::{plain, read_all};

struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: &Path) -> Option<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(dir)
            .stderr(std::process::Stdio::null())
            .status();
        status
            .is_ok_and(|s| s.success())
            .then(|| Self(dir.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn load(dir: &Path) -> LogManager {
    let config = Arc::new(LogConfig {
        segment_bytes: 100_000,
        index_interval_bytes: 200,
        segment_index_bytes: 12_000,
        ..LogConfig::default()
    });
    let topic = config.clone();
    let dirs = LogDirs::open(&[dir.to_path_buf()]).unwrap();
    LogManager::load(
        dirs,
        LogManagerConfig::default(),
        config,
        &move |_| topic.clone(),
        0,
        &LoadControl::default(),
    )
    .unwrap()
}

#[test]
fn full_and_not_full_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::new(dir.path()) else {
        eprintln!("skipped: full_and_not_full_again cannot mount a tmpfs");
        return;
    };
    let manager = load(dir.path());
    let partition = TopicPartition::new("t", 0);
    let config = manager.get(&partition).map_or_else(
        || {
            Arc::new(LogConfig {
                segment_bytes: 100_000,
                index_interval_bytes: 200,
                segment_index_bytes: 12_000,
                ..LogConfig::default()
            })
        },
        |l| l.lock().config().clone(),
    );
    let log = manager
        .get_or_create(&partition, true, None, config.clone(), 0)
        .unwrap();
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; 300_000]).unwrap();
    let put = |log: &gracchus_log::SharedLog| {
        let mut log = log.lock();
        let result = log.append_as_leader(plain(1, 1, 700), 0, AppendOrigin::Client, 0);
        result.map(|i| i.last_offset)
    };
    let mut last = -1;
    loop {
        match put(&log) {
            Ok(offset) => last = offset,
            Err(AppendError::Log(error)) => {
                assert!(error.is_out_of_space(), "{error}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(last < 5000);
    }
    assert!(last > 300, "several segments: {last}");
    for _ in 0..5 {
        assert!(put(&log).is_err());
        assert_eq!(log.lock().log_end_offset(), last + 1);
    }
    let count = |log: &gracchus_log::SharedLog| read_all(&mut log.lock(), 0).len() as i64;
    assert_eq!(count(&log), last + 1);
    manager.checkpoint_high_watermarks();
    manager.checkpoint_recovery_points();
    assert!(manager.offline_dirs().is_empty());
    // A new topic finds no room, and leaves nothing half-made behind.
    let other = TopicPartition::new("u", 0);
    let refused = manager.get_or_create(&other, true, None, config, 0);
    if refused.is_err() {
        assert!(!dir.path().join("u-0").exists());
    }
    // Killed and started on the full disk: to serve reads.
    drop((manager, log));
    let manager = load(dir.path());
    assert!(manager.offline_dirs().is_empty());
    let log = manager.get(&partition).unwrap();
    assert_eq!(count(&log), last + 1);
    let found = log.lock().find_by_timestamp(1).unwrap().unwrap();
    assert_eq!(found.offset, 0);
    // Stopped on it too: what cannot be written is made anew at the next start.
    manager.shutdown(0);
    drop((manager, log));
    let manager = load(dir.path());
    let log = manager.get(&partition).unwrap();
    assert_eq!(count(&log), last + 1);
    std::fs::remove_file(&ballast).unwrap();
    for n in 0..200 {
        assert_eq!(put(&log).unwrap(), last + 1 + n);
    }
    assert_eq!(count(&log), last + 201);
    manager.shutdown(0);
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
}
