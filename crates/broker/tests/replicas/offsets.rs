//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, DescribeLogDirs.

use gracchus_broker::api::{
    delete_records, describe_log_dirs, describe_producers, list_offsets, offset_for_leader_epoch,
};
use gracchus_kafka_proto::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use gracchus_kafka_proto::messages::describe_producers_request::TopicRequest;
use gracchus_kafka_proto::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsTopic,
};
use gracchus_kafka_proto::messages::list_offsets_response::ListOffsetsPartitionResponse;
use gracchus_kafka_proto::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use gracchus_kafka_proto::messages::{
    DeleteRecordsRequest, DescribeLogDirsRequest, DescribeProducersRequest, ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
};
use gracchus_kafka_proto::{ApiKey, ErrorCode};
use gracchus_record::{BatchBuilder, Codec};

use crate::rig::{ME, NOW, Rig, TOPIC_ID, batch, build, context, error};

fn asking(topic: &str, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition {
                timestamp,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn list(
    rig: &Rig,
    version: i16,
    request: ListOffsetsRequest,
) -> ListOffsetsPartitionResponse {
    let ctx = context(ApiKey::ListOffsets, version);
    let mut answer = list_offsets::answer(&rig.replicas, &ctx, request).await;
    answer.topics.remove(0).partitions.remove(0)
}

#[tokio::test]
async fn offsets_by_time() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b", "c"])).await;
    for (timestamp, found) in [
        (-1, (-1, 3, 1)),
        (-2, (-1, 0, 1)),
        (-3, (NOW + 2, 2, 1)),
        (-4, (-1, 0, 1)),
        (-5, (-1, -1, -1)),
        (0, (NOW, 0, 1)),
        (NOW + 1, (NOW + 1, 1, 1)),
        (NOW + 3, (-1, -1, -1)),
    ] {
        let answer = list(&rig, 9, asking("t", timestamp)).await;
        assert_eq!(answer.error_code, 0, "{timestamp}");
        assert_eq!(
            (answer.timestamp, answer.offset, answer.leader_epoch),
            found,
            "{timestamp}"
        );
    }
}

#[tokio::test]
async fn what_list_offsets_refuses() {
    let rig = Rig::leading();
    rig.know("elsewhere", TOPIC_ID, 2, 5, &[2]);
    for (version, topic, timestamp, expected) in [
        (9, "nowhere", -1, ErrorCode::UnknownTopicOrPartition),
        (9, "elsewhere", -1, ErrorCode::NotLeaderOrFollower),
        (6, "t", -3, ErrorCode::UnsupportedVersion),
        (7, "t", -4, ErrorCode::UnsupportedVersion),
        (8, "t", -5, ErrorCode::UnsupportedVersion),
        (9, "t", -6, ErrorCode::UnsupportedVersion),
    ] {
        let answer = list(&rig, version, asking(topic, timestamp)).await;
        assert_eq!(error(answer.error_code), expected, "{topic} {timestamp}");
        assert_eq!((answer.timestamp, answer.offset), (-1, -1));
    }
    let mut twice = asking("t", -1);
    let again = twice.topics[0].partitions[0].clone();
    twice.topics[0].partitions.push(again);
    assert_eq!(
        error(list(&rig, 9, twice).await.error_code),
        ErrorCode::InvalidRequest
    );
    let mut fenced = asking("t", -1);
    fenced.topics[0].partitions[0].current_leader_epoch = 0;
    assert_eq!(
        error(list(&rig, 9, fenced).await.error_code),
        ErrorCode::FencedLeaderEpoch
    );
}

/// A new leader whose high watermark is not yet in its own epoch does not tell offsets that could go backwards.
#[tokio::test]
async fn a_new_leader_that_has_not_caught_up() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    rig.produce("t", batch(&["a"])).await;
    rig.lead("t", 2, &[ME, 2], &[ME, 2]);
    assert_eq!((rig.log_end("t"), rig.high_watermark("t")), (1, 0));
    for (version, expected) in [
        (4, ErrorCode::LeaderNotAvailable),
        (5, ErrorCode::OffsetNotAvailable),
    ] {
        assert_eq!(
            error(list(&rig, version, asking("t", -1)).await.error_code),
            expected
        );
        assert_eq!(
            error(list(&rig, version, asking("t", NOW)).await.error_code),
            expected
        );
        assert_eq!(list(&rig, version, asking("t", -2)).await.error_code, 0);
    }
    rig.follower_fetch(2, "t", 1).await;
    assert_eq!(list(&rig, 5, asking("t", -1)).await.offset, 1);
}

