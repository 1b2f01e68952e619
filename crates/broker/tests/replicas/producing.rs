//! Produce.

use bytes::{Bytes, BytesMut};
use gracchus_broker::api::produce;
use gracchus_broker::context::RequestContext;
use gracchus_broker::net::Outcome;
use gracchus_kafka_proto::messages::ProduceRequest;
use gracchus_kafka_proto::{ApiKey, ErrorCode};
use gracchus_record::{BatchBuilder, Codec};

use crate::rig::{
    ME, Rig, TOPIC_ID, batch, build, context, error, produce_request, produced, values,
};

#[tokio::test]
async fn offsets_are_given_in_order() {
    let rig = Rig::leading();
    let first = rig.produce("t", batch(&["a", "b"])).await;
    assert_eq!(
        (error(first.error_code), first.base_offset),
        (ErrorCode::None, 0)
    );
    assert_eq!((first.log_append_time_ms, first.log_start_offset), (-1, 0));
    let second = rig.produce("t", batch(&["c"])).await;
    assert_eq!((second.error_code, second.base_offset), (0, 2));
    assert_eq!(rig.high_watermark("t"), 3);
    let read = rig.fetch(11, "t", 1).await;
    let expected = [(0, "a"), (1, "b"), (2, "c")].map(|(o, v)| (o, v.to_owned()));
    assert_eq!(values(&read), expected);
}

/// What the tail keeps as it came is most of what it holds in memory.
#[tokio::test]
async fn a_small_part_of_a_large_frame_does_not_keep_the_frame() {
    let rig = Rig::leading();
    // somebody reads at the end
    rig.fetch(11, "t", 0).await;
    let records = batch(&["x".repeat(400_000).as_str()]);
    for (frame_len, is_free) in [(records.len() + 100, false), (4 << 20, true)] {
        let mut frame = BytesMut::from(&records[..]);
        frame.resize(frame_len, 0);
        let frame = frame.freeze();
        let ctx = RequestContext {
            frame_len,
            ..context(ApiKey::Produce, 9)
        };
        let request = produce_request(1, "t", frame.slice(..records.len()));
        let Outcome::Reply(_) = produce::answer(&rig.replicas, &ctx, request).await else {
            panic!("no answer");
        };
        assert_eq!(frame.is_unique(), is_free, "{frame_len}");
    }
    assert_eq!(rig.high_watermark("t"), 2);
}

#[tokio::test]
async fn log_append_time_is_told() {
    let rig = Rig::with(&[("log.message.timestamp.type", "LogAppendTime")]);
    rig.lead("t", 1, &[ME], &[ME]);
    let answer = rig.produce("t", batch(&["a"])).await;
    assert_eq!(answer.error_code, 0);
    assert!(answer.log_append_time_ms > 0);
}

#[tokio::test]
async fn what_is_refused_and_how() {
    let rig = Rig::leading();
    rig.know("elsewhere", TOPIC_ID, 2, 5, &[2]);
    rig.know("__consumer_offsets", TOPIC_ID, ME, 1, &[ME]);
    let mut two = BytesMut::from(&batch(&["a"])[..]);
    two.extend_from_slice(&batch(&["b"]));
    let mut corrupt = BytesMut::from(&batch(&["a"])[..]);
    let last = corrupt.len() - 1;
    corrupt[last] ^= 1;
    let zstd = build(BatchBuilder::new(Codec::Zstd), &["a"]);
    let transactional = build(
        BatchBuilder::new(Codec::None)
            .producer(5, 0, 0)
            .transactional(true),
        &["a"],
    );
    let large = batch(&["x".repeat(1_100_000).as_str()]);
    let good = batch(&["a"]);
    let cases: [(&str, i16, i16, &str, Bytes, ErrorCode); 12] = [
        (
            "unknown",
            9,
            1,
            "nowhere",
            good.clone(),
            ErrorCode::UnknownTopicOrPartition,
        ),
        (
            "led by another",
            9,
            1,
            "elsewhere",
            good.clone(),
            ErrorCode::NotLeaderOrFollower,
        ),
        (
            "acks",
            9,
            2,
            "t",
            good.clone(),
            ErrorCode::InvalidRequiredAcks,
        ),
        (
            "no batch",
            3,
            1,
            "t",
            Bytes::new(),
            ErrorCode::InvalidRecord,
        ),
        (
            "two batches",
            3,
            1,
            "t",
            two.freeze(),
            ErrorCode::InvalidRecord,
        ),
        (
            "zstd too early",
            6,
            1,
            "t",
            zstd.clone(),
            ErrorCode::UnsupportedCompressionType,
        ),
        (
            "crc",
            9,
            1,
            "t",
            corrupt.freeze(),
            ErrorCode::CorruptMessage,
        ),
        ("too large", 9, 1, "t", large, ErrorCode::MessageTooLarge),
        (
            "internal",
            9,
            1,
            "__consumer_offsets",
            good.clone(),
            ErrorCode::InvalidTopicException,
        ),
        (
            "transactional",
            9,
            -1,
            "t",
            transactional,
            ErrorCode::TransactionalIdAuthorizationFailed,
        ),
        ("zstd", 7, 1, "t", zstd, ErrorCode::None),
        ("good", 3, 1, "t", good, ErrorCode::None),
    ];
    for (what, version, acks, topic, records, expected) in cases {
        let answer = rig.produce_as(version, acks, topic, records).await;
        assert_eq!(error(answer.error_code), expected, "{what}");
        if expected != ErrorCode::None {
            assert_eq!(answer.base_offset, -1, "{what}");
            assert_eq!(answer.log_append_time_ms, -1, "{what}");
        }
    }
    assert_eq!(rig.log_end("t"), 2);
}

