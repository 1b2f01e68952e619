//! A topic that a CreateTopics request wants: checked in Kafka's order, with its replicas placed. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::create_topics_request::CreatableTopic;
use gracchus_registry::json::ConfigZnode;
use hashbrown::{HashMap, HashSet};

use super::placement::{Candidate, Start, place};
use super::{MAX_PARTITIONS_PER_REQUEST, Refusal, listed, refusal};
use crate::config::BrokerConfig;
use crate::config::alter;
use crate::config::store::Props;
use crate::metadata::view;

/// The defaults of a number that a request leaves open.
const OPEN: i32 = -1;

/// What the topic will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Replicas by partition.
    pub assignment: BTreeMap<i32, Vec<i32>>,
    /// Overrides, in the request's order.
    pub config: ConfigZnode,
    /// The same by key.
    pub overrides: Props,
}

impl Plan {
    /// Number of partitions.
    pub fn partitions(&self) -> i32 {
        i32::try_from(self.assignment.len()).unwrap_or(i32::MAX)
    }

    /// Replicas of a partition; all have as many.
    pub fn replication_factor(&self) -> i16 {
        let first = self.assignment.values().next().map_or(0, Vec::len);
        i16::try_from(first).unwrap_or(i16::MAX)
    }
}

/// Names that are taken, also by names that metrics could not tell apart from them (`.` and `_`).
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
    alike: HashMap<String, Vec<String>>,
}

impl Names {
    /// Takes a name.
    pub fn take(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
        self.keep_apart(name);
    }

    /// Refuses names like this one, but not this one.
    pub fn keep_apart(&mut self, name: &str) {
        if has_collision_chars(name) {
            let alike = self.alike.entry(unified(name)).or_default();
            if !alike.iter().any(|known| known == name) {
                alike.push(name.to_owned());
            }
        }
    }

    fn alike(&self, name: &str) -> Vec<&str> {
        let known = self.alike.get(&unified(name));
        known
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(|known| *known != name)
            .collect()
    }
}

/// Does the name need a look at other topics' names?
pub fn has_collision_chars(name: &str) -> bool {
    name.contains(['.', '_'])
}

fn unified(name: &str) -> String {
    name.replace('.', "_")
}

/// What a plan depends on.
pub struct Facts<'a> {
    /// This broker's defaults.
    pub config: &'a BrokerConfig,
    /// Live brokers, ascending.
    pub brokers: &'a [Candidate],
    /// What is there already, and what this request has made so far.
    pub names: &'a Names,
    /// How many partitions this request may still ask for.
    pub budget: i32,
}

impl<'a> Facts<'a> {
    /// At a request's begin.
    pub fn new(config: &'a BrokerConfig, brokers: &'a [Candidate], names: &'a Names) -> Self {
        Self {
            config,
            brokers,
            names,
            budget: MAX_PARTITIONS_PER_REQUEST,
        }
    }
}

/// Checks and places.
pub fn plan(topic: &CreatableTopic, facts: &Facts<'_>, start: Start) -> Result<Plan, Refusal> {
    if facts.names.taken.contains(&topic.name) {
        return Err(exists(&topic.name));
    }
    let nulls: Vec<&str> = topic
        .configs
        .iter()
        .filter(|c| c.value.is_none())
        .map(|c| c.name.as_str())
        .collect();
    if !nulls.is_empty() {
        return Err(Refusal::config(format!(
            "Null value not supported for topic configs: {}",
            nulls.join(",")
        )));
    }
    let counted = topic.num_partitions != OPEN || i32::from(topic.replication_factor) != OPEN;
    if counted && !topic.assignments.is_empty() {
        return Err(Refusal::request(
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time.",
        ));
    }
    let assignment = if topic.assignments.is_empty() {
        let count = match topic.num_partitions {
            OPEN => facts.config.num_partitions,
            count => count,
        };
        let replicas = match i32::from(topic.replication_factor) {
            OPEN => i16::try_from(facts.config.default_replication_factor).unwrap_or(i16::MAX),
            _ => topic.replication_factor,
        };
        if count > facts.budget {
            return Err(too_many());
        }
        place(facts.brokers, 0, count, replicas, start)?
    } else {
        topic
            .assignments
            .iter()
            .map(|a| (a.partition_index, a.broker_ids.clone()))
            .collect()
    };
    if let Some(message) = view::invalid_name(&topic.name) {
        return Err(refusal(ErrorCode::InvalidTopicException, message));
    }
    if has_collision_chars(&topic.name) {
        let alike = facts.names.alike(&topic.name);
        if !alike.is_empty() {
            return Err(refusal(
                ErrorCode::InvalidTopicException,
                format!(
                    "Topic '{}' collides with existing topics: {}",
                    topic.name,
                    alike.join(", ")
                ),
            ));
        }
    }
    check_assignment(&assignment)?;
    let mut config = ConfigZnode::default();
    for entry in &topic.configs {
        let value = entry.value.clone().unwrap_or_default();
        config.config.insert(entry.name.clone(), value);
    }
    let overrides: Props = config
        .config
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    alter::check_topic(facts.config, &overrides)
        .map_err(|refused| Refusal::config(refused.message()))?;
    Ok(Plan {
        assignment,
        config,
        overrides,
    })
}

