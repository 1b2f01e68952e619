//! Topics and partitions coming to be: what is asked for, checked and placed, then written to ZooKeeper, where the
//! controller finds it.
//!
//! [`placement`], [`plan`] and [`growth`] are pure; [`create`] and [`grow`] read and write; [`auto`] is for topics that a
//! client named without creating them.

/// Topics made because a client named them.
pub mod auto;
/// CreateTopics, from a checked request to its answer.
pub mod create;
/// CreatePartitions, from a checked request to its answer.
pub mod grow;
/// What partitions may be added to a topic.
pub mod growth;
/// Where replicas go.
pub mod placement;
/// What a topic will be.
pub mod plan;
/// Waiting until the cluster has leaders for what was made.
mod wait;

pub(crate) use auto::wanted;

pub use crate::config::alter::Refusal;

use crate::metadata::Snapshot;
use gracchus_kafka_proto::ErrorCode;
use placement::Candidate;

/// A topic's assignment is one znode, and ZooKeeper's `jute.maxbuffer` is 1 MiB; also the bound of what one request may
/// ask for in total.
const MAX_ASSIGNMENT_BYTES: usize = 1_040_000;
const MAX_PARTITIONS_PER_REQUEST: i32 = 200_000;

/// The live brokers, ascending by id.
fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    snapshot
        .brokers
        .values()
        .map(|b| Candidate {
            id: b.id,
            rack: b.rack.clone(),
        })
        .collect()
}

fn refusal(error: ErrorCode, message: impl Into<String>) -> Refusal {
    Refusal {
        error,
        message: message.into(),
    }
}

/// `1, 2, 3`
fn listed(ids: impl IntoIterator<Item = impl ToString>) -> String {
    ids.into_iter()
        .map(|id| id.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
