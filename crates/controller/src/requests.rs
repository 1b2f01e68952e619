//! From a batch to the requests of the protocol, in the shape that each version has.

use std::collections::{BTreeMap, BTreeSet};

use gracchus_kafka_proto::messages::leader_and_isr_request as lai;
use gracchus_kafka_proto::messages::stop_replica_request as stop;
use gracchus_kafka_proto::messages::update_metadata_request as um;

use crate::action::ControlRequest;
use crate::batch::{Batch, LEADER_DURING_DELETE, StopOrder};
use crate::context::{Context, PartitionKey};
use crate::machine::ControllerConfig;

/// The batch's requests with their addressees, in the order to send them.
pub(crate) fn build(
    batch: Batch,
    cx: &Context,
    config: &ControllerConfig,
    epoch: i32,
) -> Vec<(i32, ControlRequest)> {
    let mut out = Vec::new();
    for (broker, partitions) in &batch.leader_and_isr {
        out.push((
            *broker,
            leader_and_isr(*broker, partitions, cx, config, epoch),
        ));
    }
    if !batch.metadata_brokers.is_empty() {
        let template = update_metadata(&batch.metadata_partitions, cx, config, epoch);
        for broker in batch.metadata_brokers.iter().filter(|b| cx.is_alive(**b)) {
            let request = um::UpdateMetadataRequest {
                broker_epoch: broker_epoch(cx, *broker),
                ..template.clone()
            };
            out.push((
                *broker,
                ControlRequest::UpdateMetadata(request, config.update_metadata_version),
            ));
        }
    }
    for (broker, orders) in &batch.stop_replica {
        out.extend(
            stop_replica(*broker, orders, cx, config, epoch)
                .into_iter()
                .map(|r| (*broker, r)),
        );
    }
    out
}

fn broker_epoch(cx: &Context, broker: i32) -> i64 {
    cx.brokers.get(&broker).map_or(-1, |b| b.epoch)
}

/// Partitions by topic.
fn by_topic<V: Copy>(
    partitions: impl Iterator<Item = (PartitionKey, V)>,
) -> BTreeMap<String, Vec<(i32, V)>> {
    let mut topics: BTreeMap<String, Vec<(i32, V)>> = BTreeMap::new();
    for (key, value) in partitions {
        topics
            .entry(key.topic)
            .or_default()
            .push((key.partition, value));
    }
    topics
}

fn leader_and_isr(
    broker: i32,
    partitions: &BTreeMap<PartitionKey, bool>,
    cx: &Context,
    config: &ControllerConfig,
    epoch: i32,
) -> ControlRequest {
    let version = config.leader_and_isr_version;
    let mut leaders = BTreeSet::new();
    let mut request = lai::LeaderAndIsrRequest {
        controller_id: config.broker_id,
        controller_epoch: epoch,
        broker_epoch: broker_epoch(cx, broker),
        ..Default::default()
    };
    for (topic, list) in by_topic(partitions.iter().map(|(k, new)| (k.clone(), *new))) {
        let Some(known) = cx.topics.get(&topic) else {
            continue;
        };
        let mut states = Vec::new();
        for (number, is_new) in list {
            let Some(partition) = known.partitions.get(&number) else {
                continue;
            };
            let Some(found) = &partition.leader_isr else {
                continue;
            };
            leaders.insert(found.state.leader);
            states.push(lai::LeaderAndIsrPartitionState {
                topic_name: if version < 2 {
                    topic.clone()
                } else {
                    String::new()
                },
                partition_index: number,
                controller_epoch: found.state.controller_epoch,
                leader: found.state.leader,
                leader_epoch: found.state.leader_epoch,
                isr: found.state.isr.clone(),
                partition_epoch: found.partition_epoch,
                replicas: partition.replicas.clone(),
                adding_replicas: partition.adding.clone(),
                removing_replicas: partition.removing.clone(),
                is_new,
                leader_recovery_state: if version >= 6 {
                    found.state.leader_recovery_state as i8
                } else {
                    0
                },
                ..Default::default()
            });
        }
        if version < 2 {
            request.ungrouped_partition_states.extend(states);
        } else {
            request.topic_states.push(lai::LeaderAndIsrTopicState {
                topic_name: topic,
                topic_id: known.id,
                partition_states: states,
                ..Default::default()
            });
        }
    }
    for leader in leaders {
        let Some(live) = cx.brokers.get(&leader) else {
            continue;
        };
        let Some(endpoint) = live.registration.endpoint(&config.inter_broker_listener) else {
            continue;
        };
        request.live_leaders.push(lai::LeaderAndIsrLiveLeader {
            broker_id: leader,
            host_name: endpoint.host.clone(),
            port: endpoint.port,
            ..Default::default()
        });
    }
    ControlRequest::LeaderAndIsr(request, version)
}

