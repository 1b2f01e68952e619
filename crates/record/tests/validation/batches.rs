//! The request, each batch's header, size and checksum, and the batch as a whole.

use super::*;

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
