//! Whatever goes in comes out again, and no bytes, however damaged, make anything panic or accept a lie.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use gracchus_record::convert::down_convert;
use gracchus_record::validate::{Origin, Rules, check_request, validate};
use gracchus_record::{
    BatchBuilder, Codec, Entries, Header, LegacyBuilder, NewRecord, RecordError, TimestampType,
};
use proptest::prelude::*;

type Field = Option<Vec<u8>>;
type Rec = (i64, Field, Field, Vec<(Vec<u8>, Field)>);

fn field() -> impl Strategy<Value = Field> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40))
}

fn records() -> impl Strategy<Value = Vec<Rec>> {
    let header = (proptest::collection::vec(any::<u8>(), 0..8), field());
    let headers = proptest::collection::vec(header, 0..4);
    proptest::collection::vec((-1i64..i64::MAX / 4, field(), field(), headers), 1..12)
}

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![
        Just(Codec::None),
        Just(Codec::Gzip),
        Just(Codec::Snappy),
        Just(Codec::Lz4),
        Just(Codec::Zstd)
    ]
}

fn old_codec() -> impl Strategy<Value = Codec> {
    prop_oneof![
        Just(Codec::None),
        Just(Codec::Gzip),
        Just(Codec::Snappy),
        Just(Codec::Lz4)
    ]
}

fn build(codec: Codec, records: &[Rec]) -> Bytes {
    let mut b = BatchBuilder::new(codec).producer(3, 1, 0);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        b.push(NewRecord {
            timestamp: *timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
        });
    }
    b.build().unwrap().bytes().clone()
}

fn read(bytes: &Bytes, limit: usize) -> Result<Vec<Rec>, RecordError> {
    let mut out = Vec::new();
    for entry in Entries::new(bytes.clone()) {
        entry?.for_each_record(limit, |r| {
            out.push((
                r.timestamp,
                r.key.map(<[u8]>::to_vec),
                r.value.map(<[u8]>::to_vec),
                r.headers
                    .iter()
                    .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                    .collect(),
            ));
            Ok::<_, RecordError>(())
        })?;
    }
    Ok(out)
}

fn rules(codec: Option<Codec>, magic: i8) -> Rules {
    Rules {
        partition: "t-0".into(),
        magic,
        codec,
        zstd: true,
        levels: Default::default(),
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        max_message_bytes: 1 << 16,
        decompress_limit: 1 << 16,
        origin: Origin::Client,
        leader_epoch: 1,
    }
}

fn everything(bytes: &Bytes) {
    let _ = read(bytes, 1 << 16);
    let _ = check_request(9, bytes);
    for magic in 0..=2 {
        let _ = down_convert(bytes, magic, 0, 1 << 16);
        for codec in [None, Some(Codec::None), Some(Codec::Lz4)] {
            if let Ok(done) = validate(bytes, 10, 0, &rules(codec, magic)) {
                // what is accepted is stored readable, with the offsets that were promised
                let mut stored = Vec::new();
                for b in &done.batches {
                    stored.extend_from_slice(&b.head);
                    stored.extend_from_slice(&b.payload);
                }
                let stored = read(&stored.into(), 1 << 16);
                if magic == 2 {
                    assert_eq!(stored.unwrap().len() as u64, done.record_count);
                }
                assert_eq!(
                    done.last_offset - done.first_offset + 1,
                    done.record_count as i64
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn batches_round_trip(codec in codec(), records in records()) {
        let bytes = build(codec, &records);
        prop_assert_eq!(read(&bytes, 1 << 20).unwrap(), records);
    }

    #[test]
    fn recompression_keeps_records(from in codec(), to in codec(), records in records()) {
        let done = validate(&build(from, &records), 10, 0, &rules(Some(to), 2)).unwrap();
        let b = &done.batches[0];
        let stored = Bytes::from([&b.head[..], &b.payload[..]].concat());
        prop_assert_eq!(read(&stored, 1 << 20).unwrap(), records);
    }

    #[test]
    fn old_sets_round_trip(codec in old_codec(), magic in 0i8..2, records in records()) {
        let plain: Vec<_> = records.iter().map(|(timestamp, key, value, _)| NewRecord {
            timestamp: *timestamp, key: key.as_deref(), value: value.as_deref(), headers: &[],
        }).collect();
        let bytes = LegacyBuilder { magic, codec, append_time: None }.build(77, &plain).unwrap();
        let expected: Vec<Rec> = records.into_iter().map(|(t, k, v, _)| (if magic == 0 { -1 } else { t }, k, v, vec![])).collect();
        prop_assert_eq!(read(&bytes, 1 << 20).unwrap(), expected);
    }

    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        everything(&bytes.into());
    }

    #[test]
    fn damaged_batches(
        codec in codec(),
        records in records(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        reseal in any::<bool>(),
    ) {
        let mut bytes = build(codec, &records).to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if reseal && bytes.len() > 61 {
            // a right checksum over wrong content
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        everything(&bytes.into());
    }

    #[test]
    fn damaged_old_sets(
        codec in old_codec(),
        magic in 0i8..2,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        reseal in any::<bool>(),
    ) {
        let records = [NewRecord { timestamp: 4, key: Some(b"key"), value: Some(b"value value"), headers: &[] }; 3];
        let mut bytes = LegacyBuilder { magic, codec, append_time: None }.build(0, &records).unwrap().to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if reseal && codec != Codec::None {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &bytes[16..]) as u32;
            bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        }
        everything(&bytes.into());
    }
}
