//! `/admin/reassign_partitions` and `/admin/preferred_replica_election`: orders that old tools leave for the controller.

use super::fields::Fields;
use super::{TopicPartition, ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// One partition to be moved to these replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReassignmentEntry {
    pub topic: String,
    pub partition: i32,
    pub replicas: Vec<i32>,
}

/// What is left to be taken over into the topics' own nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReassignPartitions {
    pub entries: Vec<ReassignmentEntry>,
}

impl ReassignPartitions {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            version: i32,
            partitions: &'a [ReassignmentEntry],
        }
        to_json(&Json {
            version: 1,
            partitions: &self.entries,
        })
    }

    /// Any extra key (`log_dirs`) is left out.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let entries = fields
            .list("partitions")?
            .iter()
            .map(|value| {
                let entry = Fields::of(value)?;
                Ok(ReassignmentEntry {
                    topic: entry.text("topic")?,
                    partition: entry.int("partition")?,
                    replicas: entry.ints("replicas")?,
                })
            })
            .collect::<Result<_, ZnodeError>>()?;
        Ok(ReassignPartitions { entries })
    }
}

/// Partitions whose preferred replica shall lead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PreferredElection {
    pub partitions: Vec<TopicPartition>,
}

impl PreferredElection {
    pub fn to_bytes(&self) -> Bytes {
        super::notice::partitions_json(&self.partitions)
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Ok(PreferredElection {
            partitions: Fields::parse(data)?.partitions("partitions")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_orders() {
        assert_eq!(
            ReassignPartitions::parse(
                br#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#
            ),
            Err(ZnodeError::Missing("replicas"))
        );
        assert!(matches!(
            ReassignPartitions::parse(b"{not json"),
            Err(ZnodeError::NotJson(_))
        ));
        assert_eq!(
            PreferredElection::parse(b"{}"),
            Err(ZnodeError::Missing("partitions"))
        );
        assert_eq!(
            PreferredElection::parse(br#"{"partitions":[7]}"#),
            Err(ZnodeError::NotAnObject)
        );
    }

    #[test]
    fn preferred_election_round_trips() {
        let text = br#"{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}"#;
        assert_eq!(
            PreferredElection::parse(text).unwrap().to_bytes().as_ref(),
            text
        );
    }
}
