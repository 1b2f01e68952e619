//! What an event wants told to the brokers, collected until it is flushed: per broker LeaderAndIsr first, then
//! UpdateMetadata, then StopReplica.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::PartitionKey;
use crate::machine::Controller;

/// The leader epoch in StopReplica of a topic that is being deleted.
pub const EPOCH_DURING_DELETE: i32 = -2;
/// The leader in UpdateMetadata of a partition that brokers shall forget.
pub const LEADER_DURING_DELETE: i32 = -2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOrder {
    pub delete: bool,
    pub leader_epoch: i32,
}

#[derive(Debug, Default)]
pub struct Batch {
    /// Broker, partition, whether the replica is new. As they came; put in order, each once, when the request is built.
    pub leader_and_isr: BTreeMap<i32, Vec<(PartitionKey, bool)>>,
    /// Who gets UpdateMetadata, and with which partitions (likewise); with none it tells the live brokers only.
    pub metadata_brokers: BTreeSet<i32>,
    pub metadata_partitions: Vec<PartitionKey>,
    pub stop_replica: BTreeMap<i32, BTreeMap<PartitionKey, StopOrder>>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.leader_and_isr.is_empty()
            && self.metadata_brokers.is_empty()
            && self.stop_replica.is_empty()
    }
}

impl Controller {
    /// LeaderAndIsr of a partition to these brokers (the live ones), and its metadata to all.
    pub(crate) fn batch_leader_and_isr(
        &mut self,
        brokers: &[i32],
        key: &PartitionKey,
        is_new: bool,
    ) {
        for broker in brokers.iter().filter(|b| self.cx.is_alive(**b)) {
            let orders = self.batch.leader_and_isr.entry(*broker).or_default();
            orders.push((key.clone(), is_new));
        }
        self.batch_metadata(key);
    }

    /// The partition's metadata to all live brokers.
    pub(crate) fn batch_metadata(&mut self, key: &PartitionKey) {
        if self.batch.metadata_brokers.len() < self.cx.brokers.len() {
            self.batch
                .metadata_brokers
                .extend(self.cx.brokers.keys().copied());
        }
        self.batch.metadata_partitions.push(key.clone());
    }

    pub(crate) fn batch_stop(&mut self, broker: i32, key: &PartitionKey, delete: bool) {
        if !self.cx.is_alive(broker) {
            return;
        }
        let leader_epoch = if self.cx.is_going(&key.topic) {
            EPOCH_DURING_DELETE
        } else {
            self.cx
                .partition(key)
                .and_then(|p| p.leader_isr.as_ref())
                .map_or(-1, |l| l.state.leader_epoch)
        };
        let order = self
            .batch
            .stop_replica
            .entry(broker)
            .or_default()
            .entry(key.clone());
        let order = order.or_insert(StopOrder {
            delete,
            leader_epoch,
        });
        order.delete |= delete;
    }

    /// LeaderAndIsr for everything that these brokers host and that has a leader.
    pub(crate) fn batch_replicas_of(&mut self, brokers: &[i32]) {
        let Self { cx, batch, .. } = self;
        let hosts: Vec<i32> = brokers
            .iter()
            .copied()
            .filter(|b| cx.is_alive(*b))
            .collect();
        let mut any = false;
        for (name, topic) in cx.topics.iter().filter(|(name, _)| !cx.is_going(name)) {
            for (number, partition) in topic.partitions.iter() {
                if partition.leader_isr.is_none() {
                    continue;
                }
                let mut is_hosted = false;
                for host in partition.replicas.iter().filter(|b| hosts.contains(b)) {
                    let orders = batch.leader_and_isr.entry(*host).or_default();
                    orders.push((PartitionKey::of(name, *number), false));
                    is_hosted = true;
                }
                if is_hosted {
                    any = true;
                    batch
                        .metadata_partitions
                        .push(PartitionKey::of(name, *number));
                }
            }
        }
        if any {
            batch.metadata_brokers.extend(cx.brokers.keys().copied());
        }
    }
}
