//! What clients ask of the coordinator, as plain values: wire versions are already evened out by the API handlers.

use bytes::Bytes;
use std::collections::BTreeSet;

/// A topic and a partition index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<String>, partition: i32) -> Self {
        TopicPartition {
            topic: topic.into(),
            partition,
        }
    }
}

/// One of the coordinator's requests. Each is answered by exactly one reply, sooner or later.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    JoinGroup(JoinGroup),
    SyncGroup(SyncGroup),
    Heartbeat(Heartbeat),
    LeaveGroup(LeaveGroup),
    OffsetCommit(OffsetCommit),
    TxnOffsetCommit(TxnOffsetCommit),
    OffsetFetch(OffsetFetch),
    OffsetDelete(OffsetDelete),
    ListGroups(ListGroups),
    DescribeGroup(DescribeGroup),
    DeleteGroups(DeleteGroups),
}

/// JoinGroup, key 11.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JoinGroup {
    pub group_id: String,
    /// Empty for a member that has none yet.
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// KIP-394: a dynamic member must come back with the id it is given. True from version 4 on unless static.
    pub require_known_member_id: bool,
    /// KIP-814: the leader understands `skip_assignment`. True from version 9 on.
    pub support_skipping_assignment: bool,
    pub client_id: String,
    /// As Java prints an address: `/127.0.0.1`.
    pub client_host: String,
    /// The session timeout in version 0, which has no rebalance timeout.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub protocol_type: String,
    /// Name and metadata, in order of the member's preference.
    pub protocols: Vec<(String, Bytes)>,
    /// KIP-800, version 8: why the client joins; only logged.
    pub reason: Option<String>,
}

/// SyncGroup, key 14.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncGroup {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// Version 5 (KIP-559); `None` is not checked.
    pub protocol_type: Option<String>,
    /// Version 5 (KIP-559); `None` is not checked.
    pub protocol_name: Option<String>,
    /// Member id and assignment; from the leader only.
    pub assignments: Vec<(String, Bytes)>,
}

/// Heartbeat, key 12.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heartbeat {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
}

/// LeaveGroup, key 13. Versions 0 to 2 carry one member.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeaveGroup {
    pub group_id: String,
    pub members: Vec<LeavingMember>,
}

/// One member that leaves, by its id or (administratively) by its instance id with an empty member id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeavingMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub reason: Option<String>,
}

/// OffsetCommit, key 8, versions 1 and up (version 0 writes to ZooKeeper and never comes here).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetCommit {
    pub group_id: String,
    /// Below 0: the committer is not a member (simple consumer, admin).
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// Versions 2 to 4; `None` where the request says -1 or has no such field.
    pub retention_ms: Option<i64>,
    pub offsets: Vec<CommittedOffset>,
}

/// One offset of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedOffset {
    pub partition: TopicPartition,
    pub offset: i64,
    /// -1 when the client does not say.
    pub leader_epoch: i32,
    /// `None` is stored as the empty string.
    pub metadata: Option<String>,
    /// Version 1 only; -1 = now.
    pub timestamp: i64,
}

/// TxnOffsetCommit, key 28: offsets that count once the producer's transaction commits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnOffsetCommit {
    pub group_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub offsets: Vec<CommittedOffset>,
}

/// OffsetFetch, key 9, one group of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetch {
    pub group_id: String,
    /// KIP-447: refuse partitions that have a commit in flight.
    pub require_stable: bool,
    /// `None`: all partitions of the group.
    pub partitions: Option<Vec<TopicPartition>>,
}

/// OffsetDelete, key 47 (KIP-496).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDelete {
    pub group_id: String,
    pub partitions: Vec<TopicPartition>,
}

/// ListGroups, key 16. Empty filters let all through; case does not matter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListGroups {
    pub states: BTreeSet<String>,
    pub types: BTreeSet<String>,
}

/// DescribeGroups, key 15, one group of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeGroup {
    pub group_id: String,
}

/// DeleteGroups, key 42.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteGroups {
    pub group_ids: Vec<String>,
}
