//! The table in `docs/record-validation.md`, row by row.
#![allow(clippy::unwrap_used, clippy::panic)]

mod batches;
mod formats;
mod records;

use bytes::Bytes;
use gracchus_record::batch::BatchHeader;
use gracchus_record::validate::{
    Fault, Origin, Refused, Rules, Validated, check_request, validate,
};
use gracchus_record::{
    Batch, BatchBuilder, Codec, Entries, Entry, LegacyBuilder, NewRecord, RecordError,
    TimestampType,
};

pub const NOW: i64 = 1_700_000_000_000;
pub const NEXT: i64 = 500;
pub const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

pub fn rules() -> Rules {
    Rules {
        partition: "t-0".into(),
        magic: 2,
        codec: None,
        zstd: true,
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

pub fn record(timestamp: i64) -> NewRecord<'static> {
    NewRecord {
        timestamp,
        key: Some(b"k"),
        value: Some(b"value value value"),
        headers: &[],
    }
}

/// Three records, the middle one the newest.
pub fn builder(codec: Codec) -> BatchBuilder {
    let mut b = BatchBuilder::new(codec);
    for t in [NOW - 2, NOW, NOW - 1] {
        b.push(record(t));
    }
    b
}

pub fn batch(codec: Codec) -> Batch {
    builder(codec).build().unwrap()
}

/// The batch with a changed header and the right checksum.
pub fn changed(batch: &Batch, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut h = batch.header;
    change(&mut h);
    let payload = batch.payload();
    h.seal(&payload);
    Batch::assemble(h, &payload).bytes().clone()
}

pub fn legacy(magic: i8, codec: Codec, timestamps: &[i64]) -> Bytes {
    let records: Vec<_> = timestamps.iter().map(|t| record(*t)).collect();
    LegacyBuilder {
        magic,
        codec,
        append_time: None,
    }
    .build(0, &records)
    .unwrap()
}

pub fn run(bytes: &Bytes, rules: &Rules) -> Result<Validated, Refused> {
    validate(bytes, NEXT, NOW, rules)
}

#[track_caller]
pub fn refused(bytes: &Bytes, rules: &Rules, fault: Fault, text: &str) {
    let error = run(bytes, rules).unwrap_err();
    assert_eq!(error.fault, fault, "{error}");
    assert!(error.message.contains(text), "{}", error.message);
}

pub fn stored(v: &Validated) -> Bytes {
    let mut out = Vec::new();
    for b in &v.batches {
        out.extend_from_slice(&b.head);
        out.extend_from_slice(&b.payload);
    }
    assert_eq!(v.size, out.len());
    out.into()
}

/// (offset, timestamp) of every record; all checksums are looked at.
pub fn offsets(bytes: &Bytes) -> Vec<(i64, i64)> {
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
