//! `gracchus topics`, as `kafka-topics.sh`: [`describe`], the rest here.

mod describe;

use super::Failure;
use super::arguments::{Format, connect, is_internal, name_filter, parse, print_json, properties};
use clap::{ArgGroup, Parser};
use gracchus_client::admin::{Admin, NewPartitions, NewTopic, TopicDescription};
use gracchus_kafka_proto::ErrorCode;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Creates, deletes, describes and changes topics.
#[derive(Debug, Parser)]
#[command(name = "gracchus topics", disable_version_flag = true)]
#[command(group(ArgGroup::new("action").required(true).args(["list", "describe", "create", "delete", "alter"])))]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", required = true)]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// List all topics
    #[arg(long)]
    list: bool,
    /// Show details of topics
    #[arg(long)]
    describe: bool,
    /// Create a topic
    #[arg(long)]
    create: bool,
    /// Delete topics
    #[arg(long)]
    delete: bool,
    /// Raise the number of partitions
    #[arg(long)]
    alter: bool,
    /// The topic; a regular expression, except with --create
    #[arg(long, required_if_eq_any([("create", "true"), ("delete", "true"), ("alter", "true")]))]
    topic: Option<String>,
    /// The id of the topic to describe
    #[arg(long, requires = "describe")]
    topic_id: Option<String>,
    /// A configuration of the topic to be created (repeatable)
    #[arg(long, value_name = "NAME=VALUE", requires = "create")]
    config: Vec<String>,
    /// Partitions of the topic that is created or altered
    #[arg(long, conflicts_with_all = ["list", "describe", "delete"], required_if_eq("alter", "true"))]
    partitions: Option<i32>,
    /// Replicas of each partition
    #[arg(long, requires = "create")]
    replication_factor: Option<i32>,
    /// Brokers of each partition's replicas: "1:2,2:3" is two partitions on two brokers each
    #[arg(long, conflicts_with_all = ["list", "describe", "delete"])]
    replica_assignment: Option<String>,
    /// Only partitions with replicas that lag
    #[arg(long, requires = "describe", group = "report")]
    under_replicated_partitions: bool,
    /// Only partitions without a live leader
    #[arg(long, requires = "describe", group = "report")]
    unavailable_partitions: bool,
    /// Only partitions with fewer in-sync replicas than min.insync.replicas
    #[arg(long, requires = "describe", group = "report")]
    under_min_isr_partitions: bool,
    /// Only partitions with just as many in-sync replicas as min.insync.replicas
    #[arg(long, requires = "describe", group = "report")]
    at_min_isr_partitions: bool,
    /// Only topics with configurations of their own
    #[arg(long, requires = "describe", conflicts_with = "report")]
    topics_with_overrides: bool,
    /// Act only if the topic exists
    #[arg(long, conflicts_with_all = ["list", "create"])]
    if_exists: bool,
    /// Create only if the topic does not exist
    #[arg(long, requires = "create")]
    if_not_exists: bool,
    /// Leave internal topics out
    #[arg(long, conflicts_with_all = ["create", "delete", "alter"])]
    exclude_internal: bool,
    /// What --list and --describe print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    partition_size_limit_per_response: Option<i32>,
}

impl Options {
    /// Whether only partitions in some bad state are wanted.
    fn reports(&self) -> bool {
        self.under_replicated_partitions
            || self.unavailable_partitions
            || self.under_min_isr_partitions
            || self.at_min_isr_partitions
    }
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus topics", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) if e.is_closed_output() => 1,
        Err(Failure::Usage(text)) => {
            eprintln!("{text}");
            1
        }
        Err(e) => {
            println!("Error while executing topic command : {e}");
            1
        }
    }
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let properties = properties(o.command_config.as_deref(), &[])?;
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-topics").await?);
    if o.create {
        create(o, &admin).await
    } else if o.alter {
        alter(o, &admin).await
    } else if o.delete {
        delete(o, &admin).await
    } else if o.describe {
        describe::run(o, &admin).await
    } else {
        let names: Vec<_> = matching(o, &admin)
            .await?
            .into_iter()
            .map(|t| t.name)
            .collect();
        if o.format == Format::Json {
            return print_json(&names.into());
        }
        writeln!(std::io::stdout(), "{}", names.join("\n"))?;
        Ok(())
    }
}

