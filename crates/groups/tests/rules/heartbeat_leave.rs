//! Tables A5 and A6.

use crate::harness::*;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_kafka_proto::ErrorCode;

#[test]
fn a5_heartbeats() {
    let mut bench = Bench::new();
    assert_eq!(bench.heartbeat_of("m", 1, None), ErrorCode::UnknownMemberId);
    let ids = bench.completing(2);
    assert_eq!(bench.heartbeat(&ids[0]), ErrorCode::None);
    assert_eq!(bench.heartbeat("x"), ErrorCode::UnknownMemberId);
    assert_eq!(
        bench.heartbeat_of(&ids[0], 0, None),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        bench.heartbeat_of(&ids[0], 1, Some("s")),
        ErrorCode::UnknownMemberId
    );
    bench.settle(&ids);
    assert_eq!(bench.heartbeat(&ids[0]), ErrorCode::None);
    let _leader = bench.send_join(rejoin(&ids[0]));
    assert_eq!(bench.heartbeat(&ids[1]), ErrorCode::RebalanceInProgress);
    assert_eq!(
        bench.heartbeat_of(&ids[1], 2, None),
        ErrorCode::IllegalGeneration
    );
}

fn by_instance(instance: &str) -> LeavingMember {
    LeavingMember {
        group_instance_id: Some(instance.into()),
        ..Default::default()
    }
}

#[test]
fn a6_2_no_group() {
    let mut bench = Bench::new();
    let result = bench.leave(vec![
        by_instance("a"),
        LeavingMember {
            member_id: "m".into(),
            ..Default::default()
        },
    ]);
    assert_eq!(result.error, ErrorCode::None);
    assert!(
        result
            .members
            .iter()
            .all(|m| m.error == ErrorCode::UnknownMemberId)
    );
    assert_eq!(result.members[0].group_instance_id.as_deref(), Some("a"));
    assert_eq!(result.members[1].member_id, "m");
}

#[test]
fn a6_3_4_6_static_members() {
    let mut bench = Bench::new();
    let tokens = ["s0", "s1"].map(|name| bench.send_join(static_join(name, "")));
    bench.await_reply(tokens[0]);
    let ids: Vec<_> = tokens.map(|token| bench.join_reply(token).member_id).into();
    bench.settle(&ids);
    let result = bench.leave(vec![
        by_instance("x"),
        LeavingMember {
            member_id: "x".into(),
            ..by_instance("s0")
        },
        LeavingMember {
            member_id: ids[0].clone(),
            ..by_instance("x")
        },
        LeavingMember::default(),
        by_instance("s0"),
    ]);
    let errors: Vec<_> = result.members.iter().map(|m| m.error).collect();
    assert_eq!(
        errors,
        [
            ErrorCode::UnknownMemberId,
            ErrorCode::FencedInstanceId,
            ErrorCode::UnknownMemberId,
            ErrorCode::UnknownMemberId,
            ErrorCode::None
        ]
    );
    assert_eq!(bench.state(G), State::PreparingRebalance);
    // the other one leads now
    let token = bench.send_join(static_join("s1", &ids[1]));
    assert_eq!(bench.join_reply(token).leader_id, ids[1]);
}

#[test]
fn a6_5_given_id() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    let given = bench
        .join(JoinGroup {
            require_known_member_id: true,
            ..newcomer()
        })
        .member_id;
    let leader = bench.send_join(rejoin(&ids[0]));
    // the rebalance waits for the id to be used
    assert!(bench.waits(leader));
    assert_eq!(bench.leave_id(&given), ErrorCode::None);
    assert_eq!(bench.join_reply(leader).generation_id, 2);
    assert_eq!(bench.leave_id(&given), ErrorCode::UnknownMemberId);
}

#[test]
fn a6_7_member_leaves() {
    let mut bench = Bench::new();
    let ids = bench.completing(3);
    let follower = bench.send_sync(&ids[2]);
    assert_eq!(bench.leave_id(&ids[1]), ErrorCode::None);
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert_eq!(
        bench.sync_reply(follower).error,
        ErrorCode::RebalanceInProgress
    );
    let third = bench.send_join(rejoin(&ids[2]));
    assert!(bench.waits(third));
    // the last one missing goes
    assert_eq!(bench.leave_id(&ids[0]), ErrorCode::None);
    let third = bench.join_reply(third);
    assert_eq!((third.error, third.generation_id), (ErrorCode::None, 2));
    assert_eq!(third.leader_id, ids[2]);
    // one that waits to join leaves
    bench.settle(&ids[2..]);
    let joining = bench.send_join(newcomer());
    let id = bench
        .coordinator
        .group(G)
        .unwrap()
        .members()
        .last()
        .unwrap()
        .member_id
        .clone();
    assert_eq!(bench.leave_id(&id), ErrorCode::None);
    let dismissed = bench.join_reply(joining);
    assert_eq!(
        (dismissed.error, dismissed.member_id.as_str()),
        (ErrorCode::UnknownMemberId, "")
    );
}

#[test]
fn d_leaving_answers_a_waiting_sync() {
    let mut bench = Bench::new();
    let ids = bench.completing(2);
    let follower = bench.send_sync(&ids[1]);
    assert_eq!(bench.leave_id(&ids[1]), ErrorCode::None);
    assert_eq!(bench.sync_reply(follower).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a6_last_member_empties_the_group() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    assert_eq!(bench.leave_id(&ids[0]), ErrorCode::None);
    assert_eq!((bench.state(G), bench.generation(G)), (State::Empty, 2));
    let partition = bench.coordinator.partition_for(G);
    let (_, batch) = bench.log[&partition].last().unwrap();
    assert_eq!(batch.base_sequence, -1);
    let value = batch.records[0].1.clone().unwrap();
    let stored = gracchus_groups::record::read_group_value(&value).unwrap();
    assert_eq!(
        (stored.protocol, stored.leader, stored.generation),
        (None, None, 2)
    );
    assert_eq!(stored.protocol_type, "consumer");
    assert!(stored.members.is_empty());
}
