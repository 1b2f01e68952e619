//! Partition states and leader elections: read the state node fresh, decide, write it with its expected version.

use gracchus_registry::json::{ConfigZnode, LEADER_NONE, PartitionState};
use gracchus_registry::op::{CreateMode, MultiStep, ZkError, ZkOp, ZkReply};
use gracchus_registry::paths;
use std::collections::BTreeSet;

use crate::context::{LeaderIsr, Partition, PartitionKey, PartitionPhase};
use crate::machine::Controller;
use crate::takeover::leader_isr;

/// Rounds of an election over conflicting writes before it is left to the next event.
const ROUNDS_MAX: u32 = 20;

type Then = Box<dyn FnOnce(&mut Controller) + Send>;

/// Which leader to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// First in assignment order that is live and in the ISR; with unclean election any live one.
    Offline,
    /// First of the assignment, if live and in the ISR.
    Preferred,
    /// First in the ISR whose broker is not shutting down.
    ControlledShutdown,
}

impl Controller {
    /// Tries to give every New and Offline partition a leader.
    pub(crate) fn bring_online(&mut self, then: impl FnOnce(&mut Controller) + Send + 'static) {
        let cx = &self.cx;
        let new = cx.keys_where(|t, p| p.phase == PartitionPhase::New && !cx.is_deleting(t));
        self.create_states(new, |me| {
            let cx = &me.cx;
            let offline =
                cx.keys_where(|t, p| p.phase == PartitionPhase::Offline && !cx.is_deleting(t));
            me.elect_leaders(offline, Strategy::Offline, 0, Box::new(then));
        });
    }

