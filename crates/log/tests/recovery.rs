//! Recovery after a crash: only what lies above the recovery point is looked at, and what was looked at once is not
//! looked at again.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, PartitionLog, StartError,
    TopicPartition,
};
use gracchus_record::control::{EndTransaction, Marker};
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use support::{Made, cases, copy_dir, files, open, plain, read_all, records};

const CLEAN: &str = ".kafka_cleanshutdown";

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        index_interval_bytes: 300,
        segment_index_bytes: 4096,
        ..LogConfig::default()
    })
}

fn append(log: &mut PartitionLog, count: usize) {
    for n in 0..count {
        log.append_as_leader(plain(n as i64, 1, 100), 1, AppendOrigin::Client, 0)
            .unwrap();
    }
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
}

#[test]
fn what_was_flushed_is_not_looked_at() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    let mut log = open(&dir, &config(), |_| {});
    append(&mut log, 50);
    log.flush(0).unwrap();
    append(&mut log, 50);
    drop(log);
    let path = dir.join("00000000000000000000.log");
    let size = std::fs::metadata(&path).unwrap().len() / 100;
    // damage below goes unseen until it is read, damage above ends the log
    flip(&path, 20 * size + 100);
    flip(&path, 70 * size + 100);
    let end = |recovery_point| {
        let other = tempfile::tempdir().unwrap();
        copy_dir(root.path(), other.path());
        let log = open(&other.path().join("t-0"), &config(), |o| {
            o.recovery_point = recovery_point;
        });
        assert_eq!(
            log.recovery_point(),
            recovery_point.min(log.log_end_offset())
        );
        log.log_end_offset()
    };
    assert_eq!(end(50), 70);
    assert_eq!(end(0), 20);
    assert_eq!(end(20), 20);
    assert_eq!(end(21), 70);
    // beyond the end of what is there: nothing is trusted
    assert_eq!(end(100), 100, "the whole of it was flushed");
    assert_eq!(end(101), 20);
    // an index that does not lead to a batch
    let index = dir.join("00000000000000000000.index");
    let mut bytes = std::fs::read(&index).unwrap();
    for entry in bytes.chunks_exact_mut(8) {
        if entry != [0; 8] {
            entry[7] ^= 1;
        }
    }
    std::fs::write(&index, bytes).unwrap();
    assert_eq!(end(50), 20);
    std::fs::remove_file(&index).unwrap();
    assert_eq!(end(50), 20);
}

#[derive(Debug, Clone)]
enum Step {
    Put(i64, usize),
    Idempotent,
    Transaction(bool),
    Epoch,
    Roll,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0i64..1000, 1usize..5).prop_map(|(t, n)| Step::Put(t, n)),
        3 => Just(Step::Idempotent),
        3 => any::<bool>().prop_map(Step::Transaction),
        1 => Just(Step::Epoch),
        1 => Just(Step::Roll),
        2 => Just(Step::Flush),
    ]
}

/// Everything that a log tells of itself.
fn told(log: &mut PartitionLog) -> String {
    let end = log.log_end_offset();
    log.update_high_watermark(end);
    let mut producers = log.active_producers();
    producers.sort_by_key(|p| p.producer_id);
    let times: Vec<_> = (0..1000)
        .step_by(50)
        .map(|t| log.find_by_timestamp(t).unwrap())
        .collect();
    let aborted: Vec<_> = (0..log.segment_count())
        .map(|at| log.segment_at(at).unwrap().aborted().unwrap())
        .collect();
    let rows = records(&read_all(log, 0));
    let newest = log.find_max_timestamp().unwrap();
    format!(
        "{end} {} {producers:?} {:?} {times:?} {newest:?} {aborted:?} {rows:?}",
        log.last_stable_offset(),
        log.epochs().entries(),
    )
}

proptest! {
    #![proptest_config(cases(60, 2000))]

    /// From the recovery point or from the start: the same log.
    #[test]
    fn from_the_recovery_point_as_from_the_start(steps in proptest::collection::vec(step(), 1..40), torn in 0u64..200) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t-0");
        let mut log = open(&dir, &config(), |_| {});
        let (mut epoch, mut sequence, mut open_txn) = (1, 0, false);
        for step in steps {
            let append = |log: &mut PartitionLog, bytes, origin| {
                log.append_as_leader(bytes, epoch, origin, 0).unwrap();
            };
            match step {
                Step::Put(time, count) => append(&mut log, plain(time, count, 60), AppendOrigin::Client),
                Step::Idempotent => {
                    let made = Made { producer: (8, 0, sequence), ..Made::default() };
                    append(&mut log, made.bytes(5, &[("k", Some("v"))]), AppendOrigin::Client);
                    sequence += 1;
                }
                Step::Transaction(abort) => {
                    let bytes = if open_txn {
                        let marker = if abort { Marker::Abort } else { Marker::Commit };
                        EndTransaction { marker, coordinator_epoch: 0 }
                            .batch(9, 9, 0).unwrap().bytes().clone()
                    } else {
                        let known = log.active_producers().iter().find(|p| p.producer_id == 9).map_or(0, |p| p.last_sequence + 1);
                        let made = Made { producer: (9, 0, known), transactional: true, ..Made::default() };
                        made.bytes(7, &[("a", Some("b"))])
                    };
                    let origin = if open_txn { AppendOrigin::Markers } else { AppendOrigin::Client };
                    append(&mut log, bytes, origin);
                    open_txn = !open_txn;
                }
                Step::Epoch => epoch += 1,
                Step::Roll => { log.roll(0).unwrap(); }
                Step::Flush => log.flush(0).unwrap(),
            }
        }
        let recovery_point = log.recovery_point();
        drop(log);
        // a torn tail, above what was flushed
        let all = files(&dir);
        let last = all.keys().filter(|n| n.extension().is_some_and(|e| e == "log")).max();
        if let Some(last) = last.map(|n| dir.join(n)) {
            let file = std::fs::OpenOptions::new().append(true).open(&last).unwrap();
            file.set_len(file.metadata().unwrap().len() + torn).unwrap();
        }
        let whole = tempfile::tempdir().unwrap();
        copy_dir(root.path(), whole.path());
        let mut from_start = open(&whole.path().join("t-0"), &config(), |_| {});
        let mut from_point = open(&dir, &config(), |o| o.recovery_point = recovery_point);
        prop_assert_eq!(told(&mut from_point), told(&mut from_start));
        // and both go on
        for log in [&mut from_point, &mut from_start] {
            append(log, 3);
        }
        prop_assert_eq!(told(&mut from_point), told(&mut from_start));
    }
}

