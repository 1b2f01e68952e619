//! Tables C2 and C3, unloading, and the records captured from Apache Kafka.

use crate::harness::*;
use bytes::Bytes;
use gracchus_groups::group::State;
use gracchus_groups::offsets::CommittedValue;
use gracchus_groups::record::{self, Key, RecordVersions, StoredGroup, StoredMember};
use gracchus_groups::request::TopicPartition;
use gracchus_groups::{Event, LoadedPartition, PartitionLoader};
use gracchus_kafka_proto::messages::{GroupMetadataValue, OffsetCommitValue};
use gracchus_kafka_proto::{ErrorCode, encode_stored};
use gracchus_record::{Batch, RecordError};

#[test]
fn c2_versions_written() {
    let order = [
        "0.10.0-IV1",
        "0.10.1-IV0",
        "2.0-IV1",
        "2.1-IV0",
        "2.1-IV1",
        "2.3-IV0",
        "3.9-IV0",
    ];
    let at = |ibp: &str| {
        let mine = order.iter().position(|name| *name == ibp).unwrap();
        let versions = RecordVersions::for_protocol(|wanted| {
            mine >= order.iter().position(|name| *name == wanted).unwrap()
        });
        (versions.offset_commit, versions.group_metadata)
    };
    assert_eq!(at("0.10.0-IV1"), (1, 0));
    assert_eq!(at("0.10.1-IV0"), (1, 1));
    assert_eq!(at("2.0-IV1"), (1, 1));
    assert_eq!(at("2.1-IV0"), (2, 2));
    assert_eq!(at("2.1-IV1"), (3, 2));
    assert_eq!(at("2.3-IV0"), (3, 3));
    assert_eq!(at("3.9-IV0"), (3, 3));
}

fn value() -> CommittedValue {
    CommittedValue {
        offset: 7,
        leader_epoch: -1,
        metadata: "m".into(),
        commit_timestamp: 5,
        expire_timestamp: None,
    }
}

fn offset_key(topic: &str) -> Bytes {
    record::offset_key(G, &TopicPartition::new(topic, 0)).unwrap()
}

fn load(bench: &mut Bench, feed: impl FnOnce(&mut PartitionLoader)) -> (u64, u64) {
    let partition = bench.coordinator.partition_for(G);
    bench.event(Event::Elected {
        partition,
        leader_epoch: 1,
    });
    let mut loader = PartitionLoader::new(partition);
    feed(&mut loader);
    let contents = loader.finish();
    let counts = (contents.records, contents.skipped);
    bench.finish_load(partition, 1, contents);
    counts
}

#[test]
fn c3_1_offset_versions() {
    for version in 0..=4i16 {
        let stored = OffsetCommitValue {
            offset: 7,
            leader_epoch: 3,
            metadata: "m".into(),
            commit_timestamp: 5,
            expire_timestamp: 9,
            ..Default::default()
        };
        let bytes = encode_stored(version, &stored).unwrap();
        let read = record::read_offset_value(&bytes).unwrap();
        let expected = CommittedValue {
            leader_epoch: if version >= 3 { 3 } else { -1 },
            expire_timestamp: (version == 1).then_some(9),
            ..value()
        };
        assert_eq!(read, expected, "version {version}");
    }
}

