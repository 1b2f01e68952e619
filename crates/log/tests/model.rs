//! Random appends, rolls, truncations, deletions, clean stops and crashes against a plain list of batches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_log::{AppendOrigin, LogConfig, LogError, PartitionLog, ReadLimit};
use gracchus_record::{Entries, Entry};
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use support::{bytes_of, open, plain, read_all};

#[derive(Debug, Clone)]
enum Op {
    Append {
        count: usize,
        size: usize,
        timestamp: i64,
        batches: usize,
    },
    Roll,
    Flush,
    /// In permille of the log.
    Truncate(i64),
    StartAt(i64),
    DeleteRecords(i64),
    Retain(i64),
    HighWatermark(i64),
    Epoch,
    Idle,
    CleanReopen,
    /// Killed; nothing written is lost.
    Crash,
    /// Killed with the tail of the active segment torn off, this far from its end.
    Torn(u64),
    /// Killed with rubbish after the last batch.
    Rubbish(Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (1usize..5, 1usize..400, 0i64..1000, 1usize..4).prop_map(|(count, size, timestamp, batches)|
            Op::Append { count, size, timestamp, batches }),
        1 => Just(Op::Roll),
        1 => Just(Op::Flush),
        1 => (0i64..1100).prop_map(Op::Truncate),
        1 => (0i64..50).prop_map(Op::StartAt),
        1 => (0i64..1000).prop_map(Op::DeleteRecords),
        1 => (0i64..4000).prop_map(Op::Retain),
        3 => (0i64..1100).prop_map(Op::HighWatermark),
        1 => Just(Op::Epoch),
        1 => Just(Op::Idle),
        2 => Just(Op::CleanReopen),
        2 => Just(Op::Crash),
        1 => (1u64..600).prop_map(Op::Torn),
        1 => proptest::collection::vec(any::<u8>(), 1..200).prop_map(Op::Rubbish),
    ]
}

/// What the log must hold.
#[derive(Default)]
struct Model {
    batches: Vec<Entry>,
    start: i64,
    end: i64,
    epoch: i32,
}

impl Model {
    fn truncate(&mut self, offset: i64) {
        self.batches.retain(|b| b.last_offset() < offset);
        self.end = self.end.min(offset);
        self.start = self.start.min(offset);
    }
}

fn config(large: bool) -> Arc<LogConfig> {
    Arc::new(LogConfig {
        segment_bytes: if large { 60_000 } else { 2000 },
        index_interval_bytes: 200,
        segment_index_bytes: 600,
        retention_ms: -1,
        retention_bytes: -1,
        segment_ms: 400,
        ..LogConfig::default()
    })
}

fn check(log: &mut PartitionLog, model: &Model) {
    assert_eq!(log.log_end_offset(), model.end);
    assert!(
        log.log_start_offset() >= model.start,
        "{} {}",
        log.log_start_offset(),
        model.start
    );
    let start = log.log_start_offset();
    let expected: Vec<&Entry> = model
        .batches
        .iter()
        .filter(|b| b.last_offset() >= start)
        .collect();
    let got = read_all(log, start);
    assert_eq!(
        got.iter().map(Entry::last_offset).collect::<Vec<_>>(),
        expected.iter().map(|e| e.last_offset()).collect::<Vec<_>>()
    );
    for (got, expected) in got.iter().zip(&expected) {
        assert_eq!(got.bytes(), expected.bytes());
    }
    // Any offset finds its batch, and consumers see whole batches up to the high watermark.
    let high = log.high_watermark();
    for offset in [start, (start + model.end) / 2, high - 1, model.end - 1] {
        if offset < start || offset >= model.end {
            continue;
        }
        let data = log
            .read(offset, 700, ReadLimit::HighWatermark, true)
            .unwrap();
        let bytes = Bytes::from(bytes_of(&data.parts));
        let mut entries = Entries::new(bytes);
        let first = entries.next().map(Result::unwrap);
        let holder = expected.iter().find(|b| b.last_offset() >= offset);
        match holder {
            Some(holder) if holder.last_offset() < high => {
                assert_eq!(first.unwrap().last_offset(), holder.last_offset());
            }
            _ => assert!(first.is_none()),
        }
        for entry in entries {
            assert!(entry.unwrap().last_offset() < high);
        }
    }
    for timestamp in [0, 300, 999] {
        let found = log.find_by_timestamp(timestamp).unwrap().map(|f| f.offset);
        // The first batch that reaches the timestamp, from the start offset on: all its records have one timestamp.
        let expected = expected.iter().find(|b| b.max_timestamp() >= timestamp);
        let expected = expected.map(|b| b.base_offset().max(start));
        assert_eq!(found, expected, "timestamp {timestamp}");
    }
    // Of the records from the start on; a batch has one timestamp for all its records.
    let newest = expected.iter().map(|b| b.max_timestamp()).max();
    let found = log.find_max_timestamp().unwrap();
    assert_eq!(found.map(|f| f.timestamp), newest);
    assert!(found.is_none_or(|f| f.offset >= start));
}