#[tokio::test]
async fn version_0_answers_a_list() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b"])).await;
    let ask = async |timestamp, most| {
        let mut request = asking("t", timestamp);
        request.topics[0].partitions[0].max_num_offsets = most;
        list(&rig, 0, request).await.old_style_offsets
    };
    assert_eq!(ask(-1, 1).await, [2]);
    assert_eq!(ask(-1, 5).await, [2, 0]);
    assert_eq!(ask(-2, 5).await, [0]);
}

#[tokio::test]
async fn version_0_lists_segments() {
    let rig = Rig::with(&[("log.segment.bytes", "100")]);
    rig.lead("t", 1, &[ME], &[ME]);
    for _ in 0..3 {
        rig.produce("t", batch(&["a", "b"])).await;
    }
    let mut request = asking("t", -1);
    request.topics[0].partitions[0].max_num_offsets = 10;
    assert_eq!(
        list(&rig, 0, request.clone()).await.old_style_offsets,
        [6, 4, 2, 0]
    );
    // All segments were written after that.
    request.topics[0].partitions[0].timestamp = 1;
    assert!(list(&rig, 0, request).await.old_style_offsets.is_empty());
}

#[tokio::test]
async fn ends_of_epochs() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b"])).await;
    rig.lead("t", 4, &[ME], &[ME]);
    rig.produce("t", batch(&["c"])).await;
    rig.know("elsewhere", TOPIC_ID, 2, 5, &[2]);
    let ask = async |topic: &str, current_leader_epoch, leader_epoch| {
        let request = OffsetForLeaderEpochRequest {
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
        let ctx = context(ApiKey::OffsetForLeaderEpoch, 4);
        let mut answer = offset_for_leader_epoch::answer(&rig.replicas, &ctx, request).await;
        let end = answer.topics.remove(0).partitions.remove(0);
        (error(end.error_code), end.leader_epoch, end.end_offset)
    };
    assert_eq!(ask("t", 4, 1).await, (ErrorCode::None, 1, 2));
    assert_eq!(ask("t", 4, 3).await, (ErrorCode::None, 1, 2));
    assert_eq!(ask("t", -1, 4).await, (ErrorCode::None, 4, 3));
    // Before all that is known: where the first known one begins.
    assert_eq!(ask("t", 4, 0).await, (ErrorCode::None, 0, 0));
    assert_eq!(ask("t", 4, 9).await, (ErrorCode::None, -1, -1));
    assert_eq!(ask("t", 3, 1).await.0, ErrorCode::FencedLeaderEpoch);
    assert_eq!(ask("t", 5, 1).await.0, ErrorCode::UnknownLeaderEpoch);
    assert_eq!(
        ask("elsewhere", -1, 1).await.0,
        ErrorCode::NotLeaderOrFollower
    );
    assert_eq!(
        ask("nowhere", -1, 1).await.0,
        ErrorCode::UnknownTopicOrPartition
    );
}

