//! The table in `docs/record-validation.md`, row by row.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use gracchus_record::batch::BatchHeader;
use gracchus_record::validate::{
    Fault, Origin, Refused, Rules, Validated, check_request, validate,
};
use gracchus_record::{
    Batch, BatchBuilder, Codec, Entries, Entry, LegacyBuilder, NewRecord, RecordError,
    TimestampType,
};

const NOW: i64 = 1_700_000_000_000;
const NEXT: i64 = 500;
const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

fn rules() -> Rules {
    Rules {
        partition: "t-0".into(),
        magic: 2,
        codec: None,
        levels: Default::default(),
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        max_message_bytes: 1 << 20,
        decompress_limit: 1 << 20,
        origin: Origin::Client,
        leader_epoch: 7,
    }
}

fn record(timestamp: i64) -> NewRecord<'static> {
    NewRecord {
        timestamp,
        key: Some(b"k"),
        value: Some(b"value value value"),
        headers: &[],
    }
}

/// Three records, the middle one the newest.
fn builder(codec: Codec) -> BatchBuilder {
    let mut b = BatchBuilder::new(codec);
    for t in [NOW - 2, NOW, NOW - 1] {
        b.push(record(t));
    }
    b
}

fn batch(codec: Codec) -> Batch {
    builder(codec).build().unwrap()
}

/// The batch with a changed header and the right checksum.
fn changed(batch: &Batch, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut h = batch.header;
    change(&mut h);
    let payload = batch.payload();
    h.seal(&payload);
    Batch::assemble(h, &payload).bytes().clone()
}

fn legacy(magic: i8, codec: Codec, timestamps: &[i64]) -> Bytes {
    let records: Vec<_> = timestamps.iter().map(|t| record(*t)).collect();
    LegacyBuilder {
        magic,
        codec,
        append_time: None,
    }
    .build(0, &records)
    .unwrap()
}

fn run(bytes: &Bytes, rules: &Rules) -> Result<Validated, Refused> {
    validate(bytes, NEXT, NOW, rules)
}

#[track_caller]
fn refused(bytes: &Bytes, rules: &Rules, fault: Fault, text: &str) {
    let error = run(bytes, rules).unwrap_err();
    assert_eq!(error.fault, fault, "{error}");
    assert!(error.message.contains(text), "{}", error.message);
}

fn stored(v: &Validated) -> Bytes {
    let mut out = Vec::new();
    for b in &v.batches {
        out.extend_from_slice(&b.head);
        out.extend_from_slice(&b.payload);
    }
    assert_eq!(v.size, out.len());
    out.into()
}

/// (offset, timestamp) of every record; all checksums are looked at.
fn offsets(bytes: &Bytes) -> Vec<(i64, i64)> {
    let mut out = Vec::new();
    for entry in Entries::new(bytes.clone()) {
        let entry = entry.unwrap();
        entry.check_crc().unwrap();
        entry
            .for_each_record(1 << 20, |r| {
                out.push((r.offset, r.timestamp));
                Ok::<_, RecordError>(())
            })
            .unwrap();
    }
    out
}

// --- the request

#[test]
fn a_request_holds_one_batch_of_format_2() {
    let one = batch(Codec::None).bytes().clone();
    let two = Bytes::from([&one[..], &one[..]].concat());
    let zstd = batch(Codec::Zstd).bytes().clone();
    let old = legacy(1, Codec::None, &[NOW]);
    let fault = |version, bytes: &Bytes| check_request(version, bytes).err().map(|e| e.fault);
    for version in 3..=11 {
        let invalid = Some(Fault::InvalidRecord);
        assert_eq!(fault(version, &one), None);
        assert_eq!(fault(version, &Bytes::new()), invalid);
        assert_eq!(fault(version, &one.slice(..one.len() - 1)), invalid);
        assert_eq!(fault(version, &two), invalid);
        assert_eq!(fault(version, &old), invalid);
        let expected = (version < 7).then_some(Fault::UnsupportedCompressionType);
        assert_eq!(fault(version, &zstd), expected, "{version}");
    }
    for bytes in [&one, &two, &zstd, &old, &Bytes::new()] {
        assert_eq!(fault(2, bytes), None);
    }
}

// --- header, size, checksum

