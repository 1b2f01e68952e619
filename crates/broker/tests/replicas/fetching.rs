//! Fetch.

use std::time::Duration;

use gracchus_kafka_proto::messages::FetchRequest;
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_record::{BatchBuilder, Codec};

use crate::rig::{
    ME, Rig, TOPIC_ID, batch, build, bytes_of, error, fetch_request, fetch_topic, values,
};

fn waiting(topic: &str, offset: i64, min_bytes: i32) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 60_000,
        min_bytes,
        ..fetch_request(topic, offset)
    }
}

#[tokio::test]
async fn a_parked_fetch_is_woken_by_an_append() {
    let rig = Rig::leading();
    let fetch = rig.fetch_request(11, waiting("t", 0, 1));
    let produce = async {
        tokio::task::yield_now().await;
        rig.produce("t", batch(&["a"])).await
    };
    let (read, _) = tokio::join!(fetch, produce);
    assert_eq!(
        values(&read.responses[0].partitions[0]),
        [(0, "a".to_owned())]
    );
}

#[tokio::test]
async fn min_bytes_are_waited_for() {
    let rig = Rig::leading();
    let one = batch(&["a"]).len() as i32;
    let fetch = rig.fetch_request(11, waiting("t", 0, 3 * one));
    let produce = async {
        for value in ["a", "b", "c"] {
            tokio::task::yield_now().await;
            rig.produce("t", batch(&[value])).await;
        }
    };
    let (read, ()) = tokio::join!(fetch, produce);
    assert_eq!(values(&read.responses[0].partitions[0]).len(), 3);
}

#[tokio::test]
async fn the_longest_wait_ends_with_nothing() {
    let rig = Rig::leading();
    let request = FetchRequest {
        max_wait_ms: 1,
        ..waiting("t", 0, 1)
    };
    let read = rig.fetch_request(11, request).await;
    let part = &read.responses[0].partitions[0];
    assert_eq!(
        (
            error(part.error_code),
            part.high_watermark,
            part.log_start_offset
        ),
        (ErrorCode::None, 0, 0)
    );
    assert_eq!(
        (part.preferred_read_replica, part.last_stable_offset),
        (-1, 0)
    );
    assert!(part.records.as_ref().unwrap().is_empty());
}

/// An error does not wait, whatever else is asked; a topic unknown here does not hurry the others.
#[tokio::test]
async fn errors_do_not_wait() {
    let rig = Rig::leading();
    rig.lead("u", 1, &[ME], &[ME]);
    rig.know("elsewhere", Uuid::from_bytes([8; 16]), 2, 5, &[2]);
    for (topic, offset, expected) in [
        ("nowhere", 0, ErrorCode::UnknownTopicOrPartition),
        ("elsewhere", 0, ErrorCode::NotLeaderOrFollower),
        ("t", 1, ErrorCode::OffsetOutOfRange),
        ("t", -5, ErrorCode::OffsetOutOfRange),
    ] {
        let mut request = waiting(topic, offset, 1);
        if topic != "nowhere" {
            request.topics.push(fetch_topic("u", 0));
        }
        let fetch = rig.fetch_request(10, request);
        let read = tokio::time::timeout(Duration::from_secs(30), fetch)
            .await
            .unwrap();
        let topic = read
            .responses
            .iter()
            .find(|t| t.partitions[0].error_code != 0)
            .unwrap();
        let part = &topic.partitions[0];
        assert_eq!(error(part.error_code), expected);
        assert_eq!(
            (
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset
            ),
            (-1, -1, -1)
        );
        assert!(part.records.as_ref().unwrap().is_empty());
    }
}

