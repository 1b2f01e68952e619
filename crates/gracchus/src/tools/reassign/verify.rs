//! `--verify` and `--list`: how far the moves are. Beyond Kafka's own lines, which stay as they are, each move that goes on
//! has a line with its bytes.

use super::super::Failure;
use super::super::arguments::{Format, print_json};
use super::plan::Plan;
use super::{ids, throttle};
use gracchus_client::TopicPartition;
use gracchus_client::admin::{Admin, Reassignment, Replica, ReplicaDirs};
use gracchus_kafka_proto::ErrorCode;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// How many bytes of a copy are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    copied: i64,
    total: i64,
}

impl Progress {
    /// Retention and compaction may leave the copy larger than what is copied; until it is done it is not whole.
    fn percent(self) -> i64 {
        if self.total <= 0 {
            return 100;
        }
        (self.copied.max(0).saturating_mul(100) / self.total).min(99)
    }

    fn text(self) -> String {
        let Self { copied, total } = self;
        format!("{copied} of {total} bytes ({} %)", self.percent())
    }

    fn json(self) -> Value {
        json!({"copied_bytes": self.copied, "total_bytes": self.total, "percent": self.percent()})
    }
}

/// Of one partition: what the plan wants, and what is.
struct State {
    target: Vec<i32>,
    current: Vec<i32>,
    done: bool,
}

type Copies = BTreeMap<TopicPartition, Vec<(i32, Progress)>>;

/// The bytes of the replicas that are being added, against those of the largest of the others.
async fn copies(
    admin: &Admin,
    going_on: &BTreeMap<TopicPartition, Reassignment>,
) -> Result<Copies, Failure> {
    let replica = |partition: &TopicPartition, broker: i32| Replica {
        broker,
        partition: partition.clone(),
    };
    // a broker that is down has nothing to tell, and nothing to copy to
    let live = admin.broker_ids().await?;
    let wanted: BTreeSet<Replica> = going_on
        .iter()
        .flat_map(|(p, r)| r.replicas.iter().map(|id| replica(p, *id)))
        .filter(|r| live.contains(&r.broker))
        .collect();
    let dirs = admin.describe_replica_log_dirs(&wanted).await?;
    let size = |partition: &TopicPartition, broker: i32| {
        let found = dirs.get(&replica(partition, broker))?;
        found.current.as_ref().map(|log| log.size)
    };
    let mut copies = Copies::new();
    for (partition, moving) in going_on {
        let others = moving
            .replicas
            .iter()
            .filter(|id| !moving.adding.contains(id));
        let total = others
            .filter_map(|id| size(partition, *id))
            .max()
            .unwrap_or(0);
        let of = |id: &i32| {
            let copied = size(partition, *id).unwrap_or(0);
            (*id, Progress { copied, total })
        };
        copies.insert(partition.clone(), moving.adding.iter().map(of).collect());
    }
    Ok(copies)
}

pub(super) async fn list(admin: &Admin, format: Format) -> Result<(), Failure> {
    let going_on = admin.list_reassignments().await?;
    let copies = copies(admin, &going_on).await?;
    let none = Vec::new();
    if format == Format::Json {
        let entry = |(partition, moving): (&TopicPartition, &Reassignment)| {
            json!({
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": moving.replicas,
                "adding": moving.adding,
                "removing": moving.removing,
                "copies": copies_json(copies.get(partition).unwrap_or(&none)),
            })
        };
        return print_json(&Value::Array(going_on.iter().map(entry).collect()));
    }
    let mut out = std::io::stdout().lock();
    if going_on.is_empty() {
        writeln!(out, "No partition reassignments found.")?;
        return Ok(());
    }
    writeln!(out, "Current partition reassignments:")?;
    for (partition, moving) in &going_on {
        let part = |name: &str, list: &[i32]| match list.is_empty() {
            true => String::new(),
            false => format!(" {name}: {}.", ids(list)),
        };
        writeln!(
            out,
            "{partition}: replicas: {}.{}{}",
            ids(&moving.replicas),
            part("adding", &moving.adding),
            part("removing", &moving.removing)
        )?;
        write_copies(&mut out, copies.get(partition).unwrap_or(&none))?;
    }
    Ok(())
}

