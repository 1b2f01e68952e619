//! LeaderAndIsr, UpdateMetadata and StopReplica, gathered while an event is worked on and sent together: for each broker
//! LeaderAndIsr first, then UpdateMetadata, then StopReplica. Versions follow inter.broker.protocol.version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gracchus_kafka_proto::Uuid;
use gracchus_kafka_proto::messages as m;
use gracchus_kafka_proto::messages::leader_and_isr_request as lai;
use gracchus_kafka_proto::messages::stop_replica_request as stop;
use gracchus_kafka_proto::messages::update_metadata_request as um;
use gracchus_registry::json::SecurityProtocol;

use crate::action::{Action, ControlRequest};
use crate::context::TopicPartition;
use crate::core::Core;

/// UpdateMetadata's leader of a partition that is being deleted: brokers forget it.
const LEADER_DURING_DELETE: i32 = -2;
/// StopReplica's leader epoch of a topic that is being deleted; and where none is known.
const EPOCH_DURING_DELETE: i32 = -2;
const NO_EPOCH: i32 = -1;

#[derive(Debug, Clone, Copy)]
struct Stop {
    leader_epoch: i32,
    delete: bool,
}

/// What has been gathered.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    leader_and_isr: BTreeMap<i32, BTreeMap<TopicPartition, lai::LeaderAndIsrPartitionState>>,
    stop_replica: BTreeMap<i32, BTreeMap<TopicPartition, Stop>>,
    update_brokers: BTreeSet<i32>,
    update_partitions: BTreeMap<TopicPartition, um::UpdateMetadataPartitionState>,
    /// Of every topic named above; kept, for a topic may be forgotten before the batch is sent.
    topic_ids: BTreeMap<Arc<str>, Uuid>,
}