fn update_metadata(
    partitions: &BTreeSet<PartitionKey>,
    cx: &Context,
    config: &ControllerConfig,
    epoch: i32,
) -> um::UpdateMetadataRequest {
    let version = config.update_metadata_version;
    let mut request = um::UpdateMetadataRequest {
        controller_id: config.broker_id,
        controller_epoch: epoch,
        ..Default::default()
    };
    for (topic, list) in by_topic(partitions.iter().map(|k| (k.clone(), ()))) {
        let Some(known) = cx.topics.get(&topic) else {
            continue;
        };
        let deleting = cx.deletions.get(&topic).is_some_and(|d| d.started);
        let mut states = Vec::new();
        for (number, ()) in list {
            let Some(partition) = known.partitions.get(&number) else {
                continue;
            };
            let Some(found) = &partition.leader_isr else {
                continue;
            };
            let key = PartitionKey::new(&topic, number);
            let offline = partition
                .replicas
                .iter()
                .copied()
                .filter(|b| !cx.is_alive(*b) || cx.offline_dirs.contains(&(*b, key.clone())));
            states.push(um::UpdateMetadataPartitionState {
                topic_name: if version < 5 {
                    topic.clone()
                } else {
                    String::new()
                },
                partition_index: number,
                controller_epoch: found.state.controller_epoch,
                leader: if deleting {
                    LEADER_DURING_DELETE
                } else {
                    found.state.leader
                },
                leader_epoch: if deleting {
                    0
                } else {
                    found.state.leader_epoch
                },
                isr: found.state.isr.clone(),
                zk_version: found.partition_epoch,
                replicas: partition.replicas.clone(),
                offline_replicas: offline.collect(),
                ..Default::default()
            });
        }
        if version < 5 {
            request.ungrouped_partition_states.extend(states);
        } else if !states.is_empty() {
            request.topic_states.push(um::UpdateMetadataTopicState {
                topic_name: topic,
                topic_id: known.id,
                partition_states: states,
                ..Default::default()
            });
        }
    }
    for (id, broker) in &cx.brokers {
        let plaintext = broker.registration.plaintext();
        request.live_brokers.push(um::UpdateMetadataBroker {
            id: *id,
            v0_host: plaintext
                .filter(|_| version == 0)
                .map(|e| e.host.clone())
                .unwrap_or_default(),
            v0_port: plaintext.filter(|_| version == 0).map_or(0, |e| e.port),
            endpoints: broker
                .registration
                .endpoints
                .iter()
                .map(|e| um::UpdateMetadataEndpoint {
                    port: e.port,
                    host: e.host.clone(),
                    listener: e.listener.clone(),
                    security_protocol: e.security_protocol.id(),
                    ..Default::default()
                })
                .collect(),
            rack: broker.registration.rack.clone(),
            ..Default::default()
        });
    }
    request
}

/// Below version 3 the delete flag is of the whole request, so the orders are split by it.
fn stop_replica(
    broker: i32,
    orders: &BTreeMap<PartitionKey, StopOrder>,
    cx: &Context,
    config: &ControllerConfig,
    epoch: i32,
) -> Vec<ControlRequest> {
    let version = config.stop_replica_version;
    let head = stop::StopReplicaRequest {
        controller_id: config.broker_id,
        controller_epoch: epoch,
        broker_epoch: broker_epoch(cx, broker),
        ..Default::default()
    };
    if version >= 3 {
        let mut request = head;
        for (topic, list) in by_topic(orders.iter().map(|(k, o)| (k.clone(), *o))) {
            request.topic_states.push(stop::StopReplicaTopicState {
                topic_name: topic,
                partition_states: list
                    .into_iter()
                    .map(|(number, order)| stop::StopReplicaPartitionState {
                        partition_index: number,
                        leader_epoch: order.leader_epoch,
                        delete_partition: order.delete,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            });
        }
        return vec![ControlRequest::StopReplica(request, version)];
    }
    let mut out = Vec::new();
    for delete in [false, true] {
        let chosen: Vec<_> = orders.iter().filter(|(_, o)| o.delete == delete).collect();
        if chosen.is_empty() {
            continue;
        }
        let mut request = stop::StopReplicaRequest {
            delete_partitions: delete,
            ..head.clone()
        };
        for (topic, list) in by_topic(chosen.into_iter().map(|(k, o)| (k.clone(), *o))) {
            if version == 0 {
                request
                    .ungrouped_partitions
                    .extend(
                        list.into_iter()
                            .map(|(number, _)| stop::StopReplicaPartitionV0 {
                                topic_name: topic.clone(),
                                partition_index: number,
                                ..Default::default()
                            }),
                    );
            } else {
                request.topics.push(stop::StopReplicaTopicV1 {
                    name: topic,
                    partition_indexes: list.into_iter().map(|(number, _)| number).collect(),
                    ..Default::default()
                });
            }
        }
        out.push(ControlRequest::StopReplica(request, version));
    }
    out
}