/// TOPIC_ALREADY_EXISTS
pub fn exists(name: &str) -> Refusal {
    refusal(
        ErrorCode::TopicAlreadyExists,
        format!("Topic '{name}' already exists."),
    )
}

/// INVALID_PARTITIONS for more than ZooKeeper can store.
pub fn too_many() -> Refusal {
    refusal(
        ErrorCode::InvalidPartitions,
        format!(
            "More partitions than can be created at once: a topic's assignment must fit into one znode, and a request \
             may create {MAX_PARTITIONS_PER_REQUEST}. Use fewer, or several requests."
        ),
    )
}

/// A manual assignment. Whether its brokers exist is not looked at, as in Kafka: a topic may be placed on a broker that
/// is down.
fn check_assignment(assignment: &BTreeMap<i32, Vec<i32>>) -> Result<(), Refusal> {
    let refuse = |text: String| Err(refusal(ErrorCode::InvalidReplicaAssignment, text));
    let sizes: BTreeSet<usize> = assignment.values().map(Vec::len).collect();
    if sizes.len() != 1 {
        return refuse("All partitions should have the same number of replicas".into());
    }
    if sizes.contains(&0) {
        return refuse("Cannot have replication factor of 0".into());
    }
    for (partition, replicas) in assignment {
        let distinct: BTreeSet<&i32> = replicas.iter().collect();
        if distinct.len() != replicas.len() {
            return refuse(format!(
                "Duplicate replica assignment found: partition {partition} on {}",
                listed(replicas)
            ));
        }
    }
    if assignment
        .keys()
        .zip(0..)
        .any(|(partition, at)| *partition != at)
    {
        return refuse("partitions should be a consecutive 0-based integer sequence".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_kafka_proto::messages::create_topics_request::{
        CreatableReplicaAssignment, CreatableTopicConfig,
    };

    fn wanted(name: &str) -> CreatableTopic {
        CreatableTopic {
            name: name.into(),
            num_partitions: OPEN,
            replication_factor: -1,
            ..Default::default()
        }
    }

    fn planned(topic: &CreatableTopic, existing: &[&str]) -> Result<Plan, (ErrorCode, String)> {
        let config = BrokerConfig::from_values(&Props::from([(
            "num.partitions".to_owned(),
            "4".to_owned(),
        )]))
        .unwrap();
        let brokers: Vec<Candidate> = (1..4).map(|id| Candidate { id, rack: None }).collect();
        let mut names = Names::default();
        for name in existing {
            names.take(name);
        }
        let start = Start {
            leader: 0,
            shift: 0,
        };
        plan(topic, &Facts::new(&config, &brokers, &names), start)
            .map_err(|Refusal { error, message }| (error, message))
    }

    fn with_config(key: &str, value: Option<&str>) -> CreatableTopic {
        CreatableTopic {
            configs: vec![CreatableTopicConfig {
                name: key.into(),
                value: value.map(str::to_owned),
                ..Default::default()
            }],
            ..wanted("t")
        }
    }

    fn manual(assignments: &[(i32, &[i32])]) -> CreatableTopic {
        CreatableTopic {
            assignments: assignments
                .iter()
                .map(|(partition_index, ids)| CreatableReplicaAssignment {
                    partition_index: *partition_index,
                    broker_ids: ids.to_vec(),
                    ..Default::default()
                })
                .collect(),
            ..wanted("t")
        }
    }

    #[test]
    fn open_numbers_are_the_brokers_defaults() {
        let plan = planned(&wanted("t"), &[]).unwrap();
        assert_eq!((plan.partitions(), plan.replication_factor()), (4, 1));
        let topic = CreatableTopic {
            num_partitions: 2,
            replication_factor: 3,
            ..wanted("t")
        };
        let plan = planned(&topic, &[]).unwrap();
        assert_eq!((plan.partitions(), plan.replication_factor()), (2, 3));
    }

    #[test]
    fn names() {
        let refused = |name: &str, existing: &[&str]| planned(&wanted(name), existing).unwrap_err();
        assert_eq!(
            refused("t", &["t"]),
            (
                ErrorCode::TopicAlreadyExists,
                "Topic 't' already exists.".into()
            )
        );
        assert_eq!(refused("a b", &[]).0, ErrorCode::InvalidTopicException);
        assert_eq!(refused("", &[]).0, ErrorCode::InvalidTopicException);
        assert_eq!(
            refused("a.b", &["x", "a_b"]),
            (
                ErrorCode::InvalidTopicException,
                "Topic 'a.b' collides with existing topics: a_b".into()
            )
        );
        assert!(planned(&wanted("a-b"), &["a_b"]).is_ok());
    }

    #[test]
    fn numbers() {
        let counted = |num_partitions, replication_factor| {
            let topic = CreatableTopic {
                num_partitions,
                replication_factor,
                ..wanted("t")
            };
            planned(&topic, &[]).unwrap_err().0
        };
        assert_eq!(counted(0, 1), ErrorCode::InvalidPartitions);
        assert_eq!(counted(-2, 1), ErrorCode::InvalidPartitions);
        assert_eq!(counted(i32::MAX, 1), ErrorCode::InvalidPartitions);
        assert_eq!(counted(1, 0), ErrorCode::InvalidReplicationFactor);
        assert_eq!(counted(1, 4), ErrorCode::InvalidReplicationFactor);
    }

    #[test]
    fn manual_assignments() {
        let plan = planned(&manual(&[(1, &[2, 9]), (0, &[1, 2])]), &[]).unwrap();
        assert_eq!(
            plan.assignment,
            BTreeMap::from([(0, vec![1, 2]), (1, vec![2, 9])])
        );
        let refused =
            |assignments: &[(i32, &[i32])]| planned(&manual(assignments), &[]).unwrap_err();
        assert_eq!(
            refused(&[(0, &[1, 2]), (1, &[2])]),
            (
                ErrorCode::InvalidReplicaAssignment,
                "All partitions should have the same number of replicas".into()
            )
        );
        assert!(refused(&[(0, &[1, 1])]).1.starts_with("Duplicate replica"));
        for gaps in [&[(1, &[1][..])][..], &[(-1, &[1]), (0, &[1])]] {
            assert_eq!(
                refused(gaps).1,
                "partitions should be a consecutive 0-based integer sequence"
            );
        }
        assert_eq!(refused(&[(0, &[])]).0, ErrorCode::InvalidReplicaAssignment);
        let both = CreatableTopic {
            num_partitions: 1,
            ..manual(&[(0, &[1])])
        };
        assert_eq!(
            planned(&both, &[]).unwrap_err().0,
            ErrorCode::InvalidRequest
        );
    }

    #[test]
    fn configs() {
        let refused = |key: &str, value: Option<&str>| {
            let (error, text) = planned(&with_config(key, value), &[]).unwrap_err();
            assert_eq!(error, ErrorCode::InvalidConfig);
            text
        };
        assert_eq!(refused("x", Some("1")), "Unknown topic config name: x");
        assert_eq!(
            refused("retention.ms", Some("soon")),
            "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            refused("retention.ms", None),
            "Null value not supported for topic configs: retention.ms"
        );
        let plan = planned(&with_config("retention.ms", Some("5")), &[]).unwrap();
        assert_eq!(plan.config.config["retention.ms"], "5");
    }
}
