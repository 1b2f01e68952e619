//! `gracchus elect`, as `kafka-leader-election.sh`.

use super::arguments::{Format, connect, parse, print_json, properties};
use super::{Failure, java_text};
use clap::Parser;
use gracchus_client::TopicPartition;
use gracchus_client::admin::Admin;
use gracchus_kafka_proto::ErrorCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// Has leaders elected: the preferred ones, or any live replicas, whether in sync or not.
#[derive(Debug, Parser)]
#[command(name = "gracchus elect", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, visible_alias = "command-config", value_name = "FILE")]
    admin_config: Option<PathBuf>,
    /// PREFERRED or UNCLEAN (may lose records)
    #[arg(long, value_name = "TYPE")]
    election_type: Option<String>,
    /// The topic, with --partition
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// The partition, with --topic
    #[arg(long, value_name = "ID")]
    partition: Option<i32>,
    /// All partitions that need it
    #[arg(long)]
    all_topic_partitions: bool,
    /// {"partitions": [{"topic": "foo", "partition": 1}]}
    #[arg(long, value_name = "FILE")]
    path_to_json_file: Option<PathBuf>,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus elect", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

/// Whether unclean, and which partitions; None: all that need it.
fn wanted(o: &Options) -> Result<(bool, Option<Vec<TopicPartition>>), Failure> {
    let unclean = match o.election_type.as_deref().map(str::to_uppercase).as_deref() {
        Some("PREFERRED") => false,
        Some("UNCLEAN") => true,
        Some(_) => {
            return Err(Failure::usage(format!(
                "Cannot parse argument '{}' of option election-type",
                o.election_type.as_deref().unwrap_or_default()
            )));
        }
        None => return Err(Failure::usage("Missing required option(s): election-type")),
    };
    let partitions = match (&o.topic, o.all_topic_partitions, &o.path_to_json_file) {
        (Some(topic), false, None) => {
            let partition = o
                .partition
                .ok_or_else(|| Failure::usage("Missing required option(s): partition"))?;
            Some(vec![TopicPartition::new(topic, partition)])
        }
        (None, true, None) if o.partition.is_none() => None,
        (None, false, Some(path)) if o.partition.is_none() => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
            Some(read(&text)?)
        }
        (None, true, None) | (None, false, Some(_)) => {
            return Err(Failure::usage(
                "Option partition is only allowed if topic is used",
            ));
        }
        _ => {
            return Err(Failure::usage(
                "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file",
            ));
        }
    };
    Ok((unclean, partitions))
}

/// The partitions of the file.
fn read(text: &str) -> Result<Vec<TopicPartition>, Failure> {
    let document: Value = serde_json::from_str(text)
        .map_err(|e| Failure::other(format!("Replica election data is empty or no JSON: {e}")))?;
    let partitions = document.get("partitions").and_then(Value::as_array);
    let partitions = partitions
        .ok_or_else(|| Failure::other("Replica election data is missing \"partitions\" field"))?;
    let mut out = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for p in partitions {
        let topic = p.get("topic").and_then(Value::as_str);
        let number = p.get("partition").and_then(Value::as_i64);
        let (Some(topic), Some(partition)) = (topic, number.and_then(|n| i32::try_from(n).ok()))
        else {
            return Err(Failure::other(format!(
                "no topic and partition in the election data: {p}"
            )));
        };
        let tp = TopicPartition::new(topic, partition);
        if !out.insert(tp.clone()) {
            twice.insert(tp.to_string());
        }
    }
    if !twice.is_empty() {
        return Err(Failure::other(format!(
            "Replica election data contains duplicate partitions: [{}]",
            twice.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    Ok(out.into_iter().collect())
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let (unclean, partitions) = wanted(o)?;
    let kind = if unclean { "UNCLEAN" } else { "PREFERRED" };
    let properties = properties(o.admin_config.as_deref(), &[])?;
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-elect").await?);
    let mut results = admin.elect_leaders(unclean, partitions.as_deref()).await?;
    results.sort_by_key(|(tp, _)| (tp.topic.clone(), tp.partition));
    let (mut elected, mut needless, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (tp, result) in &results {
        match result {
            Ok(()) => elected.push(tp.to_string()),
            Err(e) if e.code() == Some(ErrorCode::ElectionNotNeeded) => {
                needless.push(tp.to_string());
            }
            Err(e) => failed.push((tp, e)),
        }
    }
    let mut out = std::io::stdout().lock();
    if o.format == Format::Json {
        let failures = failed
            .iter()
            .map(|(tp, e)| json!({"partition": tp.to_string(), "error": e.to_string()}));
        print_json(&json!({
            "type": kind,
            "elected": elected,
            "already_elected": needless,
            "failed": failures.collect::<Vec<_>>(),
        }))?;
    } else {
        if !elected.is_empty() {
            writeln!(
                out,
                "Successfully completed leader election ({kind}) for partitions {}",
                elected.join(", ")
            )?;
        }
        if !needless.is_empty() {
            writeln!(
                out,
                "Valid replica already elected for partitions {}",
                needless.join(", ")
            )?;
        }
        for (tp, error) in &failed {
            writeln!(
                out,
                "Error completing leader election ({kind}) for partition: {tp}: {}",
                java_text(error)
            )?;
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::other(format!(
        "{} replica(s) could not be elected",
        failed.len()
    )))
}
