//! What a group reads, who its members are, in what state it is.

use super::{Options, chosen, print_error};
use crate::tools::Failure;
use crate::tools::arguments::{Format, print_json};
use gracchus_client::TopicPartition;
use gracchus_client::admin::{Admin, Committed, GroupDescription, IsolationLevel, OffsetSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

const MISSING: &str = "-";

pub(super) async fn run(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let mut groups = chosen(o, admin).await?;
    groups.sort();
    groups.dedup();
    if o.format == Format::Json {
        let mut documents = Vec::new();
        for (_, described) in admin.describe_groups(&groups).await? {
            documents.push(document(admin, &described?).await?);
        }
        return print_json(&documents.into());
    }
    for (_, described) in admin.describe_groups(&groups).await? {
        let group = described?;
        if o.members {
            print_members(o, &group)?;
        } else if o.state.is_some() {
            print_state(&group)?;
        } else {
            print_offsets(admin, &group).await?;
        }
    }
    Ok(())
}

/// Tells of states in which there is little to show; whether there is anything.
fn is_shown(group: &GroupDescription, rows: usize) -> bool {
    let name = &group.group;
    match group.state.as_str() {
        "Dead" => print_error(&format!("Consumer group '{name}' does not exist.")),
        "Empty" => eprintln!("\nConsumer group '{name}' has no active members."),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            eprintln!("\nWarning: Consumer group '{name}' is rebalancing.");
        }
        _ => {}
    }
    group.state != "Dead" && rows > 0
}

struct Row {
    topic: String,
    partition: String,
    offset: Option<i64>,
    end: Option<i64>,
    consumer: String,
    host: String,
    client: String,
}

async fn rows(
    admin: &Admin,
    partitions: &[TopicPartition],
    committed: &BTreeMap<TopicPartition, Committed>,
    who: [&str; 3],
) -> Result<Vec<Row>, Failure> {
    let mut partitions = partitions.to_vec();
    partitions.sort();
    let wanted: Vec<_> = partitions
        .iter()
        .map(|tp| (tp.clone(), OffsetSpec::Latest))
        .collect();
    let ends: BTreeMap<_, _> = admin
        .list_offsets(&wanted, IsolationLevel::ReadUncommitted)
        .await?
        .into_iter()
        .filter_map(|(tp, listed)| Some((tp, listed.ok()?.offset)))
        .collect();
    let [consumer, host, client] = who.map(str::to_owned);
    Ok(partitions
        .into_iter()
        .map(|tp| Row {
            offset: committed.get(&tp).map(|c| c.offset),
            end: ends.get(&tp).copied(),
            partition: tp.partition.to_string(),
            topic: tp.topic,
            consumer: consumer.clone(),
            host: host.clone(),
            client: client.clone(),
        })
        .collect())
}

/// A row for each partition that the group reads or has an offset of.
async fn all_rows(admin: &Admin, group: &GroupDescription) -> Result<Vec<Row>, Failure> {
    let committed = admin.committed_offsets(&group.group, None).await?;
    let mut members: Vec<_> = group
        .members
        .iter()
        .filter(|m| !m.assignment.is_empty())
        .collect();
    members.sort_by_key(|m| std::cmp::Reverse(m.assignment.len()));
    let mut all = Vec::new();
    for m in &members {
        let who = [m.id.as_str(), &m.host, &m.client_id];
        all.extend(rows(admin, &m.assignment, &committed, who).await?);
    }
    let left: Vec<_> = committed
        .keys()
        .filter(|tp| !members.iter().any(|m| m.assignment.contains(tp)))
        .cloned()
        .collect();
    all.extend(rows(admin, &left, &committed, [MISSING; 3]).await?);
    Ok(all)
}

