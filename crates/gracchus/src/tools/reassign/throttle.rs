//! Limits on the rate of moves: on the brokers that take part, for the replicas that move (KIP-73).

use super::super::Failure;
use super::plural;
use gracchus_client::TopicPartition;
use gracchus_client::admin::{Admin, ConfigOp, ConfigResource, Reassignment};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const DIRS_RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

/// From where to where one partition moves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Move {
    pub sources: BTreeSet<i32>,
    pub destinations: BTreeSet<i32>,
}

/// All moves: those that go on, and the proposed ones.
pub(super) fn moves(
    going_on: &BTreeMap<TopicPartition, Reassignment>,
    proposed: &BTreeMap<TopicPartition, Vec<i32>>,
    current: &BTreeMap<TopicPartition, Vec<i32>>,
) -> BTreeMap<TopicPartition, Move> {
    let mut moves = BTreeMap::new();
    for (partition, going_on) in going_on {
        let destinations: BTreeSet<i32> = going_on.adding.iter().copied().collect();
        let all: BTreeSet<i32> = going_on.replicas.iter().copied().collect();
        let sources = all.difference(&destinations).copied().collect();
        let moving = Move {
            sources,
            destinations,
        };
        moves.insert(partition.clone(), moving);
    }
    for (partition, replicas) in proposed {
        let moving: &mut Move = moves.entry(partition.clone()).or_default();
        if moving.sources.is_empty() {
            moving.sources = current
                .get(partition)
                .into_iter()
                .flatten()
                .copied()
                .collect();
        }
        let targets: BTreeSet<i32> = replicas.iter().copied().collect();
        moving.destinations = targets.difference(&moving.sources).copied().collect();
    }
    moves
}

/// `0:1,0:2` by topic.
fn replicas<'a>(
    moves: &'a BTreeMap<TopicPartition, Move>,
    side: impl Fn(&'a Move) -> &'a BTreeSet<i32>,
) -> BTreeMap<&'a str, String> {
    let mut lists: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (partition, moving) in moves {
        let list = lists.entry(&partition.topic).or_default();
        list.extend(
            side(moving)
                .iter()
                .map(|id| format!("{}:{id}", partition.partition)),
        );
    }
    let joined = |list: BTreeSet<String>| list.into_iter().collect::<Vec<_>>().join(",");
    lists
        .into_iter()
        .map(|(topic, list)| (topic, joined(list)))
        .collect()
}

type Changes = Vec<(ConfigResource, Vec<(String, ConfigOp)>)>;

async fn apply(admin: &Admin, changes: Changes) -> Result<(), Failure> {
    for (_, outcome) in admin.alter_configs(&changes, false).await? {
        outcome?;
    }
    Ok(())
}

fn rates(brokers: impl IntoIterator<Item = i32>, keys: &[&str], rate: i64) -> Changes {
    let set = |key: &&str| ((*key).to_owned(), ConfigOp::Set(rate.to_string()));
    brokers
        .into_iter()
        .map(|id| {
            let ops = keys.iter().map(set).collect();
            (ConfigResource::broker(&id.to_string()), ops)
        })
        .collect()
}

/// Limits moves between brokers.
pub(super) async fn between_brokers(
    admin: &Admin,
    moves: &BTreeMap<TopicPartition, Move>,
    rate: i64,
) -> Result<(), Failure> {
    let sources = replicas(moves, |m| &m.sources);
    let destinations = replicas(moves, |m| &m.destinations);
    let topics = sources.into_iter().map(|(topic, leaders)| {
        let followers = destinations.get(topic).cloned().unwrap_or_default();
        let ops = vec![
            (LEADER_REPLICAS.to_owned(), ConfigOp::Set(leaders)),
            (FOLLOWER_REPLICAS.to_owned(), ConfigOp::Set(followers)),
        ];
        (ConfigResource::topic(topic), ops)
    });
    apply(admin, topics.collect()).await?;
    let brokers: BTreeSet<i32> = moves
        .values()
        .flat_map(|m| m.sources.union(&m.destinations).copied())
        .collect();
    apply(admin, rates(brokers, &[LEADER_RATE, FOLLOWER_RATE], rate)).await?;
    writeln!(
        std::io::stdout(),
        "The inter-broker throttle limit was set to {rate} B/s"
    )?;
    Ok(())
}

/// Limits moves between the directories of a broker.
pub(super) async fn between_dirs(
    admin: &Admin,
    brokers: BTreeSet<i32>,
    rate: i64,
) -> Result<(), Failure> {
    apply(admin, rates(brokers, &[DIRS_RATE], rate)).await?;
    writeln!(
        std::io::stdout(),
        "The replica-alter-dir throttle limit was set to {rate} B/s"
    )?;
    Ok(())
}

/// Removes the limits from all live brokers and those named, and from the topics.
pub(super) async fn clear(
    admin: &Admin,
    named: impl IntoIterator<Item = i32>,
    topics: &BTreeSet<&str>,
    tell: bool,
) -> Result<(), Failure> {
    let mut all = admin.broker_ids().await?;
    all.extend(named);
    let delete = |keys: &[&str]| -> Vec<(String, ConfigOp)> {
        keys.iter()
            .map(|key| ((*key).to_owned(), ConfigOp::Delete))
            .collect()
    };
    let brokers: Vec<String> = all.iter().map(i32::to_string).collect();
    if tell {
        writeln!(
            std::io::stdout(),
            "Clearing broker-level throttles on broker{} {}",
            plural(brokers.len()),
            brokers.join(",")
        )?;
    }
    let keys = [LEADER_RATE, FOLLOWER_RATE, DIRS_RATE];
    let change = |id: &String| (ConfigResource::broker(id), delete(&keys));
    apply(admin, brokers.iter().map(change).collect()).await?;
    if tell {
        let names: Vec<&str> = topics.iter().copied().collect();
        writeln!(
            std::io::stdout(),
            "Clearing topic-level throttles on topic{} {}",
            plural(names.len()),
            names.join(",")
        )?;
    }
    let keys = [LEADER_REPLICAS, FOLLOWER_REPLICAS];
    let change = |topic: &&str| (ConfigResource::topic(topic), delete(&keys));
    apply(admin, topics.iter().map(change).collect()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_keeps_its_sources() {
        let t = |p| TopicPartition::new("t", p);
        let going_on = BTreeMap::from([(
            t(0),
            Reassignment {
                replicas: vec![3, 4, 1, 2],
                adding: vec![3, 4],
                removing: vec![1, 2],
            },
        )]);
        let proposed = BTreeMap::from([(t(0), vec![5, 1]), (t(1), vec![2, 3]), (t(10), vec![1])]);
        let current = BTreeMap::from([
            (t(0), vec![3, 4, 1, 2]),
            (t(1), vec![1, 2]),
            (t(10), vec![1, 2]),
        ]);
        let moves = moves(&going_on, &proposed, &current);
        assert_eq!(
            moves[&t(0)],
            Move {
                sources: [1, 2].into(),
                destinations: [5].into()
            }
        );
        // in the order of the text, as Java's
        assert_eq!(
            replicas(&moves, |m| &m.sources)["t"],
            "0:1,0:2,10:1,10:2,1:1,1:2"
        );
        assert_eq!(replicas(&moves, |m| &m.destinations)["t"], "0:5,1:3");
    }
}