async fn delete(rig: &Rig, topic: &str, offset: i64, timeout_ms: i32) -> (ErrorCode, i64) {
    let request = DeleteRecordsRequest {
        timeout_ms,
        topics: vec![DeleteRecordsTopic {
            name: topic.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let ctx = context(ApiKey::DeleteRecords, 2);
    let mut answer = delete_records::answer(&rig.replicas, &ctx, request).await;
    let result = answer.topics.remove(0).partitions.remove(0);
    (error(result.error_code), result.low_watermark)
}

#[tokio::test]
async fn deleting_records() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b", "c"])).await;
    assert_eq!(delete(&rig, "t", 2, 60_000).await, (ErrorCode::None, 2));
    assert_eq!(
        error(rig.fetch(11, "t", 1).await.error_code),
        ErrorCode::OffsetOutOfRange
    );
    assert_eq!(rig.fetch(11, "t", 2).await.log_start_offset, 2);
    // Backwards is nothing to do; beyond the high watermark is refused; -1 is all.
    assert_eq!(delete(&rig, "t", 1, 60_000).await, (ErrorCode::None, 2));
    assert_eq!(
        delete(&rig, "t", 4, 60_000).await,
        (ErrorCode::OffsetOutOfRange, -1)
    );
    assert_eq!(
        delete(&rig, "t", -2, 60_000).await,
        (ErrorCode::OffsetOutOfRange, -1)
    );
    assert_eq!(delete(&rig, "t", -1, 60_000).await, (ErrorCode::None, 3));
    assert_eq!(
        delete(&rig, "nowhere", 0, 60_000).await,
        (ErrorCode::UnknownTopicOrPartition, -1)
    );
    rig.lead("__consumer_offsets", 1, &[ME], &[ME]);
    assert_eq!(
        delete(&rig, "__consumer_offsets", 0, 60_000).await.0,
        ErrorCode::InvalidTopicException
    );
}

#[tokio::test]
async fn compacted_topics_keep_their_records() {
    let rig = Rig::with(&[("log.cleanup.policy", "compact")]);
    rig.lead("t", 1, &[ME], &[ME]);
    assert_eq!(
        delete(&rig, "t", 0, 60_000).await,
        (ErrorCode::PolicyViolation, -1)
    );
}

#[tokio::test]
async fn producers_are_shown() {
    let rig = Rig::leading();
    let records = build(
        BatchBuilder::new(Codec::None).producer(77, 2, 0),
        &["a", "b"],
    );
    assert_eq!(rig.produce("t", records).await.error_code, 0);
    let ask = async |topic: &str| {
        let request = DescribeProducersRequest {
            topics: vec![TopicRequest {
                name: topic.into(),
                partition_indexes: vec![0],
                ..Default::default()
            }],
            ..Default::default()
        };
        let ctx = context(ApiKey::DescribeProducers, 0);
        let mut answer = describe_producers::answer(&rig.replicas, &ctx, request).await;
        answer.topics.remove(0).partitions.remove(0)
    };
    let known = ask("t").await;
    let [producer] = known.active_producers.as_slice() else {
        panic!("{known:?}")
    };
    assert_eq!(
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence
        ),
        (77, 2, 1)
    );
    assert_eq!(
        (
            producer.current_txn_start_offset,
            producer.coordinator_epoch
        ),
        (-1, -1)
    );
    let unknown = ask("nowhere").await;
    assert_eq!(
        error(unknown.error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    assert_eq!(
        error(ask("b@d").await.error_code),
        ErrorCode::InvalidTopicException
    );
}

#[tokio::test]
async fn log_dirs_are_described() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a"])).await;
    let ctx = context(ApiKey::DescribeLogDirs, 4);
    let all = DescribeLogDirsRequest {
        topics: None,
        ..Default::default()
    };
    let answer = describe_log_dirs::answer(&rig.replicas, &ctx, all).await;
    let [dir] = answer.results.as_slice() else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (dir.error_code, dir.log_dir.as_str()),
        (0, rig.dir.path().to_str().unwrap())
    );
    assert!(dir.total_bytes > 0 && dir.usable_bytes > 0);
    let [topic] = dir.topics.as_slice() else {
        panic!("{dir:?}")
    };
    assert_eq!((topic.name.as_str(), topic.partitions.len()), ("t", 1));
    let partition = &topic.partitions[0];
    assert_eq!(partition.partition_size, batch(&["a"]).len() as i64);
    assert_eq!((partition.offset_lag, partition.is_future_key), (0, false));
    let none = DescribeLogDirsRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let answer = describe_log_dirs::answer(&rig.replicas, &ctx, none).await;
    assert!(answer.results[0].topics.is_empty());
}
