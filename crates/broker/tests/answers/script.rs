//! What is asked.

use std::fmt::{Debug, Write};

use bytes::{Bytes, BytesMut};
use gracchus_kafka_proto::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use gracchus_kafka_proto::messages::describe_log_dirs_request::DescribableLogDirTopic;
use gracchus_kafka_proto::messages::describe_producers_request::TopicRequest;
use gracchus_kafka_proto::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsTopic,
};
use gracchus_kafka_proto::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use gracchus_kafka_proto::messages::{
    DeleteRecordsRequest, DescribeLogDirsRequest, DescribeProducersRequest, FetchRequest,
    FetchResponse, ListOffsetsRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};
use gracchus_kafka_proto::{Records, Uuid};
use gracchus_record::{BatchBuilder, Codec, NewRecord};

use crate::rig::{NOW, batch, build, fetch_request, fetch_topic, produce_request};
use crate::target::{NewTopic, Target, call};

const TOPICS: [NewTopic; 8] = [
    ("p-t", &[]),
    ("p-c", &[("cleanup.policy", "compact")]),
    ("p-s", &[("segment.bytes", "100")]),
    ("p-d", &[("message.downconversion.enable", "false")]),
    ("p-z", &[("compression.type", "zstd")]),
    ("p-l", &[("message.timestamp.type", "LogAppendTime")]),
    ("p-i", &[]),
    ("p-a", &[("message.timestamp.after.max.ms", "1000")]),
];

/// Two lines an answer: what was asked, and the answer.
pub async fn run(target: &mut impl Target) -> String {
    target.create(&TOPICS).await;
    let mut out = String::new();
    produce(target, &mut out).await;
    sequences(target, &mut out).await;
    fetch(target, &mut out).await;
    fetch_limits(target, &mut out).await;
    sessions(target, &mut out).await;
    list_offsets(target, &mut out).await;
    others(target, &mut out).await;
    out
}

fn note(out: &mut String, what: &str, answer: Option<impl Debug>) {
    let mut text = match answer {
        Some(answer) => format!("{answer:?}"),
        None => "closed".to_owned(),
    };
    text = text.replace(", unknown_tagged_fields: []", "");
    // The range of timestamps depends on the time.
    while let Some(start) = text.find("should be within [") {
        let end = text[start..].find(']').unwrap() + start;
        text.replace_range(start..=end, "..");
    }
    writeln!(out, "## {what}\n{text}").unwrap();
}

fn keyless(timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in [b"a", b"b"] {
        builder.push(NewRecord {
            timestamp,
            key: None,
            value: Some(value),
            headers: Default::default(),
        });
    }
    builder.build().unwrap().bytes().clone()
}

async fn produce(target: &mut impl Target, out: &mut String) {
    let good = batch(&["a", "b"]);
    let mut two = BytesMut::from(&good[..]);
    two.extend_from_slice(&good);
    let two = two.freeze();
    let mut corrupt = BytesMut::from(&good[..]);
    let last = corrupt.len() - 1;
    corrupt[last] ^= 1;
    let zstd = build(BatchBuilder::new(Codec::Zstd), &["a"]);
    let transactional = build(
        BatchBuilder::new(Codec::None)
            .producer(5, 0, 0)
            .transactional(true),
        &["a"],
    );
    let control = build(BatchBuilder::new(Codec::None).control(true), &["a"]);
    let large = batch(&["x".repeat(1_100_000).as_str()]);
    for (what, version, acks, topic, records) in [
        ("good", 9, 1, "p-t", good.clone()),
        ("good, acks=all", 11, -1, "p-t", good.clone()),
        ("good, format v2 in version 2", 2, 1, "p-t", good.clone()),
        ("unknown topic", 9, 1, "nowhere", good.clone()),
        ("acks=5", 9, 5, "p-t", good.clone()),
        ("no records", 9, 1, "p-t", Bytes::new()),
        ("no records in version 2", 2, 1, "p-t", Bytes::new()),
        ("two batches in version 3", 3, 1, "p-t", two.clone()),
        ("two batches in version 2", 2, 1, "p-t", two),
        ("wrong CRC", 9, 1, "p-t", corrupt.freeze()),
        ("truncated", 9, 1, "p-t", good.slice(..good.len() - 3)),
        ("too large", 9, 1, "p-t", large),
        ("zstd in version 6", 6, 1, "p-t", zstd.clone()),
        ("zstd in version 7", 7, 1, "p-t", zstd),
        ("no key in a compacted topic", 9, 1, "p-c", keyless(NOW)),
        (
            "timestamps of the future",
            9,
            1,
            "p-a",
            keyless(4_000_000_000_000),
        ),
        (
            "transactional without an id",
            9,
            -1,
            "p-t",
            transactional.clone(),
        ),
        ("a control batch", 9, 1, "p-t", control),
        ("acks=0 for an unknown topic", 9, 0, "nowhere", good.clone()),
    ] {
        let request = produce_request(acks, topic, records);
        note(
            out,
            &format!("produce v{version}: {what}"),
            call(target, version, &request).await,
        );
    }
    let mut with_id = produce_request(-1, "p-t", transactional);
    with_id.transactional_id = Some("tx".into());
    note(
        out,
        "produce v9: transactional",
        call(target, 9, &with_id).await,
    );
    let stamped = call(target, 9, &produce_request(1, "p-l", good)).await;
    let stamped = stamped.map(|r| r.responses[0].partition_responses[0].log_append_time_ms > 0);
    note(out, "produce v9: LogAppendTime is told", stamped);
    let mut partly = produce_request(-1, "p-t", batch(&["x"]));
    let mut more = produce_request(-1, "nowhere", batch(&["x"])).topic_data;
    more[0].partition_data[0].records = Some(Records::empty());
    partly.topic_data.append(&mut more);
    note(
        out,
        "produce v9: one good, one not",
        call(target, 9, &partly).await,
    );
    note(
        out,
        "produce v9: nothing",
        call(
            target,
            9,
            &ProduceRequest {
                acks: 1,
                ..Default::default()
            },
        )
        .await,
    );
}