#[test]
fn c3_3_group_versions() {
    for version in 0..=4i16 {
        let stored = StoredGroup {
            protocol_type: "consumer".into(),
            generation: 3,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            state_timestamp: 77,
            members: vec![StoredMember {
                member_id: "m".into(),
                group_instance_id: Some("s".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout_ms: 9,
                session_timeout_ms: 10_000,
                subscription: subscription(&["t"]),
                assignment: "a".into(),
            }],
        };
        let versions = RecordVersions {
            offset_commit: 3,
            group_metadata: version,
        };
        let bytes = record::group_value(stored.clone(), versions).unwrap();
        let mut expected = stored;
        if version < 2 {
            expected.state_timestamp = -1;
        }
        if version < 3 {
            expected.members[0].group_instance_id = None;
        }
        if version == 0 {
            expected.members[0].rebalance_timeout_ms = 10_000;
        }
        assert_eq!(
            record::read_group_value(&bytes).unwrap(),
            expected,
            "version {version}"
        );

        let mut bench = Bench::unloaded(|_| {});
        load(&mut bench, |loader| {
            loader.record(0, Some(record::group_key(G).unwrap()), Some(bytes), None);
        });
        assert_eq!(bench.state(G), State::Stable);
        assert_eq!(bench.heartbeat_of("m", 3, None), ErrorCode::None);
        assert_eq!(bench.describe(G).members[0].assignment, "a");
        // its session began with the load
        bench.pass(10_000);
        assert_eq!(bench.state(G), State::Empty);
    }
}

#[test]
fn c3_2_4_8_tombstones_and_simple_groups() {
    let mut bench = Bench::unloaded(|_| {});
    let stored = |offset| {
        Some(
            record::offset_value(
                &CommittedValue { offset, ..value() },
                RecordVersions::LATEST,
            )
            .unwrap(),
        )
    };
    let group = record::group_value(StoredGroup::default(), RecordVersions::LATEST).unwrap();
    let counts = load(&mut bench, |loader| {
        loader.record(0, Some(offset_key("t")), stored(1), None);
        loader.record(1, Some(offset_key("t")), stored(2), None);
        loader.record(2, Some(offset_key("gone")), stored(3), None);
        loader.record(3, Some(offset_key("gone")), None, None);
        loader.record(4, Some(record::group_key(G).unwrap()), Some(group), None);
        loader.record(5, Some(record::group_key(G).unwrap()), None, None);
    });
    assert_eq!(counts, (6, 0));
    assert_eq!((bench.offset(G, "t"), bench.offset(G, "gone")), (2, -1));
    let described = bench.describe(G);
    assert_eq!(
        (described.state.as_str(), described.protocol_type.as_str()),
        ("Empty", "")
    );
}

#[test]
fn c3_5_6_transactions() {
    let mut bench = Bench::unloaded(|_| {});
    let stored = |offset| {
        Some(
            record::offset_value(
                &CommittedValue { offset, ..value() },
                RecordVersions::LATEST,
            )
            .unwrap(),
        )
    };
    load(&mut bench, |loader| {
        loader.record(0, Some(offset_key("aborted")), stored(1), Some(1));
        loader.end_transaction(1, false);
        loader.record(2, Some(offset_key("committed")), stored(2), Some(1));
        loader.record(3, Some(offset_key("overtaken")), stored(3), Some(1));
        loader.record(4, Some(offset_key("overtaken")), stored(4), None);
        loader.end_transaction(1, true);
        loader.record(6, Some(offset_key("open")), stored(5), Some(2));
        loader.record(7, Some(offset_key("taken-back")), stored(6), Some(2));
        loader.record(8, Some(offset_key("taken-back")), None, Some(2));
        loader.end_transaction(99, true);
    });
    let offsets = ["aborted", "committed", "overtaken", "open"].map(|topic| bench.offset(G, topic));
    assert_eq!(offsets, [-1, 2, 4, -1]);
    let group = bench.coordinator.group(G).unwrap();
    assert!(group.offsets.has_pending(&TopicPartition::new("open", 0)));
    let partition = bench.coordinator.partition_for(G);
    bench.event(Event::TransactionCompleted {
        producer_id: 2,
        partitions: vec![partition],
        committed: true,
    });
    assert_eq!(
        (bench.offset(G, "open"), bench.offset(G, "taken-back")),
        (5, -1)
    );
}

#[test]
fn c3_7_unknown_and_broken_records_are_skipped() {
    let mut bench = Bench::unloaded(|_| {});
    let good = record::offset_value(&value(), RecordVersions::LATEST).unwrap();
    let counts = load(&mut bench, |loader| {
        let key = Some(offset_key("t"));
        loader.record(0, key.clone(), Some(good.clone()), None);
        loader.record(
            1,
            Some(Bytes::from_static(&[0, 3, 0, 1, b'g'])),
            Some(good.clone()),
            None,
        );
        loader.record(2, Some(Bytes::from_static(&[0])), None, None);
        loader.record(3, None, Some(good.clone()), None);
        loader.record(4, key.clone(), Some(Bytes::from_static(&[0, 9])), None);
        loader.record(5, key, Some(good.slice(..good.len() - 1)), None);
        let group = encode_stored(3, &GroupMetadataValue::default()).unwrap();
        loader.record(
            6,
            Some(record::group_key("other").unwrap()),
            Some(group.slice(..3)),
            None,
        );
    });
    assert_eq!(counts, (7, 6));
    assert_eq!(bench.offset(G, "t"), 7);
}

#[test]
fn c3_group_over_the_limit() {
    let mut source = Bench::new();
    let ids = source.stable(3);
    let partition = source.coordinator.partition_for(G);
    let mut bench = Bench::unloaded(|config| config.max_size = 2);
    bench.event(Event::Elected {
        partition,
        leader_epoch: 0,
    });
    bench.finish_load(partition, 0, source.load_from_log(partition));
    assert_eq!(bench.state(G), State::PreparingRebalance);
    let first = bench.send_join(rejoin(&ids[0]));
    let second = bench.send_join(rejoin(&ids[1]));
    assert_eq!(
        bench.join(rejoin(&ids[2])).error,
        ErrorCode::GroupMaxSizeReached
    );
    assert_eq!(bench.join_reply(first).members.len(), 2);
    assert_eq!(bench.join_reply(second).error, ErrorCode::None);
}

#[test]
fn c3_epochs() {
    let mut bench = Bench::unloaded(|_| {});
    let partition = bench.coordinator.partition_for(G);
    bench.event(Event::Elected {
        partition,
        leader_epoch: 5,
    });
    // an older unload comes late
    bench.event(Event::Resigned {
        partition,
        leader_epoch: Some(4),
    });
    assert_eq!(
        bench.describe(G).error,
        ErrorCode::CoordinatorLoadInProgress
    );
    // unloaded while loading: that load does not count any more
    bench.event(Event::Resigned {
        partition,
        leader_epoch: Some(6),
    });
    bench.finish_load(partition, 5, LoadedPartition::default());
    assert_eq!(bench.describe(G).error, ErrorCode::NotCoordinator);
    bench.event(Event::Elected {
        partition,
        leader_epoch: 5,
    });
    assert_eq!(
        bench.describe(G).error,
        ErrorCode::NotCoordinator,
        "an old election"
    );
    bench.event(Event::Elected {
        partition,
        leader_epoch: 7,
    });
    bench.event(Event::Elected {
        partition,
        leader_epoch: 8,
    });
    assert_eq!(bench.loads, [(partition, 5), (partition, 7)]);
    bench.finish_load(partition, 7, LoadedPartition::default());
    assert_eq!(bench.describe(G).error, ErrorCode::None);
    bench.event(Event::Resigned {
        partition,
        leader_epoch: None,
    });
    assert_eq!(bench.describe(G).error, ErrorCode::NotCoordinator);
}

#[test]
fn c3_unload_answers_all_who_wait() {
    let mut bench = Bench::new();
    let partition = bench.coordinator.partition_for(G);
    let joining = bench.send_join(newcomer());
    bench.event(Event::Resigned {
        partition,
        leader_epoch: Some(1),
    });
    assert_eq!(bench.join_reply(joining).error, ErrorCode::NotCoordinator);

    let mut bench = Bench::new();
    let ids = bench.completing(2);
    let follower = bench.send_sync(&ids[1]);
    bench.hold = true;
    let leader = bench.send_sync(&ids[0]);
    bench.event(Event::Resigned {
        partition,
        leader_epoch: Some(1),
    });
    assert_eq!(bench.sync_reply(follower).error, ErrorCode::NotCoordinator);
    assert_eq!(bench.sync_reply(leader).error, ErrorCode::NotCoordinator);
    bench.release();
    assert_eq!(bench.coordinator.appends_in_flight(), 0);
    assert!(
        bench
            .coordinator
            .next_deadline_ms()
            .is_none_or(|_| bench.coordinator.group(G).is_none())
    );
}

/// `__consumer_offsets-0` and `-1` of Apache Kafka 3.9.2 (tests/golden): read, written again, byte for byte.
#[test]
fn golden_records() {
    let logs: [&[u8]; 2] = [
        include_bytes!("../golden/consumer_offsets-0.log"),
        include_bytes!("../golden/consumer_offsets-1.log"),
    ];
    let mut seen = (0, 0);
    for log in logs {
        let mut rest = Bytes::from_static(log);
        while !rest.is_empty() {
            let batch = Batch::parse(&rest).unwrap();
            rest = rest.slice(batch.bytes().len()..);
            if batch.header.is_control() {
                continue;
            }
            batch
                .for_each_record::<RecordError>(usize::MAX, |entry| {
                    let key = Bytes::copy_from_slice(entry.key.unwrap());
                    let value = Bytes::copy_from_slice(entry.value.unwrap());
                    match record::read_key(&key).unwrap() {
                        Key::Offset { group, partition } => {
                            assert_eq!(record::offset_key(&group, &partition).unwrap(), key);
                            let read = record::read_offset_value(&value).unwrap();
                            assert_eq!(
                                record::offset_value(&read, RecordVersions::LATEST).unwrap(),
                                value
                            );
                            assert_eq!(batch.header.base_sequence, 0);
                            seen.0 += 1;
                        }
                        Key::Group { group } => {
                            assert_eq!(record::group_key(&group).unwrap(), key);
                            let read = record::read_group_value(&value).unwrap();
                            assert_eq!(
                                record::group_value(read, RecordVersions::LATEST).unwrap(),
                                value
                            );
                            assert_eq!(batch.header.base_sequence, -1);
                            seen.1 += 1;
                        }
                        Key::Unknown { version } => panic!("key version {version}"),
                    }
                    Ok(())
                })
                .unwrap();
        }
    }
    assert_eq!(seen, (3, 3));
}

/// The same logs loaded: what Apache's tools printed of them.
#[test]
fn golden_load() {
    let mut loader = PartitionLoader::new(1);
    let mut rest = Bytes::from_static(include_bytes!("../golden/consumer_offsets-1.log"));
    while !rest.is_empty() {
        let batch = Batch::parse(&rest).unwrap();
        rest = rest.slice(batch.bytes().len()..);
        let header = &batch.header;
        batch
            .for_each_record::<RecordError>(usize::MAX, |entry| {
                if header.is_control() {
                    loader.end_transaction(header.producer_id, entry.key.unwrap()[3] == 1);
                } else {
                    let bytes = |part: Option<&[u8]>| part.map(Bytes::copy_from_slice);
                    let producer = header.is_transactional().then_some(header.producer_id);
                    loader.record(
                        header.base_offset,
                        bytes(entry.key),
                        bytes(entry.value),
                        producer,
                    );
                }
                Ok(())
            })
            .unwrap();
    }
    // three partitions, as in the capture
    let mut bench = Bench::unloaded(|config| config.offsets_partitions = 3);
    bench.event(Event::Elected {
        partition: 1,
        leader_epoch: 0,
    });
    bench.finish_load(1, 0, loader.finish());
    assert_eq!(bench.offset("grp-2", "codec-none"), 31);
    assert_eq!(bench.offset("grp-t", "txn"), 3);
    let described = bench.describe("grp-2");
    assert_eq!(
        (described.state.as_str(), described.protocol.as_str()),
        ("Stable", "range")
    );
    assert_eq!(
        described.members[0].group_instance_id.as_deref(),
        Some("static-1")
    );
    assert_eq!(described.members[0].client_host, "/127.0.0.1");
    assert_eq!(described.members.len(), 1);
}
