//! What a fetcher asks, and what answers mean to it.

use gracchus_kafka_proto::messages::{FetchRequest, FetchResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::TopicPartition;

use super::machine::Fetcher;
use super::settings::Settings;
use super::steps::{LogView, Outcome, Step, Work};
use gracchus_kafka_proto::messages::fetch_response::{FetchableTopicResponse, PartitionData};

const LOG: LogView = LogView {
    start: 0,
    end: 5,
    high_watermark: 3,
    latest_epoch: Some(1),
};

fn fetcher(topics: &[&str]) -> Fetcher {
    let config = crate::config::ConfigStore::new(Default::default()).unwrap();
    let mut fetcher = Fetcher::new(Settings::new(2, &config.current()));
    for (n, topic) in (1..).zip(topics) {
        let id = TopicPartition::new(*topic, 0);
        fetcher.follow(id, Uuid::from_bytes([n; 16]), 4, LOG);
    }
    fetcher
}

fn ask(fetcher: &mut Fetcher, now_ms: i64) -> FetchRequest {
    match fetcher.next(now_ms) {
        Work::Fetch(request, 17) => request,
        other => panic!("{other:?}"),
    }
}

/// An answer for the topics with these ids: error and high watermark.
fn answer(session_id: i32, partitions: &[(u8, ErrorCode, i64)]) -> FetchResponse {
    let topic = |(n, code, high_watermark): &(u8, ErrorCode, i64)| FetchableTopicResponse {
        topic_id: Uuid::from_bytes([*n; 16]),
        partitions: vec![PartitionData {
            error_code: code.code(),
            high_watermark: *high_watermark,
            ..Default::default()
        }],
        ..Default::default()
    };
    FetchResponse {
        session_id,
        responses: partitions.iter().map(topic).collect(),
        ..Default::default()
    }
}

fn named(request: &FetchRequest) -> Vec<u8> {
    request
        .topics
        .iter()
        .map(|t| t.topic_id.as_bytes()[0])
        .collect()
}

fn done(fetcher: &mut Fetcher, steps: &[Step], log: LogView) {
    for step in steps {
        fetcher.done(step, Outcome::Done(log), 0);
    }
}

#[test]
fn in_a_session_only_what_changed_is_named() {
    let mut fetcher = fetcher(&["a", "b", "c"]);
    let request = ask(&mut fetcher, 0);
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert_eq!(named(&request), [1, 2, 3]);
    let wanted = &request.topics[0].partitions[0];
    assert_eq!((wanted.fetch_offset, wanted.last_fetched_epoch), (5, 1));
    let ok = ErrorCode::None;
    let steps = fetcher.fetched(answer(7, &[(1, ok, 3), (2, ok, 3), (3, ok, 3)]), 0);
    assert_eq!(steps.len(), 3);
    done(&mut fetcher, &steps[..1], LogView { end: 9, ..LOG });
    done(&mut fetcher, &steps[1..], LOG);

    let request = ask(&mut fetcher, 0);
    assert_eq!((request.session_id, request.session_epoch), (7, 1));
    assert_eq!(named(&request), [1], "the others are as they were");
    fetcher.fetched(answer(7, &[]), 0);
    fetcher.leave(&TopicPartition::new("b", 0));
    let request = ask(&mut fetcher, 0);
    assert_eq!(request.session_epoch, 2);
    assert!(request.topics.is_empty());
    assert_eq!(request.forgotten_topics_data.len(), 1);

    // The leader has forgotten the session: everything is named again.
    fetcher.fetched(
        FetchResponse {
            error_code: ErrorCode::FetchSessionIdNotFound.code(),
            ..Default::default()
        },
        0,
    );
    let request = ask(&mut fetcher, 0);
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert_eq!(named(&request), [1, 3]);
    // No answer at all: the same, and the old session is named to be closed.
    fetcher.fetched(answer(8, &[]), 0);
    fetcher.failed();
    let request = ask(&mut fetcher, 0);
    assert_eq!((request.session_id, request.session_epoch), (8, 0));
    assert_eq!(named(&request), [1, 3]);
}

#[test]
fn a_leader_that_is_not_ready_is_asked_again_soon_then_rarely() {
    let mut fetcher = fetcher(&["a"]);
    let mut now = 0;
    for expected in [20, 40, 80, 160, 320, 640, 1000, 1000] {
        ask(&mut fetcher, now);
        fetcher.fetched(answer(0, &[(1, ErrorCode::UnknownLeaderEpoch, -1)]), now);
        match fetcher.next(now) {
            Work::Wait(until) => assert_eq!(until - now, expected),
            other => panic!("{other:?}"),
        }
        now += expected;
    }
}

#[test]
fn a_newer_leader_is_waited_for() {
    let mut fetcher = fetcher(&["a"]);
    ask(&mut fetcher, 0);
    fetcher.fetched(answer(7, &[(1, ErrorCode::FencedLeaderEpoch, -1)]), 0);
    assert!(fetcher.is_empty());
    assert!(matches!(fetcher.next(0), Work::Wait(i64::MAX)));
    let id = TopicPartition::new("a", 0);
    fetcher.follow(id, Uuid::from_bytes([1; 16]), 5, LOG);
    let request = ask(&mut fetcher, 0);
    assert_eq!(request.topics[0].partitions[0].current_leader_epoch, 5);
}

#[test]
fn topics_without_an_id_go_by_name() {
    let mut fetcher = fetcher(&["a"]);
    ask(&mut fetcher, 0);
    fetcher.fetched(answer(7, &[]), 0);
    fetcher.follow(TopicPartition::new("old", 0), Uuid::ZERO, 1, LOG);
    match fetcher.next(0) {
        Work::Fetch(request, 12) => {
            let names: Vec<&str> = request.topics.iter().map(|t| t.topic.as_str()).collect();
            assert_eq!(names, ["a", "old"]);
            assert_eq!(request.session_epoch, 0);
        }
        other => panic!("{other:?}"),
    }
}
