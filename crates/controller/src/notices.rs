//! ISR changes of leaders older than AlterPartition (below inter.broker.protocol.version 2.7-IV2), and failed log
//! directories.

use gracchus_registry::json::{IsrChange, LogDirEvent};
use gracchus_registry::paths;

use crate::context::{ReplicaStage, TopicPartition};
use crate::core::{Core, Failure};

impl Core {
    /// Leaders wrote states themselves: reread them, tell everybody.
    pub async fn isr_notices(&mut self) -> Result<(), Failure> {
        let (nodes, read) = self.read_notices(paths::ISR_CHANGE_NOTIFICATION).await?;
        let mut partitions: Vec<TopicPartition> = Vec::new();
        for (node, data) in nodes.iter().zip(read) {
            match data.as_deref().map(IsrChange::parse) {
                Some(Ok(change)) => partitions.extend(
                    change
                        .partitions
                        .into_iter()
                        .map(|tp| TopicPartition::new(tp.topic, tp.partition)),
                ),
                Some(Err(error)) => tracing::error!("{node} cannot be read: {error}; deleted"),
                None => {}
            }
        }
        partitions.sort_unstable();
        partitions.dedup();
        partitions.retain(|tp| self.cx.partition(tp).is_some());
        if !partitions.is_empty() {
            self.load_states(&partitions).await?;
            let live = self.cx.live_or_shutting_down();
            self.update_metadata(&live, &partitions);
            self.complete_reassignments(&partitions).await?;
        }
        self.delete_fenced(nodes).await
    }

    /// A broker lost a log directory: asking for all its replicas tells which ones.
    pub async fn log_dir_notices(&mut self) -> Result<(), Failure> {
        let (nodes, read) = self.read_notices(paths::LOG_DIR_EVENT_NOTIFICATION).await?;
        let mut brokers: Vec<i32> = Vec::new();
        for (node, data) in nodes.iter().zip(read) {
            match data.as_deref().map(LogDirEvent::parse) {
                Some(Ok(event)) => brokers.push(event.broker_id),
                Some(Err(error)) => tracing::error!("{node} cannot be read: {error}; deleted"),
                None => {}
            }
        }
        brokers.sort_unstable();
        brokers.dedup();
        brokers.retain(|id| self.cx.brokers.contains_key(id));
        let replicas: Vec<_> = self
            .cx
            .replicas_on(&brokers)
            .into_iter()
            .filter(|r| {
                matches!(
                    self.cx.replica_stage(r),
                    ReplicaStage::New | ReplicaStage::Online | ReplicaStage::Offline
                )
            })
            .collect();
        self.move_replicas(&replicas, ReplicaStage::Online).await?;
        self.delete_fenced(nodes).await
    }

    #[allow(clippy::type_complexity)]
    async fn read_notices(
        &mut self,
        parent: &str,
    ) -> Result<(Vec<String>, Vec<Option<bytes::Bytes>>), Failure> {
        let nodes: Vec<String> = self
            .children(parent, true)
            .await?
            .iter()
            .map(|child| format!("{parent}/{child}"))
            .collect();
        let read = self.read_all(&nodes, false).await?;
        Ok((
            nodes,
            read.into_iter().map(|found| found.map(|(d, _)| d)).collect(),
        ))
    }
}