impl RequestBatch {
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Core {
    /// Tells `brokers` of a partition's leadership and assignment as the cache has them; all live brokers get its metadata.
    pub fn add_leader_and_isr(&mut self, brokers: &[i32], tp: &TopicPartition, is_new: bool) {
        let versions = self.config.versions;
        if let Some(partition) = self.cx.partition(tp)
            && let Some(leadership) = &partition.leadership
        {
            let state = lai::LeaderAndIsrPartitionState {
                topic_name: if versions.leader_and_isr < 2 {
                    tp.topic.to_string()
                } else {
                    String::new()
                },
                partition_index: tp.partition,
                controller_epoch: leadership.state.controller_epoch,
                leader: leadership.state.leader,
                leader_epoch: leadership.state.leader_epoch,
                isr: leadership.state.isr.clone(),
                partition_epoch: leadership.partition_epoch,
                replicas: partition.assignment.replicas.clone(),
                adding_replicas: partition.assignment.adding.clone(),
                removing_replicas: partition.assignment.removing.clone(),
                is_new,
                leader_recovery_state: i8::try_from(leadership.state.leader_recovery_state)
                    .unwrap_or(0),
                ..Default::default()
            };
            for id in brokers.iter().filter(|id| **id >= 0) {
                let states = self.batch.leader_and_isr.entry(*id).or_default();
                let was_new = states.get(tp).is_some_and(|s| s.is_new);
                let mut state = state.clone();
                state.is_new |= was_new;
                states.insert(tp.clone(), state);
            }
            self.note_topic_id(tp);
        }
        let live = self.cx.live_or_shutting_down();
        self.add_update_metadata(&live, std::slice::from_ref(tp));
    }

    /// Tells `brokers` to stop a replica, and to delete it.
    pub fn add_stop_replica(&mut self, brokers: &[i32], tp: &TopicPartition, delete: bool) {
        let leader_epoch = if self.cx.is_deleting(&tp.topic) {
            EPOCH_DURING_DELETE
        } else {
            self.cx
                .partition(tp)
                .and_then(|p| p.leadership.as_ref())
                .map_or(NO_EPOCH, |l| l.state.leader_epoch)
        };
        for id in brokers.iter().filter(|id| **id >= 0) {
            let stops = self.batch.stop_replica.entry(*id).or_default();
            let delete = delete || stops.get(tp).is_some_and(|s| s.delete);
            stops.insert(
                tp.clone(),
                Stop {
                    leader_epoch,
                    delete,
                },
            );
        }
    }

    /// Tells `brokers` who is alive, and of these partitions.
    pub fn add_update_metadata(&mut self, brokers: &[i32], partitions: &[TopicPartition]) {
        self.batch
            .update_brokers
            .extend(brokers.iter().filter(|id| **id >= 0));
        let versions = self.config.versions;
        for tp in partitions {
            let Some(partition) = self.cx.partition(tp) else {
                continue;
            };
            // nothing to tell before the first leader
            let Some(leadership) = &partition.leadership else {
                continue;
            };
            let replicas = &partition.assignment.replicas;
            let offline = replicas
                .iter()
                .copied()
                .filter(|id| !self.cx.is_online(*id, tp))
                .collect();
            let deleting = self.cx.is_deleting(&tp.topic);
            let state = &leadership.state;
            let entry = um::UpdateMetadataPartitionState {
                topic_name: if versions.update_metadata < 5 {
                    tp.topic.to_string()
                } else {
                    String::new()
                },
                partition_index: tp.partition,
                controller_epoch: state.controller_epoch,
                leader: if deleting {
                    LEADER_DURING_DELETE
                } else {
                    state.leader
                },
                leader_epoch: if deleting { 0 } else { state.leader_epoch },
                isr: state.isr.clone(),
                zk_version: if deleting {
                    0
                } else {
                    leadership.partition_epoch
                },
                replicas: replicas.clone(),
                offline_replicas: offline,
                ..Default::default()
            };
            self.batch.update_partitions.insert(tp.clone(), entry);
            self.note_topic_id(tp);
        }
    }

    fn note_topic_id(&mut self, tp: &TopicPartition) {
        let id = self.cx.topics.get(&tp.topic).map_or(Uuid::ZERO, |t| t.id);
        self.batch.topic_ids.insert(tp.topic.clone(), id);
    }

    /// UpdateMetadata alone, at once.
    pub fn update_metadata(&mut self, brokers: &[i32], partitions: &[TopicPartition]) {
        self.batch.clear();
        self.add_update_metadata(brokers, partitions);
        self.send_batch();
    }

    /// Sends what was gathered to those brokers that are there, and starts anew.
    pub fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let topic_id = |topic: &Arc<str>| batch.topic_ids.get(topic).copied().unwrap_or(Uuid::ZERO);
        let versions = self.config.versions;
        let mut sends: Vec<(i32, ControlRequest)> = Vec::new();

        for (id, states) in batch.leader_and_isr {
            let Some(broker) = self.cx.brokers.get(&id) else {
                continue;
            };
            let leaders: BTreeSet<i32> = states.values().map(|s| s.leader).collect();
            let live_leaders = self
                .cx
                .brokers
                .iter()
                .filter(|(id, _)| leaders.contains(id))
                .filter_map(|(id, broker)| {
                    let endpoint = broker
                        .registration
                        .endpoint(&self.config.inter_broker_listener)
                        .or_else(|| broker.registration.endpoints.first())?;
                    Some(lai::LeaderAndIsrLiveLeader {
                        broker_id: *id,
                        host_name: endpoint.host.clone(),
                        port: endpoint.port,
                        ..Default::default()
                    })
                })
                .collect();
            let mut request = m::LeaderAndIsrRequest {
                controller_id: self.config.broker_id,
                controller_epoch: self.cx.epoch,
                broker_epoch: broker.epoch,
                live_leaders,
                ..Default::default()
            };
            if versions.leader_and_isr < 2 {
                request.ungrouped_partition_states = states.into_values().collect();
            } else {
                let mut topics: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
                for (tp, state) in states {
                    topics.entry(tp.topic).or_default().push(state);
                }
                request.topic_states = topics
                    .into_iter()
                    .map(|(topic, partition_states)| lai::LeaderAndIsrTopicState {
                        topic_id: topic_id(&topic),
                        topic_name: topic.to_string(),
                        partition_states,
                        ..Default::default()
                    })
                    .collect();
            }
            sends.push((
                id,
                ControlRequest::LeaderAndIsr {
                    version: versions.leader_and_isr,
                    request,
                },
            ));
        }

        if batch
            .update_brokers
            .iter()
            .any(|id| self.cx.brokers.contains_key(id))
        {
            let mut template = m::UpdateMetadataRequest {
                controller_id: self.config.broker_id,
                controller_epoch: self.cx.epoch,
                live_brokers: self.live_brokers(),
                ..Default::default()
            };
            if versions.update_metadata < 5 {
                template.ungrouped_partition_states = batch.update_partitions.into_values().collect();
            } else {
                let mut topics: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
                for (tp, state) in batch.update_partitions {
                    topics.entry(tp.topic).or_default().push(state);
                }
                template.topic_states = topics
                    .into_iter()
                    .map(|(topic, partition_states)| um::UpdateMetadataTopicState {
                        topic_id: topic_id(&topic),
                        topic_name: topic.to_string(),
                        partition_states,
                        ..Default::default()
                    })
                    .collect();
            }
            for id in batch.update_brokers {
                let Some(broker) = self.cx.brokers.get(&id) else {
                    continue;
                };
                let mut request = template.clone();
                request.broker_epoch = broker.epoch;
                sends.push((
                    id,
                    ControlRequest::UpdateMetadata {
                        version: versions.update_metadata,
                        request,
                    },
                ));
            }
        }

        for (id, stops) in batch.stop_replica {
            let Some(broker) = self.cx.brokers.get(&id) else {
                continue;
            };
            sends.extend(
                self.stop_requests(broker.epoch, stops)
                    .into_iter()
                    .map(|request| (id, request)),
            );
        }

        for (broker_id, request) in sends {
            self.port.act(Action::Send {
                broker_id,
                controller_epoch: self.cx.epoch,
                request,
            });
        }
    }

