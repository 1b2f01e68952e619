//! `gracchus groups`, as `kafka-consumer-groups.sh`: [`describe`], [`reset`], list and delete here.

mod describe;
mod reset;
mod time;

use super::Failure;
use super::arguments::{Format, connect, parse, print_json, properties};
use clap::{ArgGroup, Parser};
use gracchus_client::admin::{Admin, GroupListing};
use gracchus_client::{ClientError, TopicPartition};
use gracchus_kafka_proto::ErrorCode;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Lists, describes and deletes consumer groups, and resets their offsets.
#[derive(Debug, Parser)]
#[command(name = "gracchus groups", disable_version_flag = true)]
#[command(group(ArgGroup::new("action").required(true).args(["list", "describe", "delete", "reset_offsets", "delete_offsets"])))]
#[command(group(ArgGroup::new("scenario").args([
    "to_offset", "from_file", "to_datetime", "by_duration", "to_earliest", "to_latest", "to_current", "shift_by",
])))]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", required = true)]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// List all groups
    #[arg(long)]
    list: bool,
    /// Describe groups
    #[arg(long)]
    describe: bool,
    /// Delete groups
    #[arg(long)]
    delete: bool,
    /// Reset a group's offsets; shows what it would do unless --execute is given
    #[arg(long)]
    reset_offsets: bool,
    /// Delete a group's offsets of topics
    #[arg(long)]
    delete_offsets: bool,
    /// The group (repeatable)
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// All groups
    #[arg(long, conflicts_with = "group")]
    all_groups: bool,
    /// The topic, or topic:0,1,2 (repeatable)
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// All topics that the group has offsets of
    #[arg(long, conflicts_with = "topic")]
    all_topics: bool,
    /// What --list and --describe print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// How long to wait for answers, ms
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
    /// With --describe: the group's members
    #[arg(long, requires = "describe", conflicts_with_all = ["offsets", "state"])]
    members: bool,
    /// With --describe: partitions, offsets and lag (the default)
    #[arg(long, requires = "describe", conflicts_with = "state")]
    offsets: bool,
    /// With --describe: the group's state; with --list: the states, or only groups in these states
    #[arg(long, value_name = "STATE,...", num_args = 0..=1, default_missing_value = "")]
    state: Option<String>,
    /// With --list: the groups' types, or only groups of these types
    #[arg(long = "type", value_name = "TYPE,...", num_args = 0..=1, default_missing_value = "", requires = "list")]
    kind: Option<String>,
    /// With --members: what is assigned to each
    #[arg(long, requires = "describe")]
    verbose: bool,
    /// Show only what would be done
    #[arg(long, requires = "reset_offsets", conflicts_with = "execute")]
    dry_run: bool,
    /// Do it
    #[arg(long, requires = "reset_offsets")]
    execute: bool,
    /// Print the result as CSV
    #[arg(long, requires = "reset_offsets")]
    export: bool,
    /// To this offset
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    to_offset: Option<i64>,
    /// To the offsets in a CSV file: topic,partition,offset or group,topic,partition,offset
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// To the first record at or after YYYY-MM-DDTHH:mm:SS.sss[+HH:mm]
    #[arg(long, value_name = "TIME")]
    to_datetime: Option<String>,
    /// To the first record of this long ago: PnDTnHnMnS
    #[arg(long, value_name = "DURATION")]
    by_duration: Option<String>,
    /// To the first record
    #[arg(long)]
    to_earliest: bool,
    /// Behind the last record
    #[arg(long)]
    to_latest: bool,
    /// To where it is; to the end where it has no offset
    #[arg(long)]
    to_current: bool,
    /// Forward, or backward if negative
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    shift_by: Option<i64>,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus groups", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) => {
            match &e {
                Failure::Usage(text) => eprintln!("{text}"),
                e if e.is_closed_output() => {}
                e => print_error(&format!(
                    "Executing consumer group command failed due to {e}"
                )),
            }
            1
        }
    }
}

