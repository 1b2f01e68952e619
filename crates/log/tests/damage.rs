//! Bytes from disk are data: whatever a file holds, opening and reading end in an answer, not in a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_log::index::{
    AbortedEntry, OffsetIndex, OffsetPosition, TimeEntry, TimeIndex, TxnIndex,
};
use gracchus_log::partition::OpenOptions;
use gracchus_log::producer::{ProducerEntry, read_snapshot, write_snapshot};
use gracchus_log::{AppendOrigin, LogConfig, PartitionLog, ReadLimit, TopicPartition};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use support::{files, open, plain};

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 100,
        segment_index_bytes: 4096,
        ..LogConfig::default()
    })
}

/// A directory with several segments, an abort, snapshots.
fn sample(dir: &Path) {
    let mut log = open(dir, &config(), |_| {});
    for n in 0..20 {
        log.append_as_leader(plain(n, 2, 80), 0, AppendOrigin::Client, n)
            .unwrap();
    }
    let made = support::Made {
        producer: (4, 0, 0),
        transactional: true,
        ..support::Made::default()
    };
    let bytes = made.bytes(20, &[("a", Some("x"))]);
    log.append_as_leader(bytes, 1, AppendOrigin::Client, 20)
        .unwrap();
    let end = gracchus_record::control::EndTransaction {
        marker: gracchus_record::control::Marker::Abort,
        coordinator_epoch: 0,
    };
    let bytes = end.batch(20, 4, 0).unwrap().bytes().clone();
    log.append_as_leader(bytes, 1, AppendOrigin::Markers, 20)
        .unwrap();
    log.close(20).unwrap();
}

fn use_it(dir: &Path, clean: bool, log_start: i64) {
    let options = OpenOptions {
        config: config(),
        clean,
        log_start,
        ..OpenOptions::default()
    };
    let Ok(mut log) = PartitionLog::open(dir, TopicPartition::new("t", 0), options) else {
        return;
    };
    let end = log.log_end_offset();
    assert!(log.log_start_offset() <= end);
    log.update_high_watermark(end);
    for offset in [log.log_start_offset(), end / 2, end - 1] {
        for limit in [ReadLimit::LogEnd, ReadLimit::LastStable] {
            let _ = log.read(offset, 1000, limit, true);
        }
    }
    let _ = log.find_by_timestamp(5);
    let _ = log.find_max_timestamp();
    let _ = log.append_as_leader(plain(30, 1, 10), 2, AppendOrigin::Client, 30);
    let _ = log.truncate_to(end / 2, 0);
    let _ = log.apply_retention(i64::MAX / 2);
    let _ = log.close(0);
}