/// KIP-951: from version 10 on the answer says who leads and where.
#[tokio::test]
async fn the_leader_is_named() {
    let rig = Rig::leading();
    rig.know("elsewhere", TOPIC_ID, 2, 5, &[2]);
    for (version, leader) in [(9, -1), (10, 2), (11, 2)] {
        let answer = rig.produce_as(version, 1, "elsewhere", batch(&["a"])).await;
        assert_eq!(answer.current_leader.leader_id, leader, "v{version}");
    }
}

/// KIP-467: each refused record with its reason.
#[tokio::test]
async fn refused_records_are_listed() {
    let rig = Rig::with(&[("log.cleanup.policy", "compact")]);
    rig.lead("t", 1, &[ME], &[ME]);
    let mut keyless = BatchBuilder::new(Codec::None);
    for value in [b"a", b"b"] {
        keyless.push(gracchus_record::NewRecord {
            timestamp: 1,
            key: None,
            value: Some(value),
            headers: Default::default(),
        });
    }
    let answer = rig
        .produce("t", keyless.build().unwrap().bytes().clone())
        .await;
    assert_eq!(error(answer.error_code), ErrorCode::InvalidRecord);
    let indexes: Vec<i32> = answer.record_errors.iter().map(|e| e.batch_index).collect();
    assert_eq!(indexes, [0, 1]);
    assert!(answer.error_message.unwrap().contains("record"));
    assert_eq!(answer.log_start_offset, 0);
}

#[tokio::test]
async fn acks_0_has_no_answer_and_an_error_closes() {
    let rig = Rig::leading();
    let sent = rig
        .produce_request(9, produce_request(0, "t", batch(&["a"])))
        .await;
    assert!(matches!(sent, Outcome::Nothing), "{sent:?}");
    assert_eq!(rig.log_end("t"), 1);
    let failed = rig
        .produce_request(9, produce_request(0, "nowhere", batch(&["a"])))
        .await;
    let Outcome::Close(reason) = failed else {
        panic!("{failed:?}")
    };
    assert!(
        reason.contains("nowhere-0") && reason.contains("UNKNOWN_TOPIC_OR_PARTITION"),
        "{reason}"
    );
}

fn sequenced(epoch: i16, sequence: i32) -> Bytes {
    build(
        BatchBuilder::new(Codec::None).producer(77, epoch, sequence),
        &["a", "b"],
    )
}

#[tokio::test]
async fn idempotent_producers() {
    let rig = Rig::leading();
    for (what, records, expected, base) in [
        ("first", sequenced(0, 0), ErrorCode::None, 0),
        ("second", sequenced(0, 2), ErrorCode::None, 2),
        ("second again", sequenced(0, 2), ErrorCode::None, 2),
        ("first again", sequenced(0, 0), ErrorCode::None, 0),
        (
            "gap",
            sequenced(0, 6),
            ErrorCode::OutOfOrderSequenceNumber,
            -1,
        ),
        (
            "new epoch, not from 0",
            sequenced(1, 4),
            ErrorCode::OutOfOrderSequenceNumber,
            -1,
        ),
        ("new epoch", sequenced(1, 0), ErrorCode::None, 4),
        (
            "old epoch",
            sequenced(0, 4),
            ErrorCode::InvalidProducerEpoch,
            -1,
        ),
    ] {
        let answer = rig.produce_as(9, -1, "t", records).await;
        assert_eq!(
            (error(answer.error_code), answer.base_offset),
            (expected, base),
            "{what}"
        );
    }
    assert_eq!(rig.log_end("t"), 6);
}

#[tokio::test]
async fn too_few_in_sync_replicas() {
    let rig = Rig::with(&[("min.insync.replicas", "2")]);
    rig.lead("t", 1, &[ME, 2], &[ME]);
    let answer = rig.produce_as(9, -1, "t", batch(&["a"])).await;
    assert_eq!(error(answer.error_code), ErrorCode::NotEnoughReplicas);
    assert_eq!(rig.log_end("t"), 0);
    // acks=1 does not ask, but the high watermark stands still: consumers see nothing.
    let answer = rig.produce_as(9, 1, "t", batch(&["a"])).await;
    assert_eq!(error(answer.error_code), ErrorCode::None);
    assert_eq!((rig.log_end("t"), rig.high_watermark("t")), (1, 0));
    // More than there are replicas is not asked for.
    let alone = Rig::with(&[("min.insync.replicas", "2")]);
    alone.lead("t", 1, &[ME], &[ME]);
    let answer = alone.produce_as(9, -1, "t", batch(&["a"])).await;
    assert_eq!(error(answer.error_code), ErrorCode::None);
}

