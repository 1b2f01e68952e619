//! The table of docs/idempotent-producer.md, line by line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_kafka_proto::ErrorCode;
use gracchus_log::producer::read_snapshot;
use gracchus_log::{AppendError, AppendInfo, AppendOrigin, LogConfig, PartitionLog, ReadLimit};
use gracchus_record::Codec;
use gracchus_record::control::{EndTransaction, Marker};
use std::path::Path;
use std::sync::Arc;
use support::{Made, open, read_all};

const DAY: i64 = 86_400_000;

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig::default())
}

fn fresh(dir: &Path) -> PartitionLog {
    open(dir, &config(), |_| {})
}

/// Appends `count` records of a producer.
fn send(
    log: &mut PartitionLog,
    (id, epoch, sequence): (i64, i16, i32),
    count: usize,
    transactional: bool,
    now: i64,
) -> Result<AppendInfo, ErrorCode> {
    let records: Vec<_> = (0..count).map(|_| ("k", Some("v"))).collect();
    let made = Made {
        producer: (id, epoch, sequence),
        transactional,
        codec: Codec::None,
    };
    log.append_as_leader(made.bytes(now, &records), 0, AppendOrigin::Client, now)
        .map_err(|e| e.error_code())
}

fn put(
    log: &mut PartitionLog,
    id: i64,
    epoch: i16,
    sequence: i32,
) -> Result<AppendInfo, ErrorCode> {
    send(log, (id, epoch, sequence), 1, false, 0)
}

fn mark(
    log: &mut PartitionLog,
    id: i64,
    epoch: i16,
    marker: Marker,
    coordinator_epoch: i32,
) -> Result<AppendInfo, ErrorCode> {
    let batch = EndTransaction {
        marker,
        coordinator_epoch,
    }
    .batch(0, id, epoch)
    .unwrap();
    log.append_as_leader(batch.bytes().clone(), 0, AppendOrigin::Markers, 0)
        .map_err(|e| e.error_code())
}

#[test]
fn sequences_and_epochs() {
    // (what was before: epoch and first sequence of single records) -> (epoch, sequence) -> answer
    let before: &[(i16, i32)] = &[(0, 0), (0, 1), (0, 2)];
    let ooo = Err(ErrorCode::OutOfOrderSequenceNumber);
    type Line<'a> = (&'a [(i16, i32)], (i16, i32), Result<i64, ErrorCode>);
    let table: &[Line<'_>] = &[
        (&[], (0, 0), Ok(0)),
        // Nothing known of the producer: any sequence is taken.
        (&[], (0, 17), Ok(0)),
        (&[], (5, 17), Ok(0)),
        (before, (0, 3), Ok(3)),
        // A retry is answered with its old offset.
        (before, (0, 2), Ok(2)),
        (before, (0, 0), Ok(0)),
        // A gap.
        (before, (0, 4), ooo),
        (before, (0, 5), ooo),
        // A new epoch begins at 0.
        (before, (1, 0), Ok(3)),
        (before, (1, 3), ooo),
        (before, (7, 0), Ok(3)),
        // After it the old epoch is fenced, whatever its sequence.
        (
            &[(0, 0), (1, 0)],
            (0, 1),
            Err(ErrorCode::InvalidProducerEpoch),
        ),
        (
            &[(0, 0), (1, 0)],
            (0, 0),
            Err(ErrorCode::InvalidProducerEpoch),
        ),
        (&[(0, 0), (1, 0)], (1, 1), Ok(2)),
        // Six batches later the first is out of the window: no duplicate any more.
        (
            &[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)],
            (0, 0),
            ooo,
        ),
        (
            &[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)],
            (0, 1),
            Ok(1),
        ),
        // Sequences wrap to 0 after the largest.
        (&[(0, i32::MAX - 1), (0, i32::MAX)], (0, 0), Ok(2)),
        (&[(0, i32::MAX - 1), (0, i32::MAX)], (0, 1), ooo),
        (&[(0, i32::MAX - 1), (0, i32::MAX)], (0, i32::MAX), Ok(1)),
    ];
    for (at, (before, (epoch, sequence), expected)) in table.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = fresh(dir.path());
        for (epoch, sequence) in *before {
            put(&mut log, 1, *epoch, *sequence).unwrap();
        }
        let end = log.log_end_offset();
        let got = put(&mut log, 1, *epoch, *sequence);
        assert_eq!(got.clone().map(|i| i.first_offset), *expected, "line {at}");
        let duplicate = got.as_ref().is_ok_and(|i| i.duplicate);
        let grew = log.log_end_offset() > end;
        assert_eq!(grew, got.is_ok() && !duplicate, "line {at}");
        assert_eq!(duplicate, expected.is_ok_and(|o| o < end), "line {at}");
    }
}

