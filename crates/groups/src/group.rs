//! One group: its state, its members, what they agree on. Decisions that need the clock, the log or a client's
//! reply are the coordinator's.

mod protocol;

use crate::event::ReplyToken;
use crate::member::Member;
use crate::offsets::GroupOffsets;
use crate::record::{StoredGroup, StoredMember};
use crate::response::JoinedMember;
use bytes::Bytes;
use indexmap::{IndexMap, IndexSet};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Where a group stands. A group that is deleted or moved away (Kafka's `Dead`) is not kept at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No members; may hold offsets.
    Empty,
    /// Members are joining; everybody must join again.
    PreparingRebalance,
    /// All have joined; the leader's assignment is awaited.
    CompletingRebalance,
    /// The assignment is in force.
    Stable,
}

impl State {
    /// As ListGroups and DescribeGroups spell it.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The protocol type of consumers, whose metadata the coordinator can read.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// What a rebalance that gathers members waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinPhase {
    /// A group that was empty waits for more members to show up (`group.initial.rebalance.delay.ms`), even if all have joined.
    Initial {
        deadline_ms: i64,
        /// The delay that ends at the deadline.
        delay_ms: i64,
        /// How much longer it may be put off by members arriving.
        remaining_ms: i64,
    },
    /// All members are to join again before the largest of their rebalance timeouts.
    Rejoin { deadline_ms: i64 },
}

impl JoinPhase {
    pub fn deadline_ms(self) -> i64 {
        match self {
            JoinPhase::Initial { deadline_ms, .. } | JoinPhase::Rejoin { deadline_ms } => {
                deadline_ms
            }
        }
    }
}

/// One group.
#[derive(Debug)]
pub struct Group {
    pub id: Arc<str>,
    /// Distinguishes this group from an earlier or later one of the same id: appends report late.
    pub incarnation: u64,
    state: State,
    /// When it came into its state; `None` if loaded from a record without it.
    pub state_timestamp: Option<i64>,
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    pub generation: i32,
    pub leader: Option<String>,
    members: IndexMap<String, Member>,
    static_members: HashMap<String, String>,
    /// Ids given out (KIP-394) and not yet used, with their deadlines.
    pub pending_members: IndexMap<String, i64>,
    awaiting_join: usize,
    protocol_support: HashMap<String, usize>,
    /// Set while [`State::PreparingRebalance`].
    pub join_phase: Option<JoinPhase>,
    /// Members of this generation that have not yet sent their SyncGroup, and until when they may.
    pub pending_sync: IndexSet<String>,
    pub sync_deadline_ms: Option<i64>,
    /// A member joined during the initial delay, which is therefore extended.
    pub new_member_added: bool,
    /// Topics that a consumer group subscribes to; `None` when not known.
    pub subscribed_topics: Option<BTreeSet<String>>,
    pub offsets: GroupOffsets,
    /// The earliest deadline set since the last [`Group::take_earliest`].
    earliest: Option<i64>,
    /// When the coordinator will look at this group next.
    pub wakeup: Option<i64>,
}

impl Group {
    /// An empty group.
    pub fn new(id: Arc<str>, incarnation: u64, now_ms: i64) -> Self {
        Group {
            id,
            incarnation,
            state: State::Empty,
            state_timestamp: Some(now_ms),
            protocol_type: None,
            protocol: None,
            generation: 0,
            leader: None,
            members: IndexMap::new(),
            static_members: HashMap::new(),
            pending_members: IndexMap::new(),
            awaiting_join: 0,
            protocol_support: HashMap::new(),
            join_phase: None,
            pending_sync: IndexSet::new(),
            sync_deadline_ms: None,
            new_member_added: false,
            subscribed_topics: None,
            offsets: GroupOffsets::default(),
            earliest: None,
            wakeup: None,
        }
    }

