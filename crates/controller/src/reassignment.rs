//! Partition reassignment (KIP-455). Its state lives in the topic's znode, so a new controller goes on with it.

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::{LEADER_NONE, ReassignPartitions};
use gracchus_registry::op::MultiStep;
use gracchus_registry::{ANY_VERSION, paths};

use crate::context::{PartitionStage, Reassignment, Replica, ReplicaStage, TopicPartition, without};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;

pub(crate) type ReassignResult = (TopicPartition, Result<(), (ErrorCode, String)>);

impl Core {
    /// AlterPartitionReassignments.
    pub async fn reassign_by_api(
        &mut self,
        targets: Vec<(TopicPartition, Option<Vec<i32>>)>,
    ) -> Result<Vec<ReassignResult>, Failure> {
        let mut results = Vec::with_capacity(targets.len());
        let mut from_znode = Vec::new();
        for (tp, target) in targets {
            let result = match self.checked_target(&tp, target) {
                Err(error) => Err(error),
                Ok(next) => {
                    from_znode.push(tp.clone());
                    self.reassign(&tp, next).await?;
                    Ok(())
                }
            };
            results.push((tp, result));
        }
        self.drop_from_znode(&from_znode, true).await?;
        Ok(results)
    }

    fn checked_target(
        &self,
        tp: &TopicPartition,
        target: Option<Vec<i32>>,
    ) -> Result<Reassignment, (ErrorCode, String)> {
        let partition = self
            .cx
            .partition(tp)
            .filter(|_| !self.cx.is_deleting(&tp.topic))
            .ok_or_else(|| {
                (
                    ErrorCode::UnknownTopicOrPartition,
                    "The partition does not exist.".to_owned(),
                )
            })?;
        let current = &partition.assignment;
        let Some(target) = target else {
            if !current.is_under_way() {
                return Err((
                    ErrorCode::NoReassignmentInProgress,
                    "No partition reassignment is in progress.".to_owned(),
                ));
            }
            return Ok(current.to(&current.original()));
        };
        let invalid = |text: String| Err((ErrorCode::InvalidReplicaAssignment, text));
        if target.is_empty() {
            return invalid("Empty replica list specified in partition reassignment.".to_owned());
        }
        let mut seen = std::collections::BTreeSet::new();
        if target.iter().any(|id| !seen.insert(*id)) {
            return invalid(format!(
                "Duplicate replica ids in partition reassignment replica list: {target:?}"
            ));
        }
        if target.iter().any(|id| *id < 0) {
            return invalid(format!(
                "Invalid broker id in replica list: {target:?}"
            ));
        }
        let next = current.to(&target);
        let dead: Vec<i32> = next
            .adding
            .iter()
            .copied()
            .filter(|id| !self.cx.brokers.contains_key(id))
            .collect();
        if !dead.is_empty() {
            return invalid(format!(
                "Replica assignment has brokers that are not alive. Replica list: {dead:?}, live broker list: {:?}",
                self.cx.live_or_shutting_down()
            ));
        }
        Ok(next)
    }

    /// Those under way, of these partitions or all.
    pub fn list_reassignments(
        &self,
        wanted: Option<Vec<TopicPartition>>,
    ) -> Vec<(TopicPartition, Reassignment)> {
        self.cx
            .partitions()
            .filter(|(tp, p)| {
                p.assignment.is_under_way()
                    && wanted.as_ref().is_none_or(|wanted| wanted.contains(tp))
            })
            .map(|(tp, p)| (tp, p.assignment.clone()))
            .collect()
    }

    /// `/admin/reassign_partitions` of old tools: its entries become ordinary reassignments. What cannot be read stays in
    /// place, and is looked at again when it changes.
    pub async fn reassignment_by_znode(&mut self) -> Result<(), Failure> {
        let path = paths::REASSIGN_PARTITIONS;
        let Some((data, _)) = self.read(path, true).await? else {
            return self.watch_exists(path).await;
        };
        let order = match ReassignPartitions::parse(&data) {
            Ok(order) => order,
            Err(error) => {
                tracing::error!("{path} cannot be read: {error}. Repair or delete the node");
                return Ok(());
            }
        };
        let mut finished = Vec::new();
        for entry in order.entries {
            let tp = TopicPartition::new(entry.topic, entry.partition);
            let known = self
                .cx
                .partition(&tp)
                .filter(|_| !self.cx.is_deleting(&tp.topic));
            let Some(partition) = known else {
                tracing::error!("{path}: {tp} is unknown or being deleted; the entry is removed");
                finished.push(tp);
                continue;
            };
            if entry.replicas.is_empty() {
                tracing::error!("{path}: {tp} would have no replica; the entry is removed");
                finished.push(tp);
                continue;
            }
            let current = partition.assignment.clone();
            if current.target() == entry.replicas {
                if !current.is_under_way() {
                    finished.push(tp);
                }
                continue;
            }
            self.reassign(&tp, current.to(&entry.replicas)).await?;
            if self
                .cx
                .partition(&tp)
                .is_none_or(|p| !p.assignment.is_under_way())
            {
                finished.push(tp);
            }
        }
        self.drop_from_znode(&finished, false).await
    }

