//! What topics there are, and how their partitions stand.

use super::{Options, matching, must_exist};
use crate::tools::Failure;
use crate::tools::arguments::{Format, is_internal, print_json};
use gracchus_client::TopicPartition;
use gracchus_client::admin::{
    Admin, ConfigResource, PartitionInfo, Reassignment, ResourceConfig, TopicDescription,
};
use gracchus_kafka_proto::Uuid;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

pub(super) async fn run(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let id = o.topic_id.as_deref().map(|text| {
        text.parse::<Uuid>()
            .map_err(|_| Failure::usage(format!("Input string `{text}` is not a topic id")))
    });
    let id = id.transpose()?.filter(|id| *id != Uuid::ZERO);
    let topics: Vec<_> = match id {
        None => {
            let topics = matching(o, admin).await?;
            must_exist(o, !topics.is_empty())?;
            topics
        }
        Some(id) => {
            let mut topics = admin.list_topics().await?;
            topics.retain(|t| t.id == id && !(o.exclude_internal && is_internal(&t.name)));
            if topics.is_empty() && !o.if_exists {
                return Err(Failure::other(format!(
                    "TopicId '{id}' does not exist as expected"
                )));
            }
            topics
        }
    };
    if topics.is_empty() {
        return Ok(());
    }
    let resources: Vec<_> = topics
        .iter()
        .map(|t| ConfigResource::topic(&t.name))
        .collect();
    let mut configs = BTreeMap::new();
    for (resource, result) in admin.describe_configs(&resources, false).await? {
        configs.insert(resource.name, result?);
    }
    let live = admin.broker_ids().await?;
    // not everybody may ask for these
    let moves = admin.list_reassignments().await.unwrap_or_default();
    let reports = o.reports();
    if o.format == Format::Json {
        let documents: Vec<_> = topics
            .iter()
            .map(|t| document(o, t, configs.get(&t.name), &moves, &live))
            .filter(|d| !d.is_null())
            .collect();
        return print_json(&documents.into());
    }
    let mut out = std::io::stdout().lock();
    for topic in &topics {
        let empty = Vec::new();
        let config = configs.get(&topic.name).unwrap_or(&empty);
        if !reports {
            print_topic(&mut out, o, topic, config, &moves)?;
        }
        if o.topics_with_overrides {
            continue;
        }
        for p in &topic.partitions {
            let moving = moves.get(&TopicPartition::new(&topic.name, p.partition));
            if !reports || is_reported(o, p, config, moving, &live) {
                print_partition(&mut out, &topic.name, p, moving)?;
            }
        }
    }
    Ok(())
}

/// Replicas, those on their way in left out.
fn replication_factor(p: &PartitionInfo, moving: Option<&Reassignment>) -> usize {
    match moving {
        Some(m)
            if p.replicas
                .iter()
                .any(|r| m.adding.contains(r) || m.removing.contains(r)) =>
        {
            m.replicas.len().saturating_sub(m.adding.len())
        }
        _ => p.replicas.len(),
    }
}

fn is_reported(
    o: &Options,
    p: &PartitionInfo,
    config: &ResourceConfig,
    moving: Option<&Reassignment>,
    live: &BTreeSet<i32>,
) -> bool {
    let min_isr = config
        .iter()
        .find(|e| e.name == "min.insync.replicas")
        .and_then(|e| e.value.as_ref()?.parse::<usize>().ok())
        .unwrap_or(1);
    (o.under_replicated_partitions && replication_factor(p, moving) > p.isr.len())
        || (o.unavailable_partitions && p.leader.is_none_or(|l| !live.contains(&l)))
        || (o.under_min_isr_partitions && (p.leader.is_none() || p.isr.len() < min_isr))
        || (o.at_min_isr_partitions && p.isr.len() == min_isr)
}

fn joined(ids: &[i32]) -> String {
    ids.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

fn print_topic(
    out: &mut impl Write,
    o: &Options,
    topic: &TopicDescription,
    config: &ResourceConfig,
    moves: &BTreeMap<TopicPartition, Reassignment>,
) -> std::io::Result<()> {
    let own: Vec<_> = config
        .iter()
        .filter(|e| !e.is_default())
        .map(|e| format!("{}={}", e.name, e.value.as_deref().unwrap_or("null")))
        .collect();
    if o.topics_with_overrides && own.is_empty() {
        return Ok(());
    }
    write!(out, "Topic: {}", topic.name)?;
    if topic.id != Uuid::ZERO {
        write!(out, "\tTopicId: {}", topic.id)?;
    }
    let factor = topic.partitions.first().map_or(0, |p| {
        replication_factor(p, moves.get(&TopicPartition::new(&topic.name, p.partition)))
    });
    writeln!(
        out,
        "\tPartitionCount: {}\tReplicationFactor: {factor}\tConfigs: {}",
        topic.partitions.len(),
        own.join(",")
    )
}

fn print_partition(
    out: &mut impl Write,
    topic: &str,
    p: &PartitionInfo,
    moving: Option<&Reassignment>,
) -> std::io::Result<()> {
    let leader = p.leader.map_or("none".into(), |id| id.to_string());
    write!(
        out,
        "\tTopic: {topic}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}",
        p.partition,
        joined(&p.replicas),
        joined(&p.isr)
    )?;
    if let Some(m) = moving {
        write!(
            out,
            "\tAdding Replicas: {}\tRemoving Replicas: {}",
            joined(&m.adding),
            joined(&m.removing)
        )?;
    }
    // eligible leader replicas (KIP-966) exist in KRaft mode only
    writeln!(out, "\tElr: N/A\tLastKnownElr: N/A")
}

/// A topic as JSON; null if nothing of it is wanted.
fn document(
    o: &Options,
    topic: &TopicDescription,
    config: Option<&ResourceConfig>,
    moves: &BTreeMap<TopicPartition, Reassignment>,
    live: &BTreeSet<i32>,
) -> Value {
    let empty = Vec::new();
    let config = config.unwrap_or(&empty);
    let own: Map<String, Value> = config
        .iter()
        .filter(|e| !e.is_default())
        .map(|e| (e.name.clone(), e.value.clone().into()))
        .collect();
    let partitions: Vec<Value> = topic
        .partitions
        .iter()
        .map(|p| (p, moves.get(&TopicPartition::new(&topic.name, p.partition))))
        .filter(|(p, moving)| !o.reports() || is_reported(o, p, config, *moving, live))
        .map(|(p, moving)| {
            json!({
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": p.replicas,
                "isr": p.isr,
                "offline": p.offline,
                "adding": moving.map(|m| &m.adding),
                "removing": moving.map(|m| &m.removing),
            })
        })
        .collect();
    if (o.reports() && partitions.is_empty()) || (o.topics_with_overrides && own.is_empty()) {
        return Value::Null;
    }
    json!({
        "topic": topic.name,
        "topic_id": topic.id.to_string(),
        "internal": topic.internal,
        "configs": own,
        "partitions": partitions,
    })
}
