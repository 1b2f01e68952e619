//! The records of `__consumer_offsets`: an int16 version, then the fields of that version. Keys of versions 0
//! and 1 are offset commits (1 is written), 2 is group metadata; others belong to newer group protocols and are
//! skipped. Values of versions 0 to 4 are read; 4 (flexible, KIP-915) is never written.

use crate::offsets::CommittedValue;
use bytes::Bytes;
use gracchus_kafka_proto::messages::group_metadata_value::MemberMetadata;
use gracchus_kafka_proto::messages::{
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue,
};
use gracchus_kafka_proto::{Message, Reader, encode_stored};

use crate::request::TopicPartition;

/// The versions in which values are written: an older `inter.broker.protocol.version` keeps records readable
/// by the oldest broker of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordVersions {
    /// 1 to 3. A commit with an explicit expiry is written as 1 whatever this says.
    pub offset_commit: i16,
    /// 0 to 3.
    pub group_metadata: i16,
}

impl RecordVersions {
    /// What 3.9 writes at its own protocol version.
    pub const LATEST: RecordVersions = RecordVersions {
        offset_commit: 3,
        group_metadata: 3,
    };

    /// The versions at an inter-broker protocol version; `at_least("2.1-IV0")` says whether it is that or newer.
    pub fn for_protocol(at_least: impl Fn(&str) -> bool) -> Self {
        let offset_commit = match () {
            () if at_least("2.1-IV1") => 3,
            () if at_least("2.1-IV0") => 2,
            () => 1,
        };
        let group_metadata = match () {
            () if at_least("2.3-IV0") => 3,
            () if at_least("2.1-IV0") => 2,
            () if at_least("0.10.1-IV0") => 1,
            () => 0,
        };
        RecordVersions {
            offset_commit,
            group_metadata,
        }
    }
}

/// What a key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Offset {
        group: String,
        partition: TopicPartition,
    },
    Group {
        group: String,
    },
    /// A key of a version this protocol does not have: to be skipped.
    Unknown {
        version: i16,
    },
}

/// A record that does not hold what its version says.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("the {what} is empty or has no version")]
    NoVersion { what: &'static str },
    #[error("{what} version {version} is unknown; versions 0 to {highest} can be read")]
    UnknownVersion {
        what: &'static str,
        version: i16,
        highest: i16,
    },
    #[error("{what} version {version} cannot be read: {reason}")]
    Malformed {
        what: &'static str,
        version: i16,
        reason: String,
    },
    #[error("{what} version {version} cannot be written: {reason}")]
    Unwritable {
        what: &'static str,
        version: i16,
        reason: String,
    },
}

const OFFSET_KEY_VERSION: i16 = 1;
const GROUP_KEY_VERSION: i16 = 2;
const HIGHEST_VALUE_VERSION: i16 = 4;

/// The key of one partition's committed offset.
pub fn offset_key(group: &str, partition: &TopicPartition) -> Result<Bytes, RecordError> {
    let key = OffsetCommitKey {
        group: group.to_owned(),
        topic: partition.topic.clone(),
        partition: partition.partition,
    };
    write("offset commit key", OFFSET_KEY_VERSION, &key)
}

/// The key of a group's metadata.
pub fn group_key(group: &str) -> Result<Bytes, RecordError> {
    let key = GroupMetadataKey {
        group: group.to_owned(),
    };
    write("group metadata key", GROUP_KEY_VERSION, &key)
}

/// The value of one committed offset: version 1 if it has an explicit expiry.
pub fn offset_value(
    value: &CommittedValue,
    versions: RecordVersions,
) -> Result<Bytes, RecordError> {
    let version = match value.expire_timestamp {
        Some(_) => 1,
        None => versions.offset_commit,
    };
    let record = OffsetCommitValue {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.clone(),
        commit_timestamp: value.commit_timestamp,
        expire_timestamp: value.expire_timestamp.unwrap_or(-1),
        ..Default::default()
    };
    write("offset commit value", version, &record)
}

