//! What protocol the members agree on, and the topics that their subscriptions name.

use super::{Group, State};
use bytes::Bytes;
use gracchus_kafka_proto::messages::ConsumerProtocolSubscription;
use gracchus_kafka_proto::{Message, Reader};
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashSet};

impl Group {
    /// Whether a member of this type with these protocols fits: an empty group takes any that names some.
    pub fn supports_protocols(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.is(State::Empty) {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.all_support(name))
    }

    /// The protocol that most members would take first among those that all support. `None` only without members.
    pub fn select_protocol(&self) -> Option<String> {
        let mut votes: IndexMap<&str, usize> = IndexMap::new();
        for member in self.members.values() {
            let vote = member
                .protocols
                .iter()
                .find(|(name, _)| self.all_support(name));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        // of equal counts the one voted for first
        votes
            .into_iter()
            .rev()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| name.to_owned())
    }

    /// Whether a consumer group reads a topic; true when that is not known.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.subscribed_topics
            .as_ref()
            .is_none_or(|topics| topics.contains(topic))
    }

    /// Of a consumer group the topics in its members' metadata, read as version 0, with which all others begin.
    pub(super) fn compute_subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.is_consumer_group() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            match subscription_topics(member.metadata(protocol)) {
                Some(names) => topics.extend(names),
                None => {
                    tracing::warn!(
                        group = &*self.id,
                        member = member.member_id,
                        protocol,
                        "the member's subscription cannot be read, so the group's topics are not known: \
                         their offsets neither expire while it is stable nor can be deleted"
                    );
                    return None;
                }
            }
        }
        Some(topics)
    }

    fn all_support(&self, protocol: &str) -> bool {
        // without members, any
        self.protocol_support.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    pub(super) fn count_protocols(&mut self, protocols: &[(String, Bytes)], by: isize) {
        let mut counted = HashSet::with_capacity(protocols.len());
        for (name, _) in protocols {
            // a name given twice counts once
            if !counted.insert(name) {
                continue;
            }
            let count = self.protocol_support.entry(name.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                self.protocol_support.remove(name);
            }
        }
    }
}

fn subscription_topics(metadata: Bytes) -> Option<Vec<String>> {
    // the first two bytes are the version, whatever it is
    let body = metadata.get(2..)?;
    let mut reader = Reader::new(metadata.slice_ref(body));
    ConsumerProtocolSubscription::decode(&mut reader, 0)
        .ok()
        .map(|subscription| subscription.topics)
}