    /// Takes entries out of the old tools' node; deletes it when it is empty. `or_unreadable`: also one that cannot be read.
    async fn drop_from_znode(
        &mut self,
        partitions: &[TopicPartition],
        or_unreadable: bool,
    ) -> Result<(), Failure> {
        if partitions.is_empty() {
            return Ok(());
        }
        let path = paths::REASSIGN_PARTITIONS;
        let Some((data, stat)) = self.read(path, false).await? else {
            return Ok(());
        };
        let left = match ReassignPartitions::parse(&data) {
            Ok(mut order) => {
                let before = order.entries.len();
                order.entries.retain(|entry| {
                    !partitions
                        .iter()
                        .any(|tp| *tp.topic == *entry.topic && tp.partition == entry.partition)
                });
                if before == order.entries.len() && before > 0 {
                    return Ok(());
                }
                order
            }
            Err(_) if or_unreadable => ReassignPartitions::default(),
            Err(_) => return Ok(()),
        };
        let step = if left.entries.is_empty() {
            MultiStep::Delete {
                path: path.to_owned(),
                version: stat.version,
            }
        } else {
            MultiStep::SetData {
                path: path.to_owned(),
                data: Some(left.to_bytes()),
                version: stat.version,
            }
        };
        for outcome in self.fenced(vec![step]).await? {
            if let Err(error) = outcome {
                tracing::warn!("{path} cannot be rewritten: {error}");
            }
        }
        Ok(())
    }

    /// After an election, or when brokers (`ids`) started that are in a target.
    pub async fn resume_reassignments(&mut self, ids: Option<&[i32]>) -> Result<(), Failure> {
        let waiting: Vec<(TopicPartition, Reassignment)> = self
            .cx
            .partitions()
            .filter(|(_, p)| {
                p.assignment.is_under_way()
                    && ids.is_none_or(|ids| {
                        p.assignment.target().iter().any(|id| ids.contains(id))
                    })
            })
            .map(|(tp, p)| (tp, p.assignment.clone()))
            .collect();
        for (tp, assignment) in waiting {
            self.reassign(&tp, assignment).await?;
        }
        Ok(())
    }

    /// The ISRs of these partitions changed: whose target is in sync now is completed.
    pub async fn complete_reassignments(
        &mut self,
        partitions: &[TopicPartition],
    ) -> Result<(), Failure> {
        for tp in partitions {
            let Some(partition) = self.cx.partition(tp) else {
                continue;
            };
            if partition.assignment.is_under_way() && self.target_is_in_sync(tp) {
                let assignment = partition.assignment.clone();
                self.complete(tp, assignment).await?;
            }
        }
        Ok(())
    }

    /// A leader below 2.7-IV2 wrote the state of a partition that is being reassigned.
    pub async fn reassigned_partition_isr_changed(
        &mut self,
        topic: &str,
        partition: i32,
    ) -> Result<(), Failure> {
        let tp = TopicPartition::new(topic, partition);
        let under_way = self
            .cx
            .partition(&tp)
            .is_some_and(|p| p.assignment.is_under_way());
        if !under_way {
            return Ok(());
        }
        self.read(&paths::partition_state(topic, partition), true)
            .await?;
        self.load_states(std::slice::from_ref(&tp)).await?;
        self.complete_reassignments(&[tp]).await
    }

    fn target_is_in_sync(&self, tp: &TopicPartition) -> bool {
        self.cx.partition(tp).is_some_and(|p| {
            let target = p.assignment.target();
            p.leadership
                .as_ref()
                .is_some_and(|l| target.iter().all(|id| l.state.isr.contains(id)))
        })
    }

    /// Sets out for `next`, and arrives if its target is in sync already.
    async fn reassign(&mut self, tp: &TopicPartition, next: Reassignment) -> Result<(), Failure> {
        if self.cx.is_deleting(&tp.topic) {
            self.cx.deletion_ineligible.insert(tp.topic.clone());
        }
        let Some(current) = self.cx.partition(tp).map(|p| p.assignment.clone()) else {
            return Ok(());
        };
        if current != next {
            self.set_assignment(tp, next.clone());
            self.store_assignment(tp).await?;
            let mut needed = next.original();
            needed.extend(&next.adding);
            let unneeded = without(&current.replicas, &needed);
            self.stop_replicas(tp, &unneeded).await?;
        }
        if !self.config.versions.alter_partition {
            self.read(&paths::partition_state(&tp.topic, tp.partition), true)
                .await?;
        }
        self.load_states(std::slice::from_ref(tp)).await?;
        if !next.is_under_way() || self.target_is_in_sync(tp) {
            return self.complete(tp, next).await;
        }
        self.raise_leader_epoch(tp, &next.original(), &next.adding)
            .await?;
        let adding: Vec<Replica> = replicas(tp, &next.adding)
            .into_iter()
            .filter(|r| self.cx.replica_stage(r) == ReplicaStage::NonExistent)
            .collect();
        self.move_replicas(&adding, ReplicaStage::New).await
    }

