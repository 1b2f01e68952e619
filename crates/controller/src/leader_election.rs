//! Who becomes leader. Each strategy reads the states fresh, decides, and writes expecting the version read; partitions
//! whose state changed meanwhile are decided again.

use gracchus_registry::json::{ConfigZnode, LEADER_NONE, PartitionState};
use gracchus_registry::op::{MultiStep, ZkError};
use gracchus_registry::paths;

use crate::context::{Leadership, TopicPartition};
use crate::core::{Core, Failure};
use crate::partition_state::Elected;

/// The rule by which a leader is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// The first live member of the ISR; else, where allowed, the first live replica. `unclean` allows it whatever the
    /// configuration says.
    Offline { unclean: bool },
    /// The first of the target replicas that is live and in the ISR.
    Reassign,
    /// The preferred replica, if it is live and in the ISR.
    Preferred,
    /// The first member of the ISR that does not shut down; those that do leave the ISR.
    ControlledShutdown,
}

/// Why a partition got no new leader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElectionError {
    #[error("no replica is eligible")]
    NoneEligible,
    #[error("the state znode is missing")]
    NoState,
    #[error("the state znode cannot be read: {0}")]
    Unreadable(String),
    #[error("ZooKeeper answered {0}")]
    Zk(ZkError),
}

/// How often a partition is tried again whose state changes under our hands.
const TRIES: usize = 20;

struct Choice {
    leader: i32,
    isr: Vec<i32>,
    recovering: bool,
    recipients: Vec<i32>,
}

/// A state read with its version.
pub(crate) type ReadState = (TopicPartition, PartitionState, i32);

impl Core {
    /// Elects, and gathers the LeaderAndIsr requests.
    pub async fn elect_leaders_of(
        &mut self,
        partitions: &[TopicPartition],
        strategy: Strategy,
    ) -> Result<Elected, Failure> {
        let mut results = Elected::new();
        let mut remaining = partitions.to_vec();
        for _ in 0..TRIES {
            if remaining.is_empty() {
                return Ok(results);
            }
            let (states, unread) = self.read_states(&remaining).await?;
            results.extend(unread.into_iter().map(|(tp, error)| (tp, Err(error))));
            let unclean = match strategy {
                Strategy::Offline { unclean: true } => {
                    states.iter().map(|(tp, ..)| tp.clone()).collect()
                }
                Strategy::Offline { unclean: false } => self.unclean_allowed(&states).await?,
                _ => std::collections::BTreeSet::new(),
            };
            let mut writes = Vec::new();
            let mut recipients = Vec::new();
            for (tp, old, version) in states {
                match self.choose(strategy, &tp, &old, unclean.contains(&tp)) {
                    Some(choice) => {
                        if choice.recovering {
                            tracing::warn!(
                                "unclean election: {} leads {tp} though it was not in sync (ISR {:?}); records may be lost",
                                choice.leader,
                                old.isr
                            );
                        }
                        recipients.push(choice.recipients);
                        writes.push((tp, self.next_state(&old, choice.leader, choice.isr, choice.recovering), version));
                    }
                    None => {
                        results.insert(tp, Err(ElectionError::NoneEligible));
                    }
                }
            }
            remaining.clear();
            let tps: Vec<_> = writes.iter().map(|(tp, ..)| tp.clone()).collect();
            let outcomes = self.write_states(writes).await?;
            for ((tp, outcome), recipients) in tps.into_iter().zip(outcomes).zip(recipients) {
                match outcome {
                    Ok(()) => {
                        self.add_leader_and_isr(&recipients, &tp, false);
                        results.insert(tp, Ok(()));
                    }
                    Err(ZkError::BadVersion) => remaining.push(tp),
                    Err(error) => {
                        results.insert(tp, Err(ElectionError::Zk(error)));
                    }
                }
            }
        }
        for tp in remaining {
            results.insert(tp, Err(ElectionError::Zk(ZkError::BadVersion)));
        }
        for (tp, result) in &results {
            if let Err(error) = result {
                tracing::warn!("no leader elected for {tp} ({strategy:?}): {error}");
            }
        }
        Ok(results)
    }

    /// A state one leader epoch later, written by us.
    pub fn next_state(
        &self,
        old: &PartitionState,
        leader: i32,
        isr: Vec<i32>,
        recovering: bool,
    ) -> PartitionState {
        PartitionState {
            controller_epoch: self.cx.epoch,
            leader,
            leader_epoch: old.leader_epoch.wrapping_add(1),
            isr,
            leader_recovery_state: if recovering {
                1
            } else {
                old.leader_recovery_state
            },
        }
    }