#[test]
fn damaged_headers() {
    let good = batch(Codec::None);
    let with = |at: usize, value: &[u8]| {
        let mut b = good.bytes().to_vec();
        b[at..at + value.len()].copy_from_slice(value);
        Bytes::from(b)
    };
    let r = rules();
    for size in [0i32, 13, 48, -1, i32::MIN] {
        refused(&with(8, &size.to_be_bytes()), &r, Fault::CorruptMessage, "");
    }
    for magic in [3u8, 0x7f, 0xff] {
        refused(&with(16, &[magic]), &r, Fault::CorruptMessage, "magic");
    }
    refused(
        &with(0, &1i64.to_be_bytes()),
        &r,
        Fault::InvalidRecord,
        "should be 0, but it is 1",
    );
    refused(&with(17, &[1, 2, 3, 4]), &r, Fault::CorruptMessage, "crc");
    refused(&with(70, &[0xee]), &r, Fault::CorruptMessage, "crc");
    // base offset before size before checksum
    let mut small = rules();
    small.max_message_bytes = 70;
    refused(&with(17, &[9; 4]), &small, Fault::MessageTooLarge, "70");
    refused(
        &with(0, &1i64.to_be_bytes()),
        &small,
        Fault::InvalidRecord,
        "baseOffset",
    );
    // the coordinators may write at offsets of their own
    let mut own = rules();
    own.origin = Origin::Coordinator;
    assert!(run(&with(0, &1i64.to_be_bytes()), &own).is_ok());
}

#[test]
fn size_limit_is_inclusive_and_per_batch() {
    let bytes = batch(Codec::None).bytes().clone();
    let mut r = rules();
    r.max_message_bytes = bytes.len();
    assert!(run(&bytes, &r).is_ok());
    r.max_message_bytes -= 1;
    refused(
        &bytes,
        &r,
        Fault::MessageTooLarge,
        "maximum configured value",
    );
    // old messages are their own batches, so three may be larger together; the batch they become is checked again
    let old = legacy(1, Codec::None, &[NOW, NOW, NOW]);
    r.magic = 1;
    r.max_message_bytes = old.len() / 3;
    assert!(run(&old, &r).is_ok());
    r.magic = 2;
    refused(&old, &r, Fault::MessageTooLarge, "maximum configured size");
}

#[test]
fn unknown_codecs() {
    for id in 5..=7 {
        let bytes = changed(&batch(Codec::None), |h| h.attributes |= id);
        refused(&bytes, &rules(), Fault::UnsupportedCompressionType, "");
    }
}

#[test]
fn what_follows_the_last_whole_batch_is_dropped() {
    let good = batch(Codec::None).bytes().clone();
    for tail in [1, 11, 30, good.len() - 1] {
        let bytes = Bytes::from([&good[..], &good[..tail]].concat());
        assert_eq!(run(&bytes, &rules()).unwrap().size, good.len());
    }
    refused(&Bytes::new(), &rules(), Fault::InvalidRecord, "no batches");
    refused(
        &good.slice(..good.len() - 1),
        &rules(),
        Fault::InvalidRecord,
        "no batches",
    );
}

// --- the batch as a whole

#[test]
fn one_batch_only_and_one_magic_only() {
    for codec in CODECS {
        let one = batch(codec).bytes().clone();
        let two = Bytes::from([&one[..], &one[..]].concat());
        refused(&two, &rules(), Fault::InvalidRecord, "more than one batch");
    }
    let packed = legacy(1, Codec::Gzip, &[NOW]);
    let two = Bytes::from([&packed[..], &packed[..]].concat());
    refused(&two, &rules(), Fault::InvalidRecord, "more than one batch");
    let mixed = [
        &legacy(0, Codec::None, &[NOW])[..],
        &legacy(1, Codec::None, &[NOW])[..],
    ]
    .concat()
    .into();
    refused(&mixed, &rules(), Fault::InvalidRecord, "magic");
}

