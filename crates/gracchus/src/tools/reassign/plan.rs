//! The JSON of the tool: which replicas are to be where.

use super::super::Failure;
use super::{ids, names};
use gracchus_client::TopicPartition;
use gracchus_client::admin::Replica;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Of a replica whose directory does not matter.
const ANY: &str = "any";

/// What a reassignment file asks for.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In the file's order; a partition may be there twice ([`Self::check`]).
    pub partitions: Vec<(TopicPartition, Vec<i32>)>,
    /// Of replicas that are to be in a certain directory.
    pub dirs: BTreeMap<Replica, String>,
}

fn failed(text: impl std::fmt::Display) -> Failure {
    Failure::other(format!("Error: {text}"))
}

/// A document of version 1, which is also that of one that does not say.
fn document(text: &str) -> Result<Value, Failure> {
    let document: Value = serde_json::from_str(text)
        .map_err(|e| failed(format!("The input string is not a valid JSON: {e}")))?;
    match document.get("version").map(Value::as_i64) {
        None | Some(Some(1)) => Ok(document),
        Some(_) => Err(failed(format!(
            "Not supported version field value {}",
            document.get("version").unwrap_or(&Value::Null)
        ))),
    }
}

/// The elements of a list; none if it is absent.
fn list<'a>(document: &'a Value, key: &str) -> Result<&'a [Value], Failure> {
    match document.get(key) {
        None => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(failed(format!("{key} is no list: {other}"))),
    }
}

fn name(entry: &Value) -> Result<&str, Failure> {
    let topic = entry.get("topic").and_then(Value::as_str);
    topic.ok_or_else(|| failed(format!("no topic in {entry}")))
}

fn number(value: Option<&Value>) -> Option<i32> {
    value?.as_i64().and_then(|n| i32::try_from(n).ok())
}

impl Plan {
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let document = document(text)?;
        let mut plan = Self::default();
        for entry in list(&document, "partitions")? {
            let partition = number(entry.get("partition"))
                .ok_or_else(|| failed(format!("no partition in {entry}")))?;
            let partition = TopicPartition::new(name(entry)?, partition);
            let replicas: Option<Vec<i32>> = entry
                .get("replicas")
                .and_then(Value::as_array)
                .and_then(|list| list.iter().map(|id| number(Some(id))).collect());
            let replicas =
                replicas.ok_or_else(|| failed(format!("no list of replicas in {entry}")))?;
            let dirs: Option<Vec<&str>> = match entry.get("log_dirs") {
                None => Some(vec![ANY; replicas.len()]),
                Some(dirs) => dirs
                    .as_array()
                    .and_then(|dirs| dirs.iter().map(Value::as_str).collect()),
            };
            let dirs = dirs.ok_or_else(|| failed(format!("log_dirs is no list in {entry}")))?;
            if dirs.len() != replicas.len() {
                return Err(failed(format!(
                    "Size of replicas list {replicas:?} is different from size of log dirs list [{}] for partition {partition}",
                    dirs.join(", ")
                )));
            }
            for (broker, dir) in replicas.iter().zip(dirs) {
                if dir != ANY {
                    let replica = Replica {
                        broker: *broker,
                        partition: partition.clone(),
                    };
                    plan.dirs.insert(replica, dir.to_owned());
                }
            }
            plan.partitions.push((partition, replicas));
        }
        Ok(plan)
    }

    /// Whether it can be carried out.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.partitions.is_empty() {
            return Err(failed("Partition reassignment list cannot be empty"));
        }
        if self.partitions.iter().any(|(_, ids)| ids.is_empty()) {
            return Err(failed("Partition replica list cannot be empty"));
        }
        let twice = duplicates(self.partitions.iter().map(|(p, _)| p));
        if !twice.is_empty() {
            return Err(failed(format!(
                "Partition reassignment contains duplicate topic partitions: {}",
                names(twice)
            )));
        }
        let twice: Vec<String> = self
            .partitions
            .iter()
            .filter_map(|(partition, replicas)| {
                let twice: Vec<i32> = duplicates(replicas).into_iter().copied().collect();
                let text = format!("{partition} contains multiple entries for {}", ids(&twice));
                (!twice.is_empty()).then_some(text)
            })
            .collect();
        match twice.is_empty() {
            true => Ok(()),
            false => Err(failed(format!(
                "Partition replica lists may not contain duplicate entries: {}",
                twice.join(". ")
            ))),
        }
    }

    pub(super) fn targets(&self) -> BTreeMap<TopicPartition, Vec<i32>> {
        self.partitions.iter().cloned().collect()
    }

    pub(super) fn topics(&self) -> BTreeSet<&str> {
        self.partitions
            .iter()
            .map(|(p, _)| p.topic.as_str())
            .collect()
    }
}

/// What `--generate` is to move, and where to.
#[derive(Debug)]
pub(super) struct Topics {
    pub topics: Vec<String>,
    pub brokers: Vec<i32>,
}