    /// States as ZooKeeper has them, and why others have none. A state of a later controller ends the event.
    #[allow(clippy::type_complexity)]
    pub async fn read_states(
        &mut self,
        partitions: &[TopicPartition],
    ) -> Result<(Vec<ReadState>, Vec<(TopicPartition, ElectionError)>), Failure> {
        let nodes: Vec<String> = partitions
            .iter()
            .map(|tp| paths::partition_state(&tp.topic, tp.partition))
            .collect();
        let read = self.read_all(&nodes, false).await?;
        let (mut states, mut failures) = (Vec::with_capacity(partitions.len()), Vec::new());
        for ((tp, node), found) in partitions.iter().zip(&nodes).zip(read) {
            let Some((data, stat)) = found else {
                failures.push((tp.clone(), ElectionError::NoState));
                continue;
            };
            match PartitionState::parse(&data) {
                Ok(state) if state.controller_epoch > self.cx.epoch => {
                    tracing::info!(
                        "{node} was written by a controller of epoch {}, ours is {}",
                        state.controller_epoch,
                        self.cx.epoch
                    );
                    return Err(Failure::Moved);
                }
                Ok(state) => states.push((tp.clone(), state, stat.version)),
                Err(error) => failures.push((tp.clone(), ElectionError::Unreadable(error.to_string()))),
            }
        }
        Ok((states, failures))
    }