proptest! {
    #![proptest_config(support::cases(80, 3000))]

    #[test]
    fn any_file_may_hold_anything(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        rubbish in proptest::collection::vec(any::<u8>(), 0..64),
        cut in any::<bool>(),
        clean in any::<bool>(),
        log_start in prop_oneof![Just(0i64), 0i64..60],
    ) {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        let all = files(dir.path());
        let (name, bytes) = all.iter().nth(which.index(all.len())).unwrap();
        let mut bytes = bytes.clone();
        let at = if bytes.is_empty() { 0 } else { at.index(bytes.len()) };
        if cut {
            bytes.truncate(at);
            bytes.extend_from_slice(&rubbish);
        } else {
            for (i, b) in rubbish.iter().enumerate() {
                if let Some(place) = bytes.get_mut(at + i) {
                    *place = *b;
                }
            }
        }
        std::fs::write(dir.path().join(name), bytes).unwrap();
        use_it(dir.path(), clean, log_start);
    }

    #[test]
    fn a_log_of_rubbish(bytes in proptest::collection::vec(any::<u8>(), 0..300), clean in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("00000000000000000000.log"), bytes).unwrap();
        use_it(dir.path(), clean, 0);
    }

    #[test]
    fn followers_survive_any_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300), flip in 0usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), &config(), |_| {});
        let _ = log.append_as_follower(bytes.into(), 0);
        let mut good = plain(1, 2, 80).to_vec();
        if let Some(b) = good.get_mut(flip) {
            *b ^= 0x41;
        }
        let _ = log.append_as_follower(good.into(), 0);
        let end = log.log_end_offset();
        prop_assert!(log.read(0, 1000, ReadLimit::LogEnd, true).is_ok());
        prop_assert!(end >= 0);
    }

    #[test]
    fn snapshots(entries in proptest::collection::vec((any::<i64>(), any::<i16>(), any::<i32>(), any::<i64>()), 0..10),
                 bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000001.snapshot");
        let mut made: Vec<ProducerEntry> = entries.into_iter().map(|(id, epoch, coordinator, txn)| {
            let mut e = ProducerEntry::empty(id);
            e.set_epoch(epoch);
            e.coordinator_epoch = coordinator;
            e.current_txn_first_offset = (txn >= 0).then_some(txn);
            e
        }).collect();
        made.sort_by_key(|e| e.producer_id);
        write_snapshot(&path, made.iter()).unwrap();
        let mut read = read_snapshot(&path).unwrap();
        read.sort_by_key(|e| e.producer_id);
        prop_assert_eq!(read.len(), made.len());
        for (a, b) in read.iter().zip(&made) {
            prop_assert_eq!(a.producer_id, b.producer_id);
        }
        std::fs::write(&path, bytes).unwrap();
        let _ = read_snapshot(&path);
    }

    #[test]
    fn indexes_as_lists(
        steps in proptest::collection::vec((1i64..50, 1u32..500, 0i64..3), 1..300),
        probes in proptest::collection::vec(0i64..20_000, 1..20),
        cut in 0i64..15_000,
        reload in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (offsets, times) = (dir.path().join("0.index"), dir.path().join("0.timeindex"));
        let (base, max) = (100i64, 400u32);
        let (mut index, mut time) = (OffsetIndex::fresh(), TimeIndex::fresh());
        index.create(&offsets, max).unwrap();
        time.create(&times, max).unwrap();
        let mut all: Vec<(OffsetPosition, TimeEntry)> = Vec::new();
        let mut entry = (OffsetPosition { offset: base, position: 0 }, TimeEntry { timestamp: 5, offset: base });
        for (offset, position, ms) in steps {
            entry.0.offset += offset;
            entry.0.position += position;
            entry.1 = TimeEntry { timestamp: entry.1.timestamp + ms, offset: entry.0.offset };
            index.push(&offsets, base, entry.0, max).unwrap();
            time.maybe_push(&times, base, entry.1, max).unwrap();
            all.push(entry);
        }
        if reload {
            index.write_out(&offsets, max).unwrap();
            time.write_out(&times, max).unwrap();
            (index, time) = (OffsetIndex::default(), TimeIndex::default());
        }
        for probe in probes {
            let found = index.lookup(&offsets, base, probe).unwrap();
            let expected = all.iter().rfind(|e| e.0.offset <= probe)
                .map_or(OffsetPosition { offset: base, position: 0 }, |e| e.0);
            prop_assert_eq!(found, expected);
            let found = time.lookup(&times, base, probe / 50).unwrap();
            let expected = all.iter().rfind(|e| e.1.timestamp <= probe / 50);
            prop_assert_eq!(found.timestamp, expected.map_or(-1, |e| e.1.timestamp));
        }
        index.truncate_to(&offsets, base, cut).unwrap();
        time.truncate_to(&times, base, cut).unwrap();
        index.trim(&offsets).unwrap();
        let left = all.iter().filter(|e| e.0.offset < cut).count() as u32;
        prop_assert_eq!(index.len(&offsets).unwrap(), left);
        prop_assert_eq!(OffsetIndex::default().len(&offsets).unwrap(), left);
    }

    #[test]
    fn transaction_indexes(entries in proptest::collection::vec((any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>()), 0..10),
                           bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.txnindex");
        let entries: Vec<AbortedEntry> = entries.into_iter().map(|(p, f, l, s)| AbortedEntry {
            producer_id: p, first_offset: f, last_offset: l, last_stable_offset: s }).collect();
        TxnIndex::append(&path, &entries).unwrap();
        prop_assert_eq!(TxnIndex::read(&path).unwrap(), entries);
        std::fs::write(&path, bytes).unwrap();
        let _ = TxnIndex::read(&path);
        let _ = TxnIndex::truncate_to(&path, 3);
    }
}