#[test]
fn header_faults() {
    type Change = fn(&mut BatchHeader);
    let table: [(Change, &str); 7] = [
        (|h| h.last_offset_delta = -1, "invalid offset range"),
        (|h| h.record_count = 0, "Invalid reported count"),
        (|h| h.record_count = -3, "Invalid reported count"),
        (
            |h| h.last_offset_delta = 3,
            "Inconsistent batch offset range",
        ),
        (|h| h.record_count = 2, "Inconsistent batch offset range"),
        (|h| h.set_control(true), "not allowed to write control"),
        (
            |h| {
                h.producer_id = 9;
                h.producer_epoch = 0;
            },
            "Invalid sequence number -1",
        ),
    ];
    for codec in CODECS {
        for (change, text) in table {
            let bytes = changed(&batch(codec), change);
            refused(&bytes, &rules(), Fault::InvalidRecord, text);
        }
    }
}

#[test]
fn producers_state_needs_format_2() {
    let mut r = rules();
    for magic in [0, 1] {
        r.magic = magic;
        let idempotent = builder(Codec::None).producer(9, 0, 0).build().unwrap();
        refused(
            idempotent.bytes(),
            &r,
            Fault::UnsupportedForMessageFormat,
            "Idempotent",
        );
        let transactional = builder(Codec::None)
            .producer(9, 0, 0)
            .transactional(true)
            .build()
            .unwrap();
        refused(
            transactional.bytes(),
            &r,
            Fault::UnsupportedForMessageFormat,
            "Transactional",
        );
        r.codec = Some(Codec::Zstd);
        refused(
            batch(Codec::None).bytes(),
            &r,
            Fault::UnsupportedCompressionType,
            "magic",
        );
        r.codec = None;
    }
}

// --- the records

#[test]
fn records_that_are_not_what_the_header_says() {
    for codec in CODECS {
        let short = changed(&batch(codec), |h| {
            h.record_count = 4;
            h.last_offset_delta = 3;
        });
        refused(&short, &rules(), Fault::InvalidRecord, "premature");
        let long = changed(&batch(codec), |h| {
            h.record_count = 2;
            h.last_offset_delta = 1;
        });
        refused(&long, &rules(), Fault::InvalidRecord, "remaining");
    }
    // each byte of a record damaged, checksum right: an error or other content, never a panic
    let good = batch(Codec::None);
    for at in 0..good.payload().len() {
        for value in [0u8, 1, 0x7f, 0x80, 0xff] {
            let mut payload = good.payload().to_vec();
            payload[at] = value;
            let mut h = good.header;
            h.seal(&payload);
            let _ = run(Batch::assemble(h, &payload).bytes(), &rules());
        }
    }
}

#[test]
fn damaged_compressed_data() {
    for codec in &CODECS[1..] {
        let good = batch(*codec);
        let payload = vec![0xabu8; good.payload().len()];
        let mut h = good.header;
        h.seal(&payload);
        refused(
            Batch::assemble(h, &payload).bytes(),
            &rules(),
            Fault::InvalidRecord,
            "",
        );
    }
}

#[test]
fn bombs_are_too_large() {
    let big = vec![0u8; 300_000];
    let mut r = rules();
    r.decompress_limit = 100_000;
    for codec in &CODECS[1..] {
        let mut b = BatchBuilder::new(*codec);
        b.push(NewRecord {
            timestamp: NOW,
            key: None,
            value: Some(&big),
            headers: &[],
        });
        let bytes = b.build().unwrap().bytes().clone();
        refused(&bytes, &r, Fault::MessageTooLarge, "100000");
        assert!(run(&bytes, &rules()).is_ok());
    }
}

fn gap(codec: Codec) -> Bytes {
    let mut b = BatchBuilder::new(codec);
    b.push_at(0, NOW, Some(b"k"), Some(b"v"), std::iter::empty());
    b.push_at(5, NOW, Some(b"k"), Some(b"v"), std::iter::empty());
    changed(&b.build().unwrap(), |h| h.last_offset_delta = 1)
}

#[test]
fn offsets_that_do_not_count_from_0() {
    refused(
        &gap(Codec::None),
        &rules(),
        Fault::InvalidRecord,
        "incremental offsets",
    );
    for codec in &CODECS[1..] {
        let done = run(&gap(*codec), &rules()).unwrap();
        assert!(done.rebuilt);
        assert_eq!(
            offsets(&stored(&done)),
            [(NEXT, NOW), (NEXT + 1, NOW)],
            "{codec:?}"
        );
    }
}

