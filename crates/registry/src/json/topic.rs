//! `/brokers/topics/T` and `/brokers/topics/T/partitions/P/state`.

use super::fields::Fields;
use super::{TopicId, ZnodeError, to_json};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The leader of a partition that has none.
pub const LEADER_NONE: i32 = -1;

/// Replicas of every partition of a topic; the first of a list is the preferred leader.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicAssignment {
    /// `None` below inter.broker.protocol.version 2.8, or made by an older tool.
    pub topic_id: Option<TopicId>,
    /// While a reassignment runs, a list is the target followed by the replicas to be removed.
    pub partitions: BTreeMap<i32, Vec<i32>>,
    /// Only partitions under reassignment.
    pub adding_replicas: BTreeMap<i32, Vec<i32>>,
    pub removing_replicas: BTreeMap<i32, Vec<i32>>,
}

impl TopicAssignment {
    /// Always version 3, whatever the protocol version of the brokers is.
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            partitions: &'a BTreeMap<i32, Vec<i32>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            topic_id: Option<String>,
            adding_replicas: &'a BTreeMap<i32, Vec<i32>>,
            removing_replicas: &'a BTreeMap<i32, Vec<i32>>,
            version: i32,
        }
        to_json(&Json {
            partitions: &self.partitions,
            topic_id: self.topic_id.map(|id| id.to_string()),
            adding_replicas: &self.adding_replicas,
            removing_replicas: &self.removing_replicas,
            version: 3,
        })
    }

    /// Versions 1 to 3. Kafka takes what is no JSON for a topic without partitions and overwrites it; here it is an error,
    /// and the reader leaves the node alone.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Self::parse_as_written(data).map_or_else(|| Self::parse_leniently(data), Ok)
    }

    /// What Kafka itself writes, which is nearly all that is ever read, and a controller reads very many at once.
    fn parse_as_written(data: &[u8]) -> Option<Self> {
        type Lists = BTreeMap<i32, Vec<i32>>;
        #[derive(Deserialize)]
        struct Json {
            partitions: Lists,
            topic_id: Option<String>,
            #[serde(default)]
            adding_replicas: Lists,
            #[serde(default)]
            removing_replicas: Lists,
        }
        let json: Json = serde_json::from_slice(data).ok()?;
        let topic_id = match json.topic_id {
            Some(text) => Some(text.parse().ok()?),
            None => None,
        };
        Some(TopicAssignment {
            topic_id,
            partitions: json.partitions,
            adding_replicas: json.adding_replicas,
            removing_replicas: json.removing_replicas,
        })
    }

    fn parse_leniently(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let topic_id = fields
            .text_opt("topic_id")?
            .map(|text| {
                text.parse().map_err(|_| ZnodeError::Value {
                    what: "topic_id",
                    found: text,
                })
            })
            .transpose()?;
        if fields.get("partitions").is_none() {
            return Err(ZnodeError::Missing("partitions"));
        }
        Ok(TopicAssignment {
            topic_id,
            partitions: fields.replicas("partitions")?,
            adding_replicas: fields.replicas("adding_replicas")?,
            removing_replicas: fields.replicas("removing_replicas")?,
        })
    }
}

/// Who leads a partition. The node's data version is the partition epoch, so it is no field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Of the controller that wrote it, or gave the leader its orders.
    pub controller_epoch: i32,
    /// [`LEADER_NONE`] when there is none.
    pub leader: i32,
    pub leader_epoch: i32,
    pub isr: Vec<i32>,
    /// 0 recovered, 1 recovering: after an unclean election, until that leader's next ISR change (KIP-704).
    pub leader_recovery_state: i32,
}

