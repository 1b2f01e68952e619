//! From a batch to the requests of the protocol, in the shape that each version has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gracchus_kafka_proto::messages::leader_and_isr_request as lai;
use gracchus_kafka_proto::messages::stop_replica_request as stop;
use gracchus_kafka_proto::messages::update_metadata_request as um;

use crate::action::ControlRequest;
use crate::batch::{Batch, LEADER_DURING_DELETE, StopOrder};
use crate::context::{Context, PartitionKey};
use crate::machine::ControllerConfig;

/// The batch's requests with their addressees, in the order to send them.
pub(crate) fn build(
    mut batch: Batch,
    cx: &Context,
    config: &ControllerConfig,
    epoch: i32,
) -> Vec<(i32, ControlRequest)> {
    let mut out = Vec::new();
    for (broker, orders) in &mut batch.leader_and_isr {
        // what is new in one of the orders is new
        orders.sort();
        orders.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            kept.1 |= is_same && later.1;
            is_same
        });
        out.push((*broker, leader_and_isr(*broker, orders, cx, config, epoch)));
    }
    if !batch.metadata_brokers.is_empty() {
        batch.metadata_partitions.sort();
        batch.metadata_partitions.dedup();
        let content = update_metadata(&batch.metadata_partitions, cx, config, epoch);
        let content = Arc::new(content);
        for broker in batch.metadata_brokers.iter().filter(|b| cx.is_alive(**b)) {
            let request = ControlRequest::UpdateMetadata {
                content: content.clone(),
                broker_epoch: broker_epoch(cx, *broker),
                version: config.update_metadata_version,
            };
            out.push((*broker, request));
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

/// Each topic of a sorted list, with its part of it.
fn by_topic<T>(
    list: &[T],
    key: impl Fn(&T) -> &PartitionKey,
) -> impl Iterator<Item = (&Arc<str>, &[T])> {
    let key = Arc::new(key);
    let same = key.clone();
    list.chunk_by(move |a, b| same(a).topic == same(b).topic)
        .filter_map(move |run| Some((&key(run.first()?).topic, run)))
}

fn leader_and_isr(
    broker: i32,
    orders: &[(PartitionKey, bool)],
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
    for (topic, list) in by_topic(orders, |(key, _)| key) {
        let Some(known) = cx.topics.get(topic) else {
            continue;
        };
        let mut states = Vec::with_capacity(list.len());
        for (
            PartitionKey {
                partition: number, ..
            },
            is_new,
        ) in list
        {
            let Some(partition) = known.partitions.get(number) else {
                continue;
            };
            let Some(found) = &partition.leader_isr else {
                continue;
            };
            leaders.insert(found.state.leader);
            states.push(lai::LeaderAndIsrPartitionState {
                topic_name: if version < 2 {
                    topic.to_string()
                } else {
                    String::new()
                },
                partition_index: *number,
                controller_epoch: found.state.controller_epoch,
                leader: found.state.leader,
                leader_epoch: found.state.leader_epoch,
                isr: found.state.isr.clone(),
                partition_epoch: found.partition_epoch,
                replicas: partition.replicas.clone(),
                adding_replicas: partition.adding.clone(),
                removing_replicas: partition.removing.clone(),
                is_new: *is_new,
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
                topic_name: topic.to_string(),
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
    partitions: &[PartitionKey],
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
    for (topic, list) in by_topic(partitions, |key| key) {
        let Some(known) = cx.topics.get(topic) else {
            continue;
        };
        let deleting = cx.is_going(topic);
        let mut states = Vec::with_capacity(list.len());
        for key in list {
            let Some(partition) = known.partitions.get(&key.partition) else {
                continue;
            };
            let Some(found) = &partition.leader_isr else {
                continue;
            };
            let is_offline = |b: &i32| !cx.is_alive(*b) || cx.is_dir_offline(*b, key);
            let offline = partition.replicas.iter().copied().filter(is_offline);
            states.push(um::UpdateMetadataPartitionState {
                topic_name: if version < 5 {
                    topic.to_string()
                } else {
                    String::new()
                },
                partition_index: key.partition,
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
                topic_name: topic.to_string(),
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
        let orders: Vec<_> = orders.iter().collect();
        for (topic, list) in by_topic(&orders, |(key, _)| key) {
            request.topic_states.push(stop::StopReplicaTopicState {
                topic_name: topic.to_string(),
                partition_states: list
                    .iter()
                    .map(|(key, order)| stop::StopReplicaPartitionState {
                        partition_index: key.partition,
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
        for (topic, list) in by_topic(&chosen, |(key, _)| key) {
            let numbers = list.iter().map(|(key, _)| key.partition);
            if version == 0 {
                let named = |number| stop::StopReplicaPartitionV0 {
                    topic_name: topic.to_string(),
                    partition_index: number,
                    ..Default::default()
                };
                request.ungrouped_partitions.extend(numbers.map(named));
            } else {
                request.topics.push(stop::StopReplicaTopicV1 {
                    name: topic.to_string(),
                    partition_indexes: numbers.collect(),
                    ..Default::default()
                });
            }
        }
        out.push(ControlRequest::StopReplica(request, version));
    }
    out
}
