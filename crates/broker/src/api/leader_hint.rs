//! Who leads instead: what clients that came to the wrong broker are told in the answer itself (KIP-951).

use gracchus_kafka_proto::ErrorCode;

use crate::context::RequestContext;
use crate::replica::ReplicaManager;

/// A leader and its epoch, as far as this broker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderHint {
    /// -1 none or unknown.
    pub leader_id: i32,
    /// -1 unknown.
    pub leader_epoch: i32,
}

/// Where a leader listens, by the listener that the client uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderNode {
    /// Broker id.
    pub id: i32,
    /// As advertised.
    pub host: String,
    /// As advertised.
    pub port: i32,
    /// If it has one.
    pub rack: Option<String>,
}

/// The partition's leader: from the replica here, else from the metadata. Adds where it listens to `nodes`, once.
pub fn leader_hint(
    replicas: &ReplicaManager,
    ctx: &RequestContext,
    topic: &str,
    partition: i32,
    nodes: &mut Vec<LeaderNode>,
) -> LeaderHint {
    let snapshot = replicas.metadata.snapshot();
    let (leader_id, leader_epoch) = match replicas.partition(topic, partition) {
        Ok(here) => here.leader_and_epoch(),
        Err(_) => snapshot
            .partition(topic, partition)
            .map_or((-1, -1), |info| (info.leader, info.leader_epoch)),
    };
    if !nodes.iter().any(|node| node.id == leader_id)
        && let Some(live) = snapshot.brokers.get(&leader_id)
        && let Some(endpoint) = live.endpoint(ctx.listener_name())
    {
        nodes.push(LeaderNode {
            id: leader_id,
            host: endpoint.host.clone(),
            port: endpoint.port,
            rack: live.rack.clone(),
        });
    }
    LeaderHint {
        leader_id,
        leader_epoch,
    }
}

/// Topics that clients must not write to.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state")
}

/// What is wrong with a topic's name, in Kafka's words: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`.
pub fn name_fault(topic: &str) -> Option<String> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let fault = match topic {
        "" => "the empty string is not allowed".to_owned(),
        "." | ".." => format!("'{topic}' is not allowed"),
        _ if topic.len() > 249 => {
            format!("the length of '{topic}' is longer than the max allowed length 249")
        }
        _ if !topic.bytes().all(legal) => format!(
            "'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ),
        _ => return None,
    };
    Some(format!("Topic name is invalid: {fault}"))
}

/// Kafka's text for an error, None for NONE.
pub fn text_of(code: ErrorCode) -> Option<String> {
    (!code.is_none()).then(|| code.message().to_owned())
}
