//! What stays, what goes, and when.

use super::*;

#[test]
fn the_last_of_each_key_stays_and_the_active_segment_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    for key in ["a", "b", "a", "c", "b"] {
        room.put(1, key, Some("x"));
    }
    room.roll();
    room.put(1, "c", Some("y"));
    room.put(1, "c", Some("z"));
    assert_eq!(room.clean(2), 1);
    // `c` at 3 stays: its newer ones are in the active segment, which was not looked at.
    assert_eq!(
        room.keys(),
        pairs(&[(2, "a"), (3, "c"), (4, "b"), (5, "c"), (6, "c")])
    );
    assert_eq!(room.clean(2), 0, "all is clean");
    room.roll();
    assert_eq!(room.clean(2), 1);
    assert_eq!(room.keys(), pairs(&[(2, "a"), (4, "b"), (6, "c")]));
    let checkpoint = std::fs::read(root.path().join("cleaner-offset-checkpoint")).unwrap();
    assert_eq!(checkpoint, b"0\n1\nt 0 7\n");
    let log = room.log.lock().log_end_offset();
    assert_eq!(log, 7, "offsets are not given again");
}

#[test]
fn tombstones_go_after_their_time() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    room.put(1, "a", Some("x"));
    room.put(1, "b", Some("x"));
    room.put(2, "a", None);
    room.roll();
    assert_eq!(room.clean(100), 1);
    // The first cleaning that meets the tombstone starts its clock: 100 + 1000.
    let got = room.records();
    assert_eq!(got[1], (2, "a".into(), None));
    let Entry::V2(batch) = &room.entries()[1] else {
        panic!()
    };
    assert_eq!(batch.header.delete_horizon(), Some(1100));
    batch
        .for_each_record(1 << 20, |r| {
            assert_eq!(r.timestamp, 2, "the records' times stay");
            Ok::<_, gracchus_record::RecordError>(())
        })
        .unwrap();
    let again = |now: i64, key: &str| {
        room.put(3, key, Some("y"));
        room.roll();
        assert_eq!(room.clean(now), 1);
    };
    again(1099, "c");
    assert_eq!(room.keys(), pairs(&[(1, "b"), (2, "a"), (3, "c")]));
    again(1100, "d");
    assert_eq!(room.keys(), pairs(&[(1, "b"), (3, "c"), (4, "d")]));
}

#[test]
fn ratio_and_lags() {
    // (ratio, min lag, max lag, now) -> cleaned? Half of the log is dirty, its records of time 1000.
    let table = [
        ((0.5, 0, i64::MAX, 5000), false),
        ((0.4, 0, i64::MAX, 5000), true),
        ((0.4, 4000, i64::MAX, 4999), false),
        ((0.4, 3000, i64::MAX, 5000), true),
        ((0.9, 0, 4000, 4999), false),
        ((0.9, 0, 4000, 5001), true),
    ];
    for (line, ((ratio, min_lag, max_lag, now), expected)) in table.into_iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        let room = Room::new(root.path(), config(), 1 << 20);
        room.put(1, "a", Some("x"));
        room.roll();
        room.clean(2);
        room.put(1000, "b", Some("x"));
        room.roll();
        let mut config = config();
        config.min_cleanable_dirty_ratio = ratio;
        config.min_compaction_lag_ms = min_lag;
        config.max_compaction_lag_ms = max_lag;
        room.manager.update_topic_config("t", Arc::new(config));
        assert_eq!(room.clean(now) == 1, expected, "line {line}");
    }
}

#[test]
fn not_beyond_the_high_watermark_nor_an_open_transaction() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    room.put(1, "a", Some("x"));
    room.put(1, "a", Some("y"));
    room.roll();
    let txn = Made {
        producer: (7, 0, 0),
        transactional: true,
        ..Made::default()
    };
    room.send(&txn, 1, &[("a", Some("z"))]);
    room.roll();
    room.put(1, "a", Some("w"));
    room.roll();
    assert_eq!(room.clean(2), 1);
    assert_eq!(room.keys(), pairs(&[(1, "a"), (2, "a"), (3, "a")]));
}

