//! Old formats, and when bytes stay or are rebuilt.

use super::*;

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

/// A partition that stores an old format takes apart what new producers send.
#[test]
fn format_2_becomes_the_partitions_format() {
    for magic in [0i8, 1] {
        for from in CODECS {
            for to in [None, Some(Codec::None), Some(Codec::Gzip), Some(Codec::Lz4)] {
                for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                    let mut r = rules();
                    (r.magic, r.codec, r.timestamp_type) = (magic, to, kind);
                    let sent = batch(from);
                    let target = to.unwrap_or(from);
                    let what = format!("{from:?} to v{magic} {target:?} {kind:?}");
                    if target == Codec::Zstd {
                        refused(sent.bytes(), &r, Fault::UnsupportedCompressionType, "magic");
                        continue;
                    }
                    let done = validate(sent.bytes(), NEXT, NOW + 9, &r).unwrap();
                    assert!(done.rebuilt, "{what}");
                    let bytes = stored(&done);
                    let entries: Vec<_> = Entries::new(bytes.clone()).map(|e| e.unwrap()).collect();
                    assert!(entries.iter().all(|e| e.magic() == magic), "{what}");
                    assert!(entries.iter().all(|e| e.codec() == Ok(target)), "{what}");
                    let many = if target == Codec::None { 3 } else { 1 };
                    assert_eq!(entries.len(), many, "{what}");
                    let append = kind == TimestampType::LogAppendTime;
                    let times = match (magic, append) {
                        (0, _) => [-1; 3],
                        (_, true) => [NOW + 9; 3],
                        _ => [NOW - 2, NOW, NOW - 1],
                    };
                    let expected: Vec<_> = (NEXT..).zip(times).collect();
                    assert_eq!(offsets(&bytes), expected, "{what}");
                    let at = match (magic, target, append) {
                        (0, _, _) => -1,
                        (_, Codec::None, true) => NEXT,
                        (_, Codec::None, false) => NEXT + 1,
                        _ => NEXT + 2,
                    };
                    assert_eq!(done.offset_of_max_timestamp, at, "{what}");
                    assert_eq!(done.append_time, append.then_some(NOW + 9), "{what}");
                }
            }
        }
    }
}

#[test]
fn headers_are_not_dropped_silently() {
    let headers = [gracchus_record::Header {
        key: b"h",
        value: Some(b"1"),
    }];
    for codec in CODECS {
        let mut b = BatchBuilder::new(codec);
        b.push(NewRecord {
            headers: &headers,
            ..record(NOW)
        });
        let sent = b.build().unwrap();
        assert!(run(sent.bytes(), &rules()).is_ok());
        for magic in [0, 1] {
            let mut r = rules();
            (r.magic, r.codec) = (magic, Some(Codec::Gzip));
            refused(
                sent.bytes(),
                &r,
                Fault::UnsupportedForMessageFormat,
                "does not support record headers",
            );
        }
    }
}

#[test]
fn zstd_waits_for_the_protocol_that_knows_it() {
    let mut r = rules();
    r.zstd = false;
    refused(
        batch(Codec::Zstd).bytes(),
        &r,
        Fault::UnsupportedCompressionType,
        "inter.broker.protocol.version < 2.1",
    );
    r.codec = Some(Codec::Zstd);
    for codec in CODECS {
        refused(
            batch(codec).bytes(),
            &r,
            Fault::UnsupportedCompressionType,
            "inter.broker.protocol.version < 2.1",
        );
    }
    // sent so, stored otherwise
    r.codec = Some(Codec::Lz4);
    assert!(run(batch(Codec::Zstd).bytes(), &r).is_ok());
}