fn active_log(dir: &Path) -> Option<std::path::PathBuf> {
    let mut logs: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs.pop()
}

fn crash(
    log: PartitionLog,
    dir: &Path,
    config: &Arc<LogConfig>,
    before_start: impl FnOnce(),
) -> PartitionLog {
    let (recovery_point, log_start, high) = (
        log.recovery_point(),
        log.log_start_offset(),
        log.high_watermark(),
    );
    drop(log);
    before_start();
    let mut log = open(dir, config, |o| {
        o.recovery_point = recovery_point;
        o.log_start = log_start;
    });
    log.update_high_watermark(high);
    log
}

/// With `large` batches some are kept in memory alone and some with others.
fn run(ops: Vec<Op>, large: bool) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(large);
    let mut log = open(dir.path(), &config, |_| {});
    let mut model = Model::default();
    for op in ops {
        let at = |permille: i64| model.start + (model.end - model.start) * permille / 1000;
        match op {
            Op::Append {
                count,
                size,
                timestamp,
                batches,
            } => {
                let size = if large { size * 30 } else { size };
                // Several batches come from a leader to a follower; a producer sends one.
                let mut all = Vec::new();
                for i in 0..batches {
                    let mut bytes = plain(timestamp + i as i64, count, size).to_vec();
                    if batches > 1 {
                        let base = model.end + (i * count) as i64;
                        bytes[..8].copy_from_slice(&base.to_be_bytes());
                        bytes[12..16].copy_from_slice(&model.epoch.to_be_bytes());
                    }
                    all.extend_from_slice(&bytes);
                }
                let result = match batches {
                    1 => log.append_as_leader(all.into(), model.epoch, AppendOrigin::Client, 0),
                    _ => log.append_as_follower(all.into(), 0),
                };
                let Ok(info) = result else {
                    assert!(batches == 1 && count * size > 1500, "{result:?}");
                    continue;
                };
                assert_eq!(info.first_offset, model.end);
                assert_eq!(info.last_offset, model.end + (count * batches) as i64 - 1);
                // The log itself says what bytes it gave them; that they stay the same is what is checked.
                let from = model.end;
                model.end = info.last_offset + 1;
                model.batches.extend(read_all(&mut log, from));
            }
            Op::Roll => {
                assert_eq!(log.roll(0).unwrap(), model.end);
            }
            Op::Flush => {
                log.flush(0).unwrap();
                assert_eq!(log.recovery_point(), model.end);
            }
            Op::Truncate(permille) => {
                let mut to = at(permille);
                // Truncation goes to a batch's start, as a leader's epochs do.
                if let Some(b) = model.batches.iter().find(|b| b.last_offset() >= to) {
                    to = b.base_offset();
                }
                let before = model.end;
                let cut = log.truncate_to(to, 0).unwrap();
                assert_eq!(cut, to < before);
                model.truncate(to);
                if model.end < log.log_end_offset() || log.segment_count() == 1 {
                    model.start = model.start.min(log.log_start_offset());
                }
            }
            Op::StartAt(ahead) => {
                let to = model.end + ahead;
                log.truncate_fully_and_start_at(to, 0).unwrap();
                model = Model {
                    start: to,
                    end: to,
                    epoch: model.epoch,
                    ..Model::default()
                };
            }
            Op::DeleteRecords(permille) => {
                let to = at(permille);
                match log.delete_records(to) {
                    Ok(_) => model.start = model.start.max(to),
                    Err(LogError::OffsetOutOfRange { .. }) => assert!(to > log.high_watermark()),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Retain(bytes) => {
                let mut other = (*config).clone();
                other.retention_bytes = bytes;
                log.update_config(Arc::new(other));
                let size = log.size();
                let done = log.apply_retention(0).unwrap();
                assert_eq!(size - done.deleted_bytes, log.size());
                assert!(log.log_start_offset() <= log.high_watermark().max(model.start));
                model.start = log.log_start_offset();
                // Those below the start that share its segment are still there.
                let first = log.first_base_offset();
                model.batches.retain(|b| b.last_offset() >= first);
                log.update_config(config.clone());
                gracchus_log::partition::remove_files(&log.take_deleted_files(i64::MAX));
            }
            Op::HighWatermark(permille) => {
                let to = at(permille);
                let got = log.update_high_watermark(to);
                assert_eq!(got, to.clamp(log.log_start_offset(), model.end));
            }
            Op::Epoch => {
                model.epoch += 1;
                log.assign_epoch_start(model.epoch, model.end).unwrap();
                assert_eq!(log.latest_epoch(), Some(model.epoch));
            }
            Op::Idle => {
                log.release_idle();
                log.release_idle();
            }
            Op::CleanReopen => {
                let (start, high) = (log.log_start_offset(), log.high_watermark());
                log.close(0).unwrap();
                drop(log);
                log = open(dir.path(), &config, |o| {
                    o.clean = true;
                    o.log_start = start;
                });
                log.update_high_watermark(high);
                assert_eq!(log.recovery_point(), model.end);
            }
            Op::Crash => log = crash(log, dir.path(), &config, || {}),
            Op::Torn(bytes) => {
                // Without a record there is no file yet.
                let Some(path) = active_log(dir.path()) else {
                    continue;
                };
                let size = log.segment_at(log.segment_count() - 1).unwrap().size();
                let left = size.saturating_sub(bytes);
                // What lies below the recovery point is on the device and cannot be torn.
                let mut position = 0;
                let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
                let safe = log.recovery_point();
                let mut end = base;
                for b in model.batches.iter().filter(|b| b.base_offset() >= base) {
                    position += b.size() as u64;
                    if position <= left || b.last_offset() < safe {
                        end = b.last_offset() + 1;
                    }
                }
                let flushed: u64 = model
                    .batches
                    .iter()
                    .filter(|b| b.base_offset() >= base && b.last_offset() < safe)
                    .map(|b| b.size() as u64)
                    .sum();
                let left = left.max(flushed);
                log = crash(log, dir.path(), &config, || {
                    std::fs::OpenOptions::new()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .set_len(left)
                        .unwrap();
                });
                if end < model.end {
                    model.truncate(end);
                }
                if log.log_end_offset() != model.end {
                    // Everything was below the log start: the log begins anew there.
                    assert_eq!(log.log_end_offset(), log.log_start_offset());
                    model = Model {
                        start: log.log_start_offset(),
                        end: log.log_end_offset(),
                        epoch: model.epoch,
                        ..Model::default()
                    };
                }
            }
            Op::Rubbish(rubbish) => {
                // Without a record there is no file yet.
                let Some(path) = active_log(dir.path()) else {
                    continue;
                };
                let size = log.segment_at(log.segment_count() - 1).unwrap().size();
                log = crash(log, dir.path(), &config, || {
                    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.write_all_at(&rubbish, size).unwrap();
                });
            }
        }
        check(&mut log, &model);
    }
}

proptest! {
    #![proptest_config(support::cases(80, 3000))]

    #[test]
    fn a_log_keeps_what_it_was_given(ops in proptest::collection::vec(op(), 1..60), large in any::<bool>()) {
        run(ops, large);
    }
}