#[test]
fn compacted_topics_want_keys() {
    let mut r = rules();
    r.compacted = true;
    for codec in CODECS {
        let mut b = BatchBuilder::new(codec);
        for key in [Some(&b"k"[..]), None, None, Some(b"")] {
            b.push(NewRecord {
                timestamp: NOW,
                key,
                value: None,
                headers: &[],
            });
        }
        let bytes = b.build().unwrap().bytes().clone();
        let error = run(&bytes, &r).unwrap_err();
        assert_eq!(error.fault, Fault::InvalidRecord);
        let indexes: Vec<_> = error.records.iter().map(|(i, _)| *i).collect();
        assert_eq!(indexes, [1, 2], "an empty key is a key");
        assert_eq!(
            error.message,
            "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors at most: [RecordError(batchIndex=1, message='Compacted topic cannot accept message without key in topic partition t-0'), RecordError(batchIndex=2, message='Compacted topic cannot accept message without key in topic partition t-0')]"
        );
    }
}

#[test]
fn timestamps_out_of_range() {
    let mut r = rules();
    r.before_max_ms = 1000;
    r.after_max_ms = 50;
    for codec in CODECS {
        for (timestamp, good) in [
            (NOW - 1000, true),
            (NOW - 1001, false),
            (NOW + 50, true),
            (NOW + 51, false),
            (-1, true),
            (0, false),
            (i64::MAX, false),
        ] {
            let mut b = BatchBuilder::new(codec);
            b.push(record(NOW));
            b.push(record(timestamp));
            let bytes = b.build().unwrap().bytes().clone();
            if good {
                assert!(run(&bytes, &r).is_ok(), "{timestamp}");
                continue;
            }
            let error = run(&bytes, &r).unwrap_err();
            assert_eq!(error.fault, Fault::InvalidTimestamp, "{timestamp}");
            assert_eq!(
                error.message,
                "One or more records have been rejected due to invalid timestamp"
            );
            assert_eq!(
                error.records,
                [(
                    1,
                    format!(
                        "Timestamp {timestamp} of message with offset 1 is out of range. The timestamp should be within [{}, {}]",
                        NOW - 1000,
                        NOW + 50
                    )
                )]
            );
            let mut append = r.clone();
            append.timestamp_type = TimestampType::LogAppendTime;
            assert!(run(&bytes, &append).is_ok(), "own clock: nobody's matter");
        }
    }
    for magic in [0, 1] {
        let bytes = legacy(magic, Codec::None, &[NOW - 1001]);
        assert_eq!(run(&bytes, &r).is_ok(), magic == 0);
    }
}

#[test]
fn key_and_timestamp_faults_together_are_invalid_timestamp() {
    let mut r = rules();
    r.compacted = true;
    let mut b = BatchBuilder::new(Codec::None);
    b.push(NewRecord {
        timestamp: NOW,
        ..Default::default()
    });
    b.push(record(i64::MAX));
    let error = run(b.build().unwrap().bytes(), &r).unwrap_err();
    assert_eq!(error.fault, Fault::InvalidTimestamp);
    assert_eq!(error.records.len(), 2);
}

#[test]
fn a_client_may_not_stamp_log_append_time() {
    let marked = |ms: i64| builder(Codec::None).append_time(ms).build().unwrap();
    let mut r = rules();
    let done = run(marked(NOW).bytes(), &r).unwrap();
    let entry = Entry::parse(&stored(&done)).unwrap();
    assert_eq!(entry.timestamp_type(), TimestampType::CreateTime);
    assert_eq!(entry.max_timestamp(), NOW);
    entry.check_crc().unwrap();
    refused(marked(-1).bytes(), &r, Fault::InvalidTimestamp, "");
    r.timestamp_type = TimestampType::LogAppendTime;
    let error = run(marked(NOW).bytes(), &r).unwrap_err();
    assert_eq!(error.fault, Fault::InvalidTimestamp);
    assert_eq!(error.records.len(), 3);
}

// --- old formats

