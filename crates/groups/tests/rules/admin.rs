//! Table A9.

use crate::harness::*;
use gracchus_groups::Event;
use gracchus_groups::record::{self, Key};
use gracchus_groups::request::*;
use gracchus_kafka_proto::ErrorCode;

#[test]
fn a9_1_to_4_describe() {
    let mut bench = Bench::new();
    let nobody = bench.describe("none");
    assert_eq!(
        (nobody.error, nobody.state.as_str()),
        (ErrorCode::None, "Dead")
    );
    let mut elsewhere = Bench::unloaded(|_| {});
    let refused = elsewhere.describe(G);
    assert_eq!(
        (refused.error, refused.state.as_str()),
        (ErrorCode::NotCoordinator, "")
    );
    let ids = bench.completing(2);
    let described = bench.describe(G);
    assert_eq!(described.state, "CompletingRebalance");
    assert_eq!(
        (
            described.protocol_type.as_str(),
            described.protocol.as_str()
        ),
        ("consumer", "")
    );
    assert_eq!(described.members.len(), 2);
    assert!(
        described
            .members
            .iter()
            .all(|m| m.metadata.is_empty() && m.assignment.is_empty())
    );
    bench.settle(&ids);
    let described = bench.describe(G);
    assert_eq!(
        (described.state.as_str(), described.protocol.as_str()),
        ("Stable", "range")
    );
    let member = &described.members[1];
    assert_eq!(
        (member.client_id.as_str(), member.client_host.as_str()),
        ("c", "/127.0.0.1")
    );
    assert_eq!(member.metadata, subscription(&["t"]));
    assert_eq!(member.assignment, "a1");
}

#[test]
fn a9_5_to_7_delete_groups() {
    let mut bench = Bench::new();
    assert_eq!(bench.delete_group("none"), ErrorCode::GroupIdNotFound);
    let ids = bench.stable(1);
    bench.commit(member_commit(G, &ids[0], 1, "t", 5));
    assert_eq!(bench.delete_group(G), ErrorCode::NonEmptyGroup);
    bench.leave_id(&ids[0]);
    assert_eq!(bench.delete_group(G), ErrorCode::None);
    assert_eq!(bench.delete_group(G), ErrorCode::GroupIdNotFound);
    assert_eq!(bench.describe(G).state, "Dead");
    let partition = bench.coordinator.partition_for(G);
    let (_, batch) = bench.log[&partition].last().unwrap();
    let keys: Vec<_> = batch
        .records
        .iter()
        .map(|(key, _)| record::read_key(key).unwrap())
        .collect();
    assert!(batch.records.iter().all(|(_, value)| value.is_none()));
    assert_eq!(
        keys,
        [
            Key::Offset {
                group: G.into(),
                partition: TopicPartition::new("t", 0)
            },
            Key::Group { group: G.into() },
        ]
    );
    let loaded = bench.load_from_log(partition);
    assert!(loaded.is_empty(), "{loaded:?}");
    // never had a generation: no tombstone for the group
    bench.commit_simple("simple", "t", 1);
    bench.delete_group("simple");
    let partition = bench.coordinator.partition_for("simple");
    assert_eq!(bench.log[&partition].last().unwrap().1.records.len(), 1);
}

#[test]
fn a9_8_to_11_delete_offsets() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.delete_offsets("none", &["t"]).error,
        ErrorCode::GroupIdNotFound
    );
    let ids = bench.stable(1);
    for topic in ["t", "u"] {
        bench.commit(member_commit(G, &ids[0], 1, topic, 5));
    }
    let result = bench.delete_offsets(G, &["t", "u"]);
    let errors: Vec<_> = result.partitions.iter().map(|(_, error)| *error).collect();
    assert_eq!(errors, [ErrorCode::GroupSubscribedToTopic, ErrorCode::None]);
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "u")), (5, -1));
    bench.leave_id(&ids[0]);
    assert_eq!(
        bench.delete_offsets(G, &["t"]).partitions[0].1,
        ErrorCode::None
    );
    // nothing is left of it
    assert_eq!(bench.describe(G).state, "Dead");
}

#[test]
fn a9_10_topics_not_known() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        protocols: vec![("range".into(), "junk".into())],
        ..newcomer()
    };
    let token = bench.send_join(join);
    bench.pass(3_000);
    let id = bench.join_reply(token).member_id;
    bench.settle(std::slice::from_ref(&id));
    let result = bench.delete_offsets(G, &["any"]);
    assert_eq!(result.partitions[0].1, ErrorCode::GroupSubscribedToTopic);
}

#[test]
fn a9_11_not_consumers() {
    let mut bench = Bench::new();
    let join = JoinGroup {
        protocol_type: "connect".into(),
        ..newcomer()
    };
    let token = bench.send_join(join);
    bench.pass(3_000);
    bench.join_reply(token);
    let result = bench.delete_offsets(G, &["t"]);
    assert_eq!(
        (result.error, result.partitions.len()),
        (ErrorCode::NonEmptyGroup, 0)
    );
}

#[test]
fn a9_12_list() {
    let mut bench = Bench::new();
    bench.stable(1);
    bench.commit_simple("simple", "t", 1);
    let names = |bench: &mut Bench, states: &[&str], types: &[&str]| -> Vec<String> {
        bench
            .list(states, types)
            .groups
            .into_iter()
            .map(|g| g.group_id)
            .collect()
    };
    assert_eq!(names(&mut bench, &[], &[]), ["g", "simple"]);
    assert_eq!(names(&mut bench, &["STABLE"], &[]), ["g"]);
    assert_eq!(
        names(&mut bench, &["empty", "Stable"], &["Classic"]),
        ["g", "simple"]
    );
    assert!(names(&mut bench, &["nonsense"], &[]).is_empty());
    assert!(names(&mut bench, &[], &["consumer"]).is_empty());
    let listed = bench.list(&[], &[]).groups;
    assert_eq!(
        (listed[0].state.as_str(), listed[0].protocol_type.as_str()),
        ("Stable", "consumer")
    );
    assert_eq!(
        (listed[1].state.as_str(), listed[1].protocol_type.as_str()),
        ("Empty", "")
    );
    assert_eq!(listed[0].group_type, "classic");
    // while anything loads, with what is there
    bench.event(Event::Resigned {
        partition: 49,
        leader_epoch: Some(1),
    });
    bench.event(Event::Elected {
        partition: 49,
        leader_epoch: 2,
    });
    let result = bench.list(&[], &[]);
    assert_eq!(
        (result.error, result.groups.len()),
        (ErrorCode::CoordinatorLoadInProgress, 2)
    );
}

#[test]
fn counts() {
    let mut bench = Bench::new();
    bench.stable(1);
    bench.commit_simple("simple", "t", 1);
    bench.commit_simple("simple", "u", 1);
    let counts = bench.coordinator.counts();
    assert_eq!(
        (counts.groups, counts.stable, counts.empty, counts.offsets),
        (2, 1, 1, 2)
    );
    bench.send_join(newcomer());
    assert_eq!(bench.coordinator.counts().preparing_rebalance, 1);
    assert_eq!(bench.coordinator.completed_rebalances(), 1);
}