impl PartitionState {
    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json<'a> {
            controller_epoch: i32,
            leader: i32,
            version: i32,
            #[serde(skip_serializing_if = "Option::is_none")]
            leader_recovery_state: Option<i32>,
            leader_epoch: i32,
            isr: &'a [i32],
        }
        to_json(&Json {
            controller_epoch: self.controller_epoch,
            leader: self.leader,
            version: 1,
            leader_recovery_state: Some(self.leader_recovery_state).filter(|state| *state != 0),
            leader_epoch: self.leader_epoch,
            isr: &self.isr,
        })
    }

    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        Self::parse_as_written(data).map_or_else(|| Self::parse_leniently(data), Ok)
    }

    /// As for [`TopicAssignment`].
    fn parse_as_written(data: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Json {
            controller_epoch: i32,
            leader: i32,
            leader_epoch: i32,
            isr: Vec<i32>,
            #[serde(default)]
            leader_recovery_state: i32,
        }
        let json: Json = serde_json::from_slice(data).ok()?;
        (0..=1)
            .contains(&json.leader_recovery_state)
            .then_some(PartitionState {
                controller_epoch: json.controller_epoch,
                leader: json.leader,
                leader_epoch: json.leader_epoch,
                isr: json.isr,
                leader_recovery_state: json.leader_recovery_state,
            })
    }

    fn parse_leniently(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let leader_recovery_state = fields.int_or("leader_recovery_state", 0)?;
        if !(0..=1).contains(&leader_recovery_state) {
            return Err(ZnodeError::Value {
                what: "leader_recovery_state",
                found: leader_recovery_state.to_string(),
            });
        }
        Ok(PartitionState {
            controller_epoch: fields.int("controller_epoch")?,
            leader: fields.int("leader")?,
            leader_epoch: fields.int("leader_epoch")?,
            isr: fields.ints("isr")?,
            leader_recovery_state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn older_versions_lack_keys() {
        let v1 =
            TopicAssignment::parse(br#"{"version":1,"partitions":{"0":[9],"10":[1,2]}}"#).unwrap();
        assert_eq!(v1.topic_id, None);
        assert_eq!(v1.partitions[&10], [1, 2]);
        assert_eq!(v1.to_bytes().as_ref(), br#"{"partitions":{"0":[9],"10":[1,2]},"adding_replicas":{},"removing_replicas":{},"version":3}"#);
    }

    #[test]
    fn broken_assignments_are_errors() {
        assert_eq!(TopicAssignment::parse(b""), Err(ZnodeError::Empty));
        assert_eq!(
            TopicAssignment::parse(b"{}"),
            Err(ZnodeError::Missing("partitions"))
        );
        for text in [
            r#"{"partitions":[]}"#,
            r#"{"partitions":{"x":[1]}}"#,
            r#"{"partitions":{"0":["a"]}}"#,
            r#"{"partitions":{"0":1}}"#,
            r#"{"partitions":{"0":[4294967296]}}"#,
        ] {
            assert!(
                matches!(
                    TopicAssignment::parse(text.as_bytes()),
                    Err(ZnodeError::WrongType {
                        key: "partitions",
                        ..
                    })
                ),
                "{text}"
            );
        }
        assert!(TopicAssignment::parse(br#"{"partitions":{},"topic_id":"short"}"#).is_err());
    }

    #[test]
    fn broken_states_are_errors() {
        assert_eq!(
            PartitionState::parse(br#"{"leader":1}"#),
            Err(ZnodeError::Missing("controller_epoch"))
        );
        assert!(PartitionState::parse(br#"{"controller_epoch":1,"leader":2,"leader_epoch":2,"isr":[2],"leader_recovery_state":7}"#).is_err());
    }

    /// What the quick way of reading takes it takes for the same as the lenient one.
    #[test]
    fn both_ways_of_reading_agree() {
        let numbers = [
            "1",
            "-1",
            "\"1\"",
            "\" 2 \"",
            "1.0",
            "1e3",
            "4294967296",
            "null",
            "true",
            "[]",
        ];
        let lists = ["[]", "[1,2]", "[\"1\",2]", "[1,null]", "null", "{}", "7"];
        for number in numbers {
            for list in lists {
                for state in [
                    format!(
                        r#"{{"controller_epoch":{number},"leader":1,"version":1,"leader_epoch":2,"isr":{list}}}"#
                    ),
                    format!(
                        r#"{{"controller_epoch":1,"leader":1,"leader_epoch":2,"isr":{list},"leader_recovery_state":{number}}}"#
                    ),
                    format!(
                        r#"{{"controller_epoch":1,"leader":1,"leader":{number},"leader_epoch":2,"isr":{list},"x":{{"leader":3}}}}"#
                    ),
                ] {
                    let quick = PartitionState::parse_as_written(state.as_bytes());
                    let lenient = PartitionState::parse_leniently(state.as_bytes());
                    assert!(quick.is_none() || quick == lenient.ok(), "{state}");
                }
                for topic in [
                    format!(
                        r#"{{"partitions":{{"0":{list},"1":[{number}]}},"topic_id":{number},"version":3}}"#
                    ),
                    format!(
                        r#"{{"partitions":{{"0":[1],"0":{list},"00":[3]}},"adding_replicas":{list}}}"#
                    ),
                    format!(
                        r#"{{"partitions":{{"{number}":{list}}},"removing_replicas":{{"1":{list}}}}}"#
                    ),
                ] {
                    let quick = TopicAssignment::parse_as_written(topic.as_bytes());
                    let lenient = TopicAssignment::parse_leniently(topic.as_bytes());
                    assert!(quick.is_none() || quick == lenient.ok(), "{topic}");
                }
            }
        }
        let written = TopicAssignment {
            partitions: [(0, vec![1])].into(),
            ..Default::default()
        };
        assert_eq!(
            TopicAssignment::parse_as_written(&written.to_bytes()),
            Some(written)
        );
    }

    fn replicas() -> impl Strategy<Value = BTreeMap<i32, Vec<i32>>> {
        proptest::collection::btree_map(
            0..1000i32,
            proptest::collection::vec(any::<i32>(), 0..4),
            0..8,
        )
    }

    proptest! {
        #[test]
        fn assignment_round_trips(id in any::<Option<[u8; 16]>>(), partitions in replicas(), adding_replicas in replicas(), removing_replicas in replicas()) {
            let assignment = TopicAssignment { topic_id: id.map(TopicId::from_bytes), partitions, adding_replicas, removing_replicas };
            prop_assert_eq!(TopicAssignment::parse(&assignment.to_bytes()), Ok(assignment));
        }

        #[test]
        fn state_round_trips(controller_epoch: i32, leader: i32, leader_epoch: i32, isr: Vec<i32>, leader_recovery_state in 0..2i32) {
            let state = PartitionState { controller_epoch, leader, leader_epoch, isr, leader_recovery_state };
            prop_assert_eq!(PartitionState::parse(&state.to_bytes()), Ok(state));
        }
    }
}
