//! Segments that Kafka 3.9.2 wrote are read as its own dump tool reads them, and conversions keep every record.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::convert::down_convert;
use gracchus_record::validate::{Origin, Rules, validate};
use gracchus_record::{Codec, Entries, Entry, RecordError, TimestampType};
use std::fmt::Write as _;

const SEGMENTS: [&str; 13] = [
    "codec-none-0",
    "codec-gzip-0",
    "codec-snappy-0",
    "codec-lz4-0",
    "codec-zstd-0",
    "brokergzip-0",
    "logappend-0",
    "idem-0",
    "txn-0",
    "tomb-15",
    "tomb-33",
    "m0-0",
    "m1-0",
];
const LIMIT: usize = 1 << 20;

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn time(entry: &Entry, ms: i64) -> String {
    match (entry.magic(), entry.timestamp_type()) {
        (0, _) => format!("NoTimestampType: {ms}"),
        (_, TimestampType::CreateTime) => format!("CreateTime: {ms}"),
        (_, TimestampType::LogAppendTime) => format!("LogAppendTime: {ms}"),
    }
}

/// The lines that Kafka's DumpLogSegments prints.
fn dump(bytes: &Bytes) -> String {
    let mut out = String::new();
    let mut position = 0;
    for entry in Entries::new(bytes.clone()) {
        let entry = entry.unwrap();
        let valid = entry.check_crc().is_ok();
        let codec = entry.codec().unwrap().name();
        let size = entry.size();
        let when = time(&entry, entry.max_timestamp());
        match &entry {
            Entry::V2(b) => {
                let h = &b.header;
                let horizon = h
                    .delete_horizon()
                    .map_or("OptionalLong.empty".into(), |ms| {
                        format!("OptionalLong[{ms}]")
                    });
                writeln!(out, "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon} position: {position} {when} size: {size} magic: 2 compresscodec: {codec} crc: {} isvalid: {valid}",
                    h.base_offset, h.last_offset(), h.record_count, h.base_sequence, h.last_sequence(), h.producer_id, h.producer_epoch, h.leader_epoch, h.is_transactional(), h.is_control(), h.crc).unwrap();
            }
            Entry::Legacy(m) => {
                writeln!(out, "offset: {} position: {position} {when} size: {size} magic: {} compresscodec: {codec} crc: {} isvalid: {valid}", m.offset, m.magic, m.crc).unwrap();
            }
        }
        entry
            .for_each_record(LIMIT, |r| {
                let length = |f: Option<&[u8]>| f.map_or(-1, |b| b.len() as i64);
                write!(
                    out,
                    "| offset: {} {} keySize: {} valueSize: {}",
                    r.offset,
                    time(&entry, r.timestamp),
                    length(r.key),
                    length(r.value)
                )
                .unwrap();
                if let Entry::V2(b) = &entry {
                    let sequence = if b.header.base_sequence < 0 {
                        -1
                    } else {
                        b.header.base_sequence + (r.offset - b.header.base_offset) as i32
                    };
                    let names: Vec<_> = r.headers.iter().map(|h| text(Some(h.key))).collect();
                    write!(
                        out,
                        " sequence: {sequence} headerKeys: [{}]",
                        names.join(",")
                    )
                    .unwrap();
                    if b.header.is_control() {
                        let end = EndTransaction::parse(r.key, r.value).unwrap().unwrap();
                        let kind = if end.marker == Marker::Commit {
                            "COMMIT"
                        } else {
                            "ABORT"
                        };
                        writeln!(
                            out,
                            " endTxnMarker: {kind} coordinatorEpoch: {}",
                            end.coordinator_epoch
                        )
                        .unwrap();
                        return Ok(());
                    }
                } else {
                    write!(out, " isValid: true crc: -").unwrap();
                }
                if r.key.is_some() {
                    write!(out, " key: {}", text(r.key)).unwrap();
                }
                if r.value.is_some() {
                    write!(out, " payload: {}", text(r.value)).unwrap();
                }
                out.push('\n');
                Ok::<_, RecordError>(())
            })
            .unwrap();
        position += size;
    }
    out
}