async fn sequences(target: &mut impl Target, out: &mut String) {
    let of = |id, epoch, sequence| {
        build(
            BatchBuilder::new(Codec::None).producer(id, epoch, sequence),
            &["a", "b"],
        )
    };
    for (what, records) in [
        ("first", of(77, 0, 0)),
        ("second", of(77, 0, 2)),
        ("second again", of(77, 0, 2)),
        ("first again", of(77, 0, 0)),
        ("a gap", of(77, 0, 6)),
        ("a new epoch not from 0", of(77, 1, 4)),
        ("a new epoch", of(77, 1, 0)),
        ("the old epoch", of(77, 0, 4)),
        ("an unknown producer in the middle", of(78, 0, 5)),
    ] {
        let request = produce_request(-1, "p-i", records);
        note(
            out,
            &format!("sequences: {what}"),
            call(target, 9, &request).await,
        );
    }
    for _ in 0..3 {
        call(target, 9, &produce_request(1, "p-s", batch(&["a", "b"]))).await;
    }
    for topic in ["p-d", "p-z"] {
        call(target, 9, &produce_request(1, topic, batch(&["a", "b"]))).await;
    }
}

async fn fetched(
    target: &mut impl Target,
    version: i16,
    request: &FetchRequest,
) -> Option<FetchResponse> {
    let mut response = call(target, version, request).await?;
    if response.session_id != 0 {
        response.session_id = 1;
    }
    if version < 4 {
        // Kafka fills up what conversion made shorter with zeros, as a message that is cut short, at offset -1.
        for part in response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            let Some(bytes) = part.records.as_ref().and_then(Records::as_bytes) else {
                continue;
            };
            let filler = bytes.windows(8).position(|window| window == [0xff; 8]);
            part.records = Some(bytes.slice(..filler.unwrap_or(bytes.len())).into());
        }
    }
    // What zstd makes of the records is its version's business.
    for topic in response
        .responses
        .iter_mut()
        .filter(|topic| topic.topic == "p-z")
    {
        for part in topic
            .partitions
            .iter_mut()
            .filter(|part| part.error_code == 0)
        {
            part.records = None;
        }
    }
    Some(response)
}

