//! The records of a batch.

use super::*;

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
