//! Directories that Apache Kafka 3.9.2 wrote, opened, compared with what its own tool says of them, and closed again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_log::dirs::LogDirs;
use gracchus_log::partition::OpenOptions;
use gracchus_log::{
    LoadControl, LogConfig, LogManager, LogManagerConfig, PartitionLog, ReadLimit, TopicPartition,
};
use gracchus_record::Entry;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{bytes_of, files, read_all, records, unpack};

/// When the capture was made: producers of that day are not expired.
const NOW: i64 = 1_796_078_900_000;

fn config(topic: &str) -> Arc<LogConfig> {
    let plain = LogConfig {
        segment_index_bytes: 65_536,
        index_interval_bytes: 512,
        ..LogConfig::default()
    };
    Arc::new(match topic {
        "rolled" => LogConfig {
            segment_bytes: 2000,
            index_interval_bytes: 200,
            ..plain
        },
        "tomb" => LogConfig {
            segment_bytes: 1500,
            compact: true,
            delete: false,
            ..plain
        },
        _ => plain,
    })
}

fn load(root: &Path) -> LogManager {
    let dirs = LogDirs::open(&[root.join("d0"), root.join("d1")]).unwrap();
    assert_eq!(dirs.identity().broker_id, Some(7));
    dirs.check_identity("obh3WxB5Qw-8jBzksV3UAg", 7).unwrap();
    dirs.write_identity("obh3WxB5Qw-8jBzksV3UAg", 7, NOW)
        .unwrap();
    LogManager::load(
        dirs,
        LogManagerConfig::default(),
        config(""),
        &config,
        NOW,
        &LoadControl::default(),
    )
    .unwrap()
}

/// The dump, file by file.
fn dump(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("Dumping ") {
            name = file.to_string();
            files.entry(name.clone()).or_default();
        } else if !line.starts_with('#') {
            files
                .entry(name.clone())
                .or_default()
                .push(line.to_string());
        }
    }
    files
}

fn field(line: &str, name: &str) -> Option<i64> {
    let mut words = line.split_whitespace();
    words.find(|w| *w == name)?;
    words.next()?.parse().ok()
}

fn describe(entry: &Entry, position: usize) -> String {
    let Entry::V2(batch) = entry else {
        panic!("old format");
    };
    let h = &batch.header;
    format!(
        "{} {} {} {} {} {} {} {position} {} {} {}",
        h.base_offset,
        h.last_offset(),
        h.record_count,
        h.base_sequence,
        h.producer_id,
        h.producer_epoch,
        h.leader_epoch,
        h.max_timestamp,
        h.size(),
        h.crc,
    )
}

fn described(line: &str) -> String {
    let get = |name| field(line, name).unwrap_or_else(|| panic!("{name} in {line}"));
    let time = field(line, "CreateTime:")
        .or(field(line, "LogAppendTime:"))
        .unwrap();
    format!(
        "{} {} {} {} {} {} {} {} {time} {} {}",
        get("baseOffset:"),
        get("lastOffset:"),
        get("count:"),
        get("baseSequence:"),
        get("producerId:"),
        get("producerEpoch:"),
        get("partitionLeaderEpoch:"),
        get("position:"),
        get("size:"),
        get("crc:"),
    )
}

#[test]
fn a_cleanly_stopped_brokers_directories() {
    let root = tempfile::tempdir().unwrap();
    unpack("logdirs-clean-shutdown.tar.gz", root.path());
    let manager = load(root.path());
    let dump = dump(include_str!("golden/clean-shutdown.dump.txt"));
    let logs = manager.logs();
    // `mover-0` was captured without its log file.
    assert_eq!(logs.len(), 20);
    let ends = [
        ("__consumer_offsets", 0, 3),
        ("__consumer_offsets", 1, 4),
        ("__transaction_state", 0, 9),
        ("tomb", 0, 63),
        ("txn", 0, 12),
        ("txn", 1, 3),
        ("truncated", 0, 20),
        ("rolled", 0, 60),
        ("idem", 0, 40),
        ("empty", 0, 0),
    ];
    for (topic, partition, end) in ends {
        let log = manager.get(&TopicPartition::new(topic, partition)).unwrap();
        let mut log = log.lock();
        assert_eq!(log.log_end_offset(), end, "{topic}");
        assert_eq!(log.high_watermark(), end, "{topic}");
        assert_eq!(log.recovery_point(), end, "{topic}");
        assert_eq!(log.last_stable_offset(), end, "{topic}");
        assert!(log.topic_id().is_some());
        let start = if topic == "truncated" { 8 } else { 0 };
        assert_eq!(log.log_start_offset(), start);
        let dir = log.dir().to_path_buf();
        let name = dir.strip_prefix(root.path()).unwrap().display().to_string();
        let expected: Vec<String> = dump
            .range(format!("{name}/")..format!("{name}0"))
            .filter(|(file, _)| file.ends_with(".log"))
            .flat_map(|(_, lines)| lines.iter().map(|l| described(l)))
            .collect();
        let entries = read_all(&mut log, start);
        let mut positions: Vec<usize> = Vec::new();
        for entry in &entries {
            let at = log
                .read(entry.base_offset().max(start), 1, ReadLimit::LogEnd, true)
                .unwrap();
            positions.push(at.start.position as usize);
        }
        let mut got: Vec<String> = entries
            .iter()
            .zip(positions)
            .map(|(e, p)| describe(e, p))
            .collect();
        if start > 0 {
            let skipped = expected.len() - got.len();
            got.splice(0..0, expected[..skipped].iter().cloned());
        }
        assert_eq!(got, expected, "{name}");
    }
    assert!(manager.get(&TopicPartition::new("doomed", 0)).is_none());
}