    /// A group as stored: stable if it has members.
    pub fn from_stored(id: Arc<str>, incarnation: u64, now_ms: i64, stored: StoredGroup) -> Self {
        let mut group = Group::new(id, incarnation, now_ms);
        group.generation = stored.generation;
        group.protocol_type = Some(stored.protocol_type).filter(|name| !name.is_empty());
        group.leader = stored.leader;
        group.state_timestamp = (stored.state_timestamp != -1).then_some(stored.state_timestamp);
        if !stored.members.is_empty() {
            group.state = State::Stable;
        }
        for member in stored.members {
            let protocol = stored.protocol.clone().unwrap_or_default();
            group.add(Member {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout_ms,
                protocols: vec![(protocol, member.subscription)],
                assignment: member.assignment,
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
                deadline_ms: None,
            });
        }
        group.protocol = stored.protocol;
        group.subscribed_topics = group.compute_subscribed_topics();
        group
    }

    /// The group as it is to be stored, with the assignment that `assignment` gives each member.
    pub fn to_stored(&self, assignment: impl Fn(&Member) -> Bytes) -> StoredGroup {
        StoredGroup {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: self.state_timestamp.unwrap_or(-1),
            members: self
                .members
                .values()
                .map(|member| StoredMember {
                    member_id: member.member_id.clone(),
                    group_instance_id: member.group_instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    subscription: member.metadata(self.protocol.as_deref().unwrap_or_default()),
                    assignment: assignment(member),
                })
                .collect(),
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn is(&self, state: State) -> bool {
        self.state == state
    }

    pub fn transition_to(&mut self, state: State, now_ms: i64) {
        self.state = state;
        self.state_timestamp = Some(now_ms);
        if state != State::PreparingRebalance {
            self.join_phase = None;
        }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn has(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id)
    }

    pub fn get(&self, member_id: &str) -> Option<&Member> {
        self.members.get(member_id)
    }

    /// For what does not touch the bookkeeping: protocols and waiting joins have setters of their own.
    pub fn get_mut(&mut self, member_id: &str) -> Option<&mut Member> {
        self.members.get_mut(member_id)
    }

    /// In order of arrival.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub fn member_ids(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    pub fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// The member that holds an instance id.
    pub fn static_member(&self, instance_id: &str) -> Option<&str> {
        self.static_members.get(instance_id).map(String::as_str)
    }

    pub fn static_member_count(&self) -> usize {
        self.static_members.len()
    }

    pub fn awaiting_join_count(&self) -> usize {
        self.awaiting_join
    }

    pub fn all_joined(&self) -> bool {
        self.awaiting_join == self.members.len() && self.pending_members.is_empty()
    }

    /// The first member sets the protocol type and leads.
    pub fn add(&mut self, member: Member) {
        if let Some(instance_id) = &member.group_instance_id {
            self.static_members
                .insert(instance_id.clone(), member.member_id.clone());
        }
        self.leader.get_or_insert_with(|| member.member_id.clone());
        self.pending_members.shift_remove(&member.member_id);
        self.count_protocols(&member.protocols, 1);
        self.awaiting_join += usize::from(member.awaiting_join.is_some());
        self.members.insert(member.member_id.clone(), member);
    }

    /// Takes a member (or an id given out) away; the oldest remaining member takes over from a leader.
    /// The caller answers what it was waiting for.
    pub fn remove(&mut self, member_id: &str) -> Option<Member> {
        let removed = self.members.shift_remove(member_id);
        if let Some(member) = &removed {
            self.count_protocols(&member.protocols, -1);
            self.awaiting_join -= usize::from(member.awaiting_join.is_some());
            if let Some(instance_id) = &member.group_instance_id {
                self.static_members.remove(instance_id);
            }
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_members.shift_remove(member_id);
        self.pending_sync.shift_remove(member_id);
        removed
    }

    /// KIP-345: a static member came back under a new member id and keeps its place, role and assignment.
    /// The caller answers what the old one was waiting for.
    pub fn replace_static_member(&mut self, instance_id: &str, old_id: &str, new_id: &str) {
        let Some((index, _, mut member)) = self.members.shift_remove_full(old_id) else {
            return;
        };
        member.member_id = new_id.to_owned();
        self.members.shift_insert(index, new_id.to_owned(), member);
        if self.is_leader(old_id) {
            self.leader = Some(new_id.to_owned());
        }
        if self.pending_sync.shift_remove(old_id) {
            self.pending_sync.insert(new_id.to_owned());
        }
        self.static_members
            .insert(instance_id.to_owned(), new_id.to_owned());
    }

    /// A member joined again, perhaps with other protocols and timeouts.
    pub fn update(
        &mut self,
        member_id: &str,
        protocols: Vec<(String, Bytes)>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
    ) {
        let Some(member) = self.members.get_mut(member_id) else {
            return;
        };
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let old = std::mem::replace(&mut member.protocols, protocols);
        let new = member.protocols.clone();
        self.count_protocols(&old, -1);
        self.count_protocols(&new, 1);
    }

    /// Parks a JoinGroup; returns the one that was parked before.
    pub fn await_join(&mut self, member_id: &str, token: ReplyToken) -> Option<ReplyToken> {
        let member = self.members.get_mut(member_id)?;
        let earlier = member.awaiting_join.replace(token);
        self.awaiting_join += usize::from(earlier.is_none());
        earlier
    }

    /// Takes the parked JoinGroup to answer it.
    pub fn take_join(&mut self, member_id: &str) -> Option<ReplyToken> {
        let token = self.members.get_mut(member_id)?.awaiting_join.take();
        self.awaiting_join -= usize::from(token.is_some());
        token
    }

    /// Takes the parked SyncGroup to answer it.
    pub fn take_sync(&mut self, member_id: &str) -> Option<ReplyToken> {
        self.members.get_mut(member_id)?.awaiting_sync.take()
    }

    /// Makes sure that the leader is one who has joined. False if there is no leader or nobody has joined.
    pub fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = self.leader.as_deref().and_then(|id| self.members.get(id)) else {
            return false;
        };
        if leader.awaiting_join.is_some() {
            return true;
        }
        let joined = self
            .members
            .values()
            .find(|member| member.awaiting_join.is_some())
            .map(|member| member.member_id.clone());
        match joined {
            Some(member_id) => {
                self.leader = Some(member_id);
                true
            }
            None => false,
        }
    }

    /// Everybody who takes part has joined: the next generation begins, or the group is empty.
    pub fn next_generation(&mut self, now_ms: i64) {
        self.generation = self.generation.wrapping_add(1);
        self.protocol = self.select_protocol();
        self.subscribed_topics = self.compute_subscribed_topics();
        self.pending_sync.clear();
        self.sync_deadline_ms = None;
        let state = match self.members.is_empty() {
            true => State::Empty,
            false => State::CompletingRebalance,
        };
        self.transition_to(state, now_ms);
    }

    /// The longest that any member wants to be waited for.
    pub fn rebalance_timeout_ms(&self) -> i64 {
        let longest = self.members.values().map(|m| m.rebalance_timeout_ms).max();
        i64::from(longest.unwrap_or(0).max(0))
    }

    /// What the leader is told of the members.
    pub fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members
            .values()
            .map(|member| JoinedMember {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    /// Notes that something of this group is due then, so that the coordinator wakes up for it.
    pub fn note_deadline(&mut self, at_ms: i64) {
        self.earliest = Some(self.earliest.map_or(at_ms, |earliest| earliest.min(at_ms)));
    }

    /// The earliest deadline noted since the last call.
    pub fn take_earliest(&mut self) -> Option<i64> {
        self.earliest.take()
    }

    /// The earliest deadline of all, looked up anew.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let members = self.members.values().filter_map(|m| m.deadline_ms);
        members
            .chain(self.pending_members.values().copied())
            .chain(self.join_phase.map(JoinPhase::deadline_ms))
            .chain(self.sync_deadline_ms)
            .min()
    }
}