fn copies_json(copies: &[(i32, Progress)]) -> Value {
    let entry = |(broker, progress): &(i32, Progress)| {
        let mut entry = progress.json();
        if let Value::Object(fields) = &mut entry {
            fields.insert("broker".into(), json!(broker));
        }
        entry
    };
    Value::Array(copies.iter().map(entry).collect())
}

fn write_copies(out: &mut impl Write, copies: &[(i32, Progress)]) -> std::io::Result<()> {
    for (broker, progress) in copies {
        writeln!(out, "  broker {broker} has {}", progress.text())?;
    }
    Ok(())
}

pub(super) async fn run(
    admin: &Admin,
    plan: &Plan,
    preserve_throttles: bool,
    format: Format,
) -> Result<(), Failure> {
    let going_on = admin.list_reassignments().await?;
    let states = states(admin, plan, &going_on).await?;
    let named: BTreeMap<TopicPartition, Reassignment> = going_on
        .iter()
        .filter(|(partition, _)| states.contains_key(*partition))
        .map(|(partition, moving)| (partition.clone(), moving.clone()))
        .collect();
    let copies = copies(admin, &named).await?;
    let replicas = plan.dirs.keys().cloned().collect();
    let dirs = admin.describe_replica_log_dirs(&replicas).await?;
    let moving_dirs = dirs
        .values()
        .any(|d| d.current.is_some() && d.future.is_some());
    match format {
        Format::Json => print_json(&document(plan, &states, &copies, &dirs))?,
        Format::Text => write(plan, &states, &copies, &dirs)?,
    }
    if going_on.is_empty() && !moving_dirs && !preserve_throttles {
        let brokers = plan
            .partitions
            .iter()
            .flat_map(|(_, ids)| ids.iter().copied());
        throttle::clear(admin, brokers, &plan.topics(), format == Format::Text).await?;
    }
    Ok(())
}

