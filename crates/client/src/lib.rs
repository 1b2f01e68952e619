//! Clients of a Kafka cluster.
//!
//! Reading order: [`connection`] (one broker), [`cluster`] (who leads what, retries), [`admin`] (topics, configurations,
//! groups, offsets), [`producer`], [`consumer`] (assigned partitions, or as a member of a classic group).
//!
//! Invariant: every wait has a timeout, every queue a bound, and no answer of a broker is trusted beyond its bytes.

pub mod admin;
pub mod cluster;
pub mod connection;
pub mod consumer;
mod error;
pub mod producer;

pub use admin::Admin;
pub use cluster::{Cluster, ClusterConfig, Node};
pub use connection::{Connection, ConnectionConfig};
pub use consumer::{Consumer, ConsumerConfig};
pub use error::ClientError;
pub use producer::{Producer, ProducerConfig};

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: &str, partition: i32) -> Self {
        TopicPartition {
            topic: topic.to_owned(),
            partition,
        }
    }
}

/// As Kafka writes it: `topic-0`.
impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
