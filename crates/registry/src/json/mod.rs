//! What Kafka's znodes hold. Every type has `parse(&[u8])` and, where gracchus writes it, `to_bytes()`.
//!
//! [`broker`] (`/brokers/ids/N`), [`topic`] (assignment and partition state), [`controller`] (who is it, its epoch),
//! [`cluster`] (its id), [`config`] (overrides and their notices), [`admin`] (reassignment, preferred election),
//! [`notice`] (ISR changes, failed log directories), [`feature`], [`producer_ids`], [`acl`], [`token`].

pub mod acl;
pub mod admin;
pub mod broker;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod feature;
mod fields;
pub mod notice;
pub mod producer_ids;
pub mod token;
pub mod topic;

pub use acl::{AclChange, AclEntry, AclZnode};
pub use admin::{PreferredElection, ReassignPartitions, ReassignmentEntry};
pub use broker::{BrokerRegistration, Endpoint, SecurityProtocol, SupportedRange};
pub use cluster::ClusterId;
pub use config::{ConfigChange, ConfigZnode};
pub use controller::{ControllerZnode, format_controller_epoch, parse_controller_epoch};
pub use feature::{FeatureLevels, FeatureZnode};
pub use notice::{IsrChange, LogDirEvent};
pub use producer_ids::ProducerIdBlock;
pub use token::DelegationToken;
pub use topic::{LEADER_NONE, PartitionState, TopicAssignment};

/// A topic's id; base64url of 22 letters in the znode.
pub type TopicId = gracchus_kafka_proto::Uuid;

/// A partition as znodes name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

/// Content of a znode that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZnodeError {
    #[error("the node has no data")]
    Empty,
    #[error("not JSON ({0})")]
    NotJson(String),
    #[error("JSON, but not an object")]
    NotAnObject,
    #[error("key {0:?} is missing")]
    Missing(&'static str),
    #[error("key {key:?} is not {expected}")]
    WrongType {
        key: &'static str,
        expected: &'static str,
    },
    #[error("version {found} is not supported; known are {known}")]
    Version { found: i32, known: &'static str },
    #[error("{what} is {found:?}")]
    Value { what: &'static str, found: String },
}

/// Compact JSON. The types here have no map with a key that is no string and no float that is no number, so writing
/// cannot fail.
fn to_json(value: &impl serde::Serialize) -> bytes::Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// A map in its own order.
fn in_order<S: serde::Serializer>(
    map: &indexmap::IndexMap<String, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map)
}
