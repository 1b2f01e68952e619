//! Replica states, and the requests that follow from entering one.

use std::collections::BTreeMap;

use crate::context::{Replica, ReplicaStage, TopicPartition, without};
use crate::core::{Core, Failure};

impl ReplicaStage {
    fn may_become(self, target: Self) -> bool {
        use ReplicaStage::{
            DeletionIneligible, DeletionStarted, DeletionSuccessful, New, NonExistent, Offline,
            Online,
        };
        match target {
            New => self == NonExistent,
            Online | Offline => matches!(self, New | Online | Offline | DeletionIneligible),
            DeletionStarted => self == Offline,
            DeletionSuccessful => self == DeletionStarted,
            DeletionIneligible => matches!(self, Offline | DeletionStarted),
            NonExistent => self == DeletionSuccessful,
        }
    }
}

impl Core {
    /// Moves replicas, writes what must be written, and sends the requests that follow. An illegal move is logged and left
    /// out.
    pub async fn move_replicas(
        &mut self,
        replicas: &[Replica],
        target: ReplicaStage,
    ) -> Result<(), Failure> {
        if replicas.is_empty() {
            return Ok(());
        }
        self.batch.clear();
        let mut by_broker: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for replica in replicas {
            let stage = self.cx.replica_stage(replica);
            if stage.may_become(target) {
                by_broker
                    .entry(replica.broker_id)
                    .or_default()
                    .push(replica.partition.clone());
            } else if self.cx.partition(&replica.partition).is_some() {
                tracing::error!("replica {replica} cannot become {target:?} from {stage:?}");
            }
        }
        for (broker_id, partitions) in by_broker {
            match target {
                ReplicaStage::New => self.to_new(broker_id, &partitions),
                ReplicaStage::Online => self.to_online(broker_id, &partitions),
                ReplicaStage::Offline => self.to_offline(broker_id, &partitions).await?,
                ReplicaStage::DeletionStarted => {
                    for tp in &partitions {
                        self.set_replica_stage(broker_id, tp, target);
                        self.add_stop_replica(&[broker_id], tp, true);
                    }
                }
                ReplicaStage::DeletionSuccessful | ReplicaStage::DeletionIneligible => {
                    for tp in &partitions {
                        self.set_replica_stage(broker_id, tp, target);
                    }
                }
                ReplicaStage::NonExistent => {
                    for tp in &partitions {
                        if let Some(partition) = self.cx.partition_mut(tp) {
                            partition.replicas.remove(&broker_id);
                            partition.assignment.replicas.retain(|id| *id != broker_id);
                        }
                    }
                }
            }
        }
        self.send_batch();
        Ok(())
    }

    fn set_replica_stage(&mut self, broker_id: i32, tp: &TopicPartition, stage: ReplicaStage) {
        if let Some(partition) = self.cx.partition_mut(tp) {
            partition.replicas.insert(broker_id, stage);
        }
    }

    fn to_new(&mut self, broker_id: i32, partitions: &[TopicPartition]) {
        for tp in partitions {
            match self.cx.partition(tp).and_then(|p| p.leader()) {
                Some(leader) if leader == broker_id => {
                    tracing::error!(
                        "broker {broker_id} leads {tp}, so its replica there cannot be new"
                    );
                    continue;
                }
                Some(_) => self.add_leader_and_isr(&[broker_id], tp, true),
                None => {}
            }
            self.set_replica_stage(broker_id, tp, ReplicaStage::New);
        }
    }

    fn to_online(&mut self, broker_id: i32, partitions: &[TopicPartition]) {
        for tp in partitions {
            let Some(partition) = self.cx.partition(tp) else {
                continue;
            };
            // a new replica was told of its role when it became new
            if partition.replica_stage(broker_id) != ReplicaStage::New
                && partition.leadership.is_some()
            {
                self.add_leader_and_isr(&[broker_id], tp, false);
            }
            self.set_replica_stage(broker_id, tp, ReplicaStage::Online);
        }
    }

    async fn to_offline(
        &mut self,
        broker_id: i32,
        partitions: &[TopicPartition],
    ) -> Result<(), Failure> {
        let mut led = Vec::new();
        for tp in partitions {
            self.add_stop_replica(&[broker_id], tp, false);
            match self.cx.partition(tp) {
                Some(p) if p.leadership.is_some() => led.push(tp.clone()),
                _ => {
                    let live = self.cx.live_or_shutting_down();
                    self.add_update_metadata(&live, std::slice::from_ref(tp));
                }
            }
        }
        for tp in self.remove_from_isr(broker_id, &led).await? {
            if self.cx.is_deleting(&tp.topic) {
                continue;
            }
            let others = self
                .cx
                .partition(&tp)
                .map(|p| without(&p.assignment.replicas, &[broker_id]))
                .unwrap_or_default();
            self.add_leader_and_isr(&others, &tp, false);
        }
        for tp in partitions {
            self.set_replica_stage(broker_id, tp, ReplicaStage::Offline);
        }
        Ok(())
    }
}
