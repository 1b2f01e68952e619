//! What a follower's log needs: the leader's batches as they come, many at once, and cuts of every kind.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use gracchus_log::dirs::LogDirs;
use gracchus_log::index::AbortedEntry;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogError, LogManager, LogManagerConfig, PartitionLog,
    ReadLimit, SharedLog, TopicPartition,
};
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{BatchBuilder, Codec, NewRecord};
use std::path::Path;
use std::sync::Arc;
use support::{Made, bytes_of, open, plain, read_all};

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 100,
        segment_index_bytes: 4096,
        ..LogConfig::default()
    })
}

fn put(log: &mut PartitionLog, count: i64) {
    for n in 0..count {
        log.append_as_leader(plain(n, 1, 100), 1, AppendOrigin::Client, 0)
            .unwrap();
    }
}

fn aborted(log: &mut PartitionLog) -> Vec<AbortedEntry> {
    (0..log.segment_count())
        .flat_map(|at| log.segment_at(at).unwrap().aborted().unwrap())
        .collect()
}

/// What a leader appended one by one comes to a follower at once: its transaction index must say the same, or a reader of
/// committed records would be shown aborted ones.
#[test]
fn transactions_that_come_at_once() {
    let root = tempfile::tempdir().unwrap();
    let whole = Arc::new(LogConfig::default());
    let mut leader = open(&root.path().join("a-0"), &whole, |_| {});
    let mut sequences = [0; 5];
    let mut send = |leader: &mut PartitionLog, id: i64| {
        let sequence = &mut sequences[id as usize];
        let made = Made {
            producer: (id, 0, *sequence),
            transactional: true,
            ..Made::default()
        };
        *sequence += 1;
        let bytes = made.bytes(1, &[("k", Some("v"))]);
        leader
            .append_as_leader(bytes, 0, AppendOrigin::Client, 0)
            .unwrap();
    };
    let end = |leader: &mut PartitionLog, id: i64, marker| {
        let batch = EndTransaction {
            marker,
            coordinator_epoch: 0,
        };
        let bytes = batch.batch(1, id, 0).unwrap().bytes().clone();
        leader
            .append_as_leader(bytes, 0, AppendOrigin::Markers, 0)
            .unwrap();
    };
    // 1 begins at 0, 2 at 1; 1 aborts at 2 and begins anew at 3; 2 aborts at 4, 3 commits meanwhile, 1 aborts again
    for id in [1, 2] {
        send(&mut leader, id);
    }
    end(&mut leader, 1, Marker::Abort);
    send(&mut leader, 1);
    end(&mut leader, 2, Marker::Abort);
    send(&mut leader, 3);
    end(&mut leader, 3, Marker::Commit);
    send(&mut leader, 4);
    end(&mut leader, 1, Marker::Abort);
    let expected = aborted(&mut leader);
    let stable: Vec<_> = expected.iter().map(|e| e.last_stable_offset).collect();
    assert_eq!(stable, [1, 3, 7]);
    let data = leader.read(0, 1 << 20, ReadLimit::LogEnd, true).unwrap();
    let mut follower = open(&root.path().join("b-0"), &whole, |_| {});
    follower
        .append_as_follower(bytes_of(&data.parts).into(), 0)
        .unwrap();
    assert_eq!(aborted(&mut follower), expected);
    follower.update_high_watermark(9);
    assert_eq!(follower.last_stable_offset(), 7);
}

#[test]
fn an_epoch_without_records_goes_with_any_truncation() {
    let root = tempfile::tempdir().unwrap();
    let mut log = open(root.path(), &config(), |_| {});
    put(&mut log, 3);
    log.assign_epoch_start(5, 3).unwrap();
    // the new leader's log is longer: nothing is cut, but its epoch at 3 is another one
    assert!(!log.truncate_to(10, 0).unwrap());
    assert_eq!(log.latest_epoch(), Some(1));
}

fn batch(offset: i64, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None)
        .base_offset(offset)
        .leader_epoch(3);
    for timestamp in 0..count as i64 {
        builder.push(NewRecord {
            timestamp,
            key: Some(b"k"),
            value: Some(b"v"),
            headers: &[],
        });
    }
    builder.build().unwrap().bytes().clone()
}

/// DeleteRecords on the leader moved its start into the middle of a batch, which comes whole.
#[test]
fn a_log_that_starts_inside_of_a_batch() {
    let root = tempfile::tempdir().unwrap();
    let mut log = open(&root.path().join("t-0"), &config(), |_| {});
    put(&mut log, 4);
    log.truncate_fully_and_start_at(105, 0).unwrap();
    let done = log.append_as_follower(batch(100, 10), 0).unwrap();
    assert_eq!((done.first_offset, done.last_offset), (100, 109));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (105, 110));
    let data = log.read(105, 1 << 20, ReadLimit::LogEnd, true).unwrap();
    assert_eq!(data.bytes, batch(100, 10).len() as u64);
    assert!(log.read(104, 1, ReadLimit::LogEnd, true).is_err());
    assert_eq!(log.latest_epoch(), Some(3));
    drop(log);
    let log = open(&root.path().join("t-0"), &config(), |o| o.log_start = 105);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (105, 110));
    // with records there is nothing to begin anew for
    let mut log = log;
    assert!(log.append_as_follower(batch(106, 10), 0).is_err());
    assert_eq!(log.log_end_offset(), 110);
}

