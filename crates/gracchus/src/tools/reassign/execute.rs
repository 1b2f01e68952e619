//! `--execute` and `--cancel`.

use super::super::Failure;
use super::generate::assignment;
use super::plan::{Plan, json};
use super::{Options, names, plural, throttle};
use gracchus_client::admin::{Admin, Replica};
use gracchus_client::{ClientError, TopicPartition};
use gracchus_kafka_proto::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

/// A move between directories that cannot begin yet is tried again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// How the moves are to be carried out.
pub(super) struct Limits {
    additional: bool,
    /// Bytes per second; None: without limit.
    between_brokers: Option<i64>,
    between_dirs: Option<i64>,
    patience: Duration,
}

impl Limits {
    pub(super) fn of(o: &Options) -> Self {
        let rate = |rate: Option<i64>| rate.filter(|rate| *rate >= 0);
        Self {
            additional: o.additional,
            between_brokers: rate(o.throttle),
            between_dirs: rate(o.replica_alter_log_dirs_throttle),
            patience: Duration::from_millis(o.timeout.unwrap_or(10_000)),
        }
    }
}

pub(super) async fn run(admin: &Admin, plan: &Plan, limits: &Limits) -> Result<(), Failure> {
    let going_on = admin.list_reassignments().await?;
    if !limits.additional && !going_on.is_empty() {
        return Err(Failure::other(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a new partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by resubmitting the current reassignment.",
        ));
    }
    let targets = plan.targets();
    let live = admin.broker_ids().await?;
    let unknown = targets.values().flatten().find(|id| !live.contains(id));
    if let Some(id) = unknown {
        return Err(Failure::other(format!("Error: Unknown broker id {id}")));
    }
    let topics: Vec<String> = plan.topics().into_iter().map(str::to_owned).collect();
    let mut current = assignment(admin, &topics).await?;
    current.retain(|partition, _| targets.contains_key(partition));
    let missing: Vec<String> = targets
        .keys()
        .filter(|p| !current.contains_key(*p))
        .map(TopicPartition::to_string)
        .collect();
    if !missing.is_empty() {
        return Err(Failure::other(format!(
            "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Unable to find partition: {}",
            missing.join(", ")
        )));
    }
    writeln!(
        std::io::stdout(),
        "Current partition replica assignment\n\n{}\n\nSave this to use as the --reassignment-json-file option during rollback",
        json(&current)
    )?;
    if limits.between_brokers.is_some() || limits.between_dirs.is_some() {
        writeln!(
            std::io::stdout(),
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
        )?;
    }
    if let Some(rate) = limits.between_brokers {
        let moves = throttle::moves(&going_on, &targets, &current);
        throttle::between_brokers(admin, &moves, rate).await?;
    }
    if let Some(rate) = limits.between_dirs {
        let brokers = plan.dirs.keys().map(|replica| replica.broker).collect();
        throttle::between_dirs(admin, brokers, rate).await?;
    }
    let wanted = targets
        .iter()
        .map(|(p, replicas)| (p.clone(), Some(replicas.clone())));
    let errors = alter(admin, &wanted.collect()).await?;
    if !errors.is_empty() {
        return Err(Failure::other(format!(
            "Error reassigning partition(s):\n{}",
            errors.join("\n")
        )));
    }
    writeln!(
        std::io::stdout(),
        "Successfully started partition reassignment{} for {}",
        plural(targets.len()),
        names(targets.keys())
    )?;
    move_dirs(admin, plan.dirs.clone(), limits.patience).await
}

/// A line for each partition that failed.
async fn alter(
    admin: &Admin,
    targets: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
) -> Result<Vec<String>, Failure> {
    let mut outcomes = admin.alter_reassignments(targets).await?;
    outcomes.sort_by(|(a, _), (b, _)| a.cmp(b));
    let failed = outcomes
        .into_iter()
        .filter_map(|(partition, outcome)| outcome.err().map(|e| format!("{partition}: {e}")));
    Ok(failed.collect())
}

/// A replica that is only being moved to its broker cannot be moved within it yet: that is tried again.
async fn move_dirs(
    admin: &Admin,
    mut left: BTreeMap<Replica, String>,
    patience: Duration,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while !left.is_empty() {
        for (replica, outcome) in admin.alter_replica_log_dirs(&left).await? {
            match outcome {
                Ok(()) => {
                    if let Some(dir) = left.remove(&replica) {
                        let Replica { broker, partition } = replica;
                        writeln!(
                            std::io::stdout(),
                            "Successfully started moving log directory to {dir} for replica {partition} with broker {broker} "
                        )?;
                    }
                }
                Err(error) if is_early(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if left.is_empty() {
            break;
        }
        if begun.elapsed() >= patience {
            let replicas: Vec<String> = left
                .keys()
                .map(|r| format!("{}-{}", r.partition, r.broker))
                .collect();
            return Err(Failure::other(format!(
                "Timed out before log directory move{} could be started for: {}",
                plural(left.len()),
                replicas.join(",")
            )));
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

fn is_early(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::ReplicaNotAvailable)
}

pub(super) async fn cancel(
    admin: &Admin,
    plan: &Plan,
    preserve_throttles: bool,
    limits: &Limits,
) -> Result<(), Failure> {
    let going_on = admin.list_reassignments().await?;
    let named: BTreeSet<&TopicPartition> = plan.partitions.iter().map(|(p, _)| p).collect();
    let active: Vec<&TopicPartition> = going_on.keys().filter(|p| named.contains(p)).collect();
    if active.is_empty() {
        writeln!(
            std::io::stdout(),
            "None of the specified partition reassignments are active."
        )?;
    } else {
        let targets = active.iter().map(|p| ((*p).clone(), None)).collect();
        let errors = alter(admin, &targets).await?;
        if !errors.is_empty() {
            return Err(Failure::other(format!(
                "Error cancelling partition reassignment{} for:\n{}",
                plural(errors.len()),
                errors.join("\n")
            )));
        }
        writeln!(
            std::io::stdout(),
            "Successfully cancelled partition reassignment{} for: {}",
            plural(active.len()),
            names(active.iter().copied())
        )?;
    }
    let replicas = plan.dirs.keys().cloned().collect();
    let found = admin.describe_replica_log_dirs(&replicas).await?;
    // back to where it is ends the move
    let back: BTreeMap<Replica, String> = found
        .into_iter()
        .filter_map(|(replica, dirs)| {
            let (current, _) = (dirs.current?, dirs.future?);
            Some((replica, current.dir))
        })
        .collect();
    if back.is_empty() {
        writeln!(
            std::io::stdout(),
            "None of the specified partition moves are active."
        )?;
    } else {
        move_dirs(admin, back, limits.patience).await?;
    }
    if !preserve_throttles {
        let brokers = plan
            .partitions
            .iter()
            .flat_map(|(_, ids)| ids.iter().copied());
        throttle::clear(admin, brokers, &plan.topics(), true).await?;
    }
    Ok(())
}