/// A group's metadata as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredGroup {
    /// Empty for a group without a protocol.
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
    /// -1 in versions 0 and 1, which lack it.
    pub state_timestamp: i64,
    pub members: Vec<StoredMember>,
}

/// A member as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// The session timeout in version 0, which lacks it.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// The value of a group's metadata.
pub fn group_value(group: StoredGroup, versions: RecordVersions) -> Result<Bytes, RecordError> {
    let record = GroupMetadataValue {
        protocol_type: group.protocol_type,
        generation: group.generation,
        protocol: group.protocol,
        leader: group.leader,
        current_state_timestamp: group.state_timestamp,
        members: group
            .members
            .into_iter()
            .map(|member| MemberMetadata {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout: member.rebalance_timeout_ms,
                session_timeout: member.session_timeout_ms,
                subscription: member.subscription,
                assignment: member.assignment,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    write("group metadata value", versions.group_metadata, &record)
}

/// Reads a key of `__consumer_offsets`.
pub fn read_key(key: &Bytes) -> Result<Key, RecordError> {
    let (version, body) = split("key", key)?;
    match version {
        0 | 1 => {
            let key: OffsetCommitKey = read("offset commit key", version, body)?;
            Ok(Key::Offset {
                group: key.group,
                partition: TopicPartition::new(key.topic, key.partition),
            })
        }
        GROUP_KEY_VERSION => {
            let key: GroupMetadataKey = read("group metadata key", version, body)?;
            Ok(Key::Group { group: key.group })
        }
        version => Ok(Key::Unknown { version }),
    }
}

/// Reads the value of a committed offset.
pub fn read_offset_value(value: &Bytes) -> Result<CommittedValue, RecordError> {
    let what = "offset commit value";
    let (version, body) = split_value(what, value)?;
    let value: OffsetCommitValue = read(what, version, body)?;
    Ok(CommittedValue {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata,
        commit_timestamp: value.commit_timestamp,
        expire_timestamp: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
    })
}

/// Reads the value of a group's metadata.
pub fn read_group_value(value: &Bytes) -> Result<StoredGroup, RecordError> {
    let what = "group metadata value";
    let (version, body) = split_value(what, value)?;
    let value: GroupMetadataValue = read(what, version, body)?;
    Ok(StoredGroup {
        protocol_type: value.protocol_type,
        generation: value.generation,
        protocol: value.protocol,
        leader: value.leader,
        state_timestamp: value.current_state_timestamp,
        members: value
            .members
            .into_iter()
            .map(|member| StoredMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout_ms: match version {
                    0 => member.session_timeout,
                    _ => member.rebalance_timeout,
                },
                session_timeout_ms: member.session_timeout,
                subscription: member.subscription,
                assignment: member.assignment,
            })
            .collect(),
    })
}

fn split(what: &'static str, bytes: &Bytes) -> Result<(i16, Bytes), RecordError> {
    match bytes.first_chunk::<2>() {
        Some(version) => Ok((i16::from_be_bytes(*version), bytes.slice(2..))),
        None => Err(RecordError::NoVersion { what }),
    }
}

fn split_value(what: &'static str, bytes: &Bytes) -> Result<(i16, Bytes), RecordError> {
    let (version, body) = split(what, bytes)?;
    match version {
        0..=HIGHEST_VALUE_VERSION => Ok((version, body)),
        _ => Err(RecordError::UnknownVersion {
            what,
            version,
            highest: HIGHEST_VALUE_VERSION,
        }),
    }
}

fn read<M: Message>(what: &'static str, version: i16, body: Bytes) -> Result<M, RecordError> {
    M::decode(&mut Reader::new(body), version).map_err(|error| RecordError::Malformed {
        what,
        version,
        reason: error.to_string(),
    })
}

fn write<M: Message>(what: &'static str, version: i16, message: &M) -> Result<Bytes, RecordError> {
    encode_stored(version, message).map_err(|error| RecordError::Unwritable {
        what,
        version,
        reason: error.to_string(),
    })
}