#[test]
fn wrappers_faults() {
    use gracchus_record::compression::{Levels, compress};
    use gracchus_record::legacy::{LegacyFields, put_message};
    let plain = |magic, codec, value: Option<&[u8]>, offset| {
        let mut out = Vec::new();
        put_message(
            &mut out,
            LegacyFields {
                magic,
                offset,
                timestamp: NOW,
                timestamp_type: TimestampType::CreateTime,
                codec,
                key: None,
                value,
            },
        );
        out
    };
    let wrap = |magic, inner: &[u8], offset| {
        let packed = compress(Codec::Gzip, magic, Levels::default(), inner).unwrap();
        Bytes::from(plain(magic, Codec::Gzip, Some(&packed), offset))
    };
    for magic in [0i8, 1] {
        let r = rules();
        let invalid = Fault::InvalidRecord;
        let none = Bytes::from(plain(magic, Codec::Gzip, None, 0));
        refused(&none, &r, invalid, "null value");
        refused(&wrap(magic, &[], 0), &r, invalid, "no inner records");
        let other = plain(1 - magic, Codec::None, Some(b"x"), 0);
        refused(&wrap(magic, &other, 0), &r, invalid, "magic");
        let twice = plain(magic, Codec::Gzip, Some(b"x"), 0);
        refused(&wrap(magic, &twice, 0), &r, invalid, "compressed");
        let mut bad_crc = plain(magic, Codec::None, Some(b"x"), 0);
        *bad_crc.last_mut().unwrap() ^= 1;
        refused(&wrap(magic, &bad_crc, 0), &r, Fault::CorruptMessage, "crc");
    }
    let inner = [
        plain(1, Codec::None, Some(b"x"), 0),
        plain(1, Codec::None, Some(b"y"), 3),
    ]
    .concat();
    refused(
        &wrap(1, &inner, 2),
        &rules(),
        Fault::InvalidRecord,
        "wrapper offset '2' is less than",
    );
    // 0 is what some versions of librdkafka leave there
    assert!(run(&wrap(1, &inner, 0), &rules()).is_ok());
}

#[test]
fn old_formats_become_one_batch() {
    for magic in [0i8, 1] {
        for codec in &CODECS[..4] {
            let bytes = legacy(magic, *codec, &[NOW - 2, NOW, NOW - 1]);
            let done = run(&bytes, &rules()).unwrap();
            assert!(done.rebuilt);
            assert_eq!(done.codec, *codec);
            assert_eq!((done.first_offset, done.last_offset), (NEXT, NEXT + 2));
            assert_eq!(done.record_count, 3);
            let times = if magic == 0 {
                [-1, -1, -1]
            } else {
                [NOW - 2, NOW, NOW - 1]
            };
            let expected: Vec<_> = (NEXT..).zip(times).collect();
            assert_eq!(offsets(&stored(&done)), expected);
            let (max, at) = if magic == 0 {
                (-1, -1)
            } else {
                (NOW, NEXT + 2)
            };
            assert_eq!(
                (done.max_timestamp, done.offset_of_max_timestamp),
                (max, at)
            );
        }
    }
}

#[test]
fn old_formats_in_partitions_of_that_format() {
    for magic in [0i8, 1] {
        for codec in &CODECS[..4] {
            for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                let mut r = rules();
                r.magic = magic;
                r.timestamp_type = kind;
                let bytes = legacy(magic, *codec, &[NOW - 2, NOW - 1, NOW - 1]);
                let done = validate(&bytes, NEXT, NOW + 9, &r).unwrap();
                let rebuilt = magic == 0 && *codec != Codec::None;
                assert_eq!(done.rebuilt, rebuilt, "v{magic} {codec:?}");
                let append = kind == TimestampType::LogAppendTime;
                let times = match (magic, append) {
                    (0, _) => [-1; 3],
                    (_, true) => [NOW + 9; 3],
                    _ => [NOW - 2, NOW - 1, NOW - 1],
                };
                let expected: Vec<_> = (NEXT..).zip(times).collect();
                assert_eq!(offsets(&stored(&done)), expected, "v{magic} {codec:?}");
                let max = *times.last().unwrap();
                let at = match (magic, *codec, append) {
                    (0, _, _) => -1,
                    (_, Codec::None, true) => NEXT,
                    (_, Codec::None, false) => NEXT + 1,
                    _ => NEXT + 2,
                };
                assert_eq!(
                    (done.max_timestamp, done.offset_of_max_timestamp),
                    (max, at),
                    "v{magic} {codec:?} {kind:?}"
                );
            }
        }
    }
}

