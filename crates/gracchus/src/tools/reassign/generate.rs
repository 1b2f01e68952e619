//! `--generate`: where the topics' replicas could be, placed as those of a new topic are.

use super::super::Failure;
use super::plan::{Topics, json};
use gracchus_broker::topic_creation::placement::{Candidate, Start, place};
use gracchus_client::TopicPartition;
use gracchus_client::admin::Admin;
use gracchus_kafka_proto::ErrorCode;
use std::collections::BTreeMap;
use std::io::Write;

type Assignment = BTreeMap<TopicPartition, Vec<i32>>;

pub(super) async fn run(admin: &Admin, wanted: &Topics, by_rack: bool) -> Result<(), Failure> {
    let current = assignment(admin, &wanted.topics).await?;
    let mut brokers: Vec<Candidate> = admin
        .describe_cluster()
        .await?
        .nodes
        .into_iter()
        .filter(|node| wanted.brokers.contains(&node.id))
        .map(|node| Candidate {
            id: node.id,
            rack: node.rack.filter(|_| by_rack),
        })
        .collect();
    brokers.sort_by_key(|b| b.id);
    let without_rack = brokers.iter().filter(|b| b.rack.is_none()).count();
    if by_rack && without_rack != 0 && without_rack != brokers.len() {
        return Err(Failure::other(
            "Error: Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment without rack information.",
        ));
    }
    let proposed = propose(&current, &brokers)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Current partition replica assignment\n{}\n",
        json(&current)
    )?;
    writeln!(
        out,
        "Proposed partition reassignment configuration\n{}",
        json(&proposed)
    )?;
    Ok(())
}

fn propose(current: &Assignment, brokers: &[Candidate]) -> Result<Assignment, Failure> {
    let mut sizes: BTreeMap<&str, (i32, i16)> = BTreeMap::new();
    for (partition, replicas) in current {
        let factor = i16::try_from(replicas.len()).unwrap_or(i16::MAX);
        // the first partition's factor is the topic's
        sizes.entry(&partition.topic).or_insert((0, factor)).0 += 1;
    }
    let mut proposed = Assignment::new();
    for (topic, (partitions, factor)) in sizes {
        let start = Start::random(brokers.len());
        let placed = place(brokers, 0, partitions, factor, start)
            .map_err(|refusal| Failure::other(format!("Error: {}", refusal.message)))?;
        for (partition, replicas) in placed {
            proposed.insert(TopicPartition::new(topic, partition), replicas);
        }
    }
    Ok(proposed)
}

/// The replicas of all partitions of these topics.
pub(super) async fn assignment(admin: &Admin, topics: &[String]) -> Result<Assignment, Failure> {
    let mut assignment = Assignment::new();
    for (topic, described) in admin.describe_topics(topics).await? {
        let described = described.map_err(|error| match error.code() {
            Some(ErrorCode::UnknownTopicOrPartition) => Failure::other(format!(
                "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic {topic} not found."
            )),
            _ => error.into(),
        })?;
        for p in described.partitions {
            assignment.insert(TopicPartition::new(&topic, p.partition), p.replicas);
        }
    }
    Ok(assignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_keeps_its_partitions_and_its_factor() {
        let current: Assignment = [("a", 0), ("a", 1), ("b", 0)]
            .map(|(topic, p)| {
                let replicas = if topic == "a" { vec![1, 2] } else { vec![9] };
                (TopicPartition::new(topic, p), replicas)
            })
            .into();
        let brokers: Vec<Candidate> = [4, 5].map(|id| Candidate { id, rack: None }).into();
        let proposed = propose(&current, &brokers).unwrap();
        assert_eq!(
            proposed.keys().collect::<Vec<_>>(),
            current.keys().collect::<Vec<_>>()
        );
        for (partition, mut replicas) in proposed {
            replicas.sort_unstable();
            match partition.topic.as_str() {
                "a" => assert_eq!(replicas, [4, 5]),
                _ => assert_eq!(replicas.len(), 1),
            }
        }
        let too_few = propose(&current, &brokers[..1]).unwrap_err().to_string();
        assert!(
            too_few.starts_with("Error: Replication factor: 2 larger than"),
            "{too_few}"
        );
    }
}