async fn states(
    admin: &Admin,
    plan: &Plan,
    going_on: &BTreeMap<TopicPartition, Reassignment>,
) -> Result<BTreeMap<TopicPartition, State>, Failure> {
    let topics: Vec<String> = plan.topics().into_iter().map(str::to_owned).collect();
    let mut current: BTreeMap<TopicPartition, Vec<i32>> = BTreeMap::new();
    for (topic, described) in admin.describe_topics(&topics).await? {
        match described {
            Ok(described) => current.extend(
                described
                    .partitions
                    .into_iter()
                    .map(|p| (TopicPartition::new(&topic, p.partition), p.replicas)),
            ),
            // told as one without replicas
            Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let state = |(partition, target): (TopicPartition, Vec<i32>)| {
        let moving = going_on.get(&partition);
        let now = match moving {
            Some(moving) => moving.replicas.clone(),
            None => current.get(&partition).cloned().unwrap_or_default(),
        };
        let state = State {
            target,
            current: now,
            done: moving.is_none(),
        };
        (partition, state)
    };
    Ok(plan.targets().into_iter().map(state).collect())
}

fn write(
    plan: &Plan,
    states: &BTreeMap<TopicPartition, State>,
    copies: &Copies,
    dirs: &BTreeMap<Replica, ReplicaDirs>,
) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Status of partition reassignment:")?;
    for (partition, state) in states {
        if !state.done {
            writeln!(
                out,
                "Reassignment of partition {partition} is still in progress."
            )?;
            write_copies(&mut out, copies.get(partition).map_or(&[], Vec::as_slice))?;
        } else if state.current == state.target {
            writeln!(out, "Reassignment of partition {partition} is completed.")?;
        } else {
            writeln!(
                out,
                "There is no active reassignment of partition {partition}, but replica set is {} rather than {}.",
                ids(&state.current),
                ids(&state.target)
            )?;
        }
    }
    for (replica, target) in &plan.dirs {
        let nowhere = ReplicaDirs::default();
        let dirs = dirs.get(replica).unwrap_or(&nowhere);
        writeln!(out, "{}", dir_state(replica, target, dirs))?;
        if let (Some(current), Some(future)) = (&dirs.current, &dirs.future) {
            let progress = Progress {
                copied: future.size,
                total: current.size,
            };
            writeln!(out, "  {} has {}", future.dir, progress.text())?;
        }
    }
    if plan.dirs.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

fn dir_state(replica: &Replica, target: &str, dirs: &ReplicaDirs) -> String {
    let Replica { broker, partition } = replica;
    match (&dirs.current, &dirs.future) {
        (None, _) => format!(
            "Partition {partition} is not found in any live log dir on broker {broker}. There is likely an offline log directory on the broker."
        ),
        (Some(_), Some(future)) if future.dir == target => {
            format!("Reassignment of replica {partition}-{broker} is still in progress.")
        }
        (Some(_), Some(future)) => format!(
            "Partition {partition} on broker {broker} is being moved to log dir {} instead of {target}.",
            future.dir
        ),
        (Some(current), None) if current.dir == target => {
            format!("Reassignment of replica {partition}-{broker} completed successfully.")
        }
        (Some(current), None) => format!(
            "Partition {partition} on broker {broker} is not being moved from log dir {} to {target}.",
            current.dir
        ),
    }
}

fn document(
    plan: &Plan,
    states: &BTreeMap<TopicPartition, State>,
    copies: &Copies,
    dirs: &BTreeMap<Replica, ReplicaDirs>,
) -> Value {
    let partitions = states.iter().map(|(partition, state)| {
        let copies = copies.get(partition).map_or(&[][..], Vec::as_slice);
        json!({
            "topic": partition.topic,
            "partition": partition.partition,
            "target": state.target,
            "replicas": state.current,
            "in_progress": !state.done,
            "completed": state.done && state.current == state.target,
            "copies": copies_json(copies),
        })
    });
    let moves = plan.dirs.iter().map(|(replica, target)| {
        let found = dirs.get(replica);
        let current = found.and_then(|d| d.current.as_ref());
        let future = found.and_then(|d| d.future.as_ref());
        let progress = current.zip(future).map(|(current, future)| {
            let progress = Progress {
                copied: future.size,
                total: current.size,
            };
            progress.json()
        });
        json!({
            "topic": replica.partition.topic,
            "partition": replica.partition.partition,
            "broker": replica.broker,
            "target": target,
            "dir": current.map(|log| &log.dir),
            "moving_to": future.map(|log| &log.dir),
            "progress": progress,
        })
    });
    json!({
        "partitions": partitions.collect::<Vec<_>>(),
        "log_dirs": moves.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_client::admin::ReplicaLog;

    #[test]
    fn a_copy_is_whole_only_when_it_is_no_copy_any_more() {
        for (copied, total, percent) in [
            (0, 10, 0),
            (3, 10, 30),
            (10, 10, 99),
            (12, 10, 99),
            (0, 0, 100),
        ] {
            assert_eq!(
                Progress { copied, total }.percent(),
                percent,
                "{copied}/{total}"
            );
        }
    }

    #[test]
    fn states_of_a_move_between_directories_in_kafkas_words() {
        let replica = Replica {
            broker: 1,
            partition: TopicPartition::new("t", 0),
        };
        let log = |dir: &str| {
            Some(ReplicaLog {
                dir: dir.into(),
                size: 1,
                offset_lag: 0,
            })
        };
        for (current, future, text) in [
            (
                None,
                None,
                "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory on the broker.",
            ),
            (
                log("/a"),
                log("/b"),
                "Reassignment of replica t-0-1 is still in progress.",
            ),
            (
                log("/a"),
                log("/c"),
                "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.",
            ),
            (
                log("/a"),
                None,
                "Partition t-0 on broker 1 is not being moved from log dir /a to /b.",
            ),
            (
                log("/b"),
                None,
                "Reassignment of replica t-0-1 completed successfully.",
            ),
        ] {
            assert_eq!(
                dir_state(&replica, "/b", &ReplicaDirs { current, future }),
                text
            );
        }
    }
}