// --- in place or rebuilt

#[test]
fn an_untouched_batch_keeps_its_payload_and_checksum() {
    for codec in CODECS {
        let sent = builder(codec).producer(9, 2, 40).build().unwrap();
        let done = run(sent.bytes(), &rules()).unwrap();
        assert!(!done.rebuilt);
        let ready = &done.batches[0];
        let header = ready.header.unwrap();
        assert_eq!(header.crc, sent.header.crc);
        assert_eq!(
            ready.payload.as_ptr(),
            sent.payload().as_ptr(),
            "{codec:?}: not copied"
        );
        assert_eq!((header.base_offset, header.leader_epoch), (NEXT, 7));
        assert_eq!((header.producer_id, header.base_sequence), (9, 40));
        assert_eq!(
            (done.max_timestamp, done.offset_of_max_timestamp),
            (NOW, NEXT + 2)
        );
        assert_eq!(
            offsets(&stored(&done)),
            [(NEXT, NOW - 2), (NEXT + 1, NOW), (NEXT + 2, NOW - 1)]
        );
    }
}

#[test]
fn a_wrong_maximum_or_log_append_time_renews_the_checksum() {
    for codec in CODECS {
        let wrong = changed(&batch(codec), |h| h.max_timestamp = 5);
        let done = run(&wrong, &rules()).unwrap();
        assert_eq!(done.batches[0].header.unwrap().max_timestamp, NOW);
        assert!(!done.rebuilt);
        offsets(&stored(&done));
        let mut r = rules();
        r.timestamp_type = TimestampType::LogAppendTime;
        let done = validate(batch(codec).bytes(), NEXT, NOW + 44, &r).unwrap();
        assert!(!done.rebuilt);
        assert_eq!(done.append_time, Some(NOW + 44));
        assert!(offsets(&stored(&done)).iter().all(|r| r.1 == NOW + 44));
        assert_eq!(done.offset_of_max_timestamp, NEXT + 2);
    }
}

#[test]
fn another_codec_keeps_all_but_the_encoding() {
    for from in CODECS {
        for to in CODECS {
            for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                let sent = builder(from)
                    .producer(9, 2, 40)
                    .transactional(true)
                    .build()
                    .unwrap();
                let mut r = rules();
                r.codec = Some(to);
                r.timestamp_type = kind;
                let done = run(sent.bytes(), &r).unwrap();
                assert_eq!(done.rebuilt, from != to);
                assert_eq!(done.codec, to);
                let bytes = stored(&done);
                let Entry::V2(batch) = Entry::parse(&bytes).unwrap() else {
                    panic!()
                };
                let h = batch.header;
                assert_eq!(h.codec(), Ok(to));
                assert_eq!(
                    (h.producer_id, h.producer_epoch, h.base_sequence),
                    (9, 2, 40)
                );
                assert!(h.is_transactional());
                assert_eq!(h.leader_epoch, 7);
                assert_eq!(h.timestamp_type(), kind);
                let found = offsets(&bytes);
                assert_eq!(found.len(), 3);
                if kind == TimestampType::CreateTime {
                    assert_eq!(found[1], (NEXT + 1, NOW));
                }
            }
        }
    }
}

#[test]
fn markers_are_not_compressed() {
    use gracchus_record::control::{EndTransaction, Marker};
    let marker = EndTransaction {
        marker: Marker::Commit,
        coordinator_epoch: 4,
    }
    .batch(NOW, 9, 2)
    .unwrap();
    let mut r = rules();
    r.origin = Origin::Coordinator;
    r.codec = Some(Codec::Gzip);
    let done = run(marker.bytes(), &r).unwrap();
    assert!(!done.rebuilt);
    let h = done.batches[0].header.unwrap();
    assert!(h.is_control() && h.is_transactional());
    assert_eq!(h.codec(), Ok(Codec::None));
    assert_eq!(h.base_offset, NEXT);
}

#[test]
fn no_timestamp_anywhere() {
    let mut b = BatchBuilder::new(Codec::None);
    b.push(record(-1));
    let done = run(b.build().unwrap().bytes(), &rules()).unwrap();
    assert_eq!((done.max_timestamp, done.offset_of_max_timestamp), (-1, -1));
}
