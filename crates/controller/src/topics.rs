//! Topics and partitions that appear, whoever wrote the znodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use gracchus_registry::json::TopicAssignment;
use gracchus_registry::op::MultiStep;
use gracchus_registry::{ANY_VERSION, paths};

use crate::context::{Partition, PartitionStage, ReplicaStage, TopicPartition};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;
use crate::load::replicas_of;

impl Core {
    /// `/brokers/topics` changed.
    pub async fn topics_changed(&mut self) -> Result<(), Failure> {
        let found: BTreeSet<String> = self.children(paths::TOPICS, true).await?.into_iter().collect();
        let gone: Vec<Arc<str>> = self
            .cx
            .topics
            .keys()
            .filter(|name| !found.contains(&***name))
            .cloned()
            .collect();
        self.cx.unreadable.retain(|name| found.contains(name));
        for topic in &gone {
            if !self.cx.is_deleting(topic) {
                tracing::warn!(
                    "{} was removed by somebody else; brokers keep its replicas until they are told otherwise",
                    paths::topic(topic)
                );
            }
            self.cx.remove_topic(topic);
        }
        let new: Vec<String> = found
            .into_iter()
            .filter(|name| !self.cx.topics.contains_key(name.as_str()))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let partitions = self.load_topics(&new).await?;
        tracing::info!(topics = new.len(), partitions = partitions.len(), "new topics");
        self.create_partitions(&partitions).await
    }

    /// A topic's znode was rewritten: new partitions are made, everything else is ignored (reassignment has its own way).
    pub async fn partitions_changed(&mut self, topic: &str) -> Result<(), Failure> {
        let path = paths::topic(topic);
        let Some((data, _)) = self.read(&path, true).await? else {
            return Ok(());
        };
        let Some((name, entry)) = self.cx.topics.get_key_value(topic) else {
            // it was unreadable before
            let partitions = self.load_topics(&[topic.to_owned()]).await?;
            return self.create_partitions(&partitions).await;
        };
        let name = name.clone();
        let assignment = match TopicAssignment::parse(&data) {
            Ok(assignment) => assignment,
            Err(error) => {
                tracing::error!("{path} cannot be read: {error}; going on with what it was before");
                return Ok(());
            }
        };
        let added: Vec<i32> = assignment
            .partitions
            .keys()
            .copied()
            .filter(|index| *index >= 0 && !entry.partitions.contains_key(index))
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        if self.cx.is_deleting(topic) {
            tracing::warn!("partitions {added:?} are not added to {topic}, which is being deleted");
            return self.restore_assignment(&name).await;
        }
        let mut partitions = Vec::with_capacity(added.len());
        if let Some(entry) = self.cx.topics.get_mut(&name) {
            for index in added {
                entry
                    .partitions
                    .insert(index, Partition::new(replicas_of(&assignment, index)));
                partitions.push(TopicPartition::new(name.clone(), index));
            }
        }
        self.create_partitions(&partitions).await
    }

    /// The topic's znode as the cache has it.
    pub fn assignment_of(&self, topic: &str) -> Option<TopicAssignment> {
        let entry = self.cx.topics.get(topic)?;
        let mut assignment = TopicAssignment {
            topic_id: Some(entry.id).filter(|id| !id.is_zero()),
            ..Default::default()
        };
        for (index, partition) in &entry.partitions {
            let replicas = &partition.assignment;
            assignment
                .partitions
                .insert(*index, replicas.replicas.clone());
            if !replicas.adding.is_empty() {
                assignment
                    .adding_replicas
                    .insert(*index, replicas.adding.clone());
            }
            if !replicas.removing.is_empty() {
                assignment
                    .removing_replicas
                    .insert(*index, replicas.removing.clone());
            }
        }
        Some(assignment)
    }

    async fn restore_assignment(&mut self, topic: &Arc<str>) -> Result<(), Failure> {
        let Some(assignment) = self.assignment_of(topic) else {
            return Ok(());
        };
        let step = MultiStep::SetData {
            path: paths::topic(topic),
            data: Some(assignment.to_bytes()),
            version: ANY_VERSION,
        };
        for outcome in self.fenced(vec![step]).await? {
            if let Err(error) = outcome {
                tracing::error!("{} cannot be set back: {error}", paths::topic(topic));
            }
        }
        Ok(())
    }

    async fn create_partitions(&mut self, partitions: &[TopicPartition]) -> Result<(), Failure> {
        let by_offline_rule = Strategy::Offline { unclean: false };
        self.move_partitions(partitions, PartitionStage::New, by_offline_rule)
            .await?;
        let replicas = self.cx.replicas_of(partitions);
        self.move_replicas(&replicas, ReplicaStage::New).await?;
        self.move_partitions(partitions, PartitionStage::Online, by_offline_rule)
            .await?;
        self.move_replicas(&replicas, ReplicaStage::Online).await
    }
}
