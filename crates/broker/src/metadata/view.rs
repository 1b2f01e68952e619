//! The snapshot as a client of one listener sees it.

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

use super::cache::{PartitionInfo, Snapshot};

/// Kafka's internal topics: clients may not create or write them as if they were theirs.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state")
}

/// `Topic.validate`: what is wrong with the name, if anything.
pub fn invalid_name(topic: &str) -> Option<String> {
    const MAX: usize = 249;
    if topic.is_empty() {
        return Some("Topic name is invalid: the empty string is not allowed".into());
    }
    if topic == "." || topic == ".." {
        return Some(format!("Topic name is invalid: '{topic}' is not allowed"));
    }
    if topic.len() > MAX {
        return Some(format!(
            "Topic name is invalid: the length of '{topic}' is longer than the max allowed length {MAX}"
        ));
    }
    if !topic
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        return Some(format!(
            "Topic name is invalid: '{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ));
    }
    None
}

/// How unavailable endpoints are told, which depends on the version of Metadata.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Version 0: replicas that cannot be reached are left out, with REPLICA_NOT_AVAILABLE.
    pub hide_unavailable: bool,
    /// Versions 6+: LISTENER_NOT_FOUND where the leader lacks the client's listener.
    pub listener_errors: bool,
}

impl Rules {
    /// Of this version of Metadata.
    pub fn of(version: i16) -> Self {
        Self {
            hide_unavailable: version == 0,
            listener_errors: version >= 6,
        }
    }
}

/// Live brokers that have this listener, ascending by id.
pub fn brokers(snapshot: &Snapshot, listener: &str) -> Vec<MetadataResponseBroker> {
    snapshot
        .brokers
        .values()
        .filter_map(|b| {
            let endpoint = b.endpoint(listener)?;
            Some(MetadataResponseBroker {
                node_id: b.id,
                host: endpoint.host.clone(),
                port: endpoint.port,
                rack: b.rack.clone(),
                ..Default::default()
            })
        })
        .collect()
}

/// A topic with its partitions; None when unknown.
pub fn topic(
    snapshot: &Snapshot,
    name: &str,
    listener: &str,
    rules: Rules,
) -> Option<MetadataResponseTopic> {
    let info = snapshot.topics.get(name)?;
    Some(MetadataResponseTopic {
        name: Some(name.to_owned()),
        topic_id: info.id,
        is_internal: is_internal(name),
        partitions: info
            .partitions
            .iter()
            .map(|(index, p)| partition(snapshot, *index, p, listener, rules))
            .collect(),
        ..Default::default()
    })
}

fn partition(
    snapshot: &Snapshot,
    index: i32,
    info: &PartitionInfo,
    listener: &str,
    rules: Rules,
) -> MetadataResponsePartition {
    let reachable = |id: &i32| {
        snapshot
            .brokers
            .get(id)
            .is_some_and(|b| b.endpoint(listener).is_some())
    };
    let shown = |ids: &[i32]| -> Vec<i32> {
        if rules.hide_unavailable {
            ids.iter().copied().filter(|id| reachable(id)).collect()
        } else {
            ids.to_vec()
        }
    };
    let (replicas, isr) = (shown(&info.replicas), shown(&info.isr));
    let offline: Vec<i32> = info
        .replicas
        .iter()
        .copied()
        .filter(|id| !reachable(id) || info.offline_replicas.contains(id))
        .collect();
    let (leader, error) = if reachable(&info.leader) {
        let hidden = replicas.len() < info.replicas.len() || isr.len() < info.isr.len();
        (
            info.leader,
            if hidden {
                ErrorCode::ReplicaNotAvailable
            } else {
                ErrorCode::None
            },
        )
    } else if snapshot.is_alive(info.leader) && rules.listener_errors {
        (-1, ErrorCode::ListenerNotFound)
    } else {
        (-1, ErrorCode::LeaderNotAvailable)
    };
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id: leader,
        leader_epoch: info.leader_epoch,
        replica_nodes: replicas,
        isr_nodes: isr,
        offline_replicas: offline,
        ..Default::default()
    }
}

