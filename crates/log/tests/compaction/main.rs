//! Compaction: against a map, rule by rule (docs/compaction.md), and killed at every step of the swap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod crashes;
mod rules;

use gracchus_log::cleaner::CleanerConfig;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, ReadLimit, SharedLog,
    TopicPartition,
};
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{Codec, Entry};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{Made, copy_dir, files, open, read_all, records};

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 100,
        segment_index_bytes: 4096,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 1000,
        ..LogConfig::default()
    }
}

struct Room {
    manager: LogManager,
    log: SharedLog,
    config: Arc<LogConfig>,
}

impl Room {
    fn new(root: &Path, config: LogConfig, dedupe: usize) -> Self {
        let config = Arc::new(config);
        let settings = LogManagerConfig {
            cleaner: CleanerConfig {
                dedupe_buffer_bytes: dedupe,
                ..CleanerConfig::default()
            },
            ..LogManagerConfig::default()
        };
        let dirs = LogDirs::open(&[root.to_path_buf()]).unwrap();
        let topic = config.clone();
        let manager = LogManager::load(
            dirs,
            settings,
            config.clone(),
            &move |_| topic.clone(),
            0,
            &LoadControl::default(),
        )
        .unwrap();
        let partition = TopicPartition::new("t", 0);
        let log = manager
            .get_or_create(&partition, true, None, config.clone(), 0)
            .unwrap();
        Self {
            manager,
            log,
            config,
        }
    }

    fn put(&self, timestamp: i64, key: &str, value: Option<&str>) {
        self.send(&Made::default(), timestamp, &[(key, value)]);
    }

    fn send(&self, made: &Made, timestamp: i64, records: &[(&str, Option<&str>)]) {
        let mut log = self.log.lock();
        let bytes = made.bytes(timestamp, records);
        log.append_as_leader(bytes, 0, AppendOrigin::Client, timestamp)
            .unwrap();
        let end = log.log_end_offset();
        log.update_high_watermark(end);
    }

    fn mark(&self, id: i64, epoch: i16, marker: Marker) {
        let batch = EndTransaction {
            marker,
            coordinator_epoch: 0,
        };
        let batch = batch.batch(0, id, epoch).unwrap();
        let mut log = self.log.lock();
        log.append_as_leader(batch.bytes().clone(), 0, AppendOrigin::Markers, 0)
            .unwrap();
        let end = log.log_end_offset();
        log.update_high_watermark(end);
    }

    fn roll(&self) {
        self.log.lock().roll(0).unwrap();
    }

    fn clean(&self, now: i64) -> usize {
        let report = self.manager.run_cleaner_once(now);
        assert!(report.uncleanable.is_empty(), "{:?}", report.uncleanable);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        report.cleaned.len()
    }

    fn entries(&self) -> Vec<Entry> {
        let mut log = self.log.lock();
        let start = log.log_start_offset();
        read_all(&mut log, start)
    }

    fn records(&self) -> Vec<(i64, String, Option<String>)> {
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        records(&self.entries())
            .into_iter()
            .map(|(o, k, v)| (o, text(k.unwrap()), v.map(text)))
            .collect()
    }

    fn keys(&self) -> Vec<(i64, String)> {
        self.records().into_iter().map(|(o, k, _)| (o, k)).collect()
    }
}

fn pairs(expected: &[(i64, &str)]) -> Vec<(i64, String)> {
    expected
        .iter()
        .map(|(o, k)| (*o, (*k).to_string()))
        .collect()
}

proptest! {
    #![proptest_config(support::cases(20, 600))]

    #[test]
    fn as_a_map(
        ops in proptest::collection::vec((0u8..12, proptest::option::weighted(0.8, 0u32..1000), 1usize..4), 1..120),
        codec in prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Gzip)],
        dedupe in prop_oneof![Just(1usize << 20), Just(400usize)],
    ) {
        let root = tempfile::tempdir().unwrap();
        let room = Room::new(root.path(), config(), dedupe);
        let made = Made { codec, ..Made::default() };
        let mut model: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut now = 1;
        for (key, value, count) in ops {
            now += 10;
            let key = format!("k{key}");
            let value = value.map(|v| v.to_string());
            let same: Vec<_> = (0..count).map(|_| (key.as_str(), value.as_deref())).collect();
            room.send(&made, now, &same);
            model.insert(key, value);
            if now % 70 == 1 {
                room.roll();
            }
            if now % 110 == 1 {
                room.clean(now);
            }
        }
        room.roll();
        room.clean(now);
        let got = room.records();
        let offsets: Vec<i64> = got.iter().map(|r| r.0).collect();
        prop_assert!(offsets.is_sorted());
        // Everything was below the active segment: one record a key at most.
        let mut seen: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (_, key, value) in got {
            prop_assert!(seen.insert(key, value).is_none());
        }
        for (key, value) in &model {
            match value {
                Some(_) => prop_assert_eq!(seen.get(key), Some(value)),
                // A tombstone may be gone.
                None => prop_assert!(seen.get(key).is_none_or(Option::is_none)),
            }
        }
        prop_assert!(seen.keys().all(|k| model.contains_key(k)));
    }
}
