//! The offsets topic: who leads the partition of a group, and how the topic comes to be. And who coordinates
//! transactions, where brokers that can are in the cluster.

use std::sync::Arc;
use std::time::Duration;

use gracchus_groups::partition_for;
use gracchus_kafka_proto::ErrorCode;

use super::OFFSETS_TOPIC;
use crate::broker::Broker;
use crate::controller::auto_create_topics;
use crate::metadata::Snapshot;

const TRANSACTION_TOPIC: &str = "__transaction_state";

/// How long the first client waits for the topic that it had made, instead of asking again and again.
const WAIT_FOR_LEADER: Duration = Duration::from_secs(1);

/// A broker as its clients reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// -1: none.
    pub id: i32,
    /// Host of the client's listener.
    pub host: String,
    /// -1: none.
    pub port: i32,
}

impl Default for Node {
    fn default() -> Self {
        Node {
            id: -1,
            host: String::new(),
            port: -1,
        }
    }
}

/// The coordinator of a group, as clients of this listener reach it; COORDINATOR_NOT_AVAILABLE while its partition has no
/// leader.
pub async fn coordinator(
    broker: &Arc<Broker>,
    listener: &str,
    group_id: &str,
) -> Result<Node, ErrorCode> {
    let partition = broker.groups.partition_for(group_id);
    let snapshot = broker.metadata.snapshot();
    if snapshot.topics.contains_key(OFFSETS_TOPIC) {
        return leader(&snapshot, OFFSETS_TOPIC, listener, partition)
            .ok_or(ErrorCode::CoordinatorNotAvailable);
    }
    for (_, error) in auto_create_topics(broker, &[OFFSETS_TOPIC.to_owned()]).await {
        let made = [
            ErrorCode::None,
            ErrorCode::LeaderNotAvailable,
            ErrorCode::TopicAlreadyExists,
        ];
        if !made.contains(&error) {
            if error == ErrorCode::InvalidReplicationFactor {
                tracing::warn!(
                    topic = OFFSETS_TOPIC,
                    "the topic for groups cannot be made: start more brokers, or lower \
                     offsets.topic.replication.factor"
                );
            }
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
    }
    let known =
        |snapshot: &Snapshot| leader(snapshot, OFFSETS_TOPIC, listener, partition).is_some();
    broker.metadata.wait_until(WAIT_FOR_LEADER, known).await;
    leader(
        &broker.metadata.snapshot(),
        OFFSETS_TOPIC,
        listener,
        partition,
    )
    .ok_or(ErrorCode::CoordinatorNotAvailable)
}

/// The coordinator of a transactional id: the leader in `__transaction_state`, or this broker where there is no such topic.
/// This broker refuses such ids ([`crate::api::init_producer_id`]), which ends a producer at once; no coordinator at all
/// would have it ask for a minute.
pub fn transaction_coordinator(
    broker: &Broker,
    listener: &str,
    transactional_id: &str,
) -> Result<Node, ErrorCode> {
    let snapshot = broker.metadata.snapshot();
    let found = match snapshot.topics.get(TRANSACTION_TOPIC) {
        Some(topic) => {
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            let partition = partition_for(transactional_id, count);
            leader(&snapshot, TRANSACTION_TOPIC, listener, partition)
        }
        None => node(&snapshot, listener, broker.identity.broker_id),
    };
    found.ok_or(ErrorCode::CoordinatorNotAvailable)
}

fn leader(snapshot: &Snapshot, topic: &str, listener: &str, partition: i32) -> Option<Node> {
    let info = snapshot.partition(topic, partition)?;
    node(snapshot, listener, info.leader)
}

fn node(snapshot: &Snapshot, listener: &str, id: i32) -> Option<Node> {
    let live = snapshot.brokers.get(&id)?;
    let endpoint = live.endpoint(listener)?;
    Some(Node {
        id: live.id,
        host: endpoint.host.clone(),
        port: endpoint.port,
    })
}
