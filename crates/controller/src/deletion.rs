//! Deleting topics, step by step. Everything that a new controller needs to go on stands in `/admin/delete_topics`.

use std::sync::Arc;

use gracchus_registry::paths;

use crate::context::{PartitionStage, Replica, ReplicaStage, TopicPartition};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;

impl Core {
    /// At a takeover: what was being deleted, and which of it has to wait.
    pub async fn load_deletions(&mut self, names: Vec<String>) -> Result<(), Failure> {
        let queued = self.accept_deletions(names).await?;
        let waiting: Vec<Arc<str>> = queued
            .iter()
            .filter(|topic| {
                let partitions = self.cx.partitions_of(topic);
                partitions.iter().any(|tp| {
                    self.cx.partition(tp).is_some_and(|p| {
                        p.assignment.is_under_way()
                            || p.assignment
                                .replicas
                                .iter()
                                .any(|id| !self.cx.is_online(*id, tp))
                    })
                })
            })
            .cloned()
            .collect();
        self.cx.deleting.extend(queued);
        self.cx.deletion_ineligible.extend(waiting);
        Ok(())
    }

    /// `/admin/delete_topics` changed.
    pub async fn deletions_asked_for(&mut self) -> Result<(), Failure> {
        let names = self.children(paths::DELETE_TOPICS, true).await?;
        let fresh: Vec<String> = names
            .into_iter()
            .filter(|name| !self.cx.is_deleting(name))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let mut queued = self.accept_deletions(fresh).await?;
        if queued.is_empty() {
            return Ok(());
        }
        tracing::info!(topics = ?queued, "topics to be deleted");
        queued.retain(|topic| {
            let moving = self
                .cx
                .topics
                .get(topic)
                .is_some_and(|t| t.partitions.values().any(|p| p.assignment.is_under_way()));
            if moving {
                tracing::info!("deletion of {topic} waits for the end of its reassignment");
                self.cx.deletion_ineligible.insert(topic.clone());
            }
            self.cx.deleting.insert(topic.clone());
            true
        });
        self.resume_deletions().await
    }

    /// Topics of these that are known; the entries of others, or all where deletion is turned off, are removed.
    async fn accept_deletions(&mut self, names: Vec<String>) -> Result<Vec<Arc<str>>, Failure> {
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for name in names {
            match self.cx.topics.get_key_value(name.as_str()) {
                Some((topic, _)) if self.config.delete_topic_enable => accepted.push(topic.clone()),
                Some(_) => {
                    tracing::warn!(
                        "{} is removed: delete.topic.enable is false",
                        paths::delete_topic(&name)
                    );
                    refused.push(name);
                }
                None if self.cx.unreadable.contains(&name) => {
                    tracing::error!(
                        "{name} cannot be deleted: {} cannot be read. Repair or delete that node",
                        paths::topic(&name)
                    );
                }
                None => {
                    tracing::warn!("{} names no topic; removed", paths::delete_topic(&name));
                    refused.push(name);
                }
            }
        }
        self.delete_fenced(refused.iter().map(|n| paths::delete_topic(n)).collect())
            .await?;
        Ok(accepted)
    }

    /// Goes on with every deletion as far as it goes now.
    pub async fn resume_deletions(&mut self) -> Result<(), Failure> {
        let queued: Vec<Arc<str>> = self.cx.deleting.iter().cloned().collect();
        let (mut eligible, mut retry) = (Vec::new(), Vec::new());
        for topic in queued {
            let partitions = self.cx.partitions_of(&topic);
            let replicas = self.cx.replicas_of(&partitions);
            let stages: Vec<ReplicaStage> =
                replicas.iter().map(|r| self.cx.replica_stage(r)).collect();
            if stages
                .iter()
                .all(|stage| *stage == ReplicaStage::DeletionSuccessful)
            {
                self.complete_deletion(&topic).await?;
                continue;
            }
            let in_progress = stages.contains(&ReplicaStage::DeletionStarted);
            if in_progress || self.cx.deletion_ineligible.contains(&topic) {
                continue;
            }
            if stages.contains(&ReplicaStage::DeletionIneligible) {
                retry.push(topic.clone());
            }
            eligible.push(topic);
        }
        for topic in retry {
            let failed = self.cx.replicas_in(&topic, ReplicaStage::DeletionIneligible);
            self.move_replicas(&failed, ReplicaStage::Offline).await?;
        }
        if !eligible.is_empty() {
            self.start_deletion(&eligible).await?;
        }
        Ok(())
    }

