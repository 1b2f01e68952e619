//! What the coordinator answers, as plain values.

use crate::request::TopicPartition;
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

/// The answer to the request of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    JoinGroup(JoinGroupResult),
    SyncGroup(SyncGroupResult),
    Heartbeat(ErrorCode),
    LeaveGroup(LeaveGroupResult),
    /// For OffsetCommit and TxnOffsetCommit: one error a partition, in the request's order.
    OffsetCommit(Vec<(TopicPartition, ErrorCode)>),
    OffsetFetch(OffsetFetchResult),
    OffsetDelete(OffsetDeleteResult),
    ListGroups(ListGroupsResult),
    DescribeGroup(DescribedGroup),
    /// One error a distinct group, in the request's order.
    DeleteGroups(Vec<(String, ErrorCode)>),
}

/// Answer to JoinGroup. On errors only `member_id` and `error` mean something.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinGroupResult {
    pub error: ErrorCode,
    pub member_id: String,
    /// -1 on errors.
    pub generation_id: i32,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    /// Empty on errors.
    pub leader_id: String,
    /// KIP-814: the leader must not compute an assignment.
    pub skip_assignment: bool,
    /// All members with the chosen protocol's metadata; only the leader gets them.
    pub members: Vec<JoinedMember>,
}

impl JoinGroupResult {
    /// A refusal.
    pub fn error(member_id: impl Into<String>, error: ErrorCode) -> Self {
        JoinGroupResult {
            error,
            member_id: member_id.into(),
            generation_id: -1,
            protocol_type: None,
            protocol_name: None,
            leader_id: String::new(),
            skip_assignment: false,
            members: Vec::new(),
        }
    }
}

/// A member as the leader sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinedMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub metadata: Bytes,
}

/// Answer to SyncGroup.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncGroupResult {
    pub error: ErrorCode,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    pub assignment: Bytes,
}

impl SyncGroupResult {
    /// A refusal.
    pub fn error(error: ErrorCode) -> Self {
        SyncGroupResult {
            error,
            protocol_type: None,
            protocol_name: None,
            assignment: Bytes::new(),
        }
    }
}

/// Answer to LeaveGroup. Versions 0 to 2 show the only member's error as the top one.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaveGroupResult {
    pub error: ErrorCode,
    pub members: Vec<LeftMember>,
}

/// What became of one leaving member.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub error: ErrorCode,
}

/// Answer to OffsetFetch for one group.
#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFetchResult {
    pub error: ErrorCode,
    pub offsets: Vec<FetchedOffset>,
}

/// One offset of a group. `offset` is -1 where there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct FetchedOffset {
    pub partition: TopicPartition,
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    pub error: ErrorCode,
}

/// Answer to OffsetDelete: no partitions where the group's error is set.
#[derive(Debug, Clone, PartialEq)]
pub struct OffsetDeleteResult {
    pub error: ErrorCode,
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
}

/// Answer to ListGroups: groups may come with COORDINATOR_LOAD_IN_PROGRESS, then the list is not complete.
#[derive(Debug, Clone, PartialEq)]
pub struct ListGroupsResult {
    pub error: ErrorCode,
    pub groups: Vec<ListedGroup>,
}

/// One group of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedGroup {
    pub group_id: String,
    pub protocol_type: String,
    /// `Stable`, `Empty`, ...
    pub state: String,
    /// Always `classic` here.
    pub group_type: String,
}

/// Answer to DescribeGroups for one group. An unknown group is `Dead` without error.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedGroup {
    pub error: ErrorCode,
    pub state: String,
    pub protocol_type: String,
    /// Only of a stable group.
    pub protocol: String,
    pub members: Vec<DescribedMember>,
}

/// One member of a described group; metadata and assignment only of a stable group.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub metadata: Bytes,
    pub assignment: Bytes,
}
