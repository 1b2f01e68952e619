//! Partitions of `__consumer_offsets` that this broker leads: loading, owned, given up.

use super::Step;
use crate::event::Action;
use crate::group::Group;
use crate::load::LoadedPartition;
use crate::partition::partition_for;
use gracchus_kafka_proto::ErrorCode;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Which partitions are ours, and the epochs we learned that in: requests from controllers may overtake each other.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    epochs: HashMap<i32, i32>,
    /// With the epoch whose load counts.
    loading: HashMap<i32, i32>,
    owned: HashSet<i32>,
}

impl Ownership {
    pub(super) fn is_loading(&self, partition: i32) -> bool {
        self.loading.contains_key(&partition)
    }

    pub(super) fn is_any_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    pub(super) fn is_owned(&self, partition: i32) -> bool {
        self.owned.contains(&partition)
    }

    /// We lead the partition: it is to be loaded, unless we have it or that is under way.
    pub(super) fn elected(&mut self, step: &mut Step<'_>, partition: i32, leader_epoch: i32) {
        if !self.advance(partition, Some(leader_epoch))
            || self.owned.contains(&partition)
            || self.loading.contains_key(&partition)
        {
            return;
        }
        self.loading.insert(partition, leader_epoch);
        step.actions.push(Action::Load {
            partition,
            leader_epoch,
        });
    }

    /// A load has ended; false if it no longer matters.
    pub(super) fn loaded(&mut self, partition: i32, leader_epoch: i32) -> bool {
        if self.loading.get(&partition) != Some(&leader_epoch) {
            return false;
        }
        self.loading.remove(&partition);
        self.owned.insert(partition);
        true
    }

    /// We do not lead the partition any more; false if we learned later that we do.
    pub(super) fn resigned(&mut self, partition: i32, leader_epoch: Option<i32>) -> bool {
        if !self.advance(partition, leader_epoch) {
            return false;
        }
        self.loading.remove(&partition);
        self.owned.remove(&partition);
        true
    }

    /// Takes note of an epoch; false if it is an old one.
    fn advance(&mut self, partition: i32, leader_epoch: Option<i32>) -> bool {
        let Some(leader_epoch) = leader_epoch else {
            return true;
        };
        let current = self.epochs.entry(partition).or_insert(leader_epoch);
        *current = (*current).max(leader_epoch);
        *current == leader_epoch
    }
}

/// Makes groups of what was loaded; sessions of their members begin. Returns the groups' ids.
pub(super) fn take_in(
    groups: &mut HashMap<Arc<str>, Group>,
    step: &mut Step<'_>,
    contents: LoadedPartition,
) -> Vec<Arc<str>> {
    let LoadedPartition {
        groups: stored_groups,
        mut offsets,
        ..
    } = contents;
    let mut loaded: Vec<Group> = Vec::with_capacity(stored_groups.len() + offsets.len());
    for (id, stored) in stored_groups {
        let own = offsets.shift_remove(&id).unwrap_or_default();
        let incarnation = step.core.incarnation();
        let mut group = Group::from_stored(Arc::from(id), incarnation, step.wall_ms, stored);
        group.offsets = own;
        loaded.push(group);
    }
    // groups that only keep offsets
    for (id, own) in offsets {
        let incarnation = step.core.incarnation();
        let mut group = Group::new(Arc::from(id), incarnation, step.wall_ms);
        group.offsets = own;
        loaded.push(group);
    }

    let mut ids = Vec::with_capacity(loaded.len());
    for mut group in loaded {
        if groups.contains_key(&group.id) {
            continue;
        }
        let max_size = usize::try_from(step.core.config.max_size).unwrap_or(0);
        if group.len() > max_size {
            let why = format!(
                "the loaded group has {} members, more than group.max.size {max_size}",
                group.len()
            );
            step.prepare_rebalance(&mut group, &why);
        }
        for member_id in group.member_ids() {
            step.heard_from(&mut group, &member_id);
        }
        ids.push(group.id.clone());
        groups.insert(group.id.clone(), group);
    }
    ids
}

/// Forgets the groups of a partition; whoever waits is sent to look for the new coordinator.
pub(super) fn drop_partition(
    groups: &mut HashMap<Arc<str>, Group>,
    step: &mut Step<'_>,
    partition: i32,
) {
    let count = step.core.config.offsets_partitions;
    let mut dropped = 0;
    groups.retain(|id, group| {
        if partition_for(id, count) != partition {
            return true;
        }
        for member_id in group.member_ids() {
            if let Some(member) = group.remove(&member_id) {
                step.dismiss(member, ErrorCode::NotCoordinator);
            }
        }
        dropped += 1;
        false
    });
    tracing::info!(
        partition = %format_args!("__consumer_offsets-{partition}"),
        groups = dropped,
        "no longer coordinator of the partition's groups"
    );
}
