//! ElectLeaders, `/admin/preferred_replica_election` and the automatic rebalance.

use std::collections::BTreeMap;

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::{LEADER_NONE, PreferredElection};
use gracchus_registry::paths;

use crate::action::Action;
use crate::context::{PartitionStage, TopicPartition};
use crate::core::{Core, Failure};
use crate::event::{ElectionKind, Timer};
use crate::leader_election::Strategy;

/// First look after an election, in ms.
const FIRST_REBALANCE_MS: i64 = 5_000;

/// The leader elected, or why none was.
pub(crate) type ElectionResult = (TopicPartition, Result<i32, (ErrorCode, String)>);

impl Core {
    pub async fn elect_leaders(
        &mut self,
        kind: ElectionKind,
        wanted: Option<Vec<TopicPartition>>,
    ) -> Result<Vec<ElectionResult>, Failure> {
        let wanted = match wanted {
            Some(wanted) => wanted,
            None => self.cx.partitions().map(|(tp, _)| tp).collect(),
        };
        let mut results: Vec<ElectionResult> = Vec::with_capacity(wanted.len());
        let mut electable = Vec::new();
        for tp in wanted {
            let Some(partition) = self.cx.partition(&tp) else {
                let error = (
                    ErrorCode::UnknownTopicOrPartition,
                    "The partition does not exist.".to_owned(),
                );
                results.push((tp, Err(error)));
                continue;
            };
            if self.cx.is_deleting(&tp.topic) {
                let error = (
                    ErrorCode::InvalidTopicException,
                    "The topic is being deleted".to_owned(),
                );
                results.push((tp, Err(error)));
                continue;
            }
            let leader = partition.leader();
            let needed = match kind {
                ElectionKind::Preferred => {
                    leader.is_some() && partition.assignment.replicas.first().copied() != leader
                }
                ElectionKind::Unclean => {
                    leader.is_none_or(|id| id == LEADER_NONE || !self.cx.is_live(id))
                }
            };
            if needed {
                electable.push(tp);
            } else {
                let text = format!("Leader election not needed for topic partition {tp}.");
                results.push((tp, Err((ErrorCode::ElectionNotNeeded, text))));
            }
        }
        let strategy = match kind {
            ElectionKind::Preferred => Strategy::Preferred,
            ElectionKind::Unclean => Strategy::Offline { unclean: true },
        };
        let elected = self
            .move_partitions(&electable, PartitionStage::Online, strategy)
            .await?;
        for tp in electable {
            let result = match elected.get(&tp) {
                Some(Ok(())) => Ok(self
                    .cx
                    .partition(&tp)
                    .and_then(|p| p.leader())
                    .unwrap_or(LEADER_NONE)),
                _ => {
                    let (error, name) = match kind {
                        ElectionKind::Preferred => (
                            ErrorCode::PreferredLeaderNotAvailable,
                            "PreferredReplicaPartitionLeaderElectionStrategy",
                        ),
                        ElectionKind::Unclean => (
                            ErrorCode::EligibleLeadersNotAvailable,
                            "OfflinePartitionLeaderElectionStrategy(true)",
                        ),
                    };
                    let text = format!(
                        "Failed to elect leader for partition {tp} under strategy {name}"
                    );
                    Err((error, text))
                }
            };
            results.push((tp, result));
        }
        Ok(results)
    }

    /// An old tool asks for preferred leaders. The node goes, whatever came of it.
    pub async fn preferred_election_by_znode(&mut self) -> Result<(), Failure> {
        let path = paths::PREFERRED_REPLICA_ELECTION;
        let Some((data, _)) = self.read(path, false).await? else {
            return self.watch_exists(path).await;
        };
        match PreferredElection::parse(&data) {
            Ok(order) => {
                let wanted = order
                    .partitions
                    .into_iter()
                    .map(|tp| TopicPartition::new(tp.topic, tp.partition))
                    .collect();
                for (tp, result) in self
                    .elect_leaders(ElectionKind::Preferred, Some(wanted))
                    .await?
                {
                    match result {
                        Ok(leader) => tracing::info!("{tp} is led by {leader}, as asked for in {path}"),
                        Err((ErrorCode::ElectionNotNeeded, _)) => {}
                        Err((_, text)) => tracing::warn!("{path}: {text}"),
                    }
                }
            }
            Err(error) => tracing::error!("{path} cannot be read: {error}; deleted"),
        }
        self.delete_fenced(vec![path.to_owned()]).await?;
        self.watch_exists(path).await
    }

    pub fn set_rebalance_timer(&mut self) {
        self.port.act(if self.config.rebalance.is_some() {
            Action::SetTimer {
                timer: Timer::Rebalance,
                after_ms: FIRST_REBALANCE_MS,
            }
        } else {
            Action::CancelTimer {
                timer: Timer::Rebalance,
            }
        });
    }

    /// Gives leadership back to preferred replicas where too much of it has wandered off.
    pub async fn rebalance(&mut self) -> Result<(), Failure> {
        let Some(rebalance) = self.config.rebalance.filter(|_| self.is_active()) else {
            return Ok(());
        };
        self.port.act(Action::SetTimer {
            timer: Timer::Rebalance,
            after_ms: rebalance.interval_ms,
        });
        // by preferred broker: all of its partitions, and those led by another
        let mut by_broker: BTreeMap<i32, (usize, Vec<TopicPartition>)> = BTreeMap::new();
        for (tp, partition) in self.cx.partitions() {
            if self.cx.is_deleting(&tp.topic) {
                continue;
            }
            let (Some(preferred), Some(leader)) =
                (partition.assignment.replicas.first(), partition.leader())
            else {
                continue;
            };
            let entry = by_broker.entry(*preferred).or_default();
            entry.0 += 1;
            if leader != *preferred {
                entry.1.push(tp);
            }
        }
        for (broker, (all, elsewhere)) in by_broker {
            let percent = elsewhere.len().saturating_mul(100);
            let limit = all.saturating_mul(usize::try_from(rebalance.percentage).unwrap_or(0));
            if percent <= limit {
                continue;
            }
            let electable: Vec<TopicPartition> = elsewhere
                .into_iter()
                .filter(|tp| {
                    self.cx.is_online(broker, tp)
                        && self.cx.partition(tp).is_some_and(|p| {
                            !p.assignment.is_under_way()
                                && p.leadership
                                    .as_ref()
                                    .is_some_and(|l| l.state.isr.contains(&broker))
                        })
                })
                .collect();
            if electable.is_empty() {
                continue;
            }
            tracing::info!(
                partitions = electable.len(),
                "giving leadership back to broker {broker}"
            );
            self.elect_leaders(ElectionKind::Preferred, Some(electable))
                .await?;
        }
        Ok(())
    }
}