#[tokio::test]
async fn leader_epochs_are_compared() {
    let rig = Rig::new();
    rig.lead("t", 5, &[ME], &[ME]);
    for (epoch, expected) in [
        (-1, ErrorCode::None),
        (4, ErrorCode::FencedLeaderEpoch),
        (5, ErrorCode::None),
        (6, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = fetch_request("t", 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let read = rig.fetch_request(12, request).await;
        assert_eq!(
            error(read.responses[0].partitions[0].error_code),
            expected,
            "{epoch}"
        );
    }
}

#[tokio::test]
async fn at_least_one_batch_and_no_more_than_asked() {
    let rig = Rig::leading();
    for value in ["a", "b", "c"] {
        rig.produce("t", batch(&[value])).await;
    }
    let size = batch(&["a"]).len() as i32;
    for (version, max_bytes, partition_max, count) in [
        (4, 1, 1, 1),
        (4, 1_000, 1, 1),
        (4, 1_000, 2 * size, 2),
        (4, 2 * size, 1_000, 2),
        (4, 1_000, 1_000, 3),
    ] {
        let mut request = FetchRequest {
            max_bytes,
            ..fetch_request("t", 0)
        };
        request.topics[0].partitions[0].partition_max_bytes = partition_max;
        let read = rig.fetch_request(version, request).await;
        let got = values(&read.responses[0].partitions[0]).len();
        assert_eq!(got, count, "{max_bytes} {partition_max}");
    }
}

#[tokio::test]
async fn the_whole_answer_has_a_limit() {
    let rig = Rig::leading();
    rig.lead("u", 1, &[ME], &[ME]);
    for topic in ["t", "u"] {
        rig.produce(topic, batch(&["a"])).await;
        rig.produce(topic, batch(&["b"])).await;
    }
    let size = batch(&["a"]).len() as i32;
    let mut request = FetchRequest {
        max_bytes: 3 * size,
        ..fetch_request("t", 0)
    };
    request.topics.push(fetch_topic("u", 0));
    let read = rig.fetch_request(11, request).await;
    let counts: Vec<usize> = read
        .responses
        .iter()
        .map(|t| values(&t.partitions[0]).len())
        .collect();
    assert_eq!(counts, [2, 1]);
}

#[tokio::test]
async fn consumers_see_what_is_replicated_followers_all() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    rig.produce("t", batch(&["a"])).await;
    assert_eq!(values(&rig.fetch(11, "t", 0).await).len(), 0);
    // Beyond the high watermark, but in the log: empty, no error.
    assert_eq!(rig.fetch(11, "t", 1).await.error_code, 0);
    let read = rig.follower_fetch(2, "t", 0).await;
    assert_eq!((values(&read).len(), read.high_watermark), (1, 0));
    rig.follower_fetch(2, "t", 1).await;
    assert_eq!(values(&rig.fetch(11, "t", 0).await).len(), 1);
}

#[tokio::test]
async fn who_is_no_replica_is_no_follower() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    for (epoch, expected) in [
        (-1, ErrorCode::NotLeaderOrFollower),
        (1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = FetchRequest {
            replica_id: 9,
            ..fetch_request("t", 0)
        };
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let read = rig.fetch_request(12, request).await;
        assert_eq!(error(read.responses[0].partitions[0].error_code), expected);
    }
}

/// A consumer of version 11 or later may read from a follower, an older one and another follower may not.
#[tokio::test]
async fn followers_serve_consumers_that_know() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a"])).await;
    rig.follow("t", 2, 2);
    assert_eq!(
        error(rig.fetch(10, "t", 0).await.error_code),
        ErrorCode::NotLeaderOrFollower
    );
    assert_eq!(
        error(rig.fetch(11, "t", 0).await.error_code),
        ErrorCode::None
    );
    assert_eq!(
        error(rig.follower_fetch(2, "t", 0).await.error_code),
        ErrorCode::NotLeaderOrFollower
    );
}

#[tokio::test]
async fn a_diverged_log_is_told_where() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b"])).await;
    rig.lead("t", 3, &[ME], &[ME]);
    rig.produce("t", batch(&["c"])).await;
    let ask = async |offset, last_fetched_epoch| {
        let mut request = waiting("t", offset, 1);
        request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch;
        rig.fetch_request(12, request)
            .await
            .responses
            .remove(0)
            .partitions
            .remove(0)
    };
    // Epoch 1 ended at 2: a log that has more of it diverges there.
    let read = ask(3, 1).await;
    assert_eq!(
        (read.diverging_epoch.epoch, read.diverging_epoch.end_offset),
        (1, 2)
    );
    assert!(read.records.unwrap().is_empty());
    // Epoch 2 is unknown here: the largest before it.
    let read = ask(2, 2).await;
    assert_eq!(
        (read.diverging_epoch.epoch, read.diverging_epoch.end_offset),
        (1, 2)
    );
    // The same history: records.
    let read = ask(2, 1).await;
    assert_eq!((read.diverging_epoch.epoch, values(&read).len()), (-1, 1));
    // Before all that is known here, and after it.
    let read = ask(1, 0).await;
    assert_eq!(
        (read.diverging_epoch.epoch, read.diverging_epoch.end_offset),
        (0, 0)
    );
    assert_eq!(
        error(ask(2, 9).await.error_code),
        ErrorCode::OffsetOutOfRange
    );
}

