//! The records that brokers store, read from logs that Apache Kafka 3.9.2 wrote, and written back to the same bytes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use gracchus_kafka_proto::messages::{
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, TransactionLogKey,
    TransactionLogValue,
};
use gracchus_kafka_proto::{Message, decode_stored, encode_stored};

const RECORDS: &str = include_str!("golden/stored-records.txt");

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex
        .chars()
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect::<Vec<u8>>()
        .into()
}

fn read<M: Message>(hex: &str) -> M {
    let bytes = bytes(hex);
    let (version, message) = decode_stored::<M>(bytes.clone()).unwrap();
    assert_eq!(encode_stored(version, &message).unwrap(), bytes, "{hex}");
    message
}

#[test]
fn kafkas_stored_records_come_back() {
    let (mut groups, mut offsets, mut transactions) = (0, 0, 0);
    for line in RECORDS.lines().filter(|line| !line.starts_with('#')) {
        let [topic, key, value] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        match (topic, key.get(..4).unwrap()) {
            ("offsets", "0002") => {
                let key: GroupMetadataKey = read(key);
                let value: GroupMetadataValue = read(value);
                assert!(key.group.starts_with("grp-"));
                assert_eq!(value.protocol_type, "consumer");
                if let [member] = value.members.as_slice() {
                    assert_eq!(value.protocol.as_deref(), Some("range"));
                    assert_eq!(value.leader.as_ref(), Some(&member.member_id));
                    assert_eq!(member.client_host, "/127.0.0.1");
                } else {
                    assert_eq!(
                        (value.protocol, value.leader, value.members.len()),
                        (None, None, 0)
                    );
                }
                groups += 1;
            }
            ("offsets", _) => {
                let key: OffsetCommitKey = read(key);
                let value: OffsetCommitValue = read(value);
                assert_eq!(
                    (key.group.as_str(), key.topic.as_str(), key.partition),
                    ("grp-1", "codec-none", 0)
                );
                assert_eq!(
                    (value.offset, value.leader_epoch, value.metadata.as_str()),
                    (31, 0, "")
                );
                assert_eq!(value.commit_timestamp, 1_796_078_793_541);
                offsets += 1;
            }
            _ => {
                let key: TransactionLogKey = read(key);
                let value: TransactionLogValue = read(value);
                assert!(key.transactional_id.starts_with("tx-"));
                assert_eq!(value.transaction_timeout_ms, 60_000);
                transactions += 1;
            }
        }
    }
    assert_eq!((groups, offsets, transactions), (3, 1, 3));
}