// --- many logs

fn load(dir: &Path, stop_at: usize, lines: &Mutex<Vec<String>>) -> Result<LogManager, StartError> {
    let (stop, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    let control = LoadControl {
        stop: &stop,
        progress: &|p| lines.lock().unwrap().push(p.to_string()),
        keep_every: Duration::ZERO,
        ..LoadControl::default()
    };
    let settings = LogManagerConfig {
        recovery_threads: 1,
        ..LogManagerConfig::default()
    };
    let topic_config = |_: &str| {
        if opened.fetch_add(1, SeqCst) + 1 == stop_at {
            stop.store(true, SeqCst);
        }
        config()
    };
    let dirs = LogDirs::open(&[dir.to_path_buf()]).unwrap();
    LogManager::load(dirs, settings, config(), &topic_config, 0, &control)
}

/// Five logs of sizes that tell in which order they are loaded, the largest first.
fn fill(dir: &Path) -> LogManager {
    let manager = load(dir, 0, &Mutex::default()).unwrap();
    for partition in 0..5 {
        let id = TopicPartition::new("t", partition);
        let log = manager.get_or_create(&id, true, None, config(), 0).unwrap();
        append(&mut log.lock(), 100 - 10 * partition as usize);
    }
    manager
}

fn ends(manager: &LogManager) -> Vec<i64> {
    let end = |p| {
        let log = manager.get(&TopicPartition::new("t", p)).unwrap();
        let log = log.lock();
        log.log_end_offset()
    };
    (0..5).map(end).collect()
}

#[test]
fn a_stopped_recovery_goes_on_where_it_was() {
    let root = tempfile::tempdir().unwrap();
    drop(fill(root.path()));
    let lines = Mutex::default();
    // told to stop when the third is begun
    let stopped = load(root.path(), 3, &lines).unwrap_err();
    assert!(matches!(stopped, StartError::Stopped), "{stopped}");
    let left = |name: &str| root.path().join(name).exists();
    assert!(!left(CLEAN) && !left(".lock"));
    let checkpoint =
        std::fs::read_to_string(root.path().join("recovery-point-offset-checkpoint")).unwrap();
    let mut kept: Vec<_> = checkpoint.lines().skip(2).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["t 0 100", "t 1 90"]);
    let last = lines.lock().unwrap().last().cloned().unwrap();
    assert!(last.starts_with("recovered 2/5 partitions, "), "{last}");
    // damage that only a second look could find
    for partition in 0..5 {
        let path = root
            .path()
            .join(format!("t-{partition}/00000000000000000000.log"));
        flip(&path, 100);
    }
    let manager = load(root.path(), 0, &lines).unwrap();
    assert_eq!(ends(&manager), [100, 90, 0, 0, 0]);
    let recovery_point = |p| {
        let log = manager.get(&TopicPartition::new("t", p)).unwrap();
        let log = log.lock();
        log.recovery_point()
    };
    assert_eq!((recovery_point(0), recovery_point(1)), (100, 90));
    let last = lines.lock().unwrap().last().cloned().unwrap();
    assert!(last.starts_with("recovered 5/5 partitions, "), "{last}");
}

#[test]
fn a_stopped_load_after_a_clean_stop_is_still_clean() {
    let root = tempfile::tempdir().unwrap();
    fill(root.path()).shutdown(0);
    let before = files(root.path());
    assert!(before.contains_key(Path::new(CLEAN)));
    let lines = Mutex::default();
    let stopped = load(root.path(), 2, &lines).unwrap_err();
    assert!(matches!(stopped, StartError::Stopped), "{stopped}");
    assert_eq!(files(root.path()), before);
    let manager = load(root.path(), 0, &lines).unwrap();
    assert_eq!(ends(&manager), [100, 90, 80, 70, 60]);
    assert_eq!(
        lines.lock().unwrap().last().unwrap(),
        "loaded 5/5 partitions"
    );
}

/// A lost index makes its segment be looked at; damage in it is a hole, as Kafka leaves it, and no reason to drop what came
/// after and was stopped cleanly.
#[test]
fn damage_in_an_old_segment_costs_no_other() {
    for clean in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t-0");
        let small = Arc::new(LogConfig {
            segment_bytes: 600,
            ..(*config()).clone()
        });
        let mut log = open(&dir, &small, |_| {});
        append(&mut log, 12);
        log.close(0).unwrap();
        drop(log);
        flip(&dir.join("00000000000000000003.log"), 200);
        std::fs::remove_file(dir.join("00000000000000000003.index")).unwrap();
        let mut log = open(&dir, &small, |o| {
            o.clean = clean;
            o.recovery_point = 12;
        });
        assert_eq!(log.log_end_offset(), 12);
        let found: Vec<i64> = records(&read_all(&mut log, 0))
            .iter()
            .map(|r| r.0)
            .collect();
        assert_eq!(found, [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]);
    }
}