/// True when the topic is known and each of its partitions has a live leader.
pub fn has_leaders(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.topics.get(name).is_some_and(|t| {
        !t.partitions.is_empty() && t.partitions.values().all(|p| snapshot.is_alive(p.leader))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::cache::{Endpoint, LiveBroker, TopicInfo};
    use super::*;

    fn broker(id: i32, listeners: &[&str]) -> Arc<LiveBroker> {
        let endpoint = |name: &&str| Endpoint {
            listener: (*name).into(),
            security_protocol: 0,
            host: format!("host-{id}"),
            port: 9092,
        };
        Arc::new(LiveBroker {
            id,
            rack: None,
            endpoints: listeners.iter().map(endpoint).collect(),
        })
    }

    /// Brokers 1 (both listeners) and 2 (IN only); broker 3 is dead.
    fn snapshot(leader: i32) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.brokers.insert(1, broker(1, &["IN", "OUT"]));
        snapshot.brokers.insert(2, broker(2, &["IN"]));
        let partition = PartitionInfo {
            leader,
            leader_epoch: 4,
            controller_epoch: 1,
            isr: vec![1, 3],
            partition_epoch: 0,
            replicas: vec![1, 2, 3],
            offline_replicas: vec![2],
        };
        let mut topic = TopicInfo::default();
        Arc::make_mut(&mut topic.partitions).insert(0, Arc::new(partition));
        snapshot.topics.insert("t".into(), Arc::new(topic));
        snapshot
    }

    fn told(leader: i32, listener: &str, version: i16) -> MetadataResponsePartition {
        topic(&snapshot(leader), "t", listener, Rules::of(version))
            .unwrap()
            .partitions
            .remove(0)
    }

    #[test]
    fn leaders_and_replicas_by_version_and_listener() {
        let now = told(1, "OUT", 12);
        assert_eq!((now.error_code, now.leader_id, now.leader_epoch), (0, 1, 4));
        assert_eq!(
            (now.replica_nodes.as_slice(), now.isr_nodes.as_slice()),
            (&[1, 2, 3][..], &[1, 3][..])
        );
        assert_eq!(
            now.offline_replicas,
            [2, 3],
            "without this listener, dead, or in a failed directory"
        );
        let first = told(1, "IN", 0);
        assert_eq!(first.error_code, ErrorCode::ReplicaNotAvailable.code());
        assert_eq!(
            (first.replica_nodes.as_slice(), first.isr_nodes.as_slice()),
            (&[1, 2][..], &[1][..])
        );
        let hidden = told(2, "OUT", 12);
        assert_eq!(
            (hidden.error_code, hidden.leader_id),
            (ErrorCode::ListenerNotFound.code(), -1)
        );
        assert_eq!(
            told(2, "OUT", 5).error_code,
            ErrorCode::LeaderNotAvailable.code()
        );
        assert_eq!(
            told(3, "IN", 12).error_code,
            ErrorCode::LeaderNotAvailable.code()
        );
        assert_eq!(
            told(-1, "IN", 12).error_code,
            ErrorCode::LeaderNotAvailable.code()
        );
    }

    #[test]
    fn brokers_of_a_listener() {
        let ids = |listener| {
            brokers(&snapshot(1), listener)
                .iter()
                .map(|b| b.node_id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids("IN"), [1, 2]);
        assert_eq!(ids("OUT"), [1]);
        assert!(
            has_leaders(&snapshot(1), "t")
                && !has_leaders(&snapshot(3), "t")
                && !has_leaders(&snapshot(1), "u")
        );
    }

    #[test]
    fn topic_names() {
        for good in ["a", "a.b_c-D9", &"x".repeat(249)] {
            assert_eq!(invalid_name(good), None);
        }
        for bad in ["", ".", "..", "a b", "ä", &"x".repeat(250)] {
            assert!(invalid_name(bad).is_some(), "{bad}");
        }
    }
}
