//! Frames, headers, record batches by reference, hostile lengths.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::{Bytes, BytesMut};
use gracchus_kafka_proto::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use gracchus_kafka_proto::messages::produce_request::{PartitionProduceData, TopicProduceData};
use gracchus_kafka_proto::messages::{
    ApiVersionsResponse, FetchResponse, MetadataRequest, ProduceRequest, RequestHeader,
};
use gracchus_kafka_proto::{
    ApiKey, Chunk, DecodeError, EncodeError, FileRegion, Message, Reader, Records, RecordsPart,
    Request, Writer, decode_request_header, decode_response_header, encode_request,
    encode_response,
};
use std::sync::Arc;

/// The frame behind a length prefix, which has to be right.
fn unframed(bytes: Bytes) -> Bytes {
    let length = i32::from_be_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(length as usize, bytes.len() - 4);
    bytes.slice(4..)
}

#[test]
fn a_request_goes_there_and_back() {
    let request = MetadataRequest {
        topics: None,
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    for version in [4, 8, 9, 12] {
        let frame = encode_request(7, Some("someone"), version, &request)
            .unwrap()
            .into_bytes()
            .unwrap();
        let (header, mut reader) = decode_request_header(unframed(frame)).unwrap();
        assert_eq!(header.request_api_key, ApiKey::Metadata.as_i16());
        assert_eq!(
            (header.request_api_version, header.correlation_id),
            (version, 7)
        );
        assert_eq!(header.client_id.as_deref(), Some("someone"));
        assert_eq!(
            MetadataRequest::decode(&mut reader, version).unwrap(),
            request
        );
        assert_eq!(reader.remaining(), 0);
    }
}

/// What a client of tomorrow sends: the header has to be readable, so that UNSUPPORTED_VERSION can be answered.
#[test]
fn headers_of_versions_unknown_here_are_read() {
    let mut writer = Writer::new();
    let header = RequestHeader {
        request_api_key: ApiKey::ApiVersions.as_i16(),
        request_api_version: 99,
        correlation_id: 3,
        client_id: Some("x".into()),
        ..Default::default()
    };
    header.encode(&mut writer, 2).unwrap();
    let (read, _) = decode_request_header(writer.finish().into_bytes().unwrap()).unwrap();
    assert_eq!(read, header);
}

#[test]
fn unknown_keys_and_short_headers_are_errors() {
    let unknown = Bytes::from_static(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(
        decode_request_header(unknown).unwrap_err(),
        DecodeError::UnknownApiKey(0x7fff)
    );
    for length in 0..8 {
        let short = Bytes::from(vec![0; length]);
        assert!(matches!(
            decode_request_header(short).unwrap_err(),
            DecodeError::Truncated { .. }
        ));
    }
}

#[test]
fn api_versions_answers_with_the_old_header() {
    let frame =
        encode_response(9, ApiKey::ApiVersions, 3, &ApiVersionsResponse::default()).unwrap();
    // correlation id, error code, empty compact array, throttle time, no tagged fields
    assert_eq!(
        &unframed(frame.into_bytes().unwrap())[..],
        [0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0]
    );
}

fn fetch_response(records: Records) -> FetchResponse {
    FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![PartitionData {
                records: Some(records),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Record batches are sent from where they are: the very memory, and file regions untouched.
#[test]
fn records_are_referenced_not_copied() {
    let batch = Bytes::from(vec![7; 4_096]);
    let region = FileRegion {
        file: Arc::new(tempfile()),
        offset: 100,
        len: 5_000,
    };
    let records = Records {
        parts: vec![
            RecordsPart::Bytes(batch.clone()),
            RecordsPart::File(region.clone()),
        ],
    };
    for version in [4, 11, 12] {
        let frame =
            encode_response(1, ApiKey::Fetch, version, &fetch_response(records.clone())).unwrap();
        let [
            Chunk::Bytes(head),
            Chunk::Bytes(hot),
            Chunk::File(cold),
            tail @ ..,
        ] = frame.chunks.as_slice()
        else {
            panic!("{:?}", frame.chunks)
        };
        assert_eq!(hot.as_ptr(), batch.as_ptr());
        assert_eq!(*cold, region);
        // Only flexible versions have something behind the records: no tagged fields, thrice.
        assert_eq!(tail.len(), usize::from(version == 12));
        assert_eq!(
            i32::from_be_bytes(head[..4].try_into().unwrap()) as u64,
            frame.len() - 4
        );
    }
}

#[test]
fn received_records_are_slices_of_the_frame() {
    let request = ProduceRequest {
        topic_data: vec![TopicProduceData {
            name: "t".into(),
            partition_data: vec![PartitionProduceData {
                records: Some(Records::from(Bytes::from(vec![9; 2_000]))),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    for version in [3, 9] {
        let frame = unframed(
            encode_request(1, None, version, &request)
                .unwrap()
                .into_bytes()
                .unwrap(),
        );
        let (_, mut reader) = decode_request_header(frame.clone()).unwrap();
        let read = ProduceRequest::decode(&mut reader, version).unwrap();
        assert_eq!(read, request);
        let records = read.topic_data[0].partition_data[0]
            .records
            .as_ref()
            .unwrap()
            .as_bytes()
            .unwrap();
        let (frame, records) = (frame.as_ptr_range(), records.as_ptr_range());
        assert!(frame.start <= records.start && records.end <= frame.end);
    }
}

/// Small batches share one piece with the headers around them.
#[test]
fn small_records_are_gathered() {
    let records = Records::from(Bytes::from(vec![7; 100]));
    let frame = encode_response(1, ApiKey::Fetch, 12, &fetch_response(records)).unwrap();
    assert_eq!(frame.chunks.len(), 1);
    let (header, mut reader) =
        decode_response_header(unframed(frame.into_bytes().unwrap()), ApiKey::Fetch, 12).unwrap();
    assert_eq!(header.correlation_id, 1);
    let read = FetchResponse::decode(&mut reader, 12).unwrap();
    assert_eq!(
        read.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap()
            .len(),
        100
    );
}

/// The 12 bytes that make kafka-protocol 0.15.1 abort: an array said to have 2^31-1 elements.
#[test]
fn hostile_lengths_are_refused_before_anything_is_reserved() {
    let body = Bytes::from_static(&[0xff, 0xff, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    let error = ProduceRequest::decode(&mut Reader::new(body), 3).unwrap_err();
    assert_eq!(
        error,
        DecodeError::LengthTooLong {
            length: 0x7fff_ffff,
            remaining: 0
        }
    );

    // 100 elements of at least 8 bytes each in 100 bytes: refused, though 100 <= 100.
    let mut bytes = BytesMut::from(&100i32.to_be_bytes()[..]);
    bytes.extend_from_slice(&[0; 100]);
    let refused = Reader::new(bytes.freeze()).array(false, 8, |_| -> Result<i64, _> {
        panic!("reads an element")
    });
    assert_eq!(
        refused.unwrap_err(),
        DecodeError::LengthTooLong {
            length: 100,
            remaining: 100
        }
    );

    // A length that fits reserves 64 KiB at most before the first element is read.
    let mut bytes = BytesMut::from(&1_000_000i32.to_be_bytes()[..]);
    bytes.resize(1_000_004, 0);
    let mut reader = Reader::new(bytes.freeze());
    let read = reader.array(false, 1, |_| Err::<[u64; 100], _>(DecodeError::InvalidUtf8));
    assert_eq!(read.unwrap_err(), DecodeError::InvalidUtf8);
}

#[test]
fn varints_over_32_bits_are_errors() {
    for bytes in [
        [0xff, 0xff, 0xff, 0xff, 0x10],
        [0x80, 0x80, 0x80, 0x80, 0x80],
    ] {
        let read = Reader::new(Bytes::copy_from_slice(&bytes)).unsigned_varint();
        assert_eq!(read.unwrap_err(), DecodeError::VarintTooLong);
    }
    let most = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f])).unsigned_varint();
    assert_eq!(most.unwrap(), u32::MAX);
}

#[test]
fn strings_over_the_old_limit_are_refused() {
    let mut writer = Writer::new();
    let long = "x".repeat(32_768);
    let refused = writer.string(&long, false).unwrap_err();
    assert_eq!(
        refused,
        EncodeError::TooLong {
            length: 32_768,
            limit: 32_767
        }
    );
    writer.string(&long, true).unwrap();
}

/// Which versions the broker of the capture served: the table has the same.
#[test]
fn versions_are_the_captured_ones() {
    let captured = include_str!("golden/api-versions.txt");
    let mut seen = 0;
    for line in captured.lines().filter(|line| !line.starts_with('#')) {
        let numbers: Vec<i16> = line
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let api = ApiKey::from_i16(numbers[0]).unwrap();
        assert_eq!(
            api.valid_versions(),
            numbers[1]..=numbers[2],
            "{}",
            api.name()
        );
        assert!(api.zk_broker(), "{}", api.name());
        seen += 1;
    }
    let served = ApiKey::ALL.iter().filter(|api| api.zk_broker()).count();
    assert_eq!(served, seen);
    assert_eq!(MetadataRequest::KEY, ApiKey::Metadata);
}

fn tempfile() -> std::fs::File {
    std::fs::File::open("/dev/null").unwrap()
}