pub(super) fn topics(text: &str, brokers: &str) -> Result<Topics, Failure> {
    let parse = |id: &str| {
        id.parse::<i32>()
            .map_err(|_| failed(format!("For input string: \"{id}\" in --broker-list")))
    };
    let brokers: Vec<i32> = brokers.split(',').map(parse).collect::<Result<_, _>>()?;
    let shown = |twice: Vec<String>| format!("[{}]", twice.join(", "));
    let twice = duplicates(&brokers);
    if !twice.is_empty() {
        let twice = twice.into_iter().map(i32::to_string).collect();
        return Err(failed(format!(
            "Broker list contains duplicate entries: {}",
            shown(twice)
        )));
    }
    let document = document(text)?;
    let entries = list(&document, "topics")?;
    let topics: Vec<String> = entries
        .iter()
        .map(|entry| name(entry).map(str::to_owned))
        .collect::<Result<_, _>>()?;
    let twice = duplicates(&topics);
    if !twice.is_empty() {
        let twice = twice.into_iter().cloned().collect();
        return Err(failed(format!(
            "List of topics to reassign contains duplicate entries: {}",
            shown(twice)
        )));
    }
    Ok(Topics { topics, brokers })
}

/// As Kafka's tool writes it, and takes it back.
pub(super) fn json(assignment: &BTreeMap<TopicPartition, Vec<i32>>) -> String {
    let partitions: Vec<String> = assignment
        .iter()
        .map(|(p, replicas)| {
            let dirs = vec![format!("\"{ANY}\""); replicas.len()].join(",");
            format!(
                "{{\"topic\":{},\"partition\":{},\"replicas\":[{}],\"log_dirs\":[{dirs}]}}",
                Value::from(p.topic.as_str()),
                p.partition,
                ids(replicas)
            )
        })
        .collect();
    format!(
        "{{\"version\":1,\"partitions\":[{}]}}",
        partitions.join(",")
    )
}

fn duplicates<T: Ord + Copy>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    items
        .into_iter()
        .filter(|item| !seen.insert(*item))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let plan = Plan::read(text).map_err(|e| e.to_string())?;
        plan.check().map_err(|e| e.to_string())?;
        Ok(plan)
    }

    #[test]
    fn what_it_writes_it_reads() {
        let text = r#"{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},{"topic":"b","partition":3,"replicas":[4],"log_dirs":["any"]}]}"#;
        let read = plan(text).unwrap();
        assert!(read.dirs.is_empty());
        assert_eq!(json(&read.targets()), text);
    }

    #[test]
    fn directories_are_of_replicas() {
        let read = plan(
            r#"{"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}"#,
        )
        .unwrap();
        let replica = Replica {
            broker: 2,
            partition: TopicPartition::new("a", 0),
        };
        assert_eq!(read.dirs, BTreeMap::from([(replica, "/d".to_owned())]));
    }

    #[test]
    fn what_cannot_be_is_refused_in_kafkas_words() {
        for (text, error) in [
            ("{}", "Partition reassignment list cannot be empty"),
            (r#"{"version":2}"#, "Not supported version field value 2"),
            (
                r#"{"partitions":[{"topic":"a","partition":0,"replicas":[]}]}"#,
                "Partition replica list cannot be empty",
            ),
            (
                r#"{"partitions":[{"topic":"a","partition":0,"replicas":[1]},{"topic":"a","partition":0,"replicas":[2]}]}"#,
                "Partition reassignment contains duplicate topic partitions: a-0",
            ),
            (
                r#"{"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}"#,
                "Partition replica lists may not contain duplicate entries: a-0 contains multiple entries for 1",
            ),
            (
                r#"{"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}"#,
                "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition a-0",
            ),
        ] {
            assert_eq!(plan(text).unwrap_err(), format!("Error: {error}"));
        }
        for text in [
            "",
            "[",
            r#"{"partitions":[{"topic":"a"}]}"#,
            r#"{"partitions":1}"#,
        ] {
            plan(text).unwrap_err();
        }
    }

    #[test]
    fn topics_and_brokers_are_there_once() {
        let text = r#"{"version":1,"topics":[{"topic":"a"},{"topic":"b"}]}"#;
        let read = topics(text, "1,2").unwrap();
        assert_eq!(
            (read.topics, read.brokers),
            (vec!["a".into(), "b".into()], vec![1, 2])
        );
        let twice = topics(text, "1,2,1").unwrap_err().to_string();
        assert_eq!(twice, "Error: Broker list contains duplicate entries: [1]");
        let twice = topics(r#"{"topics":[{"topic":"a"},{"topic":"a"}]}"#, "1");
        assert_eq!(
            twice.unwrap_err().to_string(),
            "Error: List of topics to reassign contains duplicate entries: [a]"
        );
        topics(text, "1,x").unwrap_err();
    }
}