#[test]
fn index_entries_as_the_tool_prints_them() {
    let root = tempfile::tempdir().unwrap();
    unpack("logdirs-clean-shutdown.tar.gz", root.path());
    let dump = dump(include_str!("golden/clean-shutdown.dump.txt"));
    let mut seen = 0;
    for (file, lines) in &dump {
        let path = root.path().join(file);
        let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        match path.extension().unwrap().to_str().unwrap() {
            "index" => {
                let mut index = gracchus_log::index::OffsetIndex::default();
                for at in 0..index.len(&path).unwrap() {
                    let e = index.get(&path, base, at).unwrap().unwrap();
                    let line = format!("offset: {} position: {}", e.offset, e.position);
                    // The tool prints a lone zero entry for a file full of zeros.
                    assert_eq!(lines[at as usize], line, "{file}");
                    seen += 1;
                }
            }
            "timeindex" => {
                let mut index = gracchus_log::index::TimeIndex::default();
                for at in 0..index.len(&path).unwrap() {
                    let e = index.get(&path, base, at).unwrap().unwrap();
                    let line = format!("timestamp: {} offset: {}", e.timestamp, e.offset);
                    assert_eq!(lines[at as usize], line, "{file}");
                    seen += 1;
                }
            }
            "txnindex" => {
                let entries = gracchus_log::index::TxnIndex::read(&path).unwrap();
                let printed: Vec<String> = entries
                    .iter()
                    .map(|e| {
                        format!(
                            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                            e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset
                        )
                    })
                    .collect();
                assert_eq!(&printed, lines, "{file}");
                seen += printed.len();
            }
            "snapshot" => {
                let entries = gracchus_log::producer::read_snapshot(&path).unwrap();
                assert_eq!(entries.len(), lines.len(), "{file}");
                for (e, line) in entries.iter().zip(lines) {
                    assert_eq!(Some(e.producer_id), field(line, "producerId:"));
                    assert_eq!(Some(e.producer_epoch.into()), field(line, "producerEpoch:"));
                    assert_eq!(
                        Some(e.coordinator_epoch.into()),
                        field(line, "coordinatorEpoch:")
                    );
                    assert_eq!(Some(e.last_sequence().into()), field(line, "lastSequence:"));
                    assert_eq!(Some(e.last_data_offset()), field(line, "lastOffset:"));
                    assert_eq!(Some(e.last_timestamp), field(line, "lastTimestamp:"));
                    let first = e.last_batch().unwrap().first_sequence();
                    assert_eq!(Some(first.into()), field(line, "firstSequence:"));
                    seen += 1;
                }
            }
            _ => {}
        }
    }
    assert!(seen > 80, "{seen}");
}

/// What may differ: checkpoints are in hash order, and what was about to be deleted is.
fn comparable(root: &Path) -> BTreeMap<String, Vec<u8>> {
    files(root)
        .into_iter()
        .map(|(name, bytes)| (name.display().to_string(), bytes))
        .filter(|(name, _)| !name.ends_with(".deleted"))
        .filter(|(name, _)| !name.contains("-delete/") && !name.contains("-future/"))
        .filter(|(name, _)| !name.contains("mover-0") && !name.ends_with("/.lock"))
        .map(|(name, bytes)| {
            if !name.ends_with("-offset-checkpoint") {
                return (name, bytes);
            }
            let text = String::from_utf8(bytes).unwrap();
            let mut lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("mover")).collect();
            lines[2..].sort_unstable();
            lines.remove(1); // the count, with or without mover
            (name, lines.join("\n").into_bytes())
        })
        .collect()
}

