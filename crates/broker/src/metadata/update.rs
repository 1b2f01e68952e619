//! UpdateMetadata into the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::messages::UpdateMetadataRequest;
use gracchus_kafka_proto::messages::update_metadata_request::UpdateMetadataPartitionState;

use super::cache::{Endpoint, LiveBroker, PartitionInfo, Snapshot};
use crate::config::SecurityProtocol;

/// "Being deleted": the partition is to be forgotten.
pub const LEADER_DURING_DELETE: i32 = -2;

const PROTOCOLS: [SecurityProtocol; 4] = [
    SecurityProtocol::Plaintext,
    SecurityProtocol::Ssl,
    SecurityProtocol::SaslPlaintext,
    SecurityProtocol::SaslSsl,
];

/// Applies the request (epochs were checked by the caller). The live brokers are replaced, the partitions named are
/// set or, with leader -2, removed. Returns the removed ones.
pub fn apply(snapshot: &mut Snapshot, request: &UpdateMetadataRequest) -> Vec<(String, i32)> {
    snapshot.controller_id = (request.controller_id >= 0).then_some(request.controller_id);
    snapshot.brokers = request
        .live_brokers
        .iter()
        .map(|b| {
            let mut endpoints: Vec<Endpoint> = b
                .endpoints
                .iter()
                .map(|e| Endpoint {
                    // versions 1 and 2 name no listener: it is the protocol's
                    listener: if e.listener.is_empty() {
                        protocol_name(e.security_protocol)
                    } else {
                        e.listener.clone()
                    },
                    security_protocol: e.security_protocol,
                    host: e.host.clone(),
                    port: e.port,
                })
                .collect();
            if endpoints.is_empty() && !b.v0_host.is_empty() {
                let (host, port) = (b.v0_host.clone(), b.v0_port);
                endpoints.push(Endpoint {
                    listener: protocol_name(0),
                    security_protocol: 0,
                    host,
                    port,
                });
            }
            (
                b.id,
                Arc::new(LiveBroker {
                    id: b.id,
                    rack: b.rack.clone(),
                    endpoints,
                }),
            )
        })
        .collect();
    let mut removed = Vec::new();
    for topic in &request.topic_states {
        let name: Arc<str> = known_name(snapshot, &topic.topic_name);
        if !topic.topic_id.is_zero() && snapshot.topic_id(&name) != topic.topic_id {
            let info = Arc::make_mut(snapshot.topics.entry(name.clone()).or_default());
            snapshot.topic_names.remove(&info.id);
            info.id = topic.topic_id;
            snapshot.topic_names.insert(topic.topic_id, name.clone());
        }
        set_partitions(snapshot, &name, topic.partition_states.iter(), &mut removed);
    }
    let mut ungrouped: BTreeMap<&str, Vec<&UpdateMetadataPartitionState>> = BTreeMap::new();
    for state in &request.ungrouped_partition_states {
        ungrouped.entry(&state.topic_name).or_default().push(state);
    }
    for (topic, states) in ungrouped {
        let name = known_name(snapshot, topic);
        set_partitions(snapshot, &name, states.into_iter(), &mut removed);
    }
    removed
}

fn protocol_name(id: i16) -> String {
    PROTOCOLS
        .iter()
        .find(|p| **p as i16 == id)
        .map_or(String::new(), |p| p.name().to_owned())
}

fn known_name(snapshot: &Snapshot, name: &str) -> Arc<str> {
    snapshot
        .topics
        .get_key_value(name)
        .map_or_else(|| Arc::from(name), |(known, _)| known.clone())
}

fn set_partitions<'a>(
    snapshot: &mut Snapshot,
    topic: &Arc<str>,
    states: impl Iterator<Item = &'a UpdateMetadataPartitionState>,
    removed: &mut Vec<(String, i32)>,
) {
    let info = Arc::make_mut(snapshot.topics.entry(topic.clone()).or_default());
    let partitions = Arc::make_mut(&mut info.partitions);
    for state in states {
        if state.leader == LEADER_DURING_DELETE {
            partitions.remove(&state.partition_index);
            removed.push((topic.to_string(), state.partition_index));
            continue;
        }
        partitions.insert(
            state.partition_index,
            Arc::new(PartitionInfo {
                leader: state.leader,
                leader_epoch: state.leader_epoch,
                controller_epoch: state.controller_epoch,
                isr: state.isr.clone(),
                partition_epoch: state.zk_version,
                replicas: state.replicas.clone(),
                offline_replicas: state.offline_replicas.clone(),
            }),
        );
    }
    if partitions.is_empty() {
        let id = info.id;
        snapshot.topics.remove(topic);
        snapshot.topic_names.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use gracchus_kafka_proto::Uuid;
    use gracchus_kafka_proto::messages::update_metadata_request::{
        UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataTopicState,
    };

    use super::*;

    fn state(partition: i32, leader: i32) -> UpdateMetadataPartitionState {
        UpdateMetadataPartitionState {
            partition_index: partition,
            leader,
            leader_epoch: 3,
            isr: vec![1],
            replicas: vec![1],
            ..Default::default()
        }
    }

    fn request(
        topic: &str,
        id: u8,
        states: Vec<UpdateMetadataPartitionState>,
    ) -> UpdateMetadataRequest {
        UpdateMetadataRequest {
            controller_id: 1,
            topic_states: vec![UpdateMetadataTopicState {
                topic_name: topic.into(),
                topic_id: Uuid::from_bytes([id; 16]),
                partition_states: states,
                ..Default::default()
            }],
            live_brokers: vec![UpdateMetadataBroker {
                id: 1,
                endpoints: vec![UpdateMetadataEndpoint {
                    port: 9092,
                    host: "h".into(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn topics_come_and_go() {
        let mut snapshot = Snapshot::default();
        assert!(
            apply(
                &mut snapshot,
                &request("t", 7, vec![state(0, 1), state(1, 1)])
            )
            .is_empty()
        );
        assert_eq!(
            snapshot
                .topic_name(&Uuid::from_bytes([7; 16]))
                .map(|n| &**n),
            Some("t")
        );
        assert_eq!(snapshot.partition("t", 1).unwrap().leader_epoch, 3);
        assert!(snapshot.brokers[&1].endpoint("PLAINTEXT").is_some());
        // brokers only: topics stay
        apply(
            &mut snapshot,
            &UpdateMetadataRequest {
                controller_id: 1,
                ..Default::default()
            },
        );
        assert!(snapshot.brokers.is_empty() && snapshot.topics.len() == 1);
        let removed = apply(
            &mut snapshot,
            &request("t", 7, vec![state(0, -2), state(1, -2)]),
        );
        assert_eq!(removed, [("t".to_owned(), 0), ("t".to_owned(), 1)]);
        assert!(snapshot.topics.is_empty() && snapshot.topic_names.is_empty());
    }

    #[test]
    fn a_recreated_topic_has_its_new_id_only() {
        let mut snapshot = Snapshot::default();
        apply(&mut snapshot, &request("t", 7, vec![state(0, 1)]));
        apply(&mut snapshot, &request("t", 8, vec![state(0, 1)]));
        assert_eq!(snapshot.topic_names.len(), 1);
        assert_eq!(snapshot.topic_id("t"), Uuid::from_bytes([8; 16]));
    }
}