async fn fetch(target: &mut impl Target, out: &mut String) {
    for version in 0..=12 {
        // Old formats know no zstd, which follows at offset 6.
        let mut request = fetch_request("p-t", 0);
        request.topics[0].partitions[0].partition_max_bytes = 2 * batch(&["a", "b"]).len() as i32;
        note(
            out,
            &format!("fetch v{version}"),
            fetched(target, version, &request).await,
        );
    }
    for (what, version, topic, offset) in [
        ("the end", 11, "p-t", 8),
        ("beyond the end", 11, "p-t", 100),
        ("a negative offset", 11, "p-t", -1),
        ("an unknown topic", 11, "nowhere", 0),
        ("an unknown topic", 1, "nowhere", 0),
        ("no id", 13, "", 0),
        ("conversion forbidden", 3, "p-d", 0),
        ("zstd by configuration", 9, "p-z", 0),
        ("zstd by configuration", 10, "p-z", 0),
        ("zstd by configuration", 3, "p-z", 0),
        ("zstd by the producer", 3, "p-t", 6),
        ("zstd by the producer", 4, "p-t", 6),
    ] {
        let request = fetch_request(topic, offset);
        note(
            out,
            &format!("fetch v{version}: {what}"),
            fetched(target, version, &request).await,
        );
    }
    for (what, offset) in [
        ("read committed", 0),
        ("read committed beyond the end", 100),
    ] {
        let request = FetchRequest {
            isolation_level: 1,
            ..fetch_request("p-t", offset)
        };
        note(
            out,
            &format!("fetch v11: {what}"),
            fetched(target, 11, &request).await,
        );
    }
    for (what, offset, current, last, replica) in [
        ("a later leader epoch", 0, 5, -1, -1),
        ("an unknown last epoch", 0, -1, 5, -1),
        ("a diverged log", 100, -1, 0, -1),
        ("a follower that is none", 0, -1, -1, 9),
        ("a follower that is none, with an epoch", 0, 0, -1, 9),
    ] {
        let mut request = FetchRequest {
            replica_id: replica,
            ..fetch_request("p-t", offset)
        };
        let partition = &mut request.topics[0].partitions[0];
        partition.current_leader_epoch = current;
        partition.last_fetched_epoch = last;
        note(
            out,
            &format!("fetch v12: {what}"),
            fetched(target, 12, &request).await,
        );
    }
    let mut unknown = fetch_request("", 0);
    unknown.topics[0].topic_id = Uuid::from_bytes([9; 16]);
    note(
        out,
        "fetch v13: an unknown id",
        fetched(target, 13, &unknown).await,
    );
    let nothing = FetchRequest {
        min_bytes: 1,
        max_wait_ms: 60_000,
        ..Default::default()
    };
    note(
        out,
        "fetch v11: no partitions",
        fetched(target, 11, &nothing).await,
    );
}

async fn fetch_limits(target: &mut impl Target, out: &mut String) {
    for (version, max_bytes, partition_max) in [
        (2, i32::MAX, 10),
        (4, i32::MAX, 10),
        (4, 10, 1_000),
        (4, 166, 1_000),
        (4, 0, 0),
    ] {
        let mut request = fetch_request("p-t", 0);
        if version > 2 {
            request.max_bytes = max_bytes;
        }
        request.topics[0].partitions[0].partition_max_bytes = partition_max;
        request.topics.push(fetch_topic("p-i", 0));
        let what = format!("fetch v{version}: at most {max_bytes}, {partition_max} a partition");
        note(out, &what, fetched(target, version, &request).await);
    }
}

async fn sessions(target: &mut impl Target, out: &mut String) {
    let mut request = FetchRequest {
        session_epoch: 0,
        ..fetch_request("p-t", 100)
    };
    request.topics.push(fetch_topic("p-s", 0));
    request.topics.push(fetch_topic("nowhere", 0));
    request.topics.push(fetch_topic("p-s", 6));
    let session_id = call(target, 11, &request).await.unwrap().session_id;
    let next = |session_epoch| FetchRequest {
        session_id,
        session_epoch,
        min_bytes: 1,
        ..Default::default()
    };
    note(out, "session: first", fetched(target, 11, &next(1)).await);
    note(out, "session: second", fetched(target, 11, &next(2)).await);
    note(
        out,
        "session: the same epoch again",
        fetched(target, 11, &next(2)).await,
    );
    note(out, "session: by id", fetched(target, 13, &next(3)).await);
    let unknown = FetchRequest {
        session_id: session_id ^ 1,
        ..next(3)
    };
    note(out, "session: unknown", fetched(target, 11, &unknown).await);
    let closing = FetchRequest {
        session_epoch: -1,
        ..next(3)
    };
    note(out, "session: closed", fetched(target, 11, &closing).await);
    note(
        out,
        "session: used after that",
        fetched(target, 11, &next(3)).await,
    );
}