#[test]
fn truncation_across_segments() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    let mut log = open(&dir, &config(), |_| {});
    put(&mut log, 20);
    log.flush(0).unwrap();
    log.update_high_watermark(18);
    for (to, segments) in [(13, 5), (9, 4), (3, 2), (0, 1)] {
        assert!(log.truncate_to(to, 0).unwrap());
        assert_eq!(log.segment_count(), segments, "{to}");
        assert_eq!(log.log_end_offset(), to);
        assert_eq!(log.high_watermark(), to);
        assert_eq!(log.recovery_point(), to);
        assert_eq!(read_all(&mut log, 0).len() as i64, to);
        drop(log);
        log = open(&dir, &config(), |o| o.recovery_point = to);
        assert_eq!(log.log_end_offset(), to);
        log.update_high_watermark(i64::MAX);
        log.flush(0).unwrap();
    }
}

// --- the checkpoints

fn load(dir: &Path) -> LogManager {
    LogManager::load(
        LogDirs::open(&[dir.to_path_buf()]).unwrap(),
        LogManagerConfig::default(),
        config(),
        &|_| config(),
        0,
        &LoadControl::default(),
    )
    .unwrap()
}

fn make(manager: &LogManager) -> SharedLog {
    let partition = TopicPartition::new("t", 0);
    manager
        .get_or_create(&partition, true, None, config(), 0)
        .unwrap()
}

fn checkpoint(dir: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(dir.join(format!("{name}-offset-checkpoint"))).unwrap();
    text.lines().skip(2).collect::<Vec<_>>().join(";")
}

#[test]
fn a_truncation_lowers_the_recovery_point_on_disk() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager);
    put(&mut log.lock(), 20);
    manager.flush(&log, 0).unwrap();
    manager.checkpoint_recovery_points();
    assert_eq!(checkpoint(root.path(), "recovery-point"), "t 0 20");
    let partition = TopicPartition::new("t", 0);
    log.lock().truncate_to(7, 0).unwrap();
    manager.checkpoint_truncation(&partition);
    assert_eq!(checkpoint(root.path(), "recovery-point"), "t 0 7");
    // above it nothing is written: the periodic checkpoint does
    put(&mut log.lock(), 5);
    log.lock().truncate_to(8, 0).unwrap();
    let path = root.path().join("recovery-point-offset-checkpoint");
    std::fs::remove_file(&path).unwrap();
    manager.checkpoint_truncation(&partition);
    assert!(!path.exists());
}

#[test]
fn a_cut_by_recovery_lowers_it_too() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager);
    put(&mut log.lock(), 2);
    manager.flush(&log, 0).unwrap();
    manager.checkpoint_recovery_points();
    drop((log, manager));
    // the device lost what it had acknowledged
    let path = root.path().join("t-0/00000000000000000000.log");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let manager = load(root.path());
    let log = manager.get(&TopicPartition::new("t", 0)).unwrap();
    assert_eq!(log.lock().log_end_offset(), 1);
    assert_eq!(checkpoint(root.path(), "recovery-point"), "t 0 1");
}

#[test]
fn a_new_log_inherits_nothing_from_a_former_one_of_its_name() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager);
    put(&mut log.lock(), 20);
    log.lock().update_high_watermark(20);
    log.lock().delete_records(5).unwrap();
    manager.flush(&log, 0).unwrap();
    let all = |manager: &LogManager| {
        manager.checkpoint_recovery_points();
        manager.checkpoint_high_watermarks();
        manager.checkpoint_log_starts();
    };
    all(&manager);
    let partition = TopicPartition::new("t", 0);
    let renew = |manager: &LogManager| {
        assert!(manager.delete(&partition, 0).unwrap());
        assert_ne!(checkpoint(root.path(), "recovery-point"), "");
        let log = make(manager);
        for name in ["recovery-point", "replication", "log-start"] {
            assert_eq!(checkpoint(root.path(), name), "", "{name}");
        }
        log
    };
    let log = renew(&manager);
    put(&mut log.lock(), 20);
    all(&manager);
    manager.shutdown(0);
    // and when the broker was restarted in between
    renew(&load(root.path()));
}

#[test]
fn a_closed_log_takes_nothing_more() {
    let root = tempfile::tempdir().unwrap();
    let manager = load(root.path());
    let log = make(&manager);
    put(&mut log.lock(), 1);
    manager.shutdown(0);
    let mut log = log.lock();
    let refused = log.append_as_leader(plain(1, 1, 1), 0, AppendOrigin::Client, 0);
    assert!(matches!(
        refused,
        Err(gracchus_log::AppendError::Log(LogError::Closed { .. }))
    ));
}

/// Small batches are kept together: what stays of them after a cut in their middle is on disk, and must not be passed over
/// because older and newer ones are in memory.
#[test]
fn readers_meet_everything_around_a_cut() {
    let root = tempfile::tempdir().unwrap();
    let whole = Arc::new(LogConfig::default());
    let mut log = open(&root.path().join("t-0"), &whole, |_| {});
    // somebody waits at the end, so that what comes is kept
    log.read(0, 1, ReadLimit::LogEnd, true).unwrap();
    for size in [40_000, 100, 100, 100] {
        log.append_as_leader(plain(1, 1, size), 1, AppendOrigin::Client, 0)
            .unwrap();
    }
    log.truncate_to(3, 0).unwrap();
    for size in [100, 40_000] {
        log.append_as_leader(plain(1, 1, size), 2, AppendOrigin::Client, 0)
            .unwrap();
    }
    for from in 0..5 {
        let offsets: Vec<i64> = read_all(&mut log, from)
            .iter()
            .map(|b| b.base_offset())
            .collect();
        assert_eq!(offsets, (from..5).collect::<Vec<_>>());
    }
}
