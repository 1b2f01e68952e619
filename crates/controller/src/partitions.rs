//! Partition states: made, and cut when replicas go. [`crate::leaders`] elects.

use gracchus_registry::json::{LEADER_NONE, PartitionState};
use gracchus_registry::op::{CreateMode, MultiStep, ZkError, ZkOp, ZkResult};
use gracchus_registry::paths;
use std::collections::BTreeSet;

use crate::context::{LeaderIsr, PartitionKey, PartitionPhase};
use crate::leaders::Strategy;
use crate::machine::Controller;
use crate::takeover::leader_isr;

/// Rounds of an election over conflicting writes before it is left to the next event.
pub(crate) const ROUNDS_MAX: u32 = 20;

pub(crate) type Then = Box<dyn FnOnce(&mut Controller) + Send>;

/// A new state of a partition, with the version of the node that it was made from; `of` is the caller's own.
pub(crate) struct StateWrite<T> {
    pub(crate) key: PartitionKey,
    pub(crate) of: T,
    pub(crate) new: LeaderIsr,
}

impl Controller {
    /// Tries to give every New and Offline partition a leader.
    pub(crate) fn bring_online(&mut self, then: impl FnOnce(&mut Controller) + Send + 'static) {
        let cx = &self.cx;
        let new = cx.keys_where(|t, p| p.phase == PartitionPhase::New && !cx.is_going(t));
        self.create_states(new, |me| {
            let cx = &me.cx;
            let offline =
                cx.keys_where(|t, p| p.phase == PartitionPhase::Offline && !cx.is_going(t));
            me.elect_leaders(offline, Strategy::Offline, 0, Box::new(then));
        });
    }

    /// Offline partitions of one topic, or all, after unclean election was allowed.
    pub(crate) fn elect_offline_of(&mut self, topic: Option<String>) {
        let cx = &self.cx;
        let keys = cx.keys_where(|t, p| {
            p.phase == PartitionPhase::Offline
                && !cx.is_going(t)
                && topic.as_deref().is_none_or(|wanted| wanted == t)
        });
        self.elect_leaders(keys, Strategy::Offline, 0, Box::new(Controller::flush));
    }

    /// New -> Online: leader is the first live replica, the ISR all live ones. Without a live replica it stays New.
    pub(crate) fn create_states(
        &mut self,
        keys: Vec<PartitionKey>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        let (fence, epoch) = (self.fence(), self.epoch());
        let create = |path: String, data| {
            ZkOp::fenced(
                fence,
                MultiStep::Create {
                    path,
                    data,
                    mode: CreateMode::Persistent,
                },
            )
        };
        let mut wanted = Vec::new();
        for key in keys {
            let Some(partition) = self.cx.partition(&key) else {
                continue;
            };
            let live: Vec<i32> = partition
                .replicas
                .iter()
                .copied()
                .filter(|b| self.cx.is_replica_online(*b, &key))
                .collect();
            let Some(leader) = live.first().copied() else {
                tracing::warn!(
                    "{key} has no live replica among {:?}; it waits for one",
                    partition.replicas
                );
                continue;
            };
            let state = PartitionState {
                controller_epoch: epoch,
                leader,
                leader_epoch: 0,
                isr: live,
                leader_recovery_state: 0,
            };
            wanted.push((key, state));
        }
        let topics: BTreeSet<&str> = wanted.iter().map(|(k, _)| &*k.topic).collect();
        // three pipelined bursts in one: each level's parents are written before it
        let mut ops: Vec<ZkOp> = topics
            .iter()
            .map(|t| create(paths::topic_partitions(t), None))
            .collect();
        ops.extend(
            wanted
                .iter()
                .map(|(k, _)| create(paths::partition(&k.topic, k.partition), None)),
        );
        let parents = ops.len();
        ops.extend(wanted.iter().map(|(k, s)| {
            create(
                paths::partition_state(&k.topic, k.partition),
                Some(s.to_bytes()),
            )
        }));
        self.zk_fenced(ops, move |me, results| {
            let states = results.get(parents..).unwrap_or_default();
            for ((key, state), result) in wanted.into_iter().zip(states) {
                match result {
                    Ok(_) => me.set_online(&key, LeaderIsr { state, partition_epoch: 0 }, true),
                    Err(failure) => tracing::error!(
                        "the state of {key} can't be created ({}): it stays without a leader until the next election",
                        failure.error
                    ),
                }
            }
            then(me);
        });
    }

    pub(crate) fn set_online(&mut self, key: &PartitionKey, found: LeaderIsr, is_new: bool) {
        let isr = found.state.isr.clone();
        let Some(partition) = self.cx.partition_mut(key) else {
            return;
        };
        partition.phase = if found.state.leader == LEADER_NONE {
            PartitionPhase::Offline
        } else {
            PartitionPhase::Online
        };
        partition.leader_isr = Some(found);
        let to = if is_new {
            isr
        } else {
            partition.replicas.clone()
        };
        self.batch_leader_and_isr(&to, key, is_new);
    }

