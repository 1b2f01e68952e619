//! What a new controller does first. The order matters: brokers learn who is alive before they are told of leaders.

use gracchus_registry::json::LEADER_NONE;
use gracchus_registry::paths;

use crate::action::Action;
use crate::context::{PartitionStage, Replica, ReplicaStage};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;

impl Core {
    /// Reads the cluster, and brings it into order.
    pub async fn take_over(&mut self) -> Result<(), Failure> {
        self.settle_features().await?;
        // old notices say nothing that reading all does not
        for parent in [
            paths::LOG_DIR_EVENT_NOTIFICATION,
            paths::ISR_CHANGE_NOTIFICATION,
        ] {
            let notices = self.children(parent, true).await?;
            self.delete_fenced(notices.iter().map(|n| format!("{parent}/{n}")).collect())
                .await?;
        }
        self.cx.brokers = self.read_brokers().await?;
        let topics = self.children(paths::TOPICS, true).await?;
        let partitions = self.load_topics(&topics).await?;
        self.load_states(&partitions).await?;
        for (id, broker) in &self.cx.brokers {
            self.port.act(Action::AddBroker {
                broker_id: *id,
                registration: broker.registration.clone(),
            });
        }
        let deletions = self.children(paths::DELETE_TOPICS, true).await?;
        self.load_deletions(deletions).await?;

        let live = self.cx.live_or_shutting_down();
        self.update_metadata(&live, &[]);

        self.start_replicas().await?;
        self.start_partitions().await?;

        self.reassignment_by_znode().await?;
        self.resume_reassignments(None).await?;
        self.resume_deletions().await?;
        self.preferred_election_by_znode().await?;
        self.set_rebalance_timer();
        tracing::info!(
            epoch = self.cx.epoch,
            brokers = self.cx.brokers.len(),
            topics = self.cx.topics.len(),
            "in charge as controller"
        );
        Ok(())
    }

    async fn start_replicas(&mut self) -> Result<(), Failure> {
        let all: Vec<_> = self.cx.partitions().map(|(tp, _)| tp).collect();
        let (mut online, mut offline) = (Vec::new(), Vec::new());
        for replica in self.cx.replicas_of(&all) {
            if self.cx.is_online(replica.broker_id, &replica.partition) {
                self.set_stage(&replica, ReplicaStage::Online);
                online.push(replica);
            } else {
                // eligible again when its broker is back
                self.set_stage(&replica, ReplicaStage::DeletionIneligible);
                offline.push(replica);
            }
        }
        self.move_replicas(&online, ReplicaStage::Online).await?;
        self.move_replicas(&offline, ReplicaStage::Offline).await
    }

    fn set_stage(&mut self, replica: &Replica, stage: ReplicaStage) {
        if let Some(partition) = self.cx.partition_mut(&replica.partition) {
            partition.replicas.insert(replica.broker_id, stage);
        }
    }

    async fn start_partitions(&mut self) -> Result<(), Failure> {
        let mut stages = Vec::new();
        for (tp, partition) in self.cx.partitions() {
            let stage = match partition.leader() {
                None => PartitionStage::New,
                Some(leader) if leader != LEADER_NONE && self.cx.is_online(leader, &tp) => {
                    PartitionStage::Online
                }
                Some(_) => PartitionStage::Offline,
            };
            stages.push((tp, stage));
        }
        for (tp, stage) in stages {
            if let Some(partition) = self.cx.partition_mut(&tp) {
                partition.stage = stage;
            }
        }
        self.bring_partitions_online(None).await
    }

    /// Tries to find leaders for partitions that have none, of all topics or one.
    pub async fn bring_partitions_online(&mut self, topic: Option<&str>) -> Result<(), Failure> {
        let leaderless: Vec<_> = self
            .cx
            .partitions()
            .filter(|(tp, p)| {
                matches!(p.stage, PartitionStage::New | PartitionStage::Offline)
                    && !self.cx.is_deleting(&tp.topic)
                    && topic.is_none_or(|topic| *tp.topic == *topic)
            })
            .map(|(tp, _)| tp)
            .collect();
        self.move_partitions(
            &leaderless,
            PartitionStage::Online,
            Strategy::Offline { unclean: false },
        )
        .await?;
        Ok(())
    }
}