fn print_error(text: &str) {
    println!("\nError: {text}");
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let needs_group = o.describe || o.delete || o.reset_offsets;
    if needs_group && o.group.is_empty() && !o.all_groups {
        return Err(Failure::usage(
            "One of these options is needed: [group], [all-groups]",
        ));
    }
    if o.delete_offsets && (o.group.is_empty() || o.topic.is_empty()) {
        return Err(Failure::usage(
            "Option [delete-offsets] takes the following options: [group], [topic]",
        ));
    }
    if o.describe && o.state.as_deref().is_some_and(|s| !s.is_empty()) {
        return Err(Failure::usage(
            "Option [describe] does not take a value for [state]",
        ));
    }
    let mut properties = properties(o.command_config.as_deref(), &[])?;
    properties.insert("default.api.timeout.ms".into(), o.timeout.to_string());
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-groups").await?);
    if o.list {
        list(o, &admin).await
    } else if o.describe {
        describe::run(o, &admin).await
    } else if o.delete {
        delete(o, &admin).await
    } else if o.reset_offsets {
        reset::run(o, &admin).await
    } else {
        delete_offsets(o, &admin).await
    }
}

/// The groups that the options mean.
async fn chosen(o: &Options, admin: &Admin) -> Result<Vec<String>, Failure> {
    if !o.all_groups {
        return Ok(o.group.clone());
    }
    Ok(consumers(admin, &[])
        .await?
        .into_iter()
        .map(|g| g.group)
        .collect())
}

/// Groups of consumers: other users of the group protocol are left out.
async fn consumers(admin: &Admin, states: &[String]) -> Result<Vec<GroupListing>, ClientError> {
    let mut groups = admin.list_groups(states).await?;
    groups.retain(|g| g.protocol_type.is_empty() || g.protocol_type == "consumer");
    Ok(groups)
}

const STATES: [&str; 6] = [
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
];

fn states(text: &str) -> Result<Vec<String>, Failure> {
    text.split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| {
            STATES
                .iter()
                .chain(&["Reconciling"])
                .find(|known| known.eq_ignore_ascii_case(s))
                .map(|known| (*known).to_owned())
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "Invalid state list '{text}'. Valid states are: {}, Reconciling",
                        STATES.join(", ")
                    ))
                })
        })
        .collect()
}

/// `Classic` for `classic`.
fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        None => "Unknown".to_owned(),
        Some(first) => first.to_uppercase().chain(chars).collect(),
    }
}

async fn list(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let wanted = states(o.state.as_deref().unwrap_or_default())?;
    let kinds: Vec<String> = o
        .kind
        .as_deref()
        .unwrap_or_default()
        .split(',')
        .map(|k| k.trim().to_lowercase())
        .filter(|k| !k.is_empty())
        .collect();
    if let Some(bad) = kinds
        .iter()
        .find(|k| !["classic", "consumer"].contains(&k.as_str()))
    {
        return Err(Failure::usage(format!(
            "Invalid types list '{bad}'. Valid types are: Consumer, Classic"
        )));
    }
    let mut groups = consumers(admin, &wanted).await?;
    groups.retain(|g| kinds.is_empty() || kinds.contains(&g.kind.to_lowercase()));
    if o.format == Format::Json {
        let documents: Vec<_> = groups
            .iter()
            .map(|g| {
                json!({
                    "group": g.group,
                    "protocol_type": g.protocol_type,
                    "type": g.kind,
                    "state": g.state,
                })
            })
            .collect();
        return print_json(&documents.into());
    }
    let mut out = std::io::stdout().lock();
    if o.state.is_none() && o.kind.is_none() {
        for g in &groups {
            writeln!(out, "{}", g.group)?;
        }
        return Ok(());
    }
    let width = groups
        .iter()
        .map(|g| g.group.len())
        .max()
        .unwrap_or(0)
        .max(15)
        + 10;
    let mut line = |group: &str, kind: &str, state: &str| {
        write!(out, "{group:<width$}")?;
        if o.kind.is_some() {
            write!(out, " {kind:<20}")?;
        }
        if o.state.is_some() {
            write!(out, " {state:<20}")?;
        }
        writeln!(out)
    };
    line("GROUP", "TYPE", "STATE")?;
    for g in &groups {
        let state = if g.state.is_empty() {
            "Unknown"
        } else {
            &g.state
        };
        line(&g.group, &capitalized(&g.kind), state)?;
    }
    Ok(())
}