/// Runs `meanwhile` once a produce with acks=all is parked, and gives its answer.
async fn while_parked(
    rig: &Rig,
    request: ProduceRequest,
    meanwhile: impl AsyncFnOnce(),
) -> (ErrorCode, i64) {
    let parked = rig.produce_request(9, request);
    let others = async {
        while rig.log_end("t") == 0 {
            tokio::task::yield_now().await;
        }
        meanwhile().await;
    };
    let (outcome, ()) = tokio::join!(parked, others);
    let mut response = produced(9, outcome);
    let answer = response.responses.remove(0).partition_responses.remove(0);
    (error(answer.error_code), answer.base_offset)
}

#[tokio::test]
async fn acks_all_waits_for_the_followers() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    // The follower has nothing, then fetches from the end.
    let request = produce_request(-1, "t", batch(&["a"]));
    let answer = while_parked(&rig, request, async || {
        let read = rig.follower_fetch(2, "t", 0).await;
        assert_eq!((values(&read).len(), rig.high_watermark("t")), (1, 0));
        rig.follower_fetch(2, "t", 1).await;
        assert_eq!(rig.high_watermark("t"), 1);
    })
    .await;
    assert_eq!(answer, (ErrorCode::None, 0));
}

#[tokio::test]
async fn acks_all_times_out_with_its_offset() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    let request = ProduceRequest {
        timeout_ms: 1,
        ..produce_request(-1, "t", batch(&["a"]))
    };
    let answer = while_parked(&rig, request, async || {}).await;
    assert_eq!(answer, (ErrorCode::RequestTimedOut, 0));
    assert_eq!(rig.log_end("t"), 1);
}

#[tokio::test]
async fn losing_leadership_answers_the_parked() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    let request = produce_request(-1, "t", batch(&["a"]));
    let answer = while_parked(&rig, request, async || {
        assert_eq!(rig.follow("t", 2, 2), ErrorCode::None);
    })
    .await;
    assert_eq!(answer.0, ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn an_isr_that_shrank_meanwhile() {
    let rig = Rig::with(&[("min.insync.replicas", "2")]);
    rig.lead("t", 1, &[ME, 2, 3], &[ME, 2, 3]);
    let request = produce_request(-1, "t", batch(&["a"]));
    let answer = while_parked(&rig, request, async || {
        // Both followers get there, but the controller has taken them out of the ISR before the leader looks.
        rig.follower_fetch(2, "t", 1).await;
        rig.config
            .set_topic(
                "t",
                [("min.insync.replicas".to_owned(), "4".to_owned())].into(),
            )
            .unwrap();
        rig.lead("t", 2, &[ME, 2, 3], &[ME]);
        rig.config
            .set_topic(
                "t",
                [("min.insync.replicas".to_owned(), "1".to_owned())].into(),
            )
            .unwrap();
        rig.lead("t", 3, &[ME, 2, 3], &[ME]);
        rig.config
            .set_topic(
                "t",
                [("min.insync.replicas".to_owned(), "2".to_owned())].into(),
            )
            .unwrap();
    })
    .await;
    assert_eq!(answer.0, ErrorCode::NotEnoughReplicasAfterAppend);
}

#[tokio::test]
async fn flush_messages_are_on_the_device_before_the_answer() {
    let rig = Rig::with(&[("log.flush.interval.messages", "2")]);
    assert_eq!(rig.lead("t", 1, &[ME], &[ME]), ErrorCode::None);
    let recovery_point = || {
        let log = rig.replicas.partition("t", 0).unwrap().log().unwrap();
        let log = log.lock();
        log.recovery_point()
    };
    rig.produce("t", batch(&["a"])).await;
    assert_eq!((recovery_point(), rig.high_watermark("t")), (0, 1));
    rig.produce("t", batch(&["b"])).await;
    assert_eq!((recovery_point(), rig.high_watermark("t")), (2, 2));
    // A device that refuses: an error, and no second chance to write the same records once more.
    let path = rig.dir.path().join("t-0/00000000000000000000.snapshot");
    std::os::unix::fs::symlink("/dev/null", path).unwrap();
    rig.produce("t", batch(&["c"])).await;
    for value in ["d", "d"] {
        let answer = rig.produce("t", batch(&[value])).await;
        assert_eq!(error(answer.error_code), ErrorCode::KafkaStorageError);
        assert_eq!(answer.base_offset, -1);
    }
}