#[test]
fn a_batch_across_the_wrap() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    send(&mut log, (1, 0, i32::MAX - 2), 6, false, 0).unwrap();
    let view = log.active_producers()[0];
    assert_eq!(view.last_sequence, 2);
    assert!(
        send(&mut log, (1, 0, i32::MAX - 2), 6, false, 0)
            .unwrap()
            .duplicate
    );
    assert_eq!(put(&mut log, 1, 0, 3).unwrap().first_offset, 6);
    assert_eq!(
        put(&mut log, 1, 0, 3 + 2),
        Err(ErrorCode::OutOfOrderSequenceNumber)
    );
}

#[test]
fn a_duplicate_must_be_the_very_same_range() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    send(&mut log, (1, 0, 0), 5, false, 0).unwrap();
    let same = send(&mut log, (1, 0, 0), 5, false, 0).unwrap();
    assert!(same.duplicate && same.first_offset == 0 && same.last_offset == 4);
    for (sequence, count) in [(0, 4), (1, 4), (0, 6)] {
        let got = send(&mut log, (1, 0, sequence), count, false, 0);
        assert_eq!(got, Err(ErrorCode::OutOfOrderSequenceNumber));
    }
    assert_eq!(log.log_end_offset(), 5);
}

#[test]
fn producers_do_not_mind_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    for sequence in 0..4 {
        for id in 1..5 {
            put(&mut log, id, 0, sequence).unwrap();
        }
    }
    assert!(put(&mut log, 3, 0, 2).unwrap().duplicate);
    assert_eq!(log.active_producers().len(), 4);
}

#[test]
fn transactions_hold_the_last_stable_offset() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    put(&mut log, 9, 0, 0).unwrap(); // 0
    send(&mut log, (1, 0, 0), 2, true, 0).unwrap(); // 1, 2
    send(&mut log, (2, 0, 0), 1, true, 0).unwrap(); // 3
    log.update_high_watermark(4);
    assert_eq!(log.last_stable_offset(), 1);
    // A batch outside of the open transaction.
    let got = send(&mut log, (1, 0, 2), 1, false, 0);
    assert_eq!(got, Err(ErrorCode::InvalidTxnState));
    mark(&mut log, 1, 0, Marker::Abort, 3).unwrap(); // 4
    // Decided, but not replicated.
    assert_eq!(log.last_stable_offset(), 1);
    log.update_high_watermark(5);
    assert_eq!(log.last_stable_offset(), 3);
    mark(&mut log, 2, 0, Marker::Commit, 3).unwrap(); // 5
    log.update_high_watermark(6);
    assert_eq!(log.last_stable_offset(), 6);
    let read = log.read(0, 1 << 20, ReadLimit::LastStable, true).unwrap();
    let aborted = read.aborted.unwrap();
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (1, 1));
    // What was read begins after the marker.
    let read = log.read(5, 1 << 20, ReadLimit::LastStable, true).unwrap();
    assert_eq!(read.aborted.unwrap(), []);
}

