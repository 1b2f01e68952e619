//! Tables A7 and A8, and C1 for offsets.

use crate::harness::*;
use gracchus_groups::group::State;
use gracchus_groups::record::{self, Key};
use gracchus_groups::request::*;
use gracchus_groups::{Event, Request, Response};
use gracchus_kafka_proto::ErrorCode;

#[test]
fn a7_2_no_group() {
    let mut bench = Bench::new();
    let commit = member_commit(G, "m", 0, "t", 1);
    assert_eq!(bench.commit(commit)[0].1, ErrorCode::IllegalGeneration);
    assert!(bench.coordinator.group(G).is_none());
}

#[test]
fn a7_3_simple_consumer() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit_simple(G, "t", 7), ErrorCode::None);
    assert_eq!(bench.offset(G, "t"), 7);
    // with a member id too, as long as the group is empty
    assert_eq!(
        bench.commit(member_commit(G, "m", -1, "t", 8))[0].1,
        ErrorCode::None
    );
    assert_eq!(bench.offset(G, "t"), 8);
}

#[test]
fn a7_4_to_6_members_only() {
    let mut bench = Bench::new();
    let token = bench.send_join(static_join("s", ""));
    bench.pass(3_000);
    let id = bench.join_reply(token).member_id;
    bench.settle(std::slice::from_ref(&id));
    assert_eq!(bench.commit_simple(G, "t", 7), ErrorCode::UnknownMemberId);
    let cases = [
        ("x", Some("s"), 1, ErrorCode::FencedInstanceId),
        (id.as_str(), Some("x"), 1, ErrorCode::UnknownMemberId),
        ("", Some("s"), -1, ErrorCode::FencedInstanceId),
        ("x", None, 1, ErrorCode::UnknownMemberId),
        (id.as_str(), None, 0, ErrorCode::IllegalGeneration),
        (id.as_str(), None, -1, ErrorCode::IllegalGeneration),
        (id.as_str(), Some("s"), 1, ErrorCode::None),
        (id.as_str(), None, 1, ErrorCode::None),
    ];
    for (member, instance, generation, expected) in cases {
        let commit = OffsetCommit {
            group_instance_id: instance.map(str::to_owned),
            ..member_commit(G, member, generation, "t", 7)
        };
        assert_eq!(
            bench.commit(commit)[0].1,
            expected,
            "{member} {instance:?} {generation}"
        );
    }
}

#[test]
fn a7_7_8_during_a_rebalance() {
    let mut bench = Bench::new();
    let ids = bench.completing(2);
    let commit = member_commit(G, &ids[0], 1, "t", 7);
    assert_eq!(
        bench.commit(commit.clone())[0].1,
        ErrorCode::RebalanceInProgress
    );
    bench.settle(&ids);
    let _leader = bench.send_join(rejoin(&ids[0]));
    // the last generation may still save, and is heard from by that
    for _ in 0..3 {
        bench.pass(i64::from(SESSION) - 1);
        let commit = member_commit(G, &ids[1], 1, "t", 9);
        assert_eq!(bench.commit(commit)[0].1, ErrorCode::None);
    }
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert_eq!(bench.offset(G, "t"), 9);
}

#[test]
fn a7_9_metadata_too_large() {
    let mut bench = Bench::with(|config| config.offset_metadata_max = 4);
    let mut commit = simple(G, "long", 1);
    commit.offsets[0].metadata = Some("12345".into());
    assert_eq!(
        bench.commit(commit.clone())[0].1,
        ErrorCode::OffsetMetadataTooLarge
    );
    assert!(bench.log.is_empty());
    // four UTF-16 units, twelve bytes
    commit.offsets.push(CommittedOffset {
        metadata: Some("ééé€".into()),
        ..offset_of("fits", 2)
    });
    let result = bench.commit(commit);
    assert_eq!(result[0].1, ErrorCode::OffsetMetadataTooLarge);
    assert_eq!(
        (result[1].0.topic.as_str(), result[1].1),
        ("fits", ErrorCode::None)
    );
    assert_eq!((bench.offset(G, "long"), bench.offset(G, "fits")), (-1, 2));
}

