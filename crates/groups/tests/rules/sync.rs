//! Table A4.

use crate::harness::*;
use gracchus_groups::Request;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_kafka_proto::ErrorCode;

fn error(bench: &mut Bench, request: SyncGroup) -> ErrorCode {
    let token = bench.send(Request::SyncGroup(request));
    bench.sync_reply(token).error
}

#[test]
fn a4_2_to_6_checks() {
    let mut bench = Bench::new();
    let nobody = SyncGroup {
        group_id: "none".into(),
        ..Default::default()
    };
    assert_eq!(error(&mut bench, nobody), ErrorCode::UnknownMemberId);
    let token = bench.send_join(static_join("s", ""));
    bench.pass(3_000);
    let id = bench.join_reply(token).member_id;
    let good = SyncGroup {
        group_instance_id: Some("s".into()),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        ..bench.sync_request(&id, &[])
    };
    let bad = |change: fn(&mut SyncGroup)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let cases = [
        (
            bad(|r| r.member_id = "x".into()),
            ErrorCode::FencedInstanceId,
        ),
        (
            bad(|r| r.group_instance_id = Some("x".into())),
            ErrorCode::UnknownMemberId,
        ),
        (
            bad(|r| {
                r.group_instance_id = None;
                r.member_id = "x".into()
            }),
            ErrorCode::UnknownMemberId,
        ),
        (bad(|r| r.generation_id = 0), ErrorCode::IllegalGeneration),
        (
            bad(|r| r.protocol_type = Some("connect".into())),
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            bad(|r| r.protocol_name = Some("sticky".into())),
            ErrorCode::InconsistentGroupProtocol,
        ),
        // order: member before generation before protocol
        (
            bad(|r| {
                r.member_id = "x".into();
                r.generation_id = 0
            }),
            ErrorCode::FencedInstanceId,
        ),
        (
            bad(|r| {
                r.generation_id = 0;
                r.protocol_name = Some("x".into())
            }),
            ErrorCode::IllegalGeneration,
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(error(&mut bench, request), expected);
    }
    assert_eq!(error(&mut bench, good), ErrorCode::None);
}

#[test]
fn a4_8_preparing() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let _leader = bench.send_join(rejoin(&ids[0]));
    let request = bench.sync_request(&ids[1], &[]);
    assert_eq!(error(&mut bench, request), ErrorCode::RebalanceInProgress);
}

#[test]
fn a4_9_10_leader_assigns() {
    let mut bench = Bench::new();
    let ids = bench.completing(3);
    let follower = bench.send_sync(&ids[1]);
    assert!(bench.waits(follower));
    // one member is forgotten, a stranger is named
    bench.hold = true;
    let request = bench.sync_request(
        &ids[0],
        &[(&ids[0], b"A"), (&ids[1], b"B"), ("stranger", b"S")],
    );
    let leader = bench.send(Request::SyncGroup(request));
    assert!(bench.waits(leader) && bench.waits(follower));
    assert_eq!(bench.state(G), State::CompletingRebalance);
    bench.release();
    assert_eq!(bench.sync_reply(leader).assignment, "A");
    let answered = bench.sync_reply(follower);
    assert_eq!(answered.assignment, "B");
    assert_eq!(answered.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(answered.protocol_name.as_deref(), Some("range"));
    assert_eq!(bench.state(G), State::Stable);
    let forgotten = bench.send_sync(&ids[2]);
    assert_eq!(bench.sync_reply(forgotten).assignment, "");
    // A4.11
    let again = bench.send_sync(&ids[1]);
    assert_eq!(bench.sync_reply(again).assignment, "B");
}

#[test]
fn a4_10_not_stored() {
    for (log, expected) in [
        (
            ErrorCode::NotEnoughReplicas,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (
            ErrorCode::NotEnoughReplicasAfterAppend,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::CoordinatorNotAvailable,
        ),
        (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
        (ErrorCode::KafkaStorageError, ErrorCode::NotCoordinator),
        (ErrorCode::RequestTimedOut, ErrorCode::RebalanceInProgress),
        (ErrorCode::MessageTooLarge, ErrorCode::UnknownServerError),
        (ErrorCode::RecordListTooLarge, ErrorCode::UnknownServerError),
        (ErrorCode::InvalidFetchSize, ErrorCode::UnknownServerError),
        (ErrorCode::CorruptMessage, ErrorCode::CorruptMessage),
    ] {
        let mut bench = Bench::new();
        let ids = bench.completing(2);
        let follower = bench.send_sync(&ids[1]);
        bench.log_error = Some(log);
        let leader = bench.send_sync(&ids[0]);
        assert_eq!(bench.sync_reply(leader).error, expected);
        assert_eq!(bench.sync_reply(follower).error, expected);
        assert_eq!(bench.state(G), State::PreparingRebalance);
    }
}

#[test]
fn a4_append_of_an_older_generation() {
    let mut bench = Bench::new();
    let ids = bench.completing(1);
    bench.hold = true;
    let leader = bench.send_sync(&ids[0]);
    let newcomer = bench.send_join(newcomer());
    assert_eq!(
        bench.sync_reply(leader).error,
        ErrorCode::RebalanceInProgress
    );
    bench.release();
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert!(bench.waits(newcomer));
}

#[test]
fn a4_12_no_sync_in_time() {
    for leader_syncs in [true, false] {
        let mut bench = Bench::new();
        let ids = bench.completing(2);
        let present = &ids[if leader_syncs { 0 } else { 1 }];
        let absent = &ids[if leader_syncs { 1 } else { 0 }];
        let token = bench.send_sync(present);
        // the absent one lives, but does not sync
        for _ in 0..(REBALANCE / SESSION) {
            bench.pass(i64::from(SESSION) - 1);
            assert_eq!(bench.heartbeat(absent), ErrorCode::None);
            if leader_syncs {
                assert_eq!(bench.heartbeat(present), ErrorCode::None);
            }
        }
        bench.pass(10);
        assert_eq!(bench.state(G), State::PreparingRebalance);
        let group = bench.coordinator.group(G).unwrap();
        assert!(group.has(present) && !group.has(absent));
        let expected = if leader_syncs {
            ErrorCode::None
        } else {
            ErrorCode::RebalanceInProgress
        };
        assert_eq!(bench.sync_reply(token).error, expected);
    }
}

#[test]
fn d_repeated_sync_is_answered() {
    let mut bench = Bench::new();
    let ids = bench.completing(2);
    let first = bench.send_sync(&ids[1]);
    let again = bench.send_sync(&ids[1]);
    assert_eq!(
        bench.sync_reply(first).error,
        ErrorCode::RebalanceInProgress
    );
    assert!(bench.waits(again));
}