    async fn complete(&mut self, tp: &TopicPartition, from: Reassignment) -> Result<(), Failure> {
        self.move_replicas(&replicas(tp, &from.adding), ReplicaStage::Online)
            .await?;
        let target = from.target();
        self.set_assignment(
            tp,
            Reassignment {
                replicas: target.clone(),
                ..Default::default()
            },
        );
        let leader = self
            .cx
            .partition(tp)
            .and_then(|p| p.leader())
            .unwrap_or(LEADER_NONE);
        if target.contains(&leader) && self.cx.is_online(leader, tp) {
            self.raise_leader_epoch(tp, &target, &[]).await?;
        } else {
            self.move_partitions(
                std::slice::from_ref(tp),
                PartitionStage::Online,
                Strategy::Reassign,
            )
            .await?;
        }
        self.stop_replicas(tp, &from.removing).await?;
        self.store_assignment(tp).await?;
        self.drop_from_znode(std::slice::from_ref(tp), false).await?;
        let live = self.cx.live_or_shutting_down();
        self.update_metadata(&live, std::slice::from_ref(tp));
        tracing::info!("reassignment of {tp} to {target:?} is complete");
        let others_move = self
            .cx
            .topics
            .get(&tp.topic)
            .is_some_and(|t| t.partitions.values().any(|p| p.assignment.is_under_way()));
        if !others_move {
            self.cx.deletion_ineligible.remove(&tp.topic);
            if self.cx.is_deleting(&tp.topic) {
                self.resume_deletions().await?;
            }
        }
        Ok(())
    }

    fn set_assignment(&mut self, tp: &TopicPartition, assignment: Reassignment) {
        if let Some(partition) = self.cx.partition_mut(tp) {
            partition.assignment = assignment;
        }
    }

    async fn store_assignment(&mut self, tp: &TopicPartition) -> Result<(), Failure> {
        let Some(assignment) = self.assignment_of(&tp.topic) else {
            return Ok(());
        };
        let path = paths::topic(&tp.topic);
        let step = MultiStep::SetData {
            path: path.clone(),
            data: Some(assignment.to_bytes()),
            version: ANY_VERSION,
        };
        for outcome in self.fenced(vec![step]).await? {
            if let Err(error) = outcome {
                return Err(crate::core::failed(&path, error));
            }
        }
        Ok(())
    }

    /// Brokers shall see the new assignment: that takes a new leader epoch.
    async fn raise_leader_epoch(
        &mut self,
        tp: &TopicPartition,
        to: &[i32],
        new: &[i32],
    ) -> Result<(), Failure> {
        for _ in 0..20 {
            let (states, failures) = self.read_states(std::slice::from_ref(tp)).await?;
            if let Some((_, error)) = failures.first() {
                tracing::error!("the leader epoch of {tp} cannot be raised: {error}");
                return Ok(());
            }
            let writes = states
                .into_iter()
                .map(|(tp, old, version)| {
                    let next = self.next_state(&old, old.leader, old.isr.clone(), false);
                    (tp, next, version)
                })
                .collect();
            match self.write_states(writes).await?.first() {
                Some(Ok(())) => {
                    self.batch.clear();
                    self.add_leader_and_isr(to, tp, false);
                    self.add_leader_and_isr(new, tp, true);
                    self.send_batch();
                    return Ok(());
                }
                Some(Err(gracchus_registry::op::ZkError::BadVersion)) => {}
                other => {
                    tracing::error!("the leader epoch of {tp} cannot be raised: {other:?}");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Replicas that are no longer wanted go without waiting for their brokers' answers.
    async fn stop_replicas(&mut self, tp: &TopicPartition, ids: &[i32]) -> Result<(), Failure> {
        let doomed = replicas(tp, ids);
        for stage in [
            ReplicaStage::Offline,
            ReplicaStage::DeletionStarted,
            ReplicaStage::DeletionSuccessful,
            ReplicaStage::NonExistent,
        ] {
            self.move_replicas(&doomed, stage).await?;
        }
        Ok(())
    }
}

fn replicas(tp: &TopicPartition, ids: &[i32]) -> Vec<Replica> {
    ids.iter()
        .map(|id| Replica {
            partition: tp.clone(),
            broker_id: *id,
        })
        .collect()
}