#[tokio::test]
async fn topics_by_id() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a"])).await;
    let by_id = async |id: Uuid| {
        let mut request = fetch_request("", 0);
        request.topics[0].topic_id = id;
        rig.fetch_request(13, request).await.responses.remove(0)
    };
    let topic = by_id(TOPIC_ID).await;
    assert_eq!(
        (topic.topic_id, values(&topic.partitions[0]).len()),
        (TOPIC_ID, 1)
    );
    let unknown = Uuid::from_bytes([9; 16]);
    let topic = by_id(unknown).await;
    assert_eq!(topic.topic_id, unknown);
    assert_eq!(
        error(topic.partitions[0].error_code),
        ErrorCode::UnknownTopicId
    );
    // The metadata knows a new topic of the name, the log is still the old one's.
    let renewed = Uuid::from_bytes([10; 16]);
    rig.know("t", renewed, ME, 1, &[ME]);
    let topic = by_id(renewed).await;
    assert_eq!(
        error(topic.partitions[0].error_code),
        ErrorCode::InconsistentTopicId
    );
}

#[tokio::test]
async fn a_session_tells_only_what_changed() {
    let rig = Rig::leading();
    rig.lead("u", 1, &[ME], &[ME]);
    let mut request = FetchRequest {
        session_epoch: 0,
        ..fetch_request("t", 0)
    };
    request.topics.push(fetch_topic("u", 0));
    let full = rig.fetch_request(11, request).await;
    assert_ne!(full.session_id, 0);
    assert_eq!(full.responses.len(), 2);
    let session_id = full.session_id;

    // Nothing new: nothing said.
    let next = |session_epoch| FetchRequest {
        session_id,
        session_epoch,
        min_bytes: 1,
        ..Default::default()
    };
    let quiet = rig.fetch_request(11, next(1)).await;
    assert_eq!(
        (quiet.error_code, quiet.session_id, quiet.responses.len()),
        (0, session_id, 0)
    );

    rig.produce("u", batch(&["a"])).await;
    let news = rig.fetch_request(11, next(2)).await;
    assert_eq!(news.responses.len(), 1);
    assert_eq!(
        (
            news.responses[0].topic.as_str(),
            values(&news.responses[0].partitions[0]).len()
        ),
        ("u", 1)
    );

    // The epoch has to be the next one; the session has to be known.
    let wrong = rig.fetch_request(11, next(2)).await;
    assert_eq!(error(wrong.error_code), ErrorCode::InvalidFetchSessionEpoch);
    assert_eq!((wrong.session_id, wrong.responses.len()), (0, 0));
    let unknown = FetchRequest {
        session_id: session_id ^ 1,
        ..next(3)
    };
    let unknown = rig.fetch_request(11, unknown).await;
    assert_eq!(error(unknown.error_code), ErrorCode::FetchSessionIdNotFound);
    // Ids in a session of names.
    let mixed = rig.fetch_request(13, next(3)).await;
    assert_eq!(error(mixed.error_code), ErrorCode::FetchSessionTopicIdError);
}

#[tokio::test]
async fn no_session_without_asking_or_without_room() {
    let rig = Rig::leading();
    assert_eq!(
        rig.fetch_request(11, fetch_request("t", 0))
            .await
            .session_id,
        0
    );
    let full = Rig::with(&[("max.incremental.fetch.session.cache.slots", "0")]);
    full.lead("t", 1, &[ME], &[ME]);
    let asking = FetchRequest {
        session_epoch: 0,
        ..fetch_request("t", 0)
    };
    let answer = full.fetch_request(11, asking).await;
    assert_eq!(
        (answer.error_code, answer.session_id, answer.responses.len()),
        (0, 0, 1)
    );
}

#[tokio::test]
async fn old_consumers_get_old_formats() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a", "b"])).await;
    for (version, magic) in [(1, 0), (3, 1), (4, 2)] {
        let read = rig.fetch(version, "t", 0).await;
        let bytes = bytes_of(read.records.as_ref().unwrap());
        assert_eq!(bytes[16], magic, "v{version}");
        assert_eq!(
            values(&read),
            [(0, "a".to_owned()), (1, "b".to_owned())],
            "v{version}"
        );
    }
    // Nothing in the old formats says zstd.
    rig.produce("t", build(BatchBuilder::new(Codec::Zstd), &["c"]))
        .await;
    let read = rig.fetch(3, "t", 2).await;
    assert_eq!(
        error(read.error_code),
        ErrorCode::UnsupportedCompressionType
    );
    let plain = Rig::with(&[("log.message.downconversion.enable", "false")]);
    plain.lead("t", 1, &[ME], &[ME]);
    plain.produce("t", batch(&["a"])).await;
    assert_eq!(
        error(plain.fetch(3, "t", 0).await.error_code),
        ErrorCode::UnsupportedVersion
    );
    assert_eq!(
        error(plain.fetch(4, "t", 0).await.error_code),
        ErrorCode::None
    );
}

