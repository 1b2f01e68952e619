//! Offsets that expire or are deleted, and groups that nothing is left of.

use super::Step;
use crate::group::{Group, State};
use crate::record;
use crate::request::TopicPartition;
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// KIP-211: which offsets expire depends on whether anybody still uses the group.
pub(super) fn expire_offsets(groups: &mut HashMap<Arc<str>, Group>, step: &mut Step<'_>) {
    let removed = sweep(groups, step, |group, now_ms, retention_ms| {
        let nobody = BTreeSet::new();
        match &group.protocol_type {
            // never had members: each offset by its own age
            None => {
                group
                    .offsets
                    .remove_expired(now_ms, retention_ms, |v| v.commit_timestamp, &nobody)
            }
            // had members once: all together, since the last one left
            Some(_) if group.is(State::Empty) => {
                let since = group.state_timestamp;
                group.offsets.remove_expired(
                    now_ms,
                    retention_ms,
                    |v| since.unwrap_or(v.commit_timestamp),
                    &nobody,
                )
            }
            // in use: only of topics that nobody reads any more, as far as that is known
            Some(_) if group.is(State::Stable) && group.is_consumer_group() => {
                match &group.subscribed_topics {
                    Some(topics) => group.offsets.remove_expired(
                        now_ms,
                        retention_ms,
                        |v| v.commit_timestamp,
                        topics,
                    ),
                    None => Vec::new(),
                }
            }
            Some(_) => Vec::new(),
        }
    });
    if removed > 0 {
        tracing::info!(offsets = removed, "removed expired offsets");
    }
}

/// The offsets of partitions that are no more.
pub(super) fn partitions_deleted(
    groups: &mut HashMap<Arc<str>, Group>,
    step: &mut Step<'_>,
    partitions: &[TopicPartition],
) {
    let removed = sweep(groups, step, |group, _, _| group.offsets.remove(partitions));
    tracing::info!(
        partitions = partitions.len(),
        offsets = removed,
        "removed the offsets of deleted partitions"
    );
}

fn sweep(
    groups: &mut HashMap<Arc<str>, Group>,
    step: &mut Step<'_>,
    mut select: impl FnMut(&mut Group, i64, i64) -> Vec<TopicPartition>,
) -> usize {
    let retention_ms = step.core.config.offsets_retention_ms;
    let mut count = 0;
    groups.retain(|_, group| {
        let removed = select(group, step.wall_ms, retention_ms);
        count += removed.len();
        !clean_up(step, group, &removed)
    });
    count
}

/// Writes tombstones for removed offsets; true if nothing is left of the group, so that it is to be forgotten.
pub(super) fn clean_up(step: &mut Step<'_>, group: &Group, removed: &[TopicPartition]) -> bool {
    let dead = group.is(State::Empty) && group.offsets.is_empty();
    write_tombstones(step, group, removed, dead);
    dead
}

/// A group that never had a generation has no metadata to bury.
pub(super) fn write_tombstones(
    step: &mut Step<'_>,
    group: &Group,
    removed: &[TopicPartition],
    dead: bool,
) {
    let mut keys: Vec<Bytes> = Vec::with_capacity(removed.len() + 1);
    for partition in removed {
        keys.extend(record::offset_key(&group.id, partition));
    }
    if dead && group.generation > 0 {
        keys.extend(record::group_key(&group.id));
    }
    step.append_tombstones(step.partition_of(&group.id), keys);
}