async fn list_offsets(target: &mut impl Target, out: &mut String) {
    let asking = |version: i16, topic: &str, timestamp| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition {
                timestamp,
                max_num_offsets: if version == 0 { 10 } else { 1 },
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    for (version, topic, timestamp) in [
        (0, "p-s", -1),
        (0, "p-s", -2),
        (0, "p-s", 1),
        (0, "nowhere", -1),
        (1, "p-t", -1),
        (1, "p-t", -2),
        (1, "p-t", NOW + 1),
        (1, "p-t", NOW + 100),
        (4, "p-t", -1),
        (9, "p-t", -1),
        (9, "p-t", -2),
        (9, "p-t", -3),
        (9, "p-c", -3),
        (9, "p-c", -2),
        (9, "p-t", -4),
        (9, "p-t", -5),
        (9, "p-t", -6),
        (6, "p-t", -3),
        (7, "p-t", -4),
        (8, "p-t", -5),
        (9, "p-t", 0),
        (9, "nowhere", -1),
    ] {
        let request = asking(version, topic, timestamp);
        note(
            out,
            &format!("list offsets v{version} {topic} {timestamp}"),
            call(target, version, &request).await,
        );
    }
    let mut twice = asking(9, "p-t", -1);
    let again = twice.topics[0].partitions[0].clone();
    twice.topics[0].partitions.push(again);
    note(
        out,
        "list offsets v9: one partition twice",
        call(target, 9, &twice).await,
    );
    for current_leader_epoch in [0, 3] {
        let mut request = asking(9, "p-t", -1);
        request.topics[0].partitions[0].current_leader_epoch = current_leader_epoch;
        let what = format!("list offsets v9: leader epoch {current_leader_epoch}");
        note(out, &what, call(target, 9, &request).await);
    }
}

async fn others(target: &mut impl Target, out: &mut String) {
    for (topic, current_leader_epoch, leader_epoch) in [
        ("p-t", -1, 0),
        ("p-t", 0, 0),
        ("p-t", -1, 5),
        ("p-t", 3, 0),
        ("nowhere", -1, 0),
        ("p-c", -1, 0),
    ] {
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: vec![OffsetForLeaderTopic {
                topic: topic.into(),
                partitions: vec![OffsetForLeaderPartition {
                    current_leader_epoch,
                    leader_epoch,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let what = format!("epoch end {topic} {current_leader_epoch} {leader_epoch}");
        note(out, &what, call(target, 4, &request).await);
    }
    for topic in ["p-i", "nowhere", "b@d", "p-t"] {
        let request = DescribeProducersRequest {
            topics: vec![TopicRequest {
                name: topic.into(),
                partition_indexes: vec![0],
                ..Default::default()
            }],
            ..Default::default()
        };
        note(
            out,
            &format!("producers of {topic}"),
            call(target, 0, &request).await,
        );
    }
    let named = |topic: &str| DescribableLogDirTopic {
        topic: topic.into(),
        partitions: vec![0],
        ..Default::default()
    };
    for (what, topics) in [
        ("one", vec![named("p-s")]),
        ("none", Vec::new()),
        ("an unknown one", vec![named("nowhere")]),
    ] {
        let request = DescribeLogDirsRequest {
            topics: Some(topics),
            ..Default::default()
        };
        let mut answer = call(target, 4, &request).await.unwrap();
        for dir in &mut answer.results {
            dir.log_dir = "DIR".into();
            dir.total_bytes = dir.total_bytes.signum();
            dir.usable_bytes = dir.usable_bytes.signum();
        }
        note(out, &format!("log dirs: {what}"), Some(answer));
    }
    for (topic, offset) in [
        ("p-s", 2),
        ("p-s", 1),
        ("p-s", 100),
        ("p-s", -2),
        ("p-s", -1),
        ("p-c", 0),
        ("nowhere", 0),
    ] {
        let request = DeleteRecordsRequest {
            timeout_ms: 10_000,
            topics: vec![DeleteRecordsTopic {
                name: topic.into(),
                partitions: vec![DeleteRecordsPartition {
                    offset,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        note(
            out,
            &format!("delete records of {topic} to {offset}"),
            call(target, 2, &request).await,
        );
    }
    note(
        out,
        "fetch v11: deleted",
        fetched(target, 11, &fetch_request("p-s", 1)).await,
    );
    let produce: ProduceRequest = produce_request(1, "p-s", batch(&["a"]));
    note(
        out,
        "produce v9: after the deletion",
        call(target, 9, &produce).await,
    );
}