async fn delete(o: &Options, admin: &Admin) -> Result<(), Failure> {
    if !o.topic.is_empty() {
        return Err(Failure::usage(
            "The consumer does not support topic-specific offset deletion from a consumer group.",
        ));
    }
    let groups = chosen(o, admin).await?;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for (group, result) in admin.delete_groups(&groups).await? {
        match result {
            Ok(()) => good.push(format!("'{group}'")),
            Err(e) => bad.push((group, e)),
        }
    }
    if bad.is_empty() {
        println!(
            "Deletion of requested consumer groups ({}) was successful.",
            good.join(", ")
        );
        return Ok(());
    }
    print_error("Deletion of some consumer groups failed:");
    for (group, e) in &bad {
        println!("* Group '{group}' could not be deleted due to: {e}");
    }
    if !good.is_empty() {
        println!(
            "\nThese consumer groups were deleted successfully: {}",
            good.join(", ")
        );
    }
    Ok(())
}

/// `topic` or `topic:0,1` as partitions; all of a topic's when none are given.
async fn partitions(admin: &Admin, topics: &[String]) -> Result<Vec<TopicPartition>, Failure> {
    let mut out = Vec::new();
    for argument in topics {
        let Some((topic, list)) = argument.split_once(':') else {
            for (name, described) in admin
                .describe_topics(std::slice::from_ref(argument))
                .await?
            {
                let described = described?;
                out.extend(
                    described
                        .partitions
                        .iter()
                        .map(|p| TopicPartition::new(&name, p.partition)),
                );
            }
            continue;
        };
        if list.contains(':') {
            return Err(Failure::usage(format!(
                "Invalid topic arg '{argument}', expected topic name and partitions"
            )));
        }
        for number in list.split(',') {
            let number = number.parse().map_err(|_| {
                Failure::usage(format!(
                    "Invalid partition '{number}' specified in topic arg '{argument}''"
                ))
            })?;
            out.push(TopicPartition::new(topic, number));
        }
    }
    Ok(out)
}

async fn delete_offsets(o: &Options, admin: &Admin) -> Result<(), Failure> {
    let Some(group) = o.group.first() else {
        return Ok(());
    };
    let partitions = partitions(admin, &o.topic).await?;
    let answer = admin.delete_offsets(group, &partitions).await;
    let top = match &answer {
        Ok(each) => each
            .iter()
            .find_map(|(_, r)| r.as_ref().err().and_then(ClientError::code)),
        Err(e) => e.code(),
    };
    match top {
        None if answer.is_ok() => println!(
            "Request succeed for deleting offsets with topic {} group {group}",
            o.topic.join(", ")
        ),
        Some(ErrorCode::InvalidGroupId) => print_error(&format!("'{group}' is not valid.")),
        Some(ErrorCode::GroupIdNotFound) => print_error(&format!("'{group}' does not exist.")),
        Some(ErrorCode::GroupAuthorizationFailed) => {
            print_error(&format!("Access to '{group}' is not authorized."));
        }
        Some(ErrorCode::NonEmptyGroup) => print_error(&format!(
            "Deleting offsets of a consumer group '{group}' is forbidden if the group is not empty."
        )),
        Some(
            ErrorCode::GroupSubscribedToTopic
            | ErrorCode::TopicAuthorizationFailed
            | ErrorCode::UnknownTopicOrPartition,
        ) => print_error("Encounter some partition level error, see the follow-up details:"),
        Some(code) => print_error(&format!("Encounter some unknown error: {code}")),
        None => {}
    }
    let each = match answer {
        Ok(each) => each,
        Err(e) if e.code().is_some() => partitions
            .into_iter()
            .map(|tp| (tp, Err(e.clone())))
            .collect(),
        Err(e) => return Err(e.into()),
    };
    println!("\n{:<30} {:<15} {:<15}", "TOPIC", "PARTITION", "STATUS");
    for (tp, result) in each {
        let status = match result {
            Ok(()) => "Successful".to_owned(),
            Err(e) => format!("Error: {e}"),
        };
        println!("{:<30} {:<15} {status:<15}", tp.topic, tp.partition);
    }
    Ok(())
}
