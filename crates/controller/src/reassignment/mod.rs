//! Partitions move to other replicas. What is under way stands in the topic's node, so that any controller goes on with it:
//! while it runs, the replicas are the target followed by those to be removed; when all of the target are in sync, the
//! others go.

mod assignment;
mod requested;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gracchus_registry::json::TopicAssignment;
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkOp};
use gracchus_registry::paths;

use crate::context::{Partition, PartitionKey, PartitionPhase};
use crate::leaders::Strategy;
use crate::machine::Controller;
use crate::partitions::Then;
use crate::takeover::leader_isr;
use assignment::{Assignment, without};

type Moves = BTreeMap<PartitionKey, Assignment>;

impl Controller {
    /// Begins, turns or ends moves; `then` is told which could not be written.
    fn reassign(
        &mut self,
        moves: Moves,
        then: impl FnOnce(&mut Controller, BTreeSet<PartitionKey>) + Send + 'static,
    ) {
        let changed: Moves = moves
            .iter()
            .filter(|(key, planned)| {
                let now = self.cx.partition(key).map(Assignment::of);
                now.as_ref() != Some(*planned)
            })
            .map(|(key, planned)| (key.clone(), planned.clone()))
            .collect();
        self.write_assignments(changed, move |me, old, failed| {
            let mut unneeded = Vec::new();
            for (key, before) in &old {
                let now = me.cx.partition(key).map(|p| p.replicas.clone());
                let gone = without(&before.replicas, &now.unwrap_or_default());
                unneeded.extend(gone.into_iter().map(|b| (key.clone(), b)));
            }
            let keys: Vec<PartitionKey> = moves
                .into_keys()
                .filter(|key| !failed.contains(key))
                .collect();
            me.remove_replicas(unneeded, move |me| {
                let go_on = move |me: &mut Controller| {
                    // a partition without a leader may have one among its new replicas
                    me.bring_online(move |me| {
                        me.flush();
                        then(me, failed);
                    });
                };
                me.go_on_with(keys, Box::new(go_on));
            });
        });
    }

    /// Writes assignments into the topics' nodes, then takes them over: `then` gets the earlier ones, and which failed.
    fn write_assignments(
        &mut self,
        changed: Moves,
        then: impl FnOnce(&mut Controller, Moves, BTreeSet<PartitionKey>) + Send + 'static,
    ) {
        let mut topics: BTreeMap<Arc<str>, TopicAssignment> = BTreeMap::new();
        for (key, planned) in &changed {
            let Some(known) = self.cx.topics.get(&key.topic) else {
                continue;
            };
            let node = topics
                .entry(key.topic.clone())
                .or_insert_with(|| known.assignment());
            let number = key.partition;
            node.partitions.insert(number, planned.replicas.clone());
            for (map, list) in [
                (&mut node.adding_replicas, &planned.adding),
                (&mut node.removing_replicas, &planned.removing),
            ] {
                if list.is_empty() {
                    map.remove(&number);
                } else {
                    map.insert(number, list.clone());
                }
            }
        }
        let fence = self.fence();
        let set = |(topic, node): (&Arc<str>, &TopicAssignment)| {
            let step = MultiStep::SetData {
                path: paths::topic(topic),
                data: Some(node.to_bytes()),
                version: ANY_VERSION,
            };
            ZkOp::fenced(fence, step)
        };
        let ops = topics.iter().map(set).collect();
        self.zk_fenced(ops, move |me, results| {
            let mut failed_topics = BTreeSet::new();
            for (topic, result) in topics.into_keys().zip(results) {
                if let Err(failure) = result {
                    tracing::error!(
                        "{} can't be written: {}",
                        paths::topic(&topic),
                        failure.error
                    );
                    failed_topics.insert(topic);
                }
            }
            let mut old = Moves::new();
            let mut failed = BTreeSet::new();
            for (key, planned) in changed {
                if failed_topics.contains(&key.topic) {
                    failed.insert(key);
                } else if let Some(before) = me.adopt(&key, planned) {
                    old.insert(key, before);
                }
            }
            then(me, old, failed);
        });
    }

    fn adopt(&mut self, key: &PartitionKey, planned: Assignment) -> Option<Assignment> {
        let partition = self.cx.partition_mut(key)?;
        let before = Assignment::of(partition);
        partition.replicas = planned.replicas;
        partition.adding = planned.adding;
        partition.removing = planned.removing;
        Some(before)
    }

    /// Replicas stop, and their logs are deleted; nobody waits for the answers.
    fn remove_replicas(
        &mut self,
        gone: Vec<(PartitionKey, i32)>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        if gone.is_empty() {
            return then(self);
        }
        let in_isr = |me: &Controller, (key, broker): &(PartitionKey, i32)| {
            let found = me.cx.partition(key).and_then(|p| p.leader_isr.as_ref());
            found.is_some_and(|l| l.state.isr.contains(broker))
        };
        let cuts = gone.iter().filter(|c| in_isr(self, c)).cloned().collect();
        self.cut_replicas(cuts, move |me| {
            for (key, broker) in &gone {
                me.batch_stop(*broker, key, false);
            }
            me.flush();
            for (key, broker) in &gone {
                me.batch_stop(*broker, key, true);
                me.cx.offline_dirs.remove(&(*broker, key.clone()));
            }
            me.flush();
            then(me);
        });
    }