    async fn start_deletion(&mut self, topics: &[Arc<str>]) -> Result<(), Failure> {
        let unseen: Vec<&Arc<str>> = topics
            .iter()
            .filter(|topic| !self.cx.deletion_started.contains(*topic))
            .collect();
        let partitions: Vec<TopicPartition> = unseen
            .iter()
            .flat_map(|topic| self.cx.partitions_of(topic))
            .collect();
        let rule = Strategy::Offline { unclean: false };
        let started: Vec<Arc<str>> = unseen.into_iter().cloned().collect();
        self.move_partitions(&partitions, PartitionStage::Offline, rule)
            .await?;
        self.move_partitions(&partitions, PartitionStage::NonExistent, rule)
            .await?;
        self.cx.deletion_started.extend(started);

        let all: Vec<TopicPartition> = topics
            .iter()
            .flat_map(|topic| self.cx.partitions_of(topic))
            .collect();
        let live = self.cx.live_or_shutting_down();
        self.update_metadata(&live, &all);

        let (mut dead, mut to_delete) = (Vec::new(), Vec::new());
        for replica in self.cx.replicas_of(&all) {
            if !self.cx.is_online(replica.broker_id, &replica.partition) {
                self.cx
                    .deletion_ineligible
                    .insert(replica.partition.topic.clone());
                dead.push(replica);
            } else if self.cx.replica_stage(&replica) != ReplicaStage::DeletionSuccessful {
                to_delete.push(replica);
            }
        }
        dead.retain(|r| self.cx.replica_stage(r) != ReplicaStage::DeletionIneligible);
        let not_told: Vec<Replica> = dead
            .iter()
            .filter(|r| {
                matches!(
                    self.cx.replica_stage(r),
                    ReplicaStage::New | ReplicaStage::Online
                )
            })
            .cloned()
            .collect();
        self.move_replicas(&not_told, ReplicaStage::Offline).await?;
        self.move_replicas(&dead, ReplicaStage::DeletionIneligible)
            .await?;
        self.move_replicas(&to_delete, ReplicaStage::Offline).await?;
        self.move_replicas(&to_delete, ReplicaStage::DeletionStarted)
            .await
    }

    /// Replicas could not be deleted: the topic waits until their broker starts again.
    pub async fn deletion_failed(&mut self, replicas: &[Replica]) -> Result<(), Failure> {
        let failed: Vec<Replica> = replicas
            .iter()
            .filter(|r| self.cx.is_deleting(&r.partition.topic))
            .cloned()
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        for replica in &failed {
            if self
                .cx
                .deletion_ineligible
                .insert(replica.partition.topic.clone())
            {
                tracing::info!(
                    "deletion of {} waits for broker {}",
                    replica.partition.topic,
                    replica.broker_id
                );
            }
        }
        let movable: Vec<Replica> = failed
            .into_iter()
            .filter(|r| {
                matches!(
                    self.cx.replica_stage(r),
                    ReplicaStage::Offline | ReplicaStage::DeletionStarted
                )
            })
            .collect();
        self.move_replicas(&movable, ReplicaStage::DeletionIneligible)
            .await?;
        self.resume_deletions().await
    }

    /// Replicas are gone from their brokers.
    pub async fn replicas_deleted(&mut self, replicas: &[Replica]) -> Result<(), Failure> {
        let gone: Vec<Replica> = replicas
            .iter()
            .filter(|r| self.cx.is_deleting(&r.partition.topic))
            .cloned()
            .collect();
        self.move_replicas(&gone, ReplicaStage::DeletionSuccessful)
            .await?;
        self.resume_deletions().await
    }

    /// The znodes go: topic, configuration, and the order itself last, so that a new controller goes on where this one ended.
    async fn complete_deletion(&mut self, topic: &Arc<str>) -> Result<(), Failure> {
        let root = paths::topic(topic);
        let mut levels: Vec<Vec<String>> = vec![vec![root]];
        // partitions, P, state: no deeper in a sound tree
        for _ in 0..16 {
            let parents = levels.last().cloned().unwrap_or_default();
            let mut below = Vec::new();
            for (parent, children) in parents.iter().zip(self.children_of_all(&parents).await?) {
                below.extend(children.into_iter().map(|child| format!("{parent}/{child}")));
            }
            if below.is_empty() {
                break;
            }
            levels.push(below);
        }
        let mut doomed: Vec<String> = levels.into_iter().rev().flatten().collect();
        doomed.push(paths::topic_config(topic));
        doomed.push(paths::delete_topic(topic));
        self.delete_fenced(doomed).await?;
        self.cx.remove_topic(topic);
        tracing::info!("topic {topic} is deleted");
        Ok(())
    }

    async fn children_of_all(&mut self, parents: &[String]) -> Result<Vec<Vec<String>>, Failure> {
        use gracchus_registry::op::ZkError;
        use gracchus_registry::{ZkOp, ZkReply};
        let ops = parents.iter().map(|path| ZkOp::children(path)).collect();
        let results = self.port.zk(ops).await;
        parents
            .iter()
            .zip(results)
            .map(|(path, result)| match result {
                Ok(ZkReply::Children { mut children, .. }) => {
                    children.sort_unstable();
                    Ok(children)
                }
                Ok(_) => Err(crate::core::failed(path, ZkError::SystemError)),
                Err(failure) if failure.error == ZkError::NoNode => Ok(Vec::new()),
                Err(failure) => Err(crate::core::failed(path, failure.error)),
            })
            .collect()
    }
}