#[tokio::test]
async fn aborted_transactions_are_listed_for_read_committed_only() {
    let rig = Rig::leading();
    rig.produce("t", batch(&["a"])).await;
    assert_eq!(rig.fetch(11, "t", 0).await.aborted_transactions, None);
    let request = FetchRequest {
        isolation_level: 1,
        ..fetch_request("t", 0)
    };
    let read = rig.fetch_request(11, request).await;
    let part = &read.responses[0].partitions[0];
    assert_eq!(part.aborted_transactions, Some(Vec::new()));
    assert_eq!((values(part).len(), part.last_stable_offset), (1, 1));
}

/// Waits though the offset lies at the end of rolled segments, and goes on with the first byte.
#[tokio::test]
async fn the_end_of_a_rolled_log_is_waited_at() {
    let rig = Rig::with(&[("log.segment.bytes", "100")]);
    rig.lead("t", 1, &[ME], &[ME]);
    for value in ["a", "b", "c"] {
        rig.produce("t", batch(&[value])).await;
    }
    let fetch = rig.fetch_request(11, waiting("t", 3, 1));
    let mut fetch = std::pin::pin!(fetch);
    for _ in 0..3 {
        assert!(is_parked(fetch.as_mut()).await);
    }
    rig.produce("t", batch(&["d"])).await;
    let read = fetch.await;
    assert_eq!(
        values(&read.responses[0].partitions[0]),
        [(3, "d".to_owned())]
    );
}

/// A follower is parked at the end, and answered when the high watermark it is told could rise, or new records come.
#[tokio::test]
async fn followers_park_too() {
    let rig = Rig::new();
    rig.lead("t", 1, &[ME, 2], &[ME, 2]);
    let request = FetchRequest {
        replica_id: 2,
        ..waiting("t", 0, 1)
    };
    let fetch = rig.fetch_request(12, request);
    let mut fetch = std::pin::pin!(fetch);
    assert!(is_parked(fetch.as_mut()).await);
    rig.produce("t", batch(&["a"])).await;
    assert_eq!(values(&fetch.await.responses[0].partitions[0]).len(), 1);
}

/// Role changes answer parked fetches: with the error, or with what the new role may say.
#[tokio::test]
async fn parked_fetches_hear_of_lost_leadership() {
    let rig = Rig::leading();
    let fetch = rig.fetch_request(10, waiting("t", 0, 1));
    let mut fetch = std::pin::pin!(fetch);
    assert!(is_parked(fetch.as_mut()).await);
    rig.follow("t", 2, 2);
    let read = fetch.await;
    assert_eq!(
        error(read.responses[0].partitions[0].error_code),
        ErrorCode::NotLeaderOrFollower
    );
}

async fn is_parked<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// Message sets of old producers are stored as format v2 and read back in any.
#[tokio::test]
async fn old_producers_and_consumers() {
    use gracchus_record::{Codec, LegacyBuilder, NewRecord};
    for (version, magic) in [(0, 0), (1, 0), (2, 1)] {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let rig = Rig::leading();
            let records = ["a", "b"].map(|value| NewRecord {
                timestamp: crate::rig::NOW,
                key: None,
                value: Some(value.as_bytes()),
                headers: Default::default(),
            });
            let builder = LegacyBuilder {
                magic,
                codec,
                append_time: None,
            };
            let set = builder.build(0, &records).unwrap();
            let answer = rig.produce_as(version, 1, "t", set).await;
            assert_eq!(
                (error(answer.error_code), answer.base_offset),
                (ErrorCode::None, 0),
                "v{version} {codec:?}"
            );
            for fetch_version in [0, 2, 4, 12] {
                let read = rig.fetch(fetch_version, "t", 0).await;
                let expected = [(0, "a".to_owned()), (1, "b".to_owned())];
                assert_eq!(
                    values(&read),
                    expected,
                    "v{version} {codec:?} as v{fetch_version}"
                );
            }
        }
    }
}
