//! Tables B1 to B3.

use crate::harness::*;
use gracchus_groups::Event;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_kafka_proto::ErrorCode;

const WEEK: i64 = 7 * 24 * 3600 * 1000;

#[test]
fn b1_1_session() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    bench.pass(i64::from(SESSION) - 1);
    assert_eq!(bench.heartbeat(&ids[0]), ErrorCode::None);
    bench.pass(1);
    assert_eq!(bench.state(G), State::PreparingRebalance);
    let group = bench.coordinator.group(G).unwrap();
    assert!(group.has(&ids[0]) && !group.has(&ids[1]));
    // the waiting one is excused, however long it takes
    let given = bench.join(JoinGroup {
        require_known_member_id: true,
        session_timeout_ms: 30_000,
        ..newcomer()
    });
    assert_eq!(given.error, ErrorCode::MemberIdRequired);
    let token = bench.send_join(rejoin(&ids[0]));
    bench.pass(29_999);
    assert!(bench.waits(token));
    // B1.3: the id that was given out is forgotten, nobody else is missing
    bench.pass(1);
    let result = bench.join_reply(token);
    assert_eq!((result.error, result.generation_id), (ErrorCode::None, 2));
}

#[test]
fn b1_1_last_member_fails() {
    let mut bench = Bench::new();
    bench.stable(1);
    bench.pass(i64::from(SESSION));
    assert_eq!((bench.state(G), bench.generation(G)), (State::Empty, 2));
}

#[test]
fn b1_2_new_member_waits_too_long() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        rebalance_timeout_ms: 1_000_000,
        ..newcomer()
    };
    let first = bench.send_join(join.clone());
    bench.pass(3_000);
    let id = bench.join_reply(first).member_id;
    bench.settle(std::slice::from_ref(&id));
    let second = bench.send_join(join);
    for _ in 0..40 {
        bench.pass(7_499);
        assert_eq!(bench.heartbeat(&id), ErrorCode::RebalanceInProgress);
    }
    assert!(bench.waits(second));
    bench.pass(40);
    let result = bench.join_reply(second);
    assert_eq!(
        (result.error, result.member_id.as_str()),
        (ErrorCode::UnknownMemberId, "")
    );
}

#[test]
fn b1_4_initial_delay() {
    let mut bench = Bench::new();
    let first = bench.send_join(newcomer());
    bench.pass(2_999);
    assert!(bench.waits(first));
    let second = bench.send_join(newcomer());
    // put off once, because of the second
    bench.pass(3_000);
    assert!(bench.waits(first));
    bench.pass(1);
    assert_eq!(bench.join_reply(first).members.len(), 2);
    assert_eq!(bench.join_reply(second).error, ErrorCode::None);
}

#[test]
fn b1_4_initial_delay_ends_with_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        rebalance_timeout_ms: 7_000,
        ..newcomer()
    };
    let first = bench.send_join(join.clone());
    let start = bench.now;
    while bench.waits(first) {
        bench.send_join(join.clone());
        bench.pass(500);
        assert!(bench.now - start <= 7_000, "put off for too long");
    }
    assert_eq!(bench.now - start, 7_000);
}

#[test]
fn b1_4_no_delay() {
    let mut bench = Bench::with(|config| config.initial_rebalance_delay_ms = 0);
    let first = bench.send_join(newcomer());
    assert_eq!(bench.join_reply(first).generation_id, 1);
    // later generations of an emptied group are not put off by newcomers
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    bench.leave_id(&ids[0]);
    let first = bench.send_join(newcomer());
    bench.pass(2_000);
    bench.send_join(newcomer());
    bench.pass(1_000);
    assert_eq!(bench.join_reply(first).members.len(), 2);
}

#[test]
fn b1_5_b2_1_3_rebalance_timeout() {
    let mut bench = Bench::new();
    let ids = bench.stable(3);
    let second = bench.send_join(JoinGroup {
        rebalance_timeout_ms: 1,
        protocols: protocols(&["range"]),
        ..rejoin(&ids[1])
    });
    let start = bench.now;
    while bench.waits(second) {
        bench.pass(5_000);
        for id in [&ids[0], &ids[2]] {
            bench.heartbeat_of(id, 1, None);
        }
    }
    // the largest timeout of the members counts
    assert_eq!(bench.now - start, i64::from(REBALANCE));
    let result = bench.join_reply(second);
    assert_eq!((result.error, result.members.len()), (ErrorCode::None, 1));
    assert_eq!(result.leader_id, ids[1]);
}

#[test]
fn b2_2_4_static_members_stay() {
    let mut bench = Bench::new();
    let session = 1_800_000;
    let join = |name: &str, id: &str| JoinGroup {
        session_timeout_ms: session,
        ..static_join(name, id)
    };
    let tokens = ["s0", "s1"].map(|name| bench.send_join(join(name, "")));
    bench.await_reply(tokens[0]);
    let ids: Vec<_> = tokens.map(|token| bench.join_reply(token).member_id).into();
    bench.settle(&ids);
    // both are away; one is removed, which starts a rebalance that nobody joins
    bench.leave(vec![LeavingMember {
        group_instance_id: Some("s1".into()),
        ..Default::default()
    }]);
    bench.pass(3 * i64::from(REBALANCE));
    assert_eq!(
        (bench.state(G), bench.generation(G)),
        (State::PreparingRebalance, 1)
    );
    let token = bench.send_join(join("s0", &ids[0]));
    assert_eq!(bench.join_reply(token).generation_id, 2);
    bench.settle(&ids[..1]);
    // a newcomer waits for the static member no longer than the rebalance timeout; it stays, and loses the lead
    let token = bench.send_join(JoinGroup {
        session_timeout_ms: session,
        ..newcomer()
    });
    bench.pass(i64::from(REBALANCE));
    let result = bench.join_reply(token);
    assert_eq!((result.error, result.members.len()), (ErrorCode::None, 2));
    assert_eq!(result.leader_id, result.member_id);
    // its SyncGroup is waited for as well (A4.12)
    bench.pass(i64::from(REBALANCE));
    assert!(!bench.coordinator.group(G).unwrap().has(&ids[0]));
}

