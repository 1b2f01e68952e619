//! Segments whose offsets do not fit in their index (of before KAFKA-6264) are split when they are opened.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use gracchus_log::index::{AbortedEntry, TxnIndex};
use gracchus_log::{AppendOrigin, LogConfig, PartitionLog, ReadLimit};
use gracchus_record::{BatchBuilder, Codec, LegacyBuilder, NewRecord};
use std::path::Path;
use std::sync::Arc;
use support::{bytes_of, copy_dir, files, open, plain, read_all, records};

const FAR: i64 = 1 << 31;
const BASE: &str = "00000000000000000005";

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig {
        index_interval_bytes: 100,
        segment_index_bytes: 4096,
        ..LogConfig::default()
    })
}

fn record(timestamp: i64) -> NewRecord<'static> {
    NewRecord {
        timestamp,
        key: Some(b"k"),
        value: Some(b"some value"),
        headers: &[],
    }
}

fn batch(offset: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None).base_offset(offset);
    builder.push(record(offset));
    builder.push(record(offset));
    builder.build().unwrap().bytes().clone()
}

fn old_set(offset: i64) -> Bytes {
    let set = LegacyBuilder {
        magic: 1,
        codec: Codec::Gzip,
        append_time: None,
    };
    set.build(offset, &[record(1), record(2), record(3)])
        .unwrap()
}

/// One segment with batches at these offsets, and no index.
fn write(dir: &Path, bytes: &[Bytes]) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join(format!("{BASE}.log")), bytes.concat()).unwrap();
}

fn offsets(log: &mut PartitionLog) -> Vec<i64> {
    let start = log.log_start_offset();
    let all = records(&read_all(log, start));
    all.iter().map(|r| r.0).collect()
}

/// Every segment's offsets fit in its index, and everything is found where it is.
fn check(log: &mut PartitionLog, expected: &[i64]) {
    assert_eq!(offsets(log), expected);
    for at in 0..log.segment_count() {
        let segment = log.segment_at(at).unwrap();
        let last = segment.next_offset().unwrap() - 1;
        assert!(last - segment.base_offset() < FAR);
    }
    for offset in expected {
        let data = log.read(*offset, 1, ReadLimit::LogEnd, true).unwrap();
        let first = gracchus_record::Entry::parse(&Bytes::from(bytes_of(&data.parts))).unwrap();
        assert!(first.last_offset() >= *offset && first.last_offset() < *offset + 3);
    }
}

#[test]
fn every_record_stays() {
    for clean in [false, true] {
        let cases: [(&[Bytes], usize, Vec<i64>); 4] = [
            // an index that fits is left alone
            (&[batch(5), batch(FAR + 3)], 1, vec![5, 6, FAR + 3, FAR + 4]),
            (&[batch(5), batch(FAR + 4)], 2, vec![5, 6, FAR + 4, FAR + 5]),
            (
                &[
                    batch(7),
                    old_set(FAR * 2),
                    batch(FAR * 3),
                    batch(FAR * 3 + 2),
                ],
                3,
                vec![
                    7,
                    8,
                    FAR * 2,
                    FAR * 2 + 1,
                    FAR * 2 + 2,
                    FAR * 3,
                    FAR * 3 + 1,
                    FAR * 3 + 2,
                    FAR * 3 + 3,
                ],
            ),
            // the first records were compacted away: the log still begins where it began
            (&[batch(FAR * 2)], 2, vec![FAR * 2, FAR * 2 + 1]),
        ];
        for (batches, segments, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("t-0");
            write(&dir, batches);
            if clean {
                for kind in ["index", "timeindex"] {
                    std::fs::write(dir.join(format!("{BASE}.{kind}")), b"").unwrap();
                }
            }
            let mut log = open(&dir, &config(), |o| o.clean = clean);
            assert_eq!(log.segment_count(), segments, "{expected:?}");
            assert_eq!(log.log_start_offset(), 5);
            check(&mut log, &expected);
            let end = log.log_end_offset();
            let done = log.append_as_leader(plain(1, 1, 10), 0, AppendOrigin::Client, 0);
            assert_eq!(done.unwrap().first_offset, end);
            log.close(0).unwrap();
            let mut log = open(&dir, &config(), |o| o.clean = true);
            check(&mut log, &[expected, vec![end]].concat());
        }
    }
}