    /// Writes states, fenced, expecting these versions; the cache follows what was written.
    pub async fn write_states(
        &mut self,
        writes: Vec<ReadState>,
    ) -> Result<Vec<Result<(), ZkError>>, Failure> {
        let steps = writes
            .iter()
            .map(|(tp, state, version)| MultiStep::SetData {
                path: paths::partition_state(&tp.topic, tp.partition),
                data: Some(state.to_bytes()),
                version: *version,
            })
            .collect();
        let outcomes = self.fenced(steps).await?;
        let mut results = Vec::with_capacity(outcomes.len());
        for ((tp, state, version), outcome) in writes.into_iter().zip(outcomes) {
            results.push(match outcome {
                Ok(stat) => {
                    if let Some(partition) = self.cx.partition_mut(&tp) {
                        partition.leadership = Some(Leadership {
                            state,
                            partition_epoch: stat
                                .map_or_else(|| version.wrapping_add(1), |s| s.version),
                        });
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            });
        }
        Ok(results)
    }

    /// Partitions without a live member of the ISR whose topics, or the broker's default, allow an unclean election.
    async fn unclean_allowed(
        &mut self,
        states: &[ReadState],
    ) -> Result<std::collections::BTreeSet<TopicPartition>, Failure> {
        let candidates: Vec<&TopicPartition> = states
            .iter()
            .filter(|(tp, state, _)| !state.isr.iter().any(|id| self.cx.is_online(*id, tp)))
            .map(|(tp, ..)| tp)
            .collect();
        let topics: std::collections::BTreeSet<_> =
            candidates.iter().map(|tp| tp.topic.clone()).collect();
        let topics: Vec<_> = topics.into_iter().collect();
        let nodes: Vec<String> = topics.iter().map(|t| paths::topic_config(t)).collect();
        let read = self.read_all(&nodes, false).await?;
        let default = self.config.unclean_leader_election_enable;
        let mut allowed = std::collections::BTreeSet::new();
        for ((topic, node), found) in topics.iter().zip(&nodes).zip(read) {
            let config = match found.map(|(data, _)| ConfigZnode::parse(&data)) {
                None => ConfigZnode::default(),
                Some(Ok(config)) => config,
                Some(Err(error)) => {
                    tracing::error!("{node} cannot be read: {error}; taken as without overrides");
                    ConfigZnode::default()
                }
            };
            let enabled = config
                .config
                .get("unclean.leader.election.enable")
                .map_or(default, |text| text.trim().eq_ignore_ascii_case("true"));
            if enabled {
                allowed.extend(
                    candidates
                        .iter()
                        .filter(|tp| tp.topic == *topic)
                        .map(|tp| (*tp).clone()),
                );
            }
        }
        Ok(allowed)
    }

    fn choose(
        &self,
        strategy: Strategy,
        tp: &TopicPartition,
        old: &PartitionState,
        unclean: bool,
    ) -> Option<Choice> {
        let assignment = &self.cx.partition(tp)?.assignment;
        let replicas = &assignment.replicas;
        let online = |id: &i32| self.cx.is_online(*id, tp);
        let in_isr = |id: &i32| old.isr.contains(id);
        let choice = |leader: i32, isr: Vec<i32>, recipients: Vec<i32>| Choice {
            leader,
            isr,
            recovering: false,
            recipients,
        };
        match strategy {
            Strategy::Offline { .. } => {
                let live: Vec<i32> = replicas.iter().copied().filter(online).collect();
                if let Some(leader) = live.iter().copied().find(in_isr) {
                    let isr = old.isr.iter().copied().filter(online).collect();
                    return Some(choice(leader, isr, live));
                }
                let leader = *live.first().filter(|_| unclean)?;
                Some(Choice {
                    leader,
                    isr: vec![leader],
                    recovering: self.config.versions.leader_recovery,
                    recipients: live,
                })
            }
            Strategy::Reassign => {
                let target = assignment.target();
                let leader = target.iter().copied().find(|id| online(id) && in_isr(id))?;
                Some(choice(leader, old.isr.clone(), target))
            }
            Strategy::Preferred => {
                let leader = replicas
                    .first()
                    .copied()
                    .filter(|id| online(id) && in_isr(id))?;
                Some(choice(leader, old.isr.clone(), replicas.clone()))
            }
            Strategy::ControlledShutdown => {
                let shutting_down = |id: &i32| self.cx.shutting_down.contains(id);
                let live: Vec<i32> = replicas
                    .iter()
                    .copied()
                    .filter(|id| self.cx.is_online_or_shutting_down(*id, tp))
                    .collect();
                let leader = live
                    .iter()
                    .copied()
                    .find(|id| in_isr(id) && !shutting_down(id))?;
                let isr = old
                    .isr
                    .iter()
                    .copied()
                    .filter(|id| !shutting_down(id))
                    .collect();
                Some(choice(leader, isr, live))
            }
        }
    }

    /// Takes a broker out of the ISR of partitions: the last member stays, and leadership goes. Answers the partitions whose
    /// cached state is now as ZooKeeper has it.
    pub async fn remove_from_isr(
        &mut self,
        broker_id: i32,
        partitions: &[TopicPartition],
    ) -> Result<Vec<TopicPartition>, Failure> {
        let mut done = Vec::with_capacity(partitions.len());
        let mut remaining = partitions.to_vec();
        for _ in 0..TRIES {
            if remaining.is_empty() {
                return Ok(done);
            }
            let (states, unread) = self.read_states(&remaining).await?;
            for (tp, error) in unread {
                if !self.cx.is_deleting(&tp.topic) {
                    tracing::error!("broker {broker_id} cannot be taken out of the ISR of {tp}: {error}");
                }
            }
            remaining.clear();
            let mut writes = Vec::new();
            for (tp, old, version) in states {
                if !old.isr.contains(&broker_id) {
                    if let Some(partition) = self.cx.partition_mut(&tp) {
                        partition.leadership = Some(Leadership {
                            state: old,
                            partition_epoch: version,
                        });
                    }
                    done.push(tp);
                    continue;
                }
                let leader = if old.leader == broker_id {
                    LEADER_NONE
                } else {
                    old.leader
                };
                let isr = if old.isr.len() == 1 {
                    old.isr.clone()
                } else {
                    crate::context::without(&old.isr, &[broker_id])
                };
                let state = self.next_state(&old, leader, isr, false);
                writes.push((tp, state, version));
            }
            let tps: Vec<_> = writes.iter().map(|(tp, ..)| tp.clone()).collect();
            let outcomes = self.write_states(writes).await?;
            for (tp, outcome) in tps.into_iter().zip(outcomes) {
                match outcome {
                    Ok(()) => done.push(tp),
                    Err(ZkError::BadVersion) => remaining.push(tp),
                    Err(error) => tracing::error!(
                        "broker {broker_id} cannot be taken out of the ISR of {tp}: {error}"
                    ),
                }
            }
        }
        for tp in remaining {
            tracing::error!("the state of {tp} changes too often to take broker {broker_id} out of its ISR");
        }
        Ok(done)
    }
}