    /// Offline partitions of one topic, or all, after unclean election was allowed.
    pub(crate) fn elect_offline_of(&mut self, topic: Option<String>) {
        let cx = &self.cx;
        let keys = cx.keys_where(|t, p| {
            p.phase == PartitionPhase::Offline
                && !cx.is_deleting(t)
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
        let topics: BTreeSet<&str> = wanted.iter().map(|(k, _)| k.topic.as_str()).collect();
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

    fn set_online(&mut self, key: &PartitionKey, found: LeaderIsr, is_new: bool) {
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

    /// Elects leaders. What is known of a partition's state decides first: it is written with its version, so that one that
    /// changed under us is read and tried again.
    pub(crate) fn elect_leaders(
        &mut self,
        keys: Vec<PartitionKey>,
        strategy: Strategy,
        round: u32,
        then: Then,
    ) {
        if keys.is_empty() || round > ROUNDS_MAX {
            return then(self);
        }
        let mut known = Vec::new();
        let mut unread = Vec::new();
        for key in keys {
            let cached = self.cx.partition(&key).and_then(|p| p.leader_isr.clone());
            match cached.filter(|_| round == 0) {
                Some(cached) => known.push((key, cached)),
                None => unread.push(key),
            }
        }
        let reads = unread
            .iter()
            .map(|k| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
            .collect();
        self.zk(reads, move |me, results| {
            for (key, result) in unread.into_iter().zip(&results) {
                match leader_isr(&key, result) {
                    Some(found) => known.push((key, found)),
                    None if matches!(result, Err(f) if f.error == ZkError::NoNode) => {}
                    None => tracing::warn!("the state of {key} can't be read: {result:?}"),
                }
            }
            let epoch = me.epoch();
            known.retain(|(key, found)| {
                let is_ours = found.state.controller_epoch <= epoch;
                if !is_ours {
                    tracing::warn!(
                        "{key} was written by a controller of epoch {}, newer than ours",
                        found.state.controller_epoch
                    );
                }
                is_ours
            });
            let mut unclean = BTreeSet::new();
            if strategy == Strategy::Offline {
                for (key, found) in &known {
                    let mut isr = found.state.isr.iter();
                    if !isr.any(|b| me.cx.is_replica_online(*b, key)) {
                        unclean.insert(key.topic.clone());
                    }
                }
            }
            let topics: Vec<String> = unclean.into_iter().collect();
            let reads = topics
                .iter()
                .map(|t| ZkOp::get(paths::topic_config(t)))
                .collect();
            me.zk(reads, move |me, results| {
                let allowed: BTreeSet<String> = topics
                    .into_iter()
                    .zip(results)
                    .filter(|(_, result)| me.allows_unclean(result))
                    .map(|(topic, _)| topic)
                    .collect();
                me.write_elections(known, strategy, &allowed, round, then);
            });
        });
    }

    fn allows_unclean(&self, result: &gracchus_registry::op::ZkResult) -> bool {
        let Ok(ZkReply::Data { data, .. }) = result else {
            return self.config.unclean_leader_election;
        };
        let config = ConfigZnode::parse(data.as_deref().unwrap_or_default()).unwrap_or_default();
        config
            .config
            .get("unclean.leader.election.enable")
            .map_or(self.config.unclean_leader_election, |value| {
                value.trim() == "true"
            })
    }

    /// The new state by the strategy; `None` when there is no better leader.
    fn decide(
        &self,
        key: &PartitionKey,
        p: &Partition,
        old: &PartitionState,
        strategy: Strategy,
        unclean: bool,
    ) -> Option<PartitionState> {
        let online = |b: &&i32| self.cx.is_replica_online(**b, key);
        let in_isr = |b: &&i32| old.isr.contains(b);
        let mut new = PartitionState {
            controller_epoch: self.epoch(),
            leader_epoch: old.leader_epoch.saturating_add(1),
            leader_recovery_state: old.leader_recovery_state,
            ..old.clone()
        };
        match strategy {
            Strategy::Offline => {
                if let Some(leader) = p.replicas.iter().find(|b| online(b) && in_isr(b)) {
                    new.leader = *leader;
                    new.isr = old
                        .isr
                        .iter()
                        .copied()
                        .filter(|b| self.cx.is_replica_online(*b, key))
                        .collect();
                } else {
                    let leader = p.replicas.iter().find(|b| unclean && online(b))?;
                    tracing::warn!(
                        "unclean election: {leader} leads {key} without having been in the ISR {:?}; records may be lost",
                        old.isr
                    );
                    new.leader = *leader;
                    new.isr = vec![*leader];
                    new.leader_recovery_state = i32::from(self.config.has_recovery_state);
                }
            }
            Strategy::Preferred => {
                new.leader = *p.replicas.first().filter(|b| online(b) && in_isr(b))?;
            }
            Strategy::ControlledShutdown => {
                let stays = |b: &i32| self.cx.is_alive(*b) && !self.cx.shutting_down.contains(b);
                new.leader = *p.replicas.iter().find(|b| in_isr(b) && stays(b))?;
                new.isr = old
                    .isr
                    .iter()
                    .copied()
                    .filter(|b| !self.cx.shutting_down.contains(b))
                    .collect();
            }
        }
        Some(new)
    }

    fn write_elections(
        &mut self,
        known: Vec<(PartitionKey, LeaderIsr)>,
        strategy: Strategy,
        unclean: &BTreeSet<String>,
        round: u32,
        then: Then,
    ) {
        let fence = self.fence();
        let mut writes = Vec::new();
        for (key, found) in known {
            let Some(partition) = self.cx.partition(&key) else {
                continue;
            };
            match self.decide(
                &key,
                partition,
                &found.state,
                strategy,
                unclean.contains(&key.topic),
            ) {
                Some(new) => writes.push((key, new, found.partition_epoch)),
                None => {
                    if strategy == Strategy::Offline {
                        tracing::warn!(
                            "no leader can be elected for {key}: replicas {:?}, ISR {:?}",
                            partition.replicas,
                            found.state.isr
                        );
                    }
                    if let Some(partition) = self.cx.partition_mut(&key) {
                        partition.leader_isr = Some(found);
                    }
                }
            }
        }
        let ops = writes
            .iter()
            .map(|(key, new, version)| {
                let path = paths::partition_state(&key.topic, key.partition);
                ZkOp::fenced(
                    fence,
                    MultiStep::SetData {
                        path,
                        data: Some(new.to_bytes()),
                        version: *version,
                    },
                )
            })
            .collect();
        self.zk_fenced(ops, move |me, results| {
            let mut again = Vec::new();
            for ((key, state, version), result) in writes.into_iter().zip(results) {
                match result {
                    Ok(reply) => {
                        let partition_epoch =
                            reply.stat().map_or(version.wrapping_add(1), |s| s.version);
                        me.set_online(
                            &key,
                            LeaderIsr {
                                state,
                                partition_epoch,
                            },
                            false,
                        );
                    }
                    Err(failure) if failure.error == ZkError::BadVersion => again.push(key),
                    Err(failure) => {
                        tracing::error!("the state of {key} can't be written: {}", failure.error)
                    }
                }
            }
            me.elect_leaders(again, strategy, round + 1, then);
        });
    }

    /// Takes replicas out of the ISRs: leader epoch +1, leader -1 where they led; a last ISR member stays listed.
    pub(crate) fn cut_replicas(
        &mut self,
        cuts: Vec<(PartitionKey, i32)>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        self.cut_round(cuts, 0, Box::new(then));
    }

    fn cut_round(&mut self, cuts: Vec<(PartitionKey, i32)>, round: u32, then: Then) {
        if cuts.is_empty() || round > ROUNDS_MAX {
            return then(self);
        }
        let mut gone: std::collections::BTreeMap<PartitionKey, BTreeSet<i32>> = Default::default();
        for (key, broker) in cuts {
            gone.entry(key).or_default().insert(broker);
        }
        let reads = gone
            .keys()
            .map(|k| ZkOp::get(paths::partition_state(&k.topic, k.partition)))
            .collect();
        self.zk(reads, move |me, results| {
            let (fence, epoch) = (me.fence(), me.epoch());
            let mut writes = Vec::new();
            for ((key, brokers), result) in gone.into_iter().zip(&results) {
                let Some(found) = leader_isr(&key, result) else {
                    continue;
                };
                let old = found.state;
                if !old.isr.iter().any(|b| brokers.contains(b)) {
                    if let Some(partition) = me.cx.partition_mut(&key) {
                        partition.leader_isr = Some(LeaderIsr {
                            state: old,
                            partition_epoch: found.partition_epoch,
                        });
                    }
                    continue;
                }
                let mut isr: Vec<i32> = old
                    .isr
                    .iter()
                    .copied()
                    .filter(|b| !brokers.contains(b))
                    .collect();
                if isr.is_empty() {
                    isr = old.isr.last().copied().into_iter().collect();
                }
                let leader = if brokers.contains(&old.leader) {
                    LEADER_NONE
                } else {
                    old.leader
                };
                let new = PartitionState {
                    controller_epoch: epoch,
                    leader,
                    leader_epoch: old.leader_epoch.saturating_add(1),
                    isr,
                    ..old
                };
                writes.push((key, brokers, new, found.partition_epoch));
            }
            let ops = writes
                .iter()
                .map(|(key, _, new, version)| {
                    let path = paths::partition_state(&key.topic, key.partition);
                    ZkOp::fenced(
                        fence,
                        MultiStep::SetData {
                            path,
                            data: Some(new.to_bytes()),
                            version: *version,
                        },
                    )
                })
                .collect();
            me.zk_fenced(ops, move |me, results| {
                let mut again = Vec::new();
                for ((key, brokers, state, version), result) in writes.into_iter().zip(results) {
                    match result {
                        Ok(reply) => {
                            let partition_epoch =
                                reply.stat().map_or(version.wrapping_add(1), |s| s.version);
                            me.after_cut(
                                &key,
                                &brokers,
                                LeaderIsr {
                                    state,
                                    partition_epoch,
                                },
                            );
                        }
                        Err(failure) if failure.error == ZkError::BadVersion => {
                            again.extend(brokers.into_iter().map(|b| (key.clone(), b)));
                        }
                        Err(failure) => tracing::error!(
                            "the state of {key} can't be written: {}",
                            failure.error
                        ),
                    }
                }
                me.cut_round(again, round + 1, then);
            });
        });
    }

    fn after_cut(&mut self, key: &PartitionKey, brokers: &BTreeSet<i32>, found: LeaderIsr) {
        let deleting = self.cx.is_deleting(&key.topic);
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
