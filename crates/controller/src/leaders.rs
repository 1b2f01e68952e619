//! Leader elections: what the state is decides, and it is written with its expected version.

use std::collections::BTreeSet;
use std::sync::Arc;

use gracchus_registry::json::{ConfigZnode, PartitionState};
use gracchus_registry::op::{ZkError, ZkOp, ZkReply};
use gracchus_registry::paths;

use crate::context::{LeaderIsr, Partition, PartitionKey};
use crate::machine::Controller;
use crate::partitions::{ROUNDS_MAX, StateWrite, Then};
use crate::takeover::leader_isr;

/// Which leader to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// First in assignment order that is live and in the ISR; with unclean election any live one.
    Offline,
    /// First of the assignment, if live and in the ISR.
    Preferred,
    /// First in the ISR whose broker is not shutting down.
    ControlledShutdown,
    /// As `Offline`, and any live one whatever the configuration says (ElectLeaders, unclean).
    Unclean,
    /// The first of the new replicas that is live and in the ISR.
    Reassign,
    /// The same leader; only the epoch rises, so that the replicas take in what else has changed.
    Keep,
}

impl Controller {
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
            let topics: Vec<Arc<str>> = unclean.into_iter().collect();
            let reads = topics
                .iter()
                .map(|t| ZkOp::get(paths::topic_config(t)))
                .collect();
            me.zk(reads, move |me, results| {
                let allowed: BTreeSet<Arc<str>> = topics
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
            Strategy::Offline | Strategy::Unclean => {
                let unclean = unclean || strategy == Strategy::Unclean;
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
            Strategy::Reassign => {
                new.leader = *p.replicas.iter().find(|b| online(b) && in_isr(b))?;
            }
            Strategy::Keep => {}
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
        unclean: &BTreeSet<Arc<str>>,
        round: u32,
        then: Then,
    ) {
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
                Some(state) => writes.push(StateWrite {
                    key,
                    of: (),
                    new: LeaderIsr { state, ..found },
                }),
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
        let take =
            |me: &mut Controller, key: &PartitionKey, (), found| me.set_online(key, found, false);
        self.write_states(writes, take, move |me, again| {
            let again = again.into_iter().map(|(key, ())| key).collect();
            me.elect_leaders(again, strategy, round + 1, then);
        });
    }
}