fn assert_same(got: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    let names = |m: &BTreeMap<String, Vec<u8>>| m.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(got), names(expected));
    for (name, bytes) in expected {
        let show = |b: &[u8]| b.escape_ascii().to_string();
        assert_eq!(show(&got[name]), show(bytes), "{name}");
    }
}

#[test]
fn opened_and_closed_every_byte_is_as_before() {
    let root = tempfile::tempdir().unwrap();
    unpack("logdirs-clean-shutdown.tar.gz", root.path());
    let before = comparable(root.path());
    let manager = load(root.path());
    assert!(!root.path().join("d0/.kafka_cleanshutdown").exists());
    manager.shutdown(NOW);
    assert_same(&comparable(root.path()), &before);
}

/// A running broker's directories, as a crash would leave them: zero-filled indexes, no snapshots of the ends. Recovered
/// and stopped, they are what Kafka itself left at its clean stop.
#[test]
fn a_crashed_brokers_directories_recovered() {
    let (live, clean) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    unpack("logdirs-live.tar.gz", live.path());
    unpack("logdirs-clean-shutdown.tar.gz", clean.path());
    load(live.path()).shutdown(NOW);
    let mut expected = comparable(clean.path());
    let mut got = comparable(live.path());
    // The last offset commit and its checkpoints came after the live capture: compare what was there.
    for name in ["d0", "d1"] {
        for file in [
            "replication-offset-checkpoint",
            "recovery-point-offset-checkpoint",
        ] {
            got.remove(&format!("{name}/{file}"));
            expected.remove(&format!("{name}/{file}"));
        }
    }
    assert_same(&got, &expected);
}

#[test]
fn message_formats_0_and_1() {
    let root = tempfile::tempdir().unwrap();
    unpack("logdirs-oldformat.tar.gz", root.path());
    let dump = dump(include_str!("golden/oldformat.dump.txt"));
    for name in ["m0-0", "m1-0"] {
        let options = OpenOptions {
            config: config(""),
            now_ms: NOW,
            ..OpenOptions::default()
        };
        let topic = TopicPartition::new(&name[..2], 0);
        let mut log = PartitionLog::open(root.path().join(name), topic, options).unwrap();
        assert_eq!(log.log_end_offset(), 80);
        let entries = read_all(&mut log, 0);
        let got: Vec<i64> = records(&entries).iter().map(|r| r.0).collect();
        let printed: Vec<i64> = dump[&format!("{name}/00000000000000000000.log")]
            .iter()
            .filter_map(|l| l.strip_prefix("| offset: "))
            .map(|l| l.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(got, (0..80).collect::<Vec<_>>());
        assert_eq!(got, printed);
        // From the middle of a compressed set: the set comes whole.
        let data = log.read(50, 100_000, ReadLimit::LogEnd, true).unwrap();
        let first = Entry::parse(&Bytes::from(bytes_of(&data.parts))).unwrap();
        assert!(first.last_offset() >= 50);
        let found = log.find_by_timestamp(1).unwrap();
        match name {
            "m0-0" => assert_eq!(found, None, "format 0 has no timestamps"),
            _ => assert_eq!(found.unwrap().offset, 0),
        }
        log.close(NOW).unwrap();
    }
}

#[test]
fn transactions_of_the_capture() {
    let root = tempfile::tempdir().unwrap();
    unpack("logdirs-live.tar.gz", root.path());
    let manager = load(root.path());
    let log = manager.get(&TopicPartition::new("txn", 0)).unwrap();
    let mut log = log.lock();
    log.update_high_watermark(12);
    let data = log.read(0, 1 << 20, ReadLimit::LastStable, true).unwrap();
    let aborted: Vec<_> = data
        .aborted
        .unwrap()
        .iter()
        .map(|a| (a.producer_id, a.first_offset))
        .collect();
    assert_eq!(aborted, [(1, 5), (2, 9)]);
    let data = log.read(9, 1 << 20, ReadLimit::LastStable, true).unwrap();
    let aborted: Vec<_> = data
        .aborted
        .unwrap()
        .iter()
        .map(|a| (a.producer_id, a.first_offset))
        .collect();
    assert_eq!(aborted, [(2, 9)]);
}