#[test]
fn a7_10_c1_append_fails() {
    for (log, expected) in [
        (
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (
            ErrorCode::NotEnoughReplicas,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (
            ErrorCode::NotEnoughReplicasAfterAppend,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
        (ErrorCode::KafkaStorageError, ErrorCode::NotCoordinator),
        (
            ErrorCode::MessageTooLarge,
            ErrorCode::InvalidCommitOffsetSize,
        ),
        (
            ErrorCode::RecordListTooLarge,
            ErrorCode::InvalidCommitOffsetSize,
        ),
        (
            ErrorCode::InvalidFetchSize,
            ErrorCode::InvalidCommitOffsetSize,
        ),
        (ErrorCode::RequestTimedOut, ErrorCode::RequestTimedOut),
        (
            ErrorCode::NetworkException,
            ErrorCode::CoordinatorLoadInProgress,
        ),
    ] {
        let mut bench = Bench::new();
        bench.log_error = Some(log);
        assert_eq!(bench.commit_simple(G, "t", 7), expected);
        assert_eq!(bench.offset(G, "t"), -1);
        assert!(
            !bench
                .coordinator
                .group(G)
                .unwrap()
                .offsets
                .has_pending(&TopicPartition::new("t", 0))
        );
    }
}

#[test]
fn a7_values_stored() {
    let mut bench = Bench::new();
    let mut commit = simple(G, "t", 7);
    commit.offsets[0].leader_epoch = 3;
    commit.offsets[0].metadata = Some("m".into());
    commit.offsets.push(CommittedOffset {
        timestamp: 5,
        ..offset_of("u", 8)
    });
    bench.commit(commit.clone());
    commit.retention_ms = Some(100);
    bench.commit(commit);
    let partition = bench.coordinator.partition_for(G);
    let batches = &bench.log[&partition];
    assert_eq!(batches[0].1.base_sequence, 0);
    let read = |batch: usize, record: usize| {
        let (key, value) = &batches[batch].1.records[record];
        let value = value.clone().unwrap();
        let version = value[1];
        (
            record::read_key(key).unwrap(),
            version,
            record::read_offset_value(&value).unwrap(),
        )
    };
    let (key, version, value) = read(0, 0);
    assert_eq!(
        key,
        Key::Offset {
            group: G.into(),
            partition: TopicPartition::new("t", 0)
        }
    );
    assert_eq!(
        (
            version,
            value.offset,
            value.leader_epoch,
            value.metadata.as_str()
        ),
        (3, 7, 3, "m")
    );
    assert_eq!(
        (value.commit_timestamp, value.expire_timestamp),
        (bench.now, None)
    );
    assert_eq!(read(0, 1).2.commit_timestamp, 5);
    let (_, version, value) = read(1, 0);
    // an explicit expiry makes it version 1, which has no epoch
    assert_eq!(
        (version, value.expire_timestamp, value.leader_epoch),
        (1, Some(bench.now + 100), -1)
    );
}

#[test]
fn a7_order_of_the_log_counts() {
    let mut bench = Bench::new();
    bench.hold = true;
    let first = bench.send(Request::OffsetCommit(simple(G, "t", 1)));
    let second = bench.send(Request::OffsetCommit(simple(G, "t", 2)));
    // reported in the other order
    let (p, batch, token) = bench.held.pop_back().unwrap();
    drop((p, batch));
    bench.event(Event::AppendDone {
        token,
        result: Ok(101),
    });
    assert_eq!(bench.offset(G, "t"), 2);
    let (_, _, token) = bench.held.pop_back().unwrap();
    bench.event(Event::AppendDone {
        token,
        result: Ok(100),
    });
    assert_eq!(bench.offset(G, "t"), 2);
    for token in [first, second] {
        assert!(
            matches!(bench.reply(token), Response::OffsetCommit(r) if r[0].1 == ErrorCode::None)
        );
    }
}

#[test]
fn a7_group_gone_before_the_append_ends() {
    let mut bench = Bench::new();
    bench.hold = true;
    let token = bench.send(Request::OffsetCommit(simple(G, "t", 1)));
    assert_eq!(bench.delete_group(G), ErrorCode::None);
    bench.release();
    assert!(matches!(bench.reply(token), Response::OffsetCommit(r) if r[0].1 == ErrorCode::None));
    assert_eq!(bench.offset(G, "t"), -1);
}

fn txn(offset: i64) -> TxnOffsetCommit {
    TxnOffsetCommit {
        group_id: G.into(),
        producer_id: 9,
        producer_epoch: 1,
        generation_id: -1,
        offsets: vec![offset_of("t", offset)],
        ..Default::default()
    }
}

#[test]
fn a7_transactional() {
    let mut bench = Bench::new();
    let partition = bench.coordinator.partition_for(G);
    for (commit, expected) in [(true, 5), (false, 5)] {
        let request = txn(if commit { 5 } else { 6 });
        let token = bench.send(Request::TxnOffsetCommit(request));
        assert!(
            matches!(bench.reply(token), Response::OffsetCommit(r) if r[0].1 == ErrorCode::None)
        );
        let stable = OffsetFetch {
            group_id: G.into(),
            require_stable: true,
            partitions: Some(vec![TopicPartition::new("t", 0)]),
        };
        // A8.3
        let fetched = bench.fetch(stable.clone());
        assert_eq!(fetched.offsets[0].error, ErrorCode::UnstableOffsetCommit);
        assert_eq!(fetched.offsets[0].offset, -1);
        // a marker in another partition is not ours
        for partitions in [vec![partition + 1], vec![partition]] {
            bench.event(Event::TransactionCompleted {
                producer_id: 9,
                partitions,
                committed: commit,
            });
        }
        let fetched = bench.fetch(stable);
        assert_eq!(
            (fetched.offsets[0].error, fetched.offsets[0].offset),
            (ErrorCode::None, expected)
        );
    }
    assert_eq!(bench.log[&partition][0].1.transactional, Some((9, 1)));
    // in a group with members: who says who it is must be right, who does not is let in
    let ids = bench.stable(1);
    for (member, generation, expected) in [
        ("", -1, ErrorCode::None),
        ("x", 1, ErrorCode::UnknownMemberId),
        (ids[0].as_str(), 0, ErrorCode::IllegalGeneration),
        (ids[0].as_str(), 1, ErrorCode::None),
    ] {
        let request = TxnOffsetCommit {
            member_id: member.into(),
            generation_id: generation,
            ..txn(7)
        };
        let token = bench.send(Request::TxnOffsetCommit(request));
        assert!(matches!(bench.reply(token), Response::OffsetCommit(r) if r[0].1 == expected));
    }
}

#[test]
fn a8_fetch() {
    let mut bench = Bench::new();
    assert_eq!(bench.offset("none", "t"), -1);
    bench.commit_simple(G, "t", 1);
    bench.commit_simple(G, "u", 2);
    let all = OffsetFetch {
        group_id: G.into(),
        require_stable: false,
        partitions: None,
    };
    let fetched = bench.fetch(all.clone());
    let offsets: Vec<_> = fetched
        .offsets
        .iter()
        .map(|o| (o.partition.topic.as_str(), o.offset))
        .collect();
    assert_eq!(offsets, [("t", 1), ("u", 2)]);
    assert!(
        bench
            .fetch(OffsetFetch {
                group_id: "none".into(),
                ..all.clone()
            })
            .offsets
            .is_empty()
    );
    let mut elsewhere = Bench::unloaded(|_| {});
    let refused = elsewhere.fetch(all.clone());
    assert_eq!(
        (refused.error, refused.offsets.len()),
        (ErrorCode::NotCoordinator, 0)
    );
    // A8.3, plain
    bench.hold = true;
    let _commit = bench.send(Request::OffsetCommit(simple(G, "t", 3)));
    let fetched = bench.fetch(OffsetFetch {
        require_stable: true,
        ..all.clone()
    });
    assert_eq!(fetched.offsets[0].error, ErrorCode::UnstableOffsetCommit);
    assert_eq!(fetched.offsets[1].offset, 2);
    assert_eq!(bench.fetch(all).offsets[0].offset, 1);
}