    /// Moves whose target is in sync end; the others are told to their replicas.
    fn go_on_with(&mut self, keys: Vec<PartitionKey>, then: Then) {
        let reads = keys
            .iter()
            .map(|k| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
            .collect();
        self.zk(reads, move |me, results| {
            let (mut done, mut open) = (Vec::new(), Vec::new());
            for (key, result) in keys.into_iter().zip(&results) {
                let found = leader_isr(&key, result);
                let Some(partition) = me.cx.partition_mut(&key) else {
                    continue;
                };
                if found.is_some() {
                    partition.leader_isr = found;
                }
                if !partition.is_moving() || is_in_sync(partition) {
                    done.push(key);
                } else {
                    open.push(key);
                }
            }
            let told = open.clone();
            let go_on = move |me: &mut Controller| {
                for key in &told {
                    let adding = me.cx.partition(key).map(|p| p.adding.clone());
                    let known = me.cx.partition(key).is_some_and(|p| p.leader_isr.is_some());
                    if known {
                        me.batch_leader_and_isr(&adding.unwrap_or_default(), key, true);
                    }
                }
                me.flush();
                me.end_moves(done, then);
            };
            me.elect_leaders(open, Strategy::Keep, 0, Box::new(go_on));
        });
    }

    /// Those of the partitions whose target is in sync now.
    pub(crate) fn complete_reassignments(&mut self, keys: Vec<PartitionKey>) {
        let done: Vec<PartitionKey> = keys
            .into_iter()
            .filter(|key| {
                let partition = self.cx.partition(key);
                partition.is_some_and(|p| p.is_moving() && is_in_sync(p))
            })
            .collect();
        self.end_moves(done, Box::new(|_| {}));
    }

    /// Goes on with everything under way, what stands in `/admin/reassign_partitions` first.
    pub(crate) fn resume_reassignments(
        &mut self,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        let before: BTreeSet<PartitionKey> = self.cx.reassigning().into_iter().collect();
        self.take_requested(move |me| {
            let mut left = me.cx.reassigning();
            left.retain(|key| before.contains(key));
            me.go_on_with(left, Box::new(then));
        });
    }

    /// Moves that a newly started broker is part of.
    pub(crate) fn resume_reassignments_on(
        &mut self,
        brokers: &[i32],
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        let mut keys = self.cx.reassigning();
        keys.retain(|key| {
            let partition = self.cx.partition(key);
            partition.is_some_and(|p| p.replicas.iter().any(|b| brokers.contains(b)))
        });
        self.go_on_with(keys, Box::new(then));
    }

    /// The target is in sync: a member of it leads, the others go.
    fn end_moves(&mut self, keys: Vec<PartitionKey>, then: Then) {
        if keys.is_empty() {
            return then(self);
        }
        let mut moving = Moves::new();
        let (mut keep, mut elect) = (Vec::new(), Vec::new());
        for key in keys {
            let Some(partition) = self.cx.partition(&key) else {
                continue;
            };
            let before = Assignment::of(partition);
            let target = before.target();
            let leader = partition.leader_isr.as_ref().map(|l| l.state.leader);
            let stays =
                leader.is_some_and(|b| target.contains(&b) && self.cx.is_replica_online(b, &key));
            if stays {
                keep.push(key.clone());
            } else {
                elect.push(key.clone());
            }
            self.adopt(&key, Assignment::settled(target));
            moving.insert(key, before);
        }
        let elected = move |me: &mut Controller| {
            me.elect_leaders(
                elect,
                Strategy::Reassign,
                0,
                Box::new(move |me| me.drop_the_rest(moving, then)),
            );
        };
        self.elect_leaders(keep, Strategy::Keep, 0, Box::new(elected));
    }

    /// The second half of [`Self::end_moves`].
    fn drop_the_rest(&mut self, mut moving: Moves, then: Then) {
        // without a leader of the target's the move stays open
        let leaderless: Vec<PartitionKey> = moving
            .iter()
            .filter(|(key, before)| {
                before.is_moving()
                    && self.cx.partition(key).is_none_or(|p| {
                        let leader = p.leader_isr.as_ref().map_or(-1, |l| l.state.leader);
                        !p.replicas.contains(&leader)
                    })
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in leaderless {
            tracing::warn!(
                "none of the new replicas of {key} can lead; its reassignment stays open"
            );
            if let Some(before) = moving.remove(&key) {
                self.adopt(&key, before);
            }
        }
        self.flush();
        let gone = moving
            .iter()
            .flat_map(|(key, before)| before.removing.iter().map(|b| (key.clone(), *b)))
            .collect();
        self.remove_replicas(gone, move |me| {
            let settled: Moves = moving
                .keys()
                .filter_map(|key| Some((key.clone(), Assignment::of(me.cx.partition(key)?))))
                .collect();
            let keys: BTreeSet<PartitionKey> = settled.keys().cloned().collect();
            let before = moving;
            me.write_assignments(settled, move |me, _, failed| {
                // as the node still says
                for key in &failed {
                    if let Some(before) = before.get(key) {
                        me.adopt(key, before.clone());
                    }
                }
                me.forget_requested(keys.clone(), move |me| {
                    for key in &keys {
                        tracing::info!("{key} has moved");
                        me.batch_metadata(key);
                    }
                    me.flush();
                    me.process_deletions(then);
                });
            });
        });
    }
}

/// All of the target are in sync.
fn is_in_sync(partition: &Partition) -> bool {
    let target = Assignment::of(partition).target();
    partition.phase != PartitionPhase::New
        && partition
            .leader_isr
            .as_ref()
            .is_some_and(|l| target.iter().all(|b| l.state.isr.contains(b)))
}
