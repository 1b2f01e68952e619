//! Stored records: what is written is read again; bytes of any kind are read or refused, never a panic.

use bytes::Bytes;
use gracchus_groups::PartitionLoader;
use gracchus_groups::offsets::CommittedValue;
use gracchus_groups::record::{self, Key, RecordVersions, StoredGroup, StoredMember};
use gracchus_groups::request::TopicPartition;
use proptest::prelude::*;

fn member() -> impl Strategy<Value = StoredMember> {
    (
        (
            ".{0,20}",
            proptest::option::of(".{0,10}"),
            ".{0,10}",
            ".{0,10}",
        ),
        (any::<i32>(), any::<i32>()),
        proptest::collection::vec(any::<u8>(), 0..50),
        proptest::collection::vec(any::<u8>(), 0..50),
    )
        .prop_map(|(names, times, subscription, assignment)| StoredMember {
            member_id: names.0,
            group_instance_id: names.1,
            client_id: names.2,
            client_host: names.3,
            rebalance_timeout_ms: times.0,
            session_timeout_ms: times.1,
            subscription: subscription.into(),
            assignment: assignment.into(),
        })
}

proptest! {
    #[test]
    fn groups_come_back(
        protocol_type in ".{0,10}",
        generation in any::<i32>(),
        protocol in proptest::option::of(".{0,10}"),
        leader in proptest::option::of(".{0,10}"),
        state_timestamp in any::<i64>(),
        members in proptest::collection::vec(member(), 0..4),
    ) {
        let group = StoredGroup { protocol_type, generation, protocol, leader, state_timestamp, members };
        for group_metadata in 3..=4 {
            let versions = RecordVersions { offset_commit: 3, group_metadata };
            let bytes = record::group_value(group.clone(), versions).unwrap();
            prop_assert_eq!(record::read_group_value(&bytes).unwrap(), group.clone());
        }
    }

    #[test]
    fn offsets_come_back(
        names in (".{0,20}", ".{0,20}"),
        partition in any::<i32>(),
        numbers in (any::<i64>(), any::<i32>(), any::<i64>()),
        metadata in ".{0,40}",
        expiry in proptest::option::of(0..i64::MAX),
    ) {
        let partition = TopicPartition::new(names.1, partition);
        let key = record::offset_key(&names.0, &partition).unwrap();
        prop_assert_eq!(record::read_key(&key).unwrap(), Key::Offset { group: names.0, partition });
        let value = CommittedValue {
            offset: numbers.0,
            leader_epoch: if expiry.is_some() { -1 } else { numbers.1 },
            metadata,
            commit_timestamp: numbers.2,
            expire_timestamp: expiry,
        };
        let bytes = record::offset_value(&value, RecordVersions::LATEST).unwrap();
        prop_assert_eq!(record::read_offset_value(&bytes).unwrap(), value);
    }

    #[test]
    fn any_bytes(
        key_version in 0..5u8,
        key in proptest::collection::vec(any::<u8>(), 0..40),
        value_version in 0..6u8,
        value in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let prefixed = |version: u8, rest: Vec<u8>| Bytes::from([vec![0, version], rest].concat());
        let (key, value) = (prefixed(key_version, key), prefixed(value_version, value));
        let _ = record::read_group_value(&value);
        let mut loader = PartitionLoader::new(0);
        loader.record(0, Some(key), Some(value), None);
        prop_assert_eq!(loader.finish().records, 1);
    }
}