    fn live_brokers(&self) -> Vec<um::UpdateMetadataBroker> {
        let version = self.config.versions.update_metadata;
        self.cx
            .brokers
            .iter()
            .map(|(id, broker)| {
                let registration = &broker.registration;
                let mut entry = um::UpdateMetadataBroker {
                    id: *id,
                    rack: registration.rack.clone(),
                    ..Default::default()
                };
                if version == 0 {
                    if let Some(endpoint) = registration.plaintext() {
                        entry.v0_host = endpoint.host.clone();
                        entry.v0_port = endpoint.port;
                    }
                    return entry;
                }
                entry.endpoints = registration
                    .endpoints
                    .iter()
                    // versions 1 and 2 know an endpoint by its protocol alone
                    .filter(|e| {
                        version >= 3
                            || e.security_protocol == SecurityProtocol::Plaintext
                            || e.listener == e.security_protocol.name()
                    })
                    .map(|e| um::UpdateMetadataEndpoint {
                        port: e.port,
                        host: e.host.clone(),
                        listener: e.listener.clone(),
                        security_protocol: e.security_protocol.id(),
                        ..Default::default()
                    })
                    .collect();
                entry
            })
            .collect()
    }

    /// One request, or below version 3 one for each delete flag.
    fn stop_requests(
        &self,
        broker_epoch: i64,
        stops: BTreeMap<TopicPartition, Stop>,
    ) -> Vec<ControlRequest> {
        let version = self.config.versions.stop_replica;
        let base = m::StopReplicaRequest {
            controller_id: self.config.broker_id,
            controller_epoch: self.cx.epoch,
            broker_epoch,
            ..Default::default()
        };
        let deleted_of = |stops: &BTreeMap<TopicPartition, Stop>| -> Vec<TopicPartition> {
            stops
                .iter()
                .filter(|(_, s)| s.delete)
                .map(|(tp, _)| tp.clone())
                .collect()
        };
        if version >= 3 {
            let deleted = deleted_of(&stops);
            let mut topics: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
            for (tp, s) in stops {
                topics
                    .entry(tp.topic)
                    .or_default()
                    .push(stop::StopReplicaPartitionState {
                        partition_index: tp.partition,
                        leader_epoch: s.leader_epoch,
                        delete_partition: s.delete,
                        ..Default::default()
                    });
            }
            let topic_states = topics
                .into_iter()
                .map(|(topic, partition_states)| stop::StopReplicaTopicState {
                    topic_name: topic.to_string(),
                    partition_states,
                    ..Default::default()
                })
                .collect();
            return vec![ControlRequest::StopReplica {
                version,
                request: m::StopReplicaRequest {
                    topic_states,
                    ..base
                },
                deleted,
            }];
        }
        let (delete, keep): (BTreeMap<_, _>, BTreeMap<_, _>) =
            stops.into_iter().partition(|(_, s)| s.delete);
        [(keep, false), (delete, true)]
            .into_iter()
            .filter(|(stops, _)| !stops.is_empty())
            .map(|(stops, delete_partitions)| {
                let deleted = deleted_of(&stops);
                let mut request = m::StopReplicaRequest {
                    delete_partitions,
                    ..base.clone()
                };
                if version == 0 {
                    request.ungrouped_partitions = stops
                        .into_keys()
                        .map(|tp| stop::StopReplicaPartitionV0 {
                            topic_name: tp.topic.to_string(),
                            partition_index: tp.partition,
                            ..Default::default()
                        })
                        .collect();
                } else {
                    let mut topics: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
                    for tp in stops.into_keys() {
                        topics.entry(tp.topic).or_default().push(tp.partition);
                    }
                    request.topics = topics
                        .into_iter()
                        .map(|(topic, partition_indexes)| stop::StopReplicaTopicV1 {
                            name: topic.to_string(),
                            partition_indexes,
                            ..Default::default()
                        })
                        .collect();
                }
                ControlRequest::StopReplica {
                    version,
                    request,
                    deleted,
                }
            })
            .collect()
    }
}