#[test]
fn a_middle_segment_is_split_too_and_aborts_go_with_their_markers() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    write(&dir, &[batch(5), batch(FAR + 5)]);
    let next = FAR * 2;
    std::fs::write(dir.join(format!("{next:020}.log")), batch(next)).unwrap();
    for base in [BASE.to_owned(), format!("{next:020}")] {
        for kind in ["index", "timeindex"] {
            std::fs::write(dir.join(format!("{base}.{kind}")), b"").unwrap();
        }
    }
    let aborted = |last_offset| AbortedEntry {
        producer_id: 1,
        first_offset: 5,
        last_offset,
        last_stable_offset: last_offset + 1,
    };
    let path = dir.join(format!("{BASE}.txnindex"));
    TxnIndex::append(&path, &[aborted(6), aborted(FAR + 6)]).unwrap();
    let mut log = open(&dir, &config(), |o| o.clean = true);
    check(&mut log, &[5, 6, FAR + 5, FAR + 6, next, next + 1]);
    let found: Vec<_> = (0..log.segment_count())
        .map(|at| log.segment_at(at).unwrap().aborted().unwrap())
        .collect();
    assert_eq!(found, [vec![aborted(6)], vec![aborted(FAR + 6)], vec![]]);
}

/// A crash at each step of the split is undone or finished.
#[test]
fn a_crash_at_each_step() {
    let root = tempfile::tempdir().unwrap();
    let (before, after) = (root.path().join("before-0"), root.path().join("after-0"));
    let bytes = [batch(5), batch(FAR * 2), batch(FAR * 4)];
    let expected = [5, 6, FAR * 2, FAR * 2 + 1, FAR * 4, FAR * 4 + 1];
    write(&before, &bytes);
    copy_dir(&before, &after);
    drop(open(&after, &config(), |_| {}));
    let made: Vec<_> = files(&after)
        .into_iter()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.ends_with(".log") || name.ends_with("index")
        })
        .collect();
    assert_eq!(made.len(), 9);
    // in the order of the renames: from the last segment, its log first
    let mut order: Vec<_> = made.iter().map(|(name, _)| name.clone()).collect();
    order.sort_by_key(|name| {
        let name = name.to_string_lossy().into_owned();
        let kind = ["log", "index", "timeindex"]
            .iter()
            .position(|k| name.ends_with(&format!(".{k}")));
        (std::cmp::Reverse(name[..20].to_owned()), kind)
    });
    for step in 0..=2 * order.len() + 1 {
        let dir = root.path().join(format!("step-{step}"));
        std::fs::create_dir(&dir).unwrap();
        // .cleaned, then one after the other .swap; then the old one goes; then one after the other its own name
        let swapped = step.min(order.len());
        let named = step.saturating_sub(order.len() + 1);
        if step <= order.len() {
            copy_dir(&before, &dir);
        }
        for (name, bytes) in &made {
            let at = order.iter().position(|n| n == name).unwrap();
            // the last step goes the other way, from the first segment
            let back = (order.len() / 3 - 1 - at / 3) * 3 + at % 3;
            let suffix = match at {
                _ if back < named => "",
                at if at < swapped => ".swap",
                _ => ".cleaned",
            };
            let file = format!("{}{suffix}", name.display());
            std::fs::write(dir.join(file), bytes).unwrap();
        }
        let mut log = open(&dir, &config(), |_| {});
        check(&mut log, &expected);
        drop(log);
        let left = files(&dir);
        assert!(
            !left.keys().any(|n| {
                let n = n.to_string_lossy();
                n.ends_with(".swap") || n.ends_with(".cleaned")
            }),
            "step {step}: {:?}",
            left.keys()
        );
    }
}

/// A follower of a compacted log meets gaps that no index spans.
#[test]
fn a_follower_never_makes_such_a_segment() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("t-0");
    let mut log = open(&dir, &config(), |_| {});
    let far = [FAR * 2, FAR * 4, FAR * 4 + 2, FAR * 9];
    for offset in far {
        log.append_as_follower(batch(offset), 0).unwrap();
    }
    let expected: Vec<i64> = far.iter().flat_map(|o| [*o, *o + 1]).collect();
    check(&mut log, &expected);
    drop(log);
    check(&mut open(&dir, &config(), |_| {}), &expected);
}
