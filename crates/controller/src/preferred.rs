//! Elections that somebody asks for: of the preferred leaders (by request, by `/admin/preferred_replica_election`, or when
//! too many are elsewhere), and unclean ones by request.

use std::collections::BTreeMap;

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::PreferredElection;
use gracchus_registry::op::{ANY_VERSION, MultiStep, ZkOp, ZkReply};
use gracchus_registry::paths;

use crate::action::{Action, ApiResult, Outcome};
use crate::context::PartitionKey;
use crate::event::{ApiToken, Timer};
use crate::leaders::Strategy;
use crate::machine::Controller;

/// The first look at the balance, after the election.
const FIRST_BALANCE_MS: u64 = 5000;

impl Controller {
    /// `/admin/preferred_replica_election`: every partition named gets its first replica as leader if possible; the node
    /// goes whatever came of it.
    pub(crate) fn preferred_election_requested(&mut self) {
        let ops = vec![
            ZkOp::exists_and_watch(paths::PREFERRED_REPLICA_ELECTION),
            ZkOp::get(paths::PREFERRED_REPLICA_ELECTION),
        ];
        self.zk(ops, |me, results| {
            let Some(Ok(ZkReply::Data { data, .. })) = results.get(1) else {
                return;
            };
            let named = PreferredElection::parse(data.as_deref().unwrap_or_default());
            let named = named.unwrap_or_else(|error| {
                tracing::error!(
                    "{} can't be read ({error}); removed, nothing is elected",
                    paths::PREFERRED_REPLICA_ELECTION
                );
                PreferredElection::default()
            });
            let keys = named
                .partitions
                .iter()
                .map(|p| PartitionKey::new(&p.topic, p.partition))
                .filter(|key| {
                    me.cx.partition(key).is_some_and(|p| {
                        p.leader_isr
                            .as_ref()
                            .is_some_and(|l| Some(&l.state.leader) != p.replicas.first())
                    })
                })
                .collect();
            let then = |me: &mut Controller| {
                me.flush();
                let step = MultiStep::Delete {
                    path: paths::PREFERRED_REPLICA_ELECTION.into(),
                    version: ANY_VERSION,
                };
                let ops = vec![
                    ZkOp::fenced(me.fence(), step),
                    ZkOp::exists_and_watch(paths::PREFERRED_REPLICA_ELECTION),
                ];
                me.zk_fenced(ops, |_, _| {});
            };
            me.elect_leaders(keys, Strategy::Preferred, 0, Box::new(then));
        });
    }

    /// ElectLeaders: why a partition has none of the kind that was asked for, or its leader.
    pub(crate) fn elect_on_request(
        &mut self,
        token: ApiToken,
        partitions: Vec<PartitionKey>,
        unclean: bool,
    ) {
        let mut outcomes: Vec<(PartitionKey, Outcome<i32>)> = Vec::new();
        let mut electable = Vec::new();
        for key in partitions {
            let refused = match self.cx.partition(&key) {
                None => Some((
                    ErrorCode::UnknownTopicOrPartition,
                    "The partition does not exist.",
                )),
                Some(_) if self.cx.is_deleting(&key.topic) => Some((
                    ErrorCode::InvalidTopicException,
                    "The topic is being deleted",
                )),
                Some(p) => {
                    let leader = p.leader_isr.as_ref().map_or(-1, |l| l.state.leader);
                    let is_right = if unclean {
                        self.cx.is_alive(leader)
                    } else {
                        Some(&leader) == p.replicas.first()
                    };
                    is_right.then_some((
                        ErrorCode::ElectionNotNeeded,
                        "Leader election not needed for topic partition.",
                    ))
                }
            };
            match refused {
                Some((error, text)) => outcomes.push((key, Err((error, text.to_owned())))),
                None => electable.push(key),
            }
        }
        let strategy = if unclean {
            Strategy::Unclean
        } else {
            Strategy::Preferred
        };
        let asked = electable.clone();
        let answer = move |me: &mut Controller| {
            me.flush();
            for key in asked {
                let partition = me.cx.partition(&key);
                let leader = partition
                    .and_then(|p| p.leader_isr.as_ref())
                    .map_or(-1, |l| l.state.leader);
                let is_right = match partition {
                    None => false,
                    Some(_) if unclean => me.cx.is_alive(leader),
                    Some(p) => Some(&leader) == p.replicas.first(),
                };
                let outcome = if is_right {
                    Ok(leader)
                } else {
                    let error = if unclean {
                        ErrorCode::EligibleLeadersNotAvailable
                    } else {
                        ErrorCode::PreferredLeaderNotAvailable
                    };
                    Err((
                        error,
                        format!(
                            "Failed to elect leader for partition {key} under strategy {strategy:?}"
                        ),
                    ))
                };
                outcomes.push((key, outcome));
            }
            me.reply(token, ApiResult::Elections(Ok(outcomes)));
        };
        self.elect_leaders(electable, strategy, 0, Box::new(answer));
    }

    /// The first look is soon after the election, the others as configured.
    pub(crate) fn start_balancing(&mut self) {
        if self.config.balance_every_ms.is_some() {
            self.set_balance_timer(FIRST_BALANCE_MS);
        }
    }

    fn set_balance_timer(&mut self, after_ms: u64) {
        let timer = Timer::Balance {
            epoch: self.epoch(),
        };
        self.act(Action::SetTimer { timer, after_ms });
    }

    /// Brokers that are preferred, but do not lead, for too many partitions get their leaders back.
    pub(crate) fn balance(&mut self, epoch: i32) {
        let Some(every) = self.config.balance_every_ms else {
            return;
        };
        if epoch != self.epoch() {
            return; // of an earlier term
        }
        self.set_balance_timer(every);
        let mut preferred: BTreeMap<i32, (usize, Vec<PartitionKey>)> = BTreeMap::new();
        for (name, topic) in &self.cx.topics {
            if self.cx.is_deleting(name) {
                continue;
            }
            for (number, partition) in &topic.partitions {
                let Some(first) = partition.replicas.first() else {
                    continue;
                };
                let (count, elsewhere) = preferred.entry(*first).or_default();
                *count += 1;
                let leader = partition.leader_isr.as_ref().map(|l| l.state.leader);
                if leader != Some(*first) {
                    elsewhere.push(PartitionKey::new(name, *number));
                }
            }
        }
        if self.cx.is_reassigning() {
            return;
        }
        let mut chosen = Vec::new();
        for (broker, (count, elsewhere)) in preferred {
            let share = elsewhere.len() * 100;
            if share <= count * self.config.balance_percentage {
                continue;
            }
            let eligible = |key: &PartitionKey| {
                let isr = self.cx.partition(key).and_then(|p| p.leader_isr.as_ref());
                self.cx.is_replica_online(broker, key)
                    && isr.is_some_and(|l| l.state.isr.contains(&broker))
            };
            chosen.extend(elsewhere.into_iter().filter(|key| eligible(key)));
        }
        if !chosen.is_empty() {
            tracing::info!(
                "balancing leaders: {} go to their preferred brokers",
                chosen.len()
            );
        }
        self.elect_leaders(chosen, Strategy::Preferred, 0, Box::new(Controller::flush));
    }
}
