//! A consumer that goes through a log in steps of a batch, while the log changes under it.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use gracchus_log::{AppendOrigin, LogConfig, PartitionLog, ReadLimit};
use gracchus_record::{Entries, Entry};
use std::sync::Arc;
use support::{bytes_of, open, plain};

fn append(log: &mut PartitionLog, sizes: &[usize]) {
    for size in sizes {
        log.append_as_leader(plain(0, 1, *size), 0, AppendOrigin::Client, 0)
            .unwrap();
    }
}

/// Offsets of the batches from `from` on, one read each.
fn step(log: &mut PartitionLog, from: i64) -> Vec<i64> {
    let mut offset = from;
    let mut all = Vec::new();
    while offset < log.log_end_offset() {
        let data = log.read(offset, 1, ReadLimit::LogEnd, true).unwrap();
        let bytes = Bytes::from(bytes_of(&data.parts));
        let entries: Vec<Entry> = Entries::new(bytes).map(Result::unwrap).collect();
        assert_eq!(entries.len(), 1);
        entries[0].check_crc().unwrap();
        all.push(entries[0].base_offset());
        offset = entries[0].last_offset() + 1;
    }
    all
}

#[test]
fn what_was_remembered_goes_with_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let config = Arc::new(LogConfig {
        segment_bytes: 3000,
        ..LogConfig::default()
    });
    let mut log = open(dir.path(), &config, |_| {});
    append(&mut log, &[100; 6]);
    assert_eq!(step(&mut log, 0), (0..6).collect::<Vec<_>>());
    log.truncate_to(2, 0).unwrap();
    append(&mut log, &[10, 300, 20, 700, 5, 900, 900, 900, 3, 3]);
    assert_eq!(
        step(&mut log, 0),
        (0..12).collect::<Vec<_>>(),
        "over segments too"
    );
    log.truncate_fully_and_start_at(3, 0).unwrap();
    append(&mut log, &[50, 60, 70, 80]);
    assert_eq!(step(&mut log, 3), (3..7).collect::<Vec<_>>());
}