fn expire(bench: &mut Bench) {
    bench.event(Event::ExpireOffsets);
}

#[test]
fn b3_1_simple_group() {
    let mut bench = Bench::new();
    bench.commit_simple(G, "t", 1);
    bench.pass(WEEK / 2);
    bench.commit_simple(G, "u", 1);
    bench.pass(WEEK / 2 - 1);
    expire(&mut bench);
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "u")), (1, 1));
    bench.pass(1);
    expire(&mut bench);
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "u")), (-1, 1));
    bench.pass(WEEK / 2);
    expire(&mut bench);
    // B3.7
    assert!(bench.coordinator.group(G).is_none());
    let partition = bench.coordinator.partition_for(G);
    assert_eq!(
        bench.log[&partition].len(),
        4,
        "two commits, two tombstones, none for the group"
    );
}

#[test]
fn b3_2_emptied_group() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    bench.commit(member_commit(G, &ids[0], 1, "t", 1));
    bench.leave_id(&ids[0]);
    let emptied = bench.now;
    bench.pass(1_000);
    // a commit from outside does not prolong it
    bench.commit_simple(G, "u", 1);
    bench.pass(WEEK - 1_001);
    expire(&mut bench);
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "u")), (1, 1));
    bench.pass(1);
    assert_eq!(bench.now - emptied, WEEK);
    expire(&mut bench);
    assert!(bench.coordinator.group(G).is_none());
    let partition = bench.coordinator.partition_for(G);
    let (_, last) = bench.log[&partition].last().unwrap();
    assert_eq!(last.records.len(), 3, "both offsets and the group");
}

#[test]
fn b3_3_4_group_in_use() {
    let mut bench = Bench::with(|config| config.offsets_retention_ms = 5_000);
    let ids = bench.stable(1);
    for topic in ["t", "unread"] {
        bench.commit(member_commit(G, &ids[0], 1, topic, 1));
    }
    bench.pass(5_000);
    bench.heartbeat(&ids[0]);
    let _second = bench.send_join(newcomer());
    expire(&mut bench);
    assert_eq!(bench.offset(G, "unread"), 1, "not during a rebalance");
    let first = bench.send_join(rejoin(&ids[0]));
    let first = bench.join_reply(first);
    let ids: Vec<_> = first.members.into_iter().map(|m| m.member_id).collect();
    bench.settle(&ids);
    expire(&mut bench);
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "unread")), (1, -1));
}

#[test]
fn b3_4_other_protocol_types() {
    let mut bench = Bench::with(|config| config.offsets_retention_ms = 5_000);
    let token = bench.send_join(JoinGroup {
        protocol_type: "connect".into(),
        ..newcomer()
    });
    bench.pass(3_000);
    let id = bench.join_reply(token).member_id;
    bench.settle(std::slice::from_ref(&id));
    bench.commit(member_commit(G, &id, 1, "u", 1));
    bench.pass(6_000);
    expire(&mut bench);
    assert_eq!(bench.offset(G, "u"), 1);
}

#[test]
fn b3_5_6_explicit_expiry_and_commit_in_flight() {
    let mut bench = Bench::new();
    bench.commit(OffsetCommit {
        retention_ms: Some(100),
        ..simple(G, "t", 1)
    });
    bench.pass(99);
    expire(&mut bench);
    assert_eq!(bench.offset(G, "t"), 1);
    bench.hold = true;
    bench.send(gracchus_groups::Request::OffsetCommit(simple(G, "t", 2)));
    bench.pass(1);
    expire(&mut bench);
    assert_eq!(bench.offset(G, "t"), 1);
    bench.release();
    expire(&mut bench);
    assert_eq!(bench.offset(G, "t"), 2);
}

#[test]
fn b3_deleted_partitions() {
    let mut bench = Bench::new();
    bench.commit_simple(G, "t", 1);
    bench.commit_simple(G, "u", 1);
    bench.commit_simple("only-t", "t", 1);
    bench.hold = true;
    let late = bench.send(gracchus_groups::Request::OffsetCommit(simple(G, "t", 2)));
    bench.event(Event::PartitionsDeleted(vec![TopicPartition::new("t", 0)]));
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "u")), (-1, 1));
    assert!(bench.coordinator.group("only-t").is_none());
    bench.release();
    bench.reply(late);
    assert_eq!(
        bench.offset(G, "t"),
        -1,
        "a commit under way does not bring it back"
    );
}

#[test]
fn the_wall_clock_may_jump() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    bench.coordinator.set_wall_offset_ms(10 * WEEK);
    bench.pass(i64::from(SESSION) - 1);
    assert_eq!(bench.heartbeat(&ids[0]), ErrorCode::None);
    // what is stored has the new time
    bench.commit(member_commit(G, &ids[0], 1, "t", 1));
    let partition = bench.coordinator.partition_for(G);
    let (_, batch) = bench.log[&partition].last().unwrap();
    assert_eq!(batch.timestamp_ms, bench.now + 10 * WEEK);
    assert_eq!(bench.state(G), State::Stable);
}
