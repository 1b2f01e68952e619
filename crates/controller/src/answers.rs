//! Answers of brokers to what the controller sent.

use std::collections::BTreeSet;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{
    LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse,
};

use crate::context::{Replica, TopicPartition};
use crate::core::{Core, Failure};

impl Core {
    /// KAFKA_STORAGE_ERROR tells which replicas are in failed log directories.
    pub async fn leader_and_isr_answered(
        &mut self,
        broker_id: i32,
        response: LeaderAndIsrResponse,
    ) -> Result<(), Failure> {
        if response.error_code != 0 {
            let error = ErrorCode::from_code(response.error_code);
            tracing::error!("broker {broker_id} answered LeaderAndIsr with {}", error.name());
            return Ok(());
        }
        let by_name = response
            .partition_errors
            .into_iter()
            .map(|p| (Some(p.topic_name), p.partition_index, p.error_code));
        let by_id = response.topics.into_iter().flat_map(|topic| {
            let name = self.cx.topic_name(&topic.topic_id).map(|n| n.to_string());
            topic
                .partition_errors
                .into_iter()
                .map(move |p| (name.clone(), p.partition_index, p.error_code))
                .collect::<Vec<_>>()
        });
        let (mut online, mut offline) = (Vec::new(), Vec::new());
        for (name, partition, code) in by_name.chain(by_id) {
            let Some(name) = name else { continue };
            let tp = TopicPartition::new(name, partition);
            match ErrorCode::from_code(code) {
                ErrorCode::None => online.push(tp),
                ErrorCode::KafkaStorageError => offline.push(tp),
                error => {
                    tracing::debug!("broker {broker_id} answered {} for {tp}", error.name());
                }
            }
        }
        let known: BTreeSet<TopicPartition> =
            self.cx.offline_dirs.get(&broker_id).cloned().unwrap_or_default();
        let mut now = known.clone();
        for tp in &online {
            now.remove(tp);
        }
        now.extend(offline);
        let fresh: Vec<Replica> = now
            .difference(&known)
            .filter(|tp| self.cx.partition(tp).is_some())
            .map(|tp| Replica {
                partition: tp.clone(),
                broker_id,
            })
            .collect();
        if now.is_empty() {
            self.cx.offline_dirs.remove(&broker_id);
        } else {
            self.cx.offline_dirs.insert(broker_id, now);
        }
        if fresh.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            replicas = fresh.len(),
            "a log directory of broker {broker_id} has failed"
        );
        self.replicas_went_offline(&fresh).await
    }

    pub fn update_metadata_answered(&self, broker_id: i32, response: &UpdateMetadataResponse) {
        if response.error_code != 0 {
            let error = ErrorCode::from_code(response.error_code);
            tracing::error!("broker {broker_id} answered UpdateMetadata with {}", error.name());
        }
    }

    /// Only deletions matter here.
    pub async fn stop_replica_answered(
        &mut self,
        broker_id: i32,
        deleted: Vec<TopicPartition>,
        response: StopReplicaResponse,
    ) -> Result<(), Failure> {
        if response.error_code != 0 {
            let error = ErrorCode::from_code(response.error_code);
            tracing::error!("broker {broker_id} answered StopReplica with {}", error.name());
        }
        let (mut gone, mut failed) = (Vec::new(), Vec::new());
        for tp in deleted {
            if !self.cx.is_deleting(&tp.topic) {
                continue;
            }
            let own = response
                .partition_errors
                .iter()
                .find(|p| *p.topic_name == *tp.topic && p.partition_index == tp.partition)
                .map_or(0, |p| p.error_code);
            let replica = Replica {
                partition: tp,
                broker_id,
            };
            if response.error_code == 0 && own == 0 {
                gone.push(replica);
            } else {
                tracing::warn!(
                    "replica {replica} could not be deleted: {}",
                    ErrorCode::from_code(own).name()
                );
                failed.push(replica);
            }
        }
        if !failed.is_empty() {
            self.deletion_failed(&failed).await?;
        }
        if !gone.is_empty() {
            self.replicas_deleted(&gone).await?;
        }
        Ok(())
    }
}
