//! Tables A0 to A3.

use crate::harness::*;
use gracchus_groups::group::State;
use gracchus_groups::request::*;
use gracchus_groups::{Event, LoadedPartition, Request};
use gracchus_kafka_proto::ErrorCode;

#[test]
fn a0_1_empty_group_id() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        group_id: String::new(),
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InvalidGroupId);
    // the offset APIs and the views take it
    assert_eq!(bench.commit_simple("", "t", 5), ErrorCode::None);
    assert_eq!(bench.offset("", "t"), 5);
    assert_eq!(bench.describe("").state, "Empty");
    assert_eq!(
        bench.delete_offsets("", &["t"]).error,
        ErrorCode::InvalidGroupId
    );
    assert_eq!(bench.delete_group(""), ErrorCode::None);
}

#[test]
fn a0_2_not_running() {
    let mut bench = Bench::stopped(|_| {});
    assert_eq!(
        bench.join(newcomer()).error,
        ErrorCode::CoordinatorNotAvailable
    );
    assert_eq!(
        bench.list(&[], &[]).error,
        ErrorCode::CoordinatorNotAvailable
    );
    assert_eq!(
        bench.commit_simple(G, "t", 1),
        ErrorCode::CoordinatorNotAvailable
    );
    // an invalid id is found first
    let join = JoinGroup {
        group_id: String::new(),
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InvalidGroupId);
}

#[test]
fn a0_3_loading() {
    let mut bench = Bench::unloaded(|_| {});
    let partition = bench.coordinator.partition_for(G);
    bench.event(Event::Elected {
        partition,
        leader_epoch: 3,
    });
    assert_eq!(bench.loads, [(partition, 3)]);
    let result = bench.join(rejoin("m"));
    assert_eq!(result.error, ErrorCode::CoordinatorLoadInProgress);
    assert_eq!(result.member_id, "m");
    assert_eq!(bench.heartbeat_of("m", 1, None), ErrorCode::None);
    let token = bench.send(Request::SyncGroup(SyncGroup {
        group_id: G.into(),
        ..Default::default()
    }));
    assert_eq!(
        bench.sync_reply(token).error,
        ErrorCode::RebalanceInProgress
    );
    assert_eq!(
        bench.list(&[], &[]).error,
        ErrorCode::CoordinatorLoadInProgress
    );
    assert_eq!(
        bench.describe(G).error,
        ErrorCode::CoordinatorLoadInProgress
    );
    bench.finish_load(partition, 3, LoadedPartition::default());
    assert_eq!(bench.list(&[], &[]).error, ErrorCode::None);
    assert_eq!(bench.join(rejoin("m")).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a0_4_led_elsewhere() {
    let mut bench = Bench::unloaded(|_| {});
    assert_eq!(bench.join(newcomer()).error, ErrorCode::NotCoordinator);
    assert_eq!(bench.heartbeat_of("m", 1, None), ErrorCode::NotCoordinator);
    assert_eq!(bench.leave_id("m"), ErrorCode::NotCoordinator);
    assert_eq!(bench.commit_simple(G, "t", 1), ErrorCode::NotCoordinator);
    assert_eq!(bench.delete_group(G), ErrorCode::NotCoordinator);
    assert_eq!(
        bench.delete_offsets(G, &["t"]).error,
        ErrorCode::NotCoordinator
    );
}

#[test]
fn a1_2_session_timeout() {
    let mut bench = Bench::new();
    for timeout in [5_999, 1_800_001, -1] {
        let join = JoinGroup {
            session_timeout_ms: timeout,
            ..newcomer()
        };
        assert_eq!(bench.join(join).error, ErrorCode::InvalidSessionTimeout);
    }
    // found before the member is
    let join = JoinGroup {
        session_timeout_ms: 1,
        ..rejoin("nobody")
    };
    assert_eq!(bench.join(join).error, ErrorCode::InvalidSessionTimeout);
    assert!(bench.coordinator.group(G).is_none());
}

#[test]
fn a1_3_no_group() {
    let mut bench = Bench::new();
    let result = bench.join(rejoin("m"));
    assert_eq!(
        (result.error, result.generation_id),
        (ErrorCode::UnknownMemberId, -1)
    );
    assert_eq!(
        (result.member_id.as_str(), result.leader_id.as_str()),
        ("m", "")
    );
    assert!(bench.coordinator.group(G).is_none());
}

#[test]
fn a1_4_no_room() {
    let mut bench = Bench::with(|config| config.max_size = 2);
    let ids = bench.stable(2);
    let result = bench.join(newcomer());
    assert_eq!(result.error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(result.member_id, "");
    // members may come again; during the rebalance the last is refused, and leaves a place
    bench.coordinator.config_mut().max_size = 1;
    let first = bench.send_join(rejoin(&ids[0]));
    assert!(bench.waits(first));
    let second = bench.join(rejoin(&ids[1]));
    assert_eq!(second.error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(bench.join_reply(first).error, ErrorCode::None);
    assert_eq!(bench.coordinator.group(G).unwrap().len(), 1);
}

#[test]
fn a1_5_protocols() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        protocol_type: String::new(),
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InconsistentGroupProtocol);
    let join = JoinGroup {
        protocols: vec![],
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InconsistentGroupProtocol);
    let ids = bench.stable(1);
    let join = JoinGroup {
        protocol_type: "connect".into(),
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InconsistentGroupProtocol);
    let join = JoinGroup {
        protocols: protocols(&["sticky"]),
        ..newcomer()
    };
    assert_eq!(bench.join(join).error, ErrorCode::InconsistentGroupProtocol);
    let join = JoinGroup {
        protocols: protocols(&["sticky"]),
        ..rejoin(&ids[0])
    };
    let result = bench.join(join);
    assert_eq!(result.error, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(result.member_id, ids[0]);
}

#[test]
fn a1_6_member_id_required() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        require_known_member_id: true,
        ..newcomer()
    };
    let result = bench.join(join.clone());
    assert_eq!(result.error, ErrorCode::MemberIdRequired);
    assert_eq!(result.member_id, "c-id1");
    assert_eq!(bench.state(G), State::Empty);
    let token = bench.send_join(JoinGroup {
        member_id: result.member_id.clone(),
        ..join
    });
    bench.pass(3_000);
    let joined = bench.join_reply(token);
    assert_eq!(
        (joined.error, joined.member_id),
        (ErrorCode::None, result.member_id)
    );
    // a static member is let in at once
    let join = JoinGroup {
        require_known_member_id: false,
        ..static_join("s1", "")
    };
    let token = bench.send_join(join);
    assert!(bench.waits(token));
    assert!(
        bench
            .coordinator
            .group(G)
            .unwrap()
            .static_member("s1")
            .unwrap()
            .starts_with("s1-id")
    );
}

#[test]
fn a1_7_given_id_with_instance() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        require_known_member_id: true,
        ..newcomer()
    };
    let id = bench.join(join).member_id;
    assert_eq!(
        bench.join(static_join("s", &id)).error,
        ErrorCode::UnknownServerError
    );
}

