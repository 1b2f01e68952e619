//! `message.format.version` under an inter-broker protocol of before 3.0.

use gracchus_broker::api::list_offsets;
use gracchus_kafka_proto::messages::ListOffsetsRequest;
use gracchus_kafka_proto::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsTopic,
};
use gracchus_kafka_proto::{ApiKey, ErrorCode};
use gracchus_record::{BatchBuilder, Codec, Entries};

use crate::rig::{ME, NOW, Rig, batch, build, bytes_of, context, error, values};

async fn rig(format: &str, more: &[(&str, &str)]) -> Rig {
    let mut props = vec![
        ("inter.broker.protocol.version", "2.8"),
        ("log.message.format.version", format),
    ];
    props.extend(more);
    let rig = Rig::with(&props);
    assert_eq!(rig.lead("t", 1, &[ME], &[ME]), ErrorCode::None);
    rig
}

async fn magics(rig: &Rig, version: i16) -> Vec<i8> {
    let part = rig.fetch(version, "t", 0).await;
    assert_eq!(error(part.error_code), ErrorCode::None);
    assert_eq!(
        values(&part),
        [(0, "a".to_owned()), (1, "b".to_owned())],
        "version {version}"
    );
    let bytes = bytes_of(part.records.as_ref().unwrap());
    Entries::new(bytes).map(|e| e.unwrap().magic()).collect()
}

#[tokio::test]
async fn stored_so_and_read_in_what_the_reader_knows() {
    for (format, old, newer, newest) in [
        ("0.9.0", 0, 0, 0),
        ("0.10.2", 0, 1, 1),
        ("0.11.0", 0, 1, 2),
        ("2.8", 0, 1, 2),
    ] {
        let rig = rig(format, &[]).await;
        let answer = rig.produce("t", batch(&["a", "b"])).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, 0));
        for (version, magic) in [
            (0, old),
            (1, old),
            (2, newer),
            (3, newer),
            (4, newest),
            (11, newest),
        ] {
            let found = magics(&rig, version).await;
            assert!(
                found.iter().all(|m| *m == magic),
                "{format} {version}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_reader_of_the_stored_format_needs_no_conversion() {
    let rig = rig("0.10.0", &[("log.message.downconversion.enable", "false")]).await;
    rig.produce("t", batch(&["a", "b"])).await;
    assert_eq!(magics(&rig, 2).await, [1, 1]);
    let part = rig.fetch(1, "t", 0).await;
    assert_eq!(error(part.error_code), ErrorCode::UnsupportedVersion);
}

#[tokio::test]
async fn idempotence_needs_format_2() {
    let rig = rig("0.10.0", &[]).await;
    let builder = BatchBuilder::new(Codec::None).producer(4, 0, 0);
    let answer = rig.produce("t", build(builder, &["a"])).await;
    assert_eq!(
        error(answer.error_code),
        ErrorCode::UnsupportedForMessageFormat
    );
}

#[tokio::test]
async fn format_0_has_no_times_to_search() {
    for (format, code) in [
        ("0.9.0", ErrorCode::UnsupportedForMessageFormat),
        ("0.10.0", ErrorCode::None),
    ] {
        let rig = rig(format, &[]).await;
        rig.produce("t", batch(&["a", "b"])).await;
        for timestamp in [NOW, -1, -2, -3] {
            let partitions = vec![ListOffsetsPartition {
                timestamp,
                ..Default::default()
            }];
            let request = ListOffsetsRequest {
                replica_id: -1,
                topics: vec![ListOffsetsTopic {
                    name: "t".into(),
                    partitions,
                    ..Default::default()
                }],
                ..Default::default()
            };
            let ctx = context(ApiKey::ListOffsets, 7);
            let answer = list_offsets::answer(&rig.replicas, &ctx, request).await;
            let found = answer.topics[0].partitions[0].error_code;
            let expected = match timestamp {
                -1 | -2 => ErrorCode::None,
                _ => code,
            };
            assert_eq!(error(found), expected, "{format} at {timestamp}");
        }
    }
}