#[test]
fn markers_are_checked() {
    let table = [
        // (epoch, coordinator epoch) -> answer, after a transaction of epoch 2 ended by coordinator 5
        ((2, 5), Ok(())),
        ((2, 6), Ok(())),
        ((2, 4), Err(ErrorCode::TransactionCoordinatorFenced)),
        ((1, 5), Err(ErrorCode::InvalidProducerEpoch)),
        ((3, 5), Ok(())),
    ];
    for ((epoch, coordinator), expected) in table {
        let dir = tempfile::tempdir().unwrap();
        let mut log = fresh(dir.path());
        send(&mut log, (1, 2, 0), 1, true, 0).unwrap();
        mark(&mut log, 1, 2, Marker::Commit, 5).unwrap();
        send(&mut log, (1, 2, 1), 1, true, 0).unwrap();
        let got = mark(&mut log, 1, epoch, Marker::Commit, coordinator).map(|_| ());
        assert_eq!(got, expected, "{epoch} {coordinator}");
    }
    // A marker with a higher epoch fences the producer, and its sequences begin anew.
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    send(&mut log, (1, 2, 0), 1, true, 0).unwrap();
    mark(&mut log, 1, 3, Marker::Abort, 0).unwrap();
    assert_eq!(
        send(&mut log, (1, 2, 1), 1, true, 0),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    assert_eq!(
        send(&mut log, (1, 3, 5), 1, true, 0),
        Err(ErrorCode::OutOfOrderSequenceNumber)
    );
    send(&mut log, (1, 3, 0), 1, true, 0).unwrap();
}

#[test]
fn a_refused_batch_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    put(&mut log, 1, 0, 0).unwrap();
    let before = (log.log_end_offset(), log.size(), log.active_producers());
    put(&mut log, 1, 0, 7).unwrap_err();
    send(&mut log, (1, -1, 0), 1, true, 0).unwrap_err();
    put(&mut log, 1, 0, 7).unwrap_err();
    assert_eq!((log.log_end_offset(), log.size()), (before.0, before.1));
    assert!(put(&mut log, 1, 0, 1).is_ok());
}

#[test]
fn the_coordinators_batches_are_not_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    let made = |sequence| Made {
        producer: (1, 0, sequence),
        ..Made::default()
    };
    for sequence in [0, 0, 5] {
        let bytes = made(sequence).bytes(0, &[("g", Some("v"))]);
        log.append_as_leader(bytes, 0, AppendOrigin::Coordinator, 0)
            .unwrap();
    }
    assert_eq!(log.log_end_offset(), 3);
}

#[test]
fn state_survives_restarts_of_every_kind() {
    for (clean, roll) in [(true, false), (false, false), (true, true), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = fresh(dir.path());
        for sequence in 0..3 {
            put(&mut log, 1, 0, sequence).unwrap();
        }
        if roll {
            log.roll(0).unwrap();
        }
        send(&mut log, (2, 4, 0), 2, true, 0).unwrap(); // 3, 4
        send(&mut log, (3, 0, 0), 1, true, 0).unwrap(); // 5
        mark(&mut log, 3, 0, Marker::Abort, 1).unwrap(); // 6
        let views = |log: &PartitionLog| {
            let mut views = log.active_producers();
            views.sort_by_key(|v| v.producer_id);
            views
        };
        let before = views(&log);
        if clean {
            log.close(0).unwrap();
        }
        drop(log);
        let mut log = open(dir.path(), &config(), |o| o.clean = clean);
        assert_eq!(views(&log), before, "clean {clean}, rolled {roll}");
        log.update_high_watermark(7);
        assert_eq!(log.last_stable_offset(), 3);
        // Only the last batch of a producer is in the snapshot, but more may have been replayed.
        assert!(put(&mut log, 1, 0, 2).unwrap().duplicate);
        assert_eq!(
            put(&mut log, 1, 0, 4),
            Err(ErrorCode::OutOfOrderSequenceNumber)
        );
        put(&mut log, 1, 0, 3).unwrap();
        mark(&mut log, 2, 4, Marker::Commit, 0).unwrap();
        log.update_high_watermark(9);
        let aborted = log
            .read(3, 1 << 20, ReadLimit::LastStable, true)
            .unwrap()
            .aborted;
        assert_eq!(aborted.unwrap().len(), 1, "clean {clean}, rolled {roll}");
    }
}