#[test]
fn a1_8_fenced() {
    let mut bench = Bench::new();
    let token = bench.send_join(static_join("s", ""));
    bench.pass(3_000);
    let id = bench.join_reply(token).member_id;
    assert_eq!(
        bench.join(static_join("s", "other")).error,
        ErrorCode::FencedInstanceId
    );
    assert_eq!(
        bench.heartbeat_of("other", 1, Some("s")),
        ErrorCode::FencedInstanceId
    );
    assert_eq!(bench.heartbeat_of(&id, 1, Some("s")), ErrorCode::None);
}

#[test]
fn a1_9_unknown() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    assert_eq!(
        bench.join(static_join("nobody", &ids[0])).error,
        ErrorCode::UnknownMemberId
    );
    assert_eq!(
        bench.join(rejoin("nobody")).error,
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a2_1_new_dynamic_member() {
    let mut bench = Bench::new();
    let first = bench.send_join(newcomer());
    assert_eq!(bench.state(G), State::PreparingRebalance);
    let second = bench.send_join(newcomer());
    bench.await_reply(first);
    let (leader, follower) = (bench.join_reply(first), bench.join_reply(second));
    assert_eq!(bench.state(G), State::CompletingRebalance);
    assert_eq!((leader.generation_id, follower.generation_id), (1, 1));
    assert_eq!(leader.leader_id, leader.member_id);
    assert_eq!(follower.leader_id, leader.member_id);
    assert_eq!(leader.members.len(), 2);
    assert!(follower.members.is_empty());
    assert_eq!(leader.protocol_name.as_deref(), Some("range"));
    assert_eq!(leader.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(leader.members[0].metadata, subscription(&["t"]));
    // in CompletingRebalance and in Stable
    let waiting = bench.send_sync(&follower.member_id);
    let third = bench.send_join(newcomer());
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert_eq!(
        bench.sync_reply(waiting).error,
        ErrorCode::RebalanceInProgress
    );
    assert!(bench.waits(third));
}

#[test]
fn a2_1_new_member_of_a_stable_group() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    let second = bench.send_join(newcomer());
    assert_eq!(bench.heartbeat(&ids[0]), ErrorCode::RebalanceInProgress);
    let first = bench.send_join(rejoin(&ids[0]));
    // all are there: no delay
    let (first, second) = (bench.join_reply(first), bench.join_reply(second));
    assert_eq!((first.generation_id, second.generation_id), (2, 2));
    assert_eq!(first.members.len(), 2);
}

#[test]
fn a2_3_static_member_replaced_while_joining_or_completing() {
    let mut bench = Bench::new();
    let first = bench.send_join(static_join("s", ""));
    let again = bench.send_join(static_join("s", ""));
    let fenced = bench.join_reply(first);
    assert_eq!(fenced.error, ErrorCode::FencedInstanceId);
    bench.pass(3_000);
    let joined = bench.join_reply(again);
    assert_eq!(joined.error, ErrorCode::None);
    assert_ne!(joined.member_id, fenced.member_id);
    assert_eq!(bench.coordinator.group(G).unwrap().len(), 1);
    // completing: one more rebalance, which ends at once
    let third = bench.send_join(static_join("s", ""));
    let third = bench.join_reply(third);
    assert_eq!((third.error, third.generation_id), (ErrorCode::None, 2));
    assert_eq!(
        bench.heartbeat(&joined.member_id),
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a2_4_same_protocols() {
    let mut bench = Bench::new();
    let ids = bench.completing(2);
    // missed the answer: told again, leader with members
    let leader = bench.join(rejoin(&ids[0]));
    assert_eq!((leader.generation_id, leader.members.len()), (1, 2));
    let follower = bench.join(rejoin(&ids[1]));
    assert_eq!((follower.generation_id, follower.members.len()), (1, 0));
    assert_eq!(bench.state(G), State::CompletingRebalance);
    bench.settle(&ids);
    let follower = bench.join(rejoin(&ids[1]));
    assert_eq!((follower.generation_id, follower.members.len()), (1, 0));
    assert_eq!(bench.state(G), State::Stable);
    let leader = bench.send_join(rejoin(&ids[0]));
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert!(bench.waits(leader));
}

#[test]
fn a2_5_other_protocols() {
    let mut bench = Bench::new();
    let ids = bench.completing(2);
    let other = JoinGroup {
        protocols: protocols(&["range"]),
        ..rejoin(&ids[1])
    };
    let token = bench.send_join(other.clone());
    assert_eq!(bench.state(G), State::PreparingRebalance);
    let leader = bench.send_join(rejoin(&ids[0]));
    assert_eq!(bench.join_reply(token).generation_id, 2);
    assert_eq!(bench.join_reply(leader).generation_id, 2);
    bench.settle(&ids);
    let token = bench.send_join(JoinGroup {
        protocols: protocols(&["range", "x"]),
        ..other
    });
    assert_eq!(bench.state(G), State::PreparingRebalance);
    assert!(bench.waits(token));
}

#[test]
fn a2_empty_group_knows_no_member() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    assert_eq!(bench.leave_id(&ids[0]), ErrorCode::None);
    assert_eq!(bench.state(G), State::Empty);
    assert_eq!(
        bench.join(rejoin(&ids[0])).error,
        ErrorCode::UnknownMemberId
    );
}

fn stable_static(bench: &mut Bench) -> Vec<String> {
    let tokens = ["s0", "s1"].map(|name| bench.send_join(static_join(name, "")));
    bench.await_reply(tokens[0]);
    let ids: Vec<_> = tokens.map(|token| bench.join_reply(token).member_id).into();
    bench.settle(&ids);
    ids
}

#[test]
fn a3_1_leader_replaced() {
    let mut bench = Bench::new();
    let ids = stable_static(&mut bench);
    let join = JoinGroup {
        support_skipping_assignment: true,
        ..static_join("s0", "")
    };
    let result = bench.join(join);
    assert_eq!((result.error, result.generation_id), (ErrorCode::None, 1));
    assert_eq!(result.leader_id, result.member_id);
    assert!(result.skip_assignment);
    assert_eq!(result.members.len(), 2);
    assert_eq!(bench.state(G), State::Stable);
    // the place and the assignment are kept, also across a reload
    let token = bench.send_sync(&result.member_id);
    assert_eq!(bench.sync_reply(token).assignment, "a0");
    let partition = bench.coordinator.partition_for(G);
    let contents = bench.load_from_log(partition);
    bench.event(Event::Resigned {
        partition,
        leader_epoch: Some(1),
    });
    bench.event(Event::Elected {
        partition,
        leader_epoch: 2,
    });
    bench.finish_load(partition, 2, contents);
    let described = bench.describe(G);
    assert_eq!(described.members[0].member_id, result.member_id);
    assert_eq!(described.members[0].assignment, "a0");
    assert_eq!(
        bench.heartbeat_of(&ids[0], 1, Some("s0")),
        ErrorCode::FencedInstanceId
    );
    // before version 9 the leader must not know that it leads
    let old = bench.join(static_join("s0", ""));
    assert_eq!(old.leader_id, result.member_id);
    assert!(!old.skip_assignment && old.members.is_empty());
}

#[test]
fn a3_2_follower_replaced() {
    let mut bench = Bench::new();
    let ids = stable_static(&mut bench);
    for skipping in [true, false] {
        let join = JoinGroup {
            support_skipping_assignment: skipping,
            ..static_join("s1", "")
        };
        let result = bench.join(join);
        assert_eq!(result.leader_id, ids[0]);
        assert!(!result.skip_assignment && result.members.is_empty());
        assert_eq!(result.generation_id, 1);
    }
    assert_eq!(bench.state(G), State::Stable);
}

#[test]
fn a3_3_replacement_not_stored() {
    let mut bench = Bench::new();
    let ids = stable_static(&mut bench);
    bench.log_error = Some(ErrorCode::NotEnoughReplicas);
    let result = bench.join(static_join("s1", ""));
    assert_eq!(result.error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(result.member_id, "");
    assert_eq!(bench.heartbeat_of(&ids[1], 1, Some("s1")), ErrorCode::None);
    assert_eq!(bench.state(G), State::Stable);
}

#[test]
fn a3_replacement_overtaken_by_a_rebalance() {
    let mut bench = Bench::new();
    let ids = stable_static(&mut bench);
    bench.hold = true;
    let replaced = bench.send_join(static_join("s1", ""));
    assert!(bench.waits(replaced));
    // the leader joins again: all are there, the rebalance ends, and the member is answered once
    let leader = bench.send_join(static_join("s0", &ids[0]));
    assert_eq!(bench.join_reply(leader).generation_id, 2);
    assert_eq!(bench.join_reply(replaced).generation_id, 2);
    bench.release();
    assert_eq!(bench.state(G), State::CompletingRebalance);
}

#[test]
fn a2_3_other_protocol_rebalances() {
    let mut bench = Bench::new();
    let ids = stable_static(&mut bench);
    let join = JoinGroup {
        protocols: protocols(&["roundrobin"]),
        ..static_join("s1", "")
    };
    let token = bench.send_join(join);
    assert_eq!(bench.state(G), State::PreparingRebalance);
    let leader = bench.send_join(static_join("s0", &ids[0]));
    assert_eq!(
        bench.join_reply(leader).protocol_name.as_deref(),
        Some("roundrobin")
    );
    assert_eq!(bench.join_reply(token).error, ErrorCode::None);
}

#[test]
fn d_repeated_join_is_answered() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let first = bench.send_join(rejoin(&ids[0]));
    let again = bench.send_join(rejoin(&ids[0]));
    assert_eq!(
        bench.join_reply(first).error,
        ErrorCode::RebalanceInProgress
    );
    assert!(bench.waits(again));
}

#[test]
fn b2_votes() {
    let mut bench = Bench::new();
    let wishes: [&[&str]; 3] = [
        &["range", "sticky"],
        &["sticky", "range"],
        &["x", "sticky", "range"],
    ];
    let tokens = wishes.map(|names| {
        bench.send_join(JoinGroup {
            protocols: protocols(names),
            ..newcomer()
        })
    });
    bench.pass(i64::from(REBALANCE));
    for token in tokens {
        assert_eq!(
            bench.join_reply(token).protocol_name.as_deref(),
            Some("sticky")
        );
    }
}
