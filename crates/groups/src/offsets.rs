//! The offsets of one group: committed, being committed, and those of open transactions.

use crate::request::TopicPartition;
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

/// What was committed for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedValue {
    pub offset: i64,
    /// -1 when unknown.
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp: i64,
    /// Only of commits that gave a retention of their own (versions 2 to 4 of OffsetCommit).
    pub expire_timestamp: Option<i64>,
}

/// A committed value and the base offset of the batch that holds it in `__consumer_offsets`: of two commits the
/// one later in the log counts, whichever is reported first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub log_offset: i64,
    pub value: CommittedValue,
}

/// The offsets of one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupOffsets {
    committed: IndexMap<TopicPartition, Committed>,
    /// Appends under way: the latest value for each partition.
    pending: IndexMap<TopicPartition, CommittedValue>,
    /// By producer id; the log offset is `None` until the append is reported.
    transactional: BTreeMap<i64, IndexMap<TopicPartition, (Option<i64>, CommittedValue)>>,
}

impl GroupOffsets {
    /// Whether nothing is or may soon be committed.
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.pending.is_empty() && self.transactional.is_empty()
    }

    pub fn len(&self) -> usize {
        self.committed.len()
    }

    pub fn get(&self, partition: &TopicPartition) -> Option<&CommittedValue> {
        self.committed.get(partition).map(|entry| &entry.value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &CommittedValue)> {
        self.committed
            .iter()
            .map(|(partition, entry)| (partition, &entry.value))
    }

    /// Whether a commit of this partition is under way, transactional or not (KIP-447).
    pub fn has_pending(&self, partition: &TopicPartition) -> bool {
        self.pending.contains_key(partition)
            || self
                .transactional
                .values()
                .any(|offsets| offsets.contains_key(partition))
    }

    /// As read from the log.
    pub fn insert_loaded(&mut self, partition: TopicPartition, committed: Committed) {
        self.committed.insert(partition, committed);
    }

    /// As read from the log at a committed transaction's marker.
    pub fn insert_loaded_if_newer(&mut self, partition: TopicPartition, committed: Committed) {
        let Committed { log_offset, value } = committed;
        insert_if_newer(&mut self.committed, partition, log_offset, value);
    }

    /// A transactional commit as read from the log, its transaction still open.
    pub fn insert_loaded_transactional(
        &mut self,
        producer_id: i64,
        partition: TopicPartition,
        committed: Committed,
    ) {
        self.transactional
            .entry(producer_id)
            .or_default()
            .insert(partition, (Some(committed.log_offset), committed.value));
    }

    /// An append is about to start.
    pub fn prepare(&mut self, offsets: &[(TopicPartition, CommittedValue)]) {
        for (partition, value) in offsets {
            self.pending.insert(partition.clone(), value.clone());
        }
    }

    /// The append ended well at this log offset. A partition that was deleted meanwhile is no longer pending
    /// and stays away.
    pub fn complete(&mut self, offsets: Vec<(TopicPartition, CommittedValue)>, log_offset: i64) {
        for (partition, value) in offsets {
            let Some(staged) = self.pending.get(&partition) else {
                continue;
            };
            if *staged == value {
                self.pending.swap_remove(&partition);
            }
            insert_if_newer(&mut self.committed, partition, log_offset, value);
        }
    }

    /// The append failed.
    pub fn fail(&mut self, offsets: &[(TopicPartition, CommittedValue)]) {
        for (partition, value) in offsets {
            if self.pending.get(partition) == Some(value) {
                self.pending.swap_remove(partition);
            }
        }
    }

    /// A transactional append is about to start.
    pub fn prepare_transactional(
        &mut self,
        producer_id: i64,
        offsets: &[(TopicPartition, CommittedValue)],
    ) {
        let staged = self.transactional.entry(producer_id).or_default();
        for (partition, value) in offsets {
            staged.insert(partition.clone(), (None, value.clone()));
        }
    }

    /// A transactional append ended well: the values wait for the marker.
    pub fn appended_transactional(
        &mut self,
        producer_id: i64,
        offsets: &[(TopicPartition, CommittedValue)],
        log_offset: i64,
    ) {
        let Some(staged) = self.transactional.get_mut(&producer_id) else {
            return;
        };
        for (partition, value) in offsets {
            if let Some(entry) = staged.get_mut(partition)
                && entry.1 == *value
            {
                entry.0 = Some(log_offset);
            }
        }
    }

    /// A transactional append failed.
    pub fn fail_transactional(
        &mut self,
        producer_id: i64,
        offsets: &[(TopicPartition, CommittedValue)],
    ) {
        if let Some(staged) = self.transactional.get_mut(&producer_id) {
            for (partition, _) in offsets {
                staged.swap_remove(partition);
            }
            if staged.is_empty() {
                self.transactional.remove(&producer_id);
            }
        }
    }

    /// The producer's transaction ended; returns whether it had anything here. Values whose append was never
    /// reported cannot be placed and are dropped: the marker can only follow a reported append.
    pub fn end_transaction(&mut self, producer_id: i64, commit: bool) -> bool {
        let Some(staged) = self.transactional.remove(&producer_id) else {
            return false;
        };
        if commit {
            for (partition, (log_offset, value)) in staged {
                if let Some(log_offset) = log_offset {
                    insert_if_newer(&mut self.committed, partition, log_offset, value);
                }
            }
        }
        true
    }

    /// Producers with open transactions here.
    pub fn producers(&self) -> impl Iterator<Item = i64> {
        self.transactional.keys().copied()
    }

    /// Forgets these partitions, also where a commit is under way; returns those that had a committed offset.
    pub fn remove(&mut self, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
        let mut removed = Vec::new();
        for partition in partitions {
            self.pending.swap_remove(partition);
            for staged in self.transactional.values_mut() {
                staged.swap_remove(partition);
            }
            if self.committed.shift_remove(partition).is_some() {
                removed.push(partition.clone());
            }
        }
        removed
    }

    /// Forgets every committed offset; returns the partitions.
    pub fn remove_all(&mut self) -> Vec<TopicPartition> {
        let partitions: Vec<_> = self.committed.keys().cloned().collect();
        self.remove(&partitions)
    }

    /// Forgets and returns what is older than the retention (KIP-211), or past its explicit expiry. `since` gives the
    /// time from which the retention counts; partitions of `kept_topics` or with a plain commit under way stay.
    pub fn remove_expired(
        &mut self,
        now_ms: i64,
        retention_ms: i64,
        since: impl Fn(&CommittedValue) -> i64,
        kept_topics: &BTreeSet<String>,
    ) -> Vec<TopicPartition> {
        let expired: Vec<TopicPartition> = self
            .committed
            .iter()
            .filter(|(partition, entry)| {
                !kept_topics.contains(&partition.topic)
                    && !self.pending.contains_key(*partition)
                    && match entry.value.expire_timestamp {
                        Some(expiry) => now_ms >= expiry,
                        None => now_ms.saturating_sub(since(&entry.value)) >= retention_ms,
                    }
            })
            .map(|(partition, _)| partition.clone())
            .collect();
        for partition in &expired {
            self.committed.shift_remove(partition);
        }
        expired
    }
}

fn insert_if_newer(
    committed: &mut IndexMap<TopicPartition, Committed>,
    partition: TopicPartition,
    log_offset: i64,
    value: CommittedValue,
) {
    match committed.get_mut(&partition) {
        Some(current) if current.log_offset >= log_offset => {}
        Some(current) => *current = Committed { log_offset, value },
        None => {
            committed.insert(partition, Committed { log_offset, value });
        }
    }
}