/// The topics that the options mean, by name.
async fn matching(o: &Options, admin: &Admin) -> Result<Vec<TopicDescription>, Failure> {
    let filter = o.topic.as_deref().map(name_filter).transpose()?;
    let mut topics = admin.list_topics().await?;
    topics.retain(|t| {
        filter.as_ref().is_none_or(|f| f.is_match(&t.name))
            && !(o.exclude_internal && is_internal(&t.name))
    });
    Ok(topics)
}

fn must_exist(o: &Options, found: bool) -> Result<(), Failure> {
    match &o.topic {
        Some(topic) if !topic.is_empty() && !o.if_exists && !found => Err(Failure::other(format!(
            "Topic '{topic}' does not exist as expected"
        ))),
        _ => Ok(()),
    }
}

fn assignment(text: &str) -> Result<BTreeMap<i32, Vec<i32>>, Failure> {
    let mut out = BTreeMap::new();
    let mut factor = None;
    for (partition, list) in (0..).zip(text.split(',')) {
        let ids = list
            .split(':')
            .map(|id| id.trim().parse::<i32>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Failure::other(format!("Invalid broker list {list}")))?;
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != ids.len() {
            return Err(Failure::other(format!(
                "Partition replica lists may not contain duplicate entries: {list}"
            )));
        }
        if *factor.get_or_insert(ids.len()) != ids.len() {
            return Err(Failure::other(format!(
                "Partition {partition} has different replication factor: {ids:?}"
            )));
        }
        out.insert(partition, ids);
    }
    Ok(out)
}

async fn create(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let name = o.topic.clone().unwrap_or_default();
    let mut configs = Vec::new();
    for pair in &o.config {
        match pair.split_once('=') {
            Some((key, value)) if !value.contains('=') => {
                configs.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => {
                return Err(Failure::other(
                    "requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".",
                ));
            }
        }
    }
    if name.contains(['.', '_']) {
        println!(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues it is best to use either, but not both."
        );
    }
    let factor = match o.replication_factor {
        None => None,
        Some(n) => match i16::try_from(n) {
            Ok(n) if n >= 1 => Some(n),
            _ => {
                return Err(Failure::other(
                    "The replication factor must be between 1 and 32767 inclusive",
                ));
            }
        },
    };
    if o.partitions.is_some_and(|n| n < 1) {
        return Err(Failure::other("The partitions must be greater than 0"));
    }
    let assignment = match o.replica_assignment.as_deref() {
        None | Some("") => BTreeMap::new(),
        Some(text) => {
            if o.partitions.is_some() || factor.is_some() {
                return Err(Failure::usage(
                    "Option \"[replica-assignment]\" can't be used with option \"[partitions]\" or \"[replication-factor]\"",
                ));
            }
            assignment(text)?
        }
    };
    let topic = NewTopic {
        name: name.clone(),
        partitions: o.partitions,
        replication_factor: factor,
        assignment,
        configs,
    };
    for (_, result) in admin.create_topics(&[topic], false).await? {
        match result {
            Ok(()) => println!("Created topic {name}."),
            Err(e) if o.if_not_exists && e.code() == Some(ErrorCode::TopicAlreadyExists) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

async fn alter(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let topics = matching(o, admin).await?;
    must_exist(o, !topics.is_empty())?;
    let count = o.partitions.unwrap_or(0);
    let wanted = o
        .replica_assignment
        .as_deref()
        .map(assignment)
        .transpose()?;
    let changes: Vec<_> = topics
        .iter()
        .map(|t| NewPartitions {
            name: t.name.clone(),
            count,
            assignment: wanted
                .as_ref()
                .map(|a| a.values().skip(t.partitions.len()).cloned().collect()),
        })
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    for (_, result) in admin.create_partitions(&changes).await? {
        result?;
    }
    Ok(())
}

async fn delete(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let topics = matching(o, admin).await?;
    must_exist(o, !topics.is_empty())?;
    let names: Vec<_> = topics.into_iter().map(|t| t.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    for (_, result) in admin.delete_topics(&names).await? {
        result?;
    }
    Ok(())
}
