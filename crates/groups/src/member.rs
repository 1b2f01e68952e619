//! One member of a group.

use crate::event::ReplyToken;
use bytes::Bytes;

/// A member that has joined (not one that was only given an id).
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub member_id: String,
    /// KIP-345: set for static members.
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// In order of preference; never empty in a group that members joined.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// The JoinGroup that waits for the rebalance.
    pub awaiting_join: Option<ReplyToken>,
    /// The SyncGroup that waits for the leader's assignment.
    pub awaiting_sync: Option<ReplyToken>,
    /// True until the first rebalance it takes part in is over.
    pub is_new: bool,
    /// When it counts as failed; `None` while it waits for the coordinator, which is no fault of its own.
    pub deadline_ms: Option<i64>,
}

impl Member {
    /// Whether the member would stay if its session ended now: it waits for us, so it cannot heartbeat.
    /// Not so for a new member: it may be gone for long (see [`crate::config::NEW_MEMBER_JOIN_TIMEOUT_MS`]).
    pub fn is_excused(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// The metadata given for a protocol; empty if the member does not know it.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    pub fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }
}
