//! Logs that store message sets of format v0 or v1: `message.format.version` under an old inter-broker protocol.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use gracchus_log::{AppendOrigin, CompressionType, LogConfig, PartitionLog, ReadLimit};
use gracchus_record::{Codec, Entry};
use std::path::Path;
use std::sync::Arc;
use support::{Made, bytes_of, open, read_all, records};

const NOW: i64 = 1_700_000_000_000;
const EPOCHS: &str = "leader-epoch-checkpoint";

fn config(magic: i8) -> LogConfig {
    LogConfig {
        magic,
        segment_bytes: 700,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

fn append(log: &mut PartitionLog, at: i64, codec: Codec) {
    let epoch = log.latest_epoch().unwrap_or(4);
    let made = Made {
        codec,
        ..Made::default()
    };
    let values: Vec<String> = (at..at + 3).map(|i| format!("value {i}")).collect();
    let rows: Vec<_> = values.iter().map(|v| ("k", Some(v.as_str()))).collect();
    let bytes = made.bytes(NOW + at, &rows);
    let done = log
        .append_as_leader(bytes, epoch, AppendOrigin::Client, NOW)
        .unwrap();
    assert_eq!((done.first_offset, done.last_offset), (at, at + 2));
    log.update_high_watermark(i64::MAX);
}

fn check(log: &mut PartitionLog, magic: i8, count: i64) {
    assert_eq!(log.log_end_offset(), count);
    let all = read_all(log, 0);
    assert!(all.iter().all(|e| e.magic() == magic));
    let rows = records(&all);
    let expected: Vec<_> = (0..count)
        .map(|i| (i, Some(b"k".to_vec()), Some(format!("value {i}").into())))
        .collect();
    assert_eq!(rows, expected);
    for offset in 0..count {
        let data = log.read(offset, 1, ReadLimit::LogEnd, true).unwrap();
        let first = Entry::parse(&Bytes::from(bytes_of(&data.parts))).unwrap();
        assert!(first.last_offset() >= offset && first.last_offset() <= offset + 2);
        if magic == 1 {
            let sent = NOW + offset / 3 * 3;
            let found = log.find_by_timestamp(sent).unwrap().unwrap();
            assert_eq!((found.offset, found.leader_epoch), (offset / 3 * 3, -1));
        }
    }
}

#[test]
fn what_comes_is_stored_in_the_configured_format() {
    for magic in [0i8, 1] {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("t-0");
            let config = Arc::new(config(magic));
            let mut log = open(&dir, &config, |o| o.now_ms = NOW);
            for at in 0..30 {
                append(&mut log, at * 3, codec);
            }
            assert!(log.segment_count() > 2);
            check(&mut log, magic, 90);
            drop(log);
            // killed: everything is checked and the indexes are made anew
            let mut log = open(&dir, &config, |o| o.now_ms = NOW);
            check(&mut log, magic, 90);
            log.truncate_to(60, NOW).unwrap();
            check(&mut log, magic, 60);
            log.close(NOW).unwrap();
            drop(log);
            let mut log = open(&dir, &config, |o| {
                o.now_ms = NOW;
                o.clean = true;
            });
            check(&mut log, magic, 60);
        }
    }
}

#[test]
fn no_leader_epochs_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    let epochs = |dir: &Path| dir.join(EPOCHS).exists();
    let new = Arc::new(config(2));
    let old = Arc::new(config(1));
    let mut log = open(&dir, &new, |_| {});
    log.assign_epoch_start(4, 0).unwrap();
    append(&mut log, 0, Codec::None);
    assert!(epochs(&dir));
    // downgraded while it runs
    log.update_config(old.clone());
    assert!(!epochs(&dir));
    log.assign_epoch_start(5, 3).unwrap();
    append(&mut log, 3, Codec::None);
    assert_eq!((log.latest_epoch(), epochs(&dir)), (None, false));
    assert_eq!(log.end_offset_for_epoch(4).end_offset, -1);
    // and back: epochs begin with the next leader
    log.update_config(new.clone());
    log.assign_epoch_start(6, 6).unwrap();
    append(&mut log, 6, Codec::None);
    assert_eq!(log.epoch_for_offset(5), None);
    assert_eq!(log.latest_epoch(), Some(6));
    drop(log);
    // downgraded between two starts; the recovery meets batches of format v2
    let log = open(&dir, &old, |_| {});
    assert_eq!((log.latest_epoch(), epochs(&dir)), (None, false));
    let rows = records(&read_all(&mut { log }, 0));
    assert_eq!(rows.len(), 9);
}

#[test]
fn what_an_old_format_cannot_hold_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut log = open(&root.path().join("t-0"), &Arc::new(config(1)), |_| {});
    let idempotent = Made {
        producer: (7, 0, 0),
        ..Made::default()
    };
    let zstd = Made {
        codec: Codec::Zstd,
        ..Made::default()
    };
    for (made, code) in [
        (idempotent, ErrorCode::UnsupportedForMessageFormat),
        (zstd, ErrorCode::UnsupportedCompressionType),
    ] {
        let error = log
            .append_as_leader(
                made.bytes(NOW, &[("k", Some("v"))]),
                1,
                AppendOrigin::Client,
                NOW,
            )
            .unwrap_err();
        assert_eq!(error.error_code(), code);
    }
    assert_eq!(log.log_end_offset(), 0);
    let before = Arc::new(LogConfig {
        zstd: false,
        compression: CompressionType::Codec(Codec::Zstd),
        ..config(2)
    });
    log.update_config(before);
    let error = log
        .append_as_leader(
            Made::default().bytes(NOW, &[("k", Some("v"))]),
            1,
            AppendOrigin::Client,
            NOW,
        )
        .unwrap_err();
    assert_eq!(error.error_code(), ErrorCode::UnsupportedCompressionType);
}
