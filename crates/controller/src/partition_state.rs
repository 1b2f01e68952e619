//! Partition states: NonExistent -> New -> Online <-> Offline -> NonExistent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use gracchus_registry::json::PartitionState;
use gracchus_registry::op::{CreateMode, MultiStep, ZkError};
use gracchus_registry::paths;

use crate::context::{Leadership, Partition, PartitionStage, TopicPartition};
use crate::core::{Core, Failure};
use crate::leader_election::{ElectionError, Strategy};

impl PartitionStage {
    fn may_become(self, target: Self) -> bool {
        use PartitionStage::{New, NonExistent, Offline, Online};
        match target {
            New => self == NonExistent,
            Online | Offline => matches!(self, New | Online | Offline),
            NonExistent => self == Offline,
        }
    }
}

/// What became of each partition that was to be elected.
pub(crate) type Elected = BTreeMap<TopicPartition, Result<(), ElectionError>>;

impl Core {
    /// Moves partitions, writes what must be written, and sends the requests that follow. An illegal move is logged and
    /// left out. Answers for partitions that went through an election.
    pub async fn move_partitions(
        &mut self,
        partitions: &[TopicPartition],
        target: PartitionStage,
        strategy: Strategy,
    ) -> Result<Elected, Failure> {
        if partitions.is_empty() {
            return Ok(Elected::new());
        }
        self.batch.clear();
        let mut legal = Vec::with_capacity(partitions.len());
        for tp in partitions {
            match self.cx.partition(tp) {
                Some(partition) if partition.stage.may_become(target) => legal.push(tp.clone()),
                Some(partition) => tracing::error!(
                    "partition {tp} cannot become {target:?} from {:?}",
                    partition.stage
                ),
                None => {}
            }
        }
        let mut elected = Elected::new();
        if target == PartitionStage::Online {
            let (new, known): (Vec<_>, Vec<_>) = legal.into_iter().partition(|tp| {
                self.cx
                    .partition(tp)
                    .is_some_and(|p| p.stage == PartitionStage::New)
            });
            for tp in self.create_states(&new).await? {
                self.set_partition_stage(&tp, PartitionStage::Online);
            }
            if !known.is_empty() {
                elected = self.elect_leaders_of(&known, strategy).await?;
                for (tp, result) in &elected {
                    if result.is_ok() {
                        self.set_partition_stage(tp, PartitionStage::Online);
                    }
                }
            }
        } else {
            for tp in &legal {
                self.set_partition_stage(tp, target);
            }
        }
        self.send_batch();
        Ok(elected)
    }

    fn set_partition_stage(&mut self, tp: &TopicPartition, stage: PartitionStage) {
        if let Some(partition) = self.cx.partition_mut(tp) {
            partition.stage = stage;
        }
    }

    /// First leaders: the first live replica leads, all live ones are in sync. All nodes go out in one burst, parents first.
    async fn create_states(&mut self, new: &[TopicPartition]) -> Result<Vec<TopicPartition>, Failure> {
        let mut states: Vec<(TopicPartition, PartitionState)> = Vec::new();
        for tp in new {
            let replicas = self
                .cx
                .partition(tp)
                .map(|p: &Partition| p.assignment.replicas.clone())
                .unwrap_or_default();
            let live: Vec<i32> = replicas
                .iter()
                .copied()
                .filter(|id| self.cx.is_online(*id, tp))
                .collect();
            let Some(leader) = live.first() else {
                tracing::warn!(
                    "partition {tp} gets no leader yet: none of its replicas {replicas:?} is alive"
                );
                continue;
            };
            states.push((
                tp.clone(),
                PartitionState {
                    controller_epoch: self.cx.epoch,
                    leader: *leader,
                    leader_epoch: 0,
                    isr: live,
                    leader_recovery_state: 0,
                },
            ));
        }
        let create = |path: String, data| MultiStep::Create {
            path,
            data,
            mode: CreateMode::Persistent,
        };
        let topics: BTreeSet<_> = states.iter().map(|(tp, _)| tp.topic.clone()).collect();
        let mut steps: Vec<MultiStep> = topics
            .iter()
            .map(|topic| create(paths::topic_partitions(topic), None))
            .collect();
        steps.extend(
            states
                .iter()
                .map(|(tp, _)| create(paths::partition(&tp.topic, tp.partition), None)),
        );
        let parents = steps.len();
        steps.extend(states.iter().map(|(tp, state)| {
            create(
                paths::partition_state(&tp.topic, tp.partition),
                Some(state.to_bytes()),
            )
        }));
        let outcomes = self.fenced(steps).await?;
        let mut online = Vec::with_capacity(states.len());
        for ((tp, state), outcome) in states.into_iter().zip(outcomes.into_iter().skip(parents)) {
            match outcome {
                Ok(_) => {
                    let isr = state.isr.clone();
                    if let Some(partition) = self.cx.partition_mut(&tp) {
                        partition.leadership = Some(Leadership {
                            state,
                            partition_epoch: 0,
                        });
                    }
                    self.add_leader_and_isr(&isr, &tp, true);
                    online.push(tp);
                }
                Err(ZkError::NodeExists) => tracing::error!(
                    "{} is there already, though the topic is new or its content cannot be read: partition {tp} gets no leader. \
                     Repair or delete the node, then delete {} for a new election",
                    paths::partition_state(&tp.topic, tp.partition),
                    paths::CONTROLLER
                ),
                Err(error) => tracing::error!(
                    "{} cannot be created: {error}; partition {tp} has no leader",
                    paths::partition_state(&tp.topic, tp.partition)
                ),
            }
        }
        Ok(online)
    }
}