#[test]
fn aborted_records_go_and_markers_follow() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    let txn = |id, sequence| Made {
        producer: (id, 0, sequence),
        transactional: true,
        ..Made::default()
    };
    room.put(1, "a", Some("x")); // 0
    room.send(&txn(7, 0), 1, &[("a", Some("aborted"))]); // 1
    room.mark(7, 0, Marker::Abort); // 2
    room.send(&txn(8, 0), 1, &[("b", Some("committed"))]); // 3
    room.mark(8, 0, Marker::Commit); // 4
    room.send(&txn(7, 1), 1, &[("c", Some("x"))]); // 5
    room.mark(7, 0, Marker::Commit); // 6
    room.roll();
    room.clean(100);
    let state = |room: &Room| {
        let describe = |e: &Entry| (e.last_offset(), e.is_control());
        room.entries().iter().map(describe).collect::<Vec<_>>()
    };
    // The aborted batch is gone, its marker stays for now: a reader may be between them.
    assert_eq!(
        state(&room),
        [
            (0, false),
            (2, true),
            (3, false),
            (4, true),
            (5, false),
            (6, true)
        ]
    );
    let aborted = |room: &Room| {
        let read = room
            .log
            .lock()
            .read(0, 1 << 20, ReadLimit::LastStable, true)
            .unwrap();
        read.aborted.unwrap().len()
    };
    assert_eq!(aborted(&room), 1);
    room.put(1, "d", Some("x"));
    room.roll();
    // The next cleaning finds no batch of it any more and starts the marker's clock.
    room.clean(200);
    assert_eq!(state(&room).len(), 7);
    assert_eq!(aborted(&room), 0);
    room.put(1, "e", Some("x"));
    room.roll();
    room.clean(1200);
    let left = state(&room);
    assert!(!left.contains(&(2, true)), "{left:?}");
    assert!(left.contains(&(4, true)), "its batch is still there");
}

#[test]
fn the_last_batch_of_a_producer_stays_for_its_sequence() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    let made = |sequence| Made {
        producer: (5, 2, sequence),
        ..Made::default()
    };
    room.send(&made(0), 1, &[("a", Some("x")), ("b", Some("x"))]);
    room.send(&made(2), 1, &[("a", Some("x")), ("b", Some("x"))]);
    room.put(1, "a", Some("y"));
    room.put(1, "b", Some("y"));
    room.roll();
    room.clean(2);
    let entries = room.entries();
    let Entry::V2(kept) = &entries[0] else {
        panic!()
    };
    let h = &kept.header;
    assert_eq!((h.base_offset, h.last_offset(), h.record_count), (2, 3, 0));
    assert_eq!(
        (
            h.producer_id,
            h.producer_epoch,
            h.base_sequence,
            h.last_sequence()
        ),
        (5, 2, 2, 3)
    );
    assert_eq!(entries.len(), 3);
    // After a crash the producer goes on where it was.
    let dir = room.log.lock().dir().to_path_buf();
    let log = open(&dir, &room.config, |_| {});
    assert_eq!(log.active_producers()[0].last_sequence, 3);
}

#[test]
fn a_small_map_takes_several_rounds() {
    let root = tempfile::tempdir().unwrap();
    // Room for a dozen keys; there are forty.
    let room = Room::new(root.path(), config(), 14 * 24);
    for round in 0..3 {
        for key in 0..40 {
            room.put(1, &format!("k{key}"), Some(&format!("{round}")));
        }
    }
    room.roll();
    assert!(room.clean(2) > 5);
    let last: BTreeMap<_, _> = room.records().into_iter().map(|(_, k, v)| (k, v)).collect();
    assert_eq!(last.len(), 40);
    assert!(last.values().all(|v| v.as_deref() == Some("2")));
}

#[test]
fn damage_sets_a_partition_aside() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    for _ in 0..3 {
        room.put(1, "a", Some("x"));
    }
    room.roll();
    let path = room.log.lock().dir().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() - 3;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let before = files(room.log.lock().dir());
    for _ in 0..2 {
        let report = room.manager.run_cleaner_once(2);
        assert!(report.cleaned.is_empty());
        assert!(report.uncleanable[0].1.contains("00000000000000000000.log"));
    }
    assert_eq!(files(room.log.lock().dir()), before, "nothing was touched");
}

#[test]
fn truncation_below_the_clean_part_is_cleaned_again() {
    let root = tempfile::tempdir().unwrap();
    let room = Room::new(root.path(), config(), 1 << 20);
    for key in ["a", "b", "c"] {
        room.put(1, key, Some("x"));
    }
    room.roll();
    room.clean(2);
    room.log.lock().truncate_to(1, 0).unwrap();
    for key in ["a", "a", "a", "a"] {
        room.put(1, key, Some("y"));
    }
    room.roll();
    assert_eq!(room.clean(2), 1);
    assert_eq!(room.keys(), pairs(&[(4, "a")]));
}