    /// Takes replicas out of the ISRs: leader epoch +1, leader -1 where they led; a last ISR member stays listed.
    pub(crate) fn cut_replicas(
        &mut self,
        mut cuts: Vec<(PartitionKey, i32)>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        cuts.sort();
        cuts.dedup();
        let gone = cuts
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|run| {
                let brokers = run.iter().map(|(_, broker)| *broker).collect();
                Some((run.first()?.0.clone(), brokers))
            })
            .collect();
        self.cut_round(gone, 0, Box::new(then));
    }

    fn cut_round(&mut self, gone: Vec<(PartitionKey, Vec<i32>)>, round: u32, then: Then) {
        if gone.is_empty() || round > ROUNDS_MAX {
            return then(self);
        }
        // as in an election: what is known is written with its version, and read when that is not its version any more
        let mut known = Vec::new();
        let mut unread = Vec::new();
        for (key, brokers) in gone {
            let cached = self.cx.partition(&key).and_then(|p| p.leader_isr.clone());
            match cached.filter(|_| round == 0) {
                Some(cached) => known.push((key, brokers, cached)),
                None => unread.push((key, brokers)),
            }
        }
        let reads = unread
            .iter()
            .map(|(k, _)| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
            .collect();
        self.zk(reads, move |me, results| {
            let epoch = me.epoch();
            for ((key, brokers), result) in unread.into_iter().zip(&results) {
                if let Some(found) = leader_isr(&key, result) {
                    known.push((key, brokers, found));
                }
            }
            let mut writes = Vec::with_capacity(known.len());
            for (key, brokers, found) in known {
                if !found.state.isr.iter().any(|b| brokers.contains(b)) {
                    if let Some(partition) = me.cx.partition_mut(&key) {
                        partition.leader_isr = Some(found);
                    }
                    continue;
                }
                let new = LeaderIsr {
                    state: without(found.state, &brokers, epoch),
                    partition_epoch: found.partition_epoch,
                };
                let of = brokers;
                writes.push(StateWrite { key, of, new });
            }
            let take = |me: &mut Controller, key: &PartitionKey, brokers: Vec<i32>, found| {
                me.after_cut(key, &brokers, found);
            };
            me.write_states(writes, take, move |me, again| {
                me.cut_round(again, round + 1, then);
            });
        });
    }

    /// Writes states behind the fence, each over the version that it was made from. `written` is called for each one that was
    /// written, with its new version, while later ones are still under way; `done` gets those whose node has another version
    /// by now. Other failures are told and left.
    pub(crate) fn write_states<T: Send + 'static>(
        &mut self,
        writes: Vec<StateWrite<T>>,
        mut written: impl FnMut(&mut Controller, &PartitionKey, T, LeaderIsr) + Send + 'static,
        done: impl FnOnce(&mut Controller, Vec<(PartitionKey, T)>) + Send + 'static,
    ) {
        let fence = self.fence();
        let op = |write: &StateWrite<T>| {
            let step = MultiStep::SetData {
                path: paths::partition_state(&write.key.topic, write.key.partition),
                data: Some(write.new.state.to_bytes()),
                version: write.new.partition_epoch,
            };
            ZkOp::fenced(fence, step)
        };
        let ops = writes.iter().map(op).collect();
        let state = (writes.into_iter(), Vec::new());
        let take = move |me: &mut Controller,
                         (writes, again): &mut (std::vec::IntoIter<StateWrite<T>>, Vec<_>),
                         results: Vec<ZkResult>| {
            for (result, write) in results.into_iter().zip(writes) {
                let StateWrite { key, of, mut new } = write;
                match result {
                    Ok(reply) => {
                        new.partition_epoch = reply
                            .stat()
                            .map_or(new.partition_epoch.wrapping_add(1), |s| s.version);
                        written(me, &key, of, new);
                    }
                    Err(failure) if failure.error == ZkError::BadVersion => again.push((key, of)),
                    Err(failure) => {
                        tracing::error!("the state of {key} can't be written: {}", failure.error);
                    }
                }
            }
        };
        self.zk_fenced_in_parts(ops, state, take, move |me, (_, again)| done(me, again));
    }

    fn after_cut(&mut self, key: &PartitionKey, brokers: &[i32], found: LeaderIsr) {
        let deleting = self.cx.is_going(&key.topic);
        let Some(partition) = self.cx.partition_mut(key) else {
            return;
        };
        if found.state.leader == LEADER_NONE {
            partition.phase = PartitionPhase::Offline;
        }
        partition.leader_isr = Some(found);
        let rest: Vec<i32> = partition
            .replicas
            .iter()
            .copied()
            .filter(|b| !brokers.contains(b))
            .collect();
        if !deleting {
            self.batch_leader_and_isr(&rest, key, false);
        }
    }
}

/// The state without these replicas.
fn without(old: PartitionState, brokers: &[i32], controller_epoch: i32) -> PartitionState {
    let stay = |b: &i32| !brokers.contains(b);
    let mut isr: Vec<i32> = old.isr.iter().copied().filter(stay).collect();
    if isr.is_empty() {
        isr = old.isr.last().copied().into_iter().collect();
    }
    PartitionState {
        controller_epoch,
        leader: if stay(&old.leader) {
            old.leader
        } else {
            LEADER_NONE
        },
        leader_epoch: old.leader_epoch.saturating_add(1),
        isr,
        leader_recovery_state: old.leader_recovery_state,
    }
}