/// A group as JSON: state, members and offsets in one.
async fn document(admin: &Admin, group: &GroupDescription) -> Result<Value, Failure> {
    let shown = |text: &str| (text != MISSING).then(|| text.to_owned());
    let offsets: Vec<_> = all_rows(admin, group)
        .await?
        .iter()
        .map(|r| {
            json!({
                "topic": r.topic,
                "partition": r.partition.parse::<i32>().ok(),
                "current_offset": r.offset,
                "log_end_offset": r.end,
                "lag": r.offset.and_then(|o| Some(r.end? - o)),
                "consumer_id": shown(&r.consumer),
                "host": shown(&r.host),
                "client_id": shown(&r.client),
            })
        })
        .collect();
    let members: Vec<_> = group
        .members
        .iter()
        .map(|m| {
            let partitions: Vec<_> = m
                .assignment
                .iter()
                .map(|tp| json!({"topic": tp.topic, "partition": tp.partition}))
                .collect();
            json!({
                "consumer_id": m.id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "assignment": partitions,
            })
        })
        .collect();
    Ok(json!({
        "group": group.group,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignment_strategy": group.assignor,
        "coordinator": {
            "id": group.coordinator.id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "members": members,
        "offsets": offsets,
    }))
}

async fn print_offsets(admin: &Admin, group: &GroupDescription) -> Result<(), Failure> {
    let all = all_rows(admin, group).await?;
    if !is_shown(group, all.len()) {
        return Ok(());
    }
    let width = |each: fn(&Row) -> usize| all.iter().map(each).max().unwrap_or(0).max(15);
    let group_width = group.group.len().max(15);
    let topic_width = width(|r| r.topic.len());
    let consumer_width = width(|r| r.consumer.len());
    let host_width = width(|r| r.host.len());
    let mut out = std::io::stdout().lock();
    let mut line = |cells: [&str; 9]| {
        let [
            group,
            topic,
            partition,
            offset,
            end,
            lag,
            consumer,
            host,
            client,
        ] = cells;
        write!(
            out,
            "\n{group:<group_width$} {topic:<topic_width$} {partition:<10} {offset:<15} {end:<15} {lag:<15} {consumer:<consumer_width$} {host:<host_width$} {client}"
        )
    };
    line([
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ])?;
    let shown = |n: Option<i64>| n.map_or(MISSING.to_owned(), |n| n.to_string());
    for r in &all {
        let lag = r.offset.and_then(|o| Some(r.end? - o));
        line([
            &group.group,
            &r.topic,
            &r.partition,
            &shown(r.offset),
            &shown(r.end),
            &shown(lag),
            &r.consumer,
            &r.host,
            &r.client,
        ])?;
    }
    writeln!(out)?;
    Ok(())
}

/// Partition numbers of each topic, in round brackets.
fn assignment(partitions: &[TopicPartition]) -> String {
    if partitions.is_empty() {
        return MISSING.to_owned();
    }
    let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tp in partitions {
        topics
            .entry(&tp.topic)
            .or_default()
            .push(tp.partition.to_string());
    }
    let mut lists: Vec<_> = topics
        .into_iter()
        .map(|(topic, mut numbers)| {
            numbers.sort();
            format!("{topic}({})", numbers.join(","))
        })
        .collect();
    lists.sort();
    lists.join(", ")
}

fn print_members(o: &Options, group: &GroupDescription) -> Result<(), Failure> {
    // the header stands there even when there is nothing under it, as in Kafka's tool
    is_shown(group, group.members.len());
    let members = &group.members;
    let widest = |each: fn(&gracchus_client::admin::GroupMember) -> usize, least: usize| {
        members.iter().map(each).max().unwrap_or(0).max(least)
    };
    let group_width = if members.is_empty() {
        15
    } else {
        group.group.len().max(15)
    };
    let id_width = widest(|m| m.id.len(), 15);
    let instance_width = widest(|m| m.instance_id.as_ref().map_or(0, String::len), 17);
    let host_width = widest(|m| m.host.len(), 15);
    let client_width = widest(|m| m.client_id.len(), 15);
    let any_static = members.iter().any(|m| m.instance_id.is_some());
    let mut out = std::io::stdout().lock();
    let mut line = |cells: [&str; 6], assigned: &str| {
        let [group, id, instance, host, client, count] = cells;
        write!(out, "{group:<group_width$} {id:<id_width$} ")?;
        if any_static {
            write!(out, "{instance:<instance_width$} ")?;
        }
        write!(
            out,
            "{host:<host_width$} {client:<client_width$} {count:<15} "
        )?;
        if o.verbose {
            write!(out, "{assigned}")?;
        }
        writeln!(out)
    };
    println!();
    line(
        [
            "GROUP",
            "CONSUMER-ID",
            "GROUP-INSTANCE-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
        ],
        "ASSIGNMENT",
    )?;
    for m in members {
        let count = m.assignment.len().to_string();
        let instance = m.instance_id.as_deref().unwrap_or_default();
        line(
            [&group.group, &m.id, instance, &m.host, &m.client_id, &count],
            &assignment(&m.assignment),
        )?;
    }
    Ok(())
}

fn print_state(group: &GroupDescription) -> Result<(), Failure> {
    if !is_shown(group, 1) {
        return Ok(());
    }
    let node = &group.coordinator;
    let coordinator = format!("{}:{}  ({})", node.host, node.port, node.id);
    // Kafka's tool measures the coordinator and widens the column before it
    let group_width = coordinator.len().max(25);
    let mut out = std::io::stdout().lock();
    let mut line = |cells: [&str; 5]| {
        let [group, coordinator, strategy, state, members] = cells;
        write!(
            out,
            "\n{group:<group_width$} {coordinator:<25} {strategy:<20} {state:<15} {members}"
        )
    };
    line([
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "#MEMBERS",
    ])?;
    let count = group.members.len().to_string();
    line([
        &group.group,
        &coordinator,
        &group.assignor,
        &group.state,
        &count,
    ])?;
    writeln!(out)?;
    Ok(())
}