#[test]
fn truncation_takes_the_state_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    put(&mut log, 1, 0, 0).unwrap();
    put(&mut log, 1, 0, 1).unwrap();
    send(&mut log, (2, 0, 0), 1, true, 0).unwrap();
    mark(&mut log, 2, 0, Marker::Abort, 0).unwrap();
    log.update_high_watermark(4);
    log.truncate_to(3, 0).unwrap();
    log.update_high_watermark(3);
    assert_eq!(log.last_stable_offset(), 2, "the transaction is open again");
    log.truncate_to(1, 0).unwrap();
    assert_eq!(log.last_stable_offset(), 1);
    assert_eq!(put(&mut log, 1, 0, 1).unwrap().first_offset, 1);
    let entries = read_all(&mut log, 0);
    assert_eq!(entries.len(), 2);
}

#[test]
fn silent_producers_expire() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    send(&mut log, (1, 0, 0), 1, false, 1000).unwrap();
    send(&mut log, (2, 0, 0), 1, true, 1000).unwrap();
    send(&mut log, (3, 0, 0), 1, false, 2000).unwrap();
    log.expire_producers(DAY, 1000 + DAY - 1);
    assert_eq!(log.active_producers().len(), 3);
    log.expire_producers(DAY, 1000 + DAY);
    let mut left: Vec<i64> = log
        .active_producers()
        .iter()
        .map(|p| p.producer_id)
        .collect();
    left.sort_unstable();
    assert_eq!(left, [2, 3], "one with an open transaction stays");
    // An expired one begins anew, with any sequence.
    assert_eq!(
        send(&mut log, (1, 0, 9), 1, false, DAY)
            .unwrap()
            .first_offset,
        3
    );
}

#[test]
fn snapshots_are_kafkas() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = fresh(dir.path());
    log.roll(0).unwrap();
    send(&mut log, (5, 1, 0), 3, true, 77).unwrap();
    log.roll(0).unwrap();
    let path = dir.path().join("00000000000000000003.snapshot");
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 10 + 46);
    let entry = &read_snapshot(&path).unwrap()[0];
    assert_eq!((entry.producer_id, entry.producer_epoch), (5, 1));
    assert_eq!((entry.last_sequence(), entry.last_data_offset()), (2, 2));
    assert_eq!(entry.current_txn_first_offset, Some(0));
    // A damaged one is dropped and the log read instead.
    let mut broken = bytes.clone();
    broken[20] ^= 1;
    std::fs::write(&path, broken).unwrap();
    drop(log);
    let log = open(dir.path(), &config(), |o| {
        o.clean = true;
        o.now_ms = 100;
    });
    assert_eq!(log.active_producers()[0].last_sequence, 2);
}

#[test]
fn a_followers_log_follows() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut leader = fresh(a.path());
    for sequence in 0..3 {
        put(&mut leader, 1, 0, sequence).unwrap();
    }
    send(&mut leader, (2, 0, 0), 2, true, 0).unwrap();
    mark(&mut leader, 2, 0, Marker::Abort, 0).unwrap();
    let data = leader.read(0, 1 << 20, ReadLimit::LogEnd, true).unwrap();
    let mut bytes = support::bytes_of(&data.parts);
    bytes.truncate(bytes.len() - 1); // the last batch does not fit in the answer
    let mut follower = fresh(b.path());
    let info = follower.append_as_follower(bytes.into(), 0).unwrap();
    assert_eq!(info.last_offset, 4);
    assert_eq!(follower.active_producers().len(), 2);
    let data = leader.read(5, 1 << 20, ReadLimit::LogEnd, true).unwrap();
    let bytes: bytes::Bytes = support::bytes_of(&data.parts).into();
    follower.append_as_follower(bytes.clone(), 0).unwrap();
    follower.update_high_watermark(6);
    assert_eq!(follower.last_stable_offset(), 6);
    let again = follower.append_as_follower(bytes, 0).unwrap_err();
    assert!(matches!(
        again,
        AppendError::UnexpectedOffset { expected: 6, .. }
    ));
    assert_eq!(
        std::fs::read(a.path().join("00000000000000000000.log")).unwrap(),
        std::fs::read(b.path().join("00000000000000000000.log")).unwrap()
    );
    assert_eq!(follower.latest_epoch(), Some(0));
}