/// The records' own checksums, which only old formats have, are not shown by a record view.
fn without_record_crc(dump: &str) -> String {
    let mut out = String::new();
    for line in dump.lines() {
        match line.split_once("isValid: true crc: ") {
            Some((head, tail)) => {
                let tail = tail.split_once(' ').map_or("", |(_, t)| t);
                let _ = writeln!(out, "{head}isValid: true crc: - {tail}");
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

#[test]
fn segments_read_as_kafkas_dump_tool_reads_them() {
    for name in SEGMENTS {
        let bytes = Bytes::from(golden(&format!("{name}.log")));
        let expected = String::from_utf8(golden(&format!("{name}.dump.txt"))).unwrap();
        pretty_eq(&dump(&bytes), &without_record_crc(&expected), name);
    }
}

fn pretty_eq(got: &str, expected: &str, name: &str) {
    for (i, (g, e)) in got.lines().zip(expected.lines()).enumerate() {
        assert_eq!(g.trim_end(), e.trim_end(), "{name}, line {}", i + 1);
    }
    assert_eq!(got.lines().count(), expected.lines().count(), "{name}");
}

type Plain = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn records(bytes: &Bytes) -> Vec<Plain> {
    let mut out = Vec::new();
    for entry in Entries::new(bytes.clone()) {
        entry
            .unwrap()
            .for_each_record(LIMIT, |r| {
                out.push((
                    r.offset,
                    r.timestamp,
                    r.key.map(<[u8]>::to_vec),
                    r.value.map(<[u8]>::to_vec),
                ));
                Ok::<_, RecordError>(())
            })
            .unwrap();
    }
    out
}

#[test]
fn down_conversion_keeps_offsets_keys_and_values() {
    for name in SEGMENTS {
        let bytes = Bytes::from(golden(&format!("{name}.log")));
        for magic in [0i8, 1] {
            let converted = down_convert(&bytes, magic, 0, LIMIT);
            if name == "codec-zstd-0" {
                assert_eq!(converted, Err(RecordError::UnknownCodec(4)));
                continue;
            }
            let converted = converted.unwrap();
            let mut expected: Vec<Plain> = Vec::new();
            for entry in Entries::new(bytes.clone()) {
                let entry = entry.unwrap();
                if !entry.is_control() {
                    let timestamps = magic > 0 || entry.magic() == 0;
                    expected.extend(records(entry.bytes()).into_iter().map(|mut r| {
                        if !timestamps {
                            r.1 = -1;
                        }
                        r
                    }));
                }
            }
            assert_eq!(records(&converted), expected, "{name} to v{magic}");
            for entry in Entries::new(converted) {
                let entry = entry.unwrap();
                assert!(entry.magic() <= magic, "{name} to v{magic}");
                entry.check_crc().unwrap();
            }
        }
    }
}

#[test]
fn old_segments_become_batches_of_format_2() {
    let rules = Rules {
        partition: "t-0".into(),
        magic: 2,
        codec: None,
        zstd: true,
        levels: Default::default(),
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        max_message_bytes: LIMIT,
        decompress_limit: LIMIT,
        origin: Origin::Client,
        leader_epoch: 3,
    };
    for name in ["m0-0", "m1-0"] {
        let bytes = Bytes::from(golden(&format!("{name}.log")));
        let mut codecs = std::collections::HashSet::new();
        for entry in Entries::new(bytes) {
            let entry = entry.unwrap();
            let done = validate(entry.bytes(), 1000, 0, &rules).unwrap();
            let [ready] = done.batches.as_slice() else {
                panic!("one batch expected")
            };
            let stored = Bytes::from([&ready.head[..], &ready.payload[..]].concat());
            let expected: Vec<Plain> = records(entry.bytes())
                .into_iter()
                .enumerate()
                .map(|(i, mut r)| {
                    r.0 = 1000 + i as i64;
                    r
                })
                .collect();
            assert_eq!(records(&stored), expected);
            let stored = Entry::parse(&stored).unwrap();
            stored.check_crc().unwrap();
            assert_eq!(stored.codec(), entry.codec());
            assert_eq!(stored.leader_epoch(), 3);
            codecs.insert(entry.codec().unwrap());
        }
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            assert!(codecs.contains(&codec), "{name} {codec:?}");
        }
    }
}
