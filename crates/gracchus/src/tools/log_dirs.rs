//! `gracchus log-dirs`, as `kafka-log-dirs.sh`.

use super::Failure;
use super::arguments::{connect, parse, properties};
use clap::Parser;
use gracchus_client::ClientError;
use gracchus_client::admin::Admin;
use gracchus_kafka_proto::messages::describe_log_dirs_response::DescribeLogDirsResult;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// What the log directories of brokers hold, as JSON.
#[derive(Debug, Parser)]
#[command(name = "gracchus log-dirs", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Describe log directories: the only thing this tool does
    #[arg(long, required = true)]
    describe: bool,
    /// Only these topics: t1,t2
    #[arg(long, value_name = "TOPIC,...", default_value = "")]
    topic_list: String,
    /// Only these brokers: 0,1
    #[arg(long, value_name = "ID,...", default_value = "")]
    broker_list: String,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus log-dirs", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) if e.is_closed_output() => 1,
        Err(Failure::Usage(text)) => {
            eprintln!("ERROR: {text}");
            1
        }
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

fn list(text: &str) -> Vec<&str> {
    text.split(',')
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .collect()
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let properties = properties(o.command_config.as_deref(), &[])?;
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-log-dirs").await?);
    let live = admin.broker_ids().await?;
    let wanted: BTreeSet<i32> = list(&o.broker_list)
        .into_iter()
        .map(|id| {
            id.parse()
                .map_err(|_| Failure::usage(format!("{id} is no broker id")))
        })
        .collect::<Result<_, _>>()?;
    let joined =
        |ids: &mut dyn Iterator<Item = &i32>| ids.map(i32::to_string).collect::<Vec<_>>().join(",");
    let unknown = joined(&mut wanted.difference(&live));
    if !unknown.is_empty() {
        return Err(Failure::usage(format!(
            "The given brokers do not exist from --broker-list: {unknown}. Current existent brokers: {}",
            joined(&mut live.iter())
        )));
    }
    let brokers = if wanted.is_empty() { live } else { wanted };
    let topics = list(&o.topic_list);
    let mut out = std::io::stdout().lock();
    writeln!(out, "Querying brokers for log directories information")?;
    let mut documents = Vec::new();
    for broker in &brokers {
        let dirs = admin.describe_log_dirs(*broker, None).await?;
        let dirs: Vec<_> = dirs.iter().map(|dir| directory(dir, &topics)).collect();
        documents.push(json!({"broker": broker, "logDirs": dirs}));
    }
    writeln!(
        out,
        "Received log directory information from brokers {}",
        joined(&mut brokers.iter())
    )?;
    writeln!(out, "{}", json!({"brokers": documents, "version": 1}))?;
    Ok(())
}

fn directory(dir: &DescribeLogDirsResult, topics: &[&str]) -> Value {
    let mut partitions = Vec::new();
    for topic in &dir.topics {
        if !topics.is_empty() && !topics.contains(&topic.name.as_str()) {
            continue;
        }
        for p in &topic.partitions {
            partitions.push(json!({
                "partition": format!("{}-{}", topic.name, p.partition_index),
                "size": p.partition_size,
                "offsetLag": p.offset_lag,
                "isFuture": p.is_future_key,
            }));
        }
    }
    let error = ClientError::check(dir.error_code, None).err();
    json!({
        "partitions": partitions,
        "error": error.map(|e| e.to_string()),
        "logDir": dir.log_dir,
    })
}
