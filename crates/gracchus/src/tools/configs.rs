//! `gracchus configs`, as `kafka-configs.sh`: topics, brokers and their loggers.

use super::Failure;
use super::arguments::{Format, connect, parse, print_json, properties, properties_file};
use clap::{ArgGroup, Parser};
use gracchus_client::admin::{
    Admin, ConfigEntry, ConfigOp, ConfigResource, ConfigSource, ResourceType,
};
use gracchus_kafka_proto::ErrorCode;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Shows and changes configurations of topics and brokers.
#[derive(Debug, Parser)]
#[command(name = "gracchus configs", disable_version_flag = true)]
#[command(group(ArgGroup::new("action").required(true).args(["describe", "alter"])))]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", required = true)]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Show configurations
    #[arg(long)]
    describe: bool,
    /// Change configurations
    #[arg(long)]
    alter: bool,
    /// Show all, not only those set for this very entity
    #[arg(long)]
    all: bool,
    /// topics, brokers or broker-loggers
    #[arg(long, value_name = "TYPE")]
    entity_type: Option<String>,
    /// Topic name or broker id
    #[arg(long, value_name = "NAME")]
    entity_name: Option<String>,
    /// The cluster-wide default
    #[arg(long, conflicts_with = "entity_name")]
    entity_default: bool,
    /// The topic's name
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// The broker's id
    #[arg(long, value_name = "ID")]
    broker: Option<String>,
    /// The defaults of all brokers
    #[arg(long)]
    broker_defaults: bool,
    /// The id of the broker whose loggers are meant
    #[arg(long, value_name = "ID")]
    broker_logger: Option<String>,
    /// Keys to set: k1=v1,k2=[v1,v2],k3=v3
    #[arg(
        long,
        value_name = "KEY=VALUE,...",
        requires = "alter",
        conflicts_with = "add_config_file"
    )]
    add_config: Option<String>,
    /// A properties file with keys to set
    #[arg(long, value_name = "FILE", requires = "alter")]
    add_config_file: Option<PathBuf>,
    /// Keys to remove: k1,k2
    #[arg(
        long,
        value_name = "KEY,...",
        requires = "alter",
        value_delimiter = ','
    )]
    delete_config: Vec<String>,
    /// What --describe prints
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    force: bool,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus configs", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) => {
            match &e {
                Failure::Usage(text) => eprintln!("{text}"),
                e if e.is_closed_output() => {}
                e => eprintln!(
                    "Error while executing config command with args '{}'\n{e}",
                    arguments.join(" ")
                ),
            }
            1
        }
    }
}

/// What kind of thing is meant, in the tool's plural, and which one: `None` all, "" the default.
fn entity(o: &Options) -> Result<(&'static str, Option<String>), Failure> {
    let short = [
        ("topics", o.topic.clone()),
        ("brokers", o.broker.clone()),
        ("brokers", o.broker_defaults.then(String::new)),
        ("broker-loggers", o.broker_logger.clone()),
    ];
    let mut named: Vec<_> = short
        .into_iter()
        .filter_map(|(kind, name)| Some((kind, Some(name?))))
        .collect();
    if let Some(kind) = &o.entity_type {
        let kind = match kind.as_str() {
            "topics" => "topics",
            "brokers" => "brokers",
            "broker-loggers" => "broker-loggers",
            "users" | "clients" | "ips" | "client-metrics" => {
                return Err(Failure::usage(format!(
                    "Entity type {kind} is not supported yet; topics, brokers and broker-loggers are"
                )));
            }
            other => {
                return Err(Failure::usage(format!(
                    "Invalid entity type {other}, the entity type must be one of topics, brokers, broker-loggers with a --bootstrap-server argument"
                )));
            }
        };
        let name = if o.entity_default {
            Some(String::new())
        } else {
            o.entity_name.clone()
        };
        named.push((kind, name));
    }
    let mut named = named.into_iter();
    match (named.next(), named.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Failure::usage("At least one entity type must be specified")),
        _ => Err(Failure::usage("Only one entity may be specified")),
    }
}

fn resource(kind: &str, name: &str) -> Result<ConfigResource, Failure> {
    let type_ = match kind {
        "topics" => ResourceType::Topic,
        "brokers" => ResourceType::Broker,
        _ => ResourceType::BrokerLogger,
    };
    if type_ != ResourceType::Topic && !name.is_empty() && name.parse::<i32>().is_err() {
        return Err(Failure::usage(format!(
            "The entity name for {kind} must be a valid integer broker id, found: {name}"
        )));
    }
    Ok(ConfigResource {
        kind: type_,
        name: name.to_owned(),
    })
}

/// Kafka's plural without its s.
fn singular(kind: &str) -> &str {
    kind.strip_suffix('s').unwrap_or(kind)
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let (kind, name) = entity(o)?;
    if o.alter && name.is_none() {
        return Err(Failure::usage(
            "An entity name must be specified with --alter of this entity type",
        ));
    }
    let properties = properties(o.command_config.as_deref(), &[])?;
    let changes = if o.alter { Some(changes(o)?) } else { None };
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-configs").await?);
    match changes {
        Some(changes) => alter(&admin, kind, &name.unwrap_or_default(), changes).await,
        None => describe(&admin, o, kind, name).await,
    }
}

/// Entries that count for the resource itself, or all of them, by name.
async fn entries(
    admin: &Admin,
    resource: &ConfigResource,
    all: bool,
) -> Result<Vec<ConfigEntry>, Failure> {
    let own = match (resource.kind, resource.name.as_str()) {
        (ResourceType::Topic, _) => Some(ConfigSource::DynamicTopicConfig),
        (ResourceType::Broker, "") => Some(ConfigSource::DynamicDefaultBrokerConfig),
        (ResourceType::Broker, _) => Some(ConfigSource::DynamicBrokerConfig),
        (ResourceType::BrokerLogger, _) => None,
    };
    let mut out = Vec::new();
    for (_, result) in admin
        .describe_configs(std::slice::from_ref(resource), true)
        .await?
    {
        match result {
            Ok(entries) => out.extend(entries),
            // the broker's answer has no text, and the code's sentence no name
            Err(e) if e.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
                return Err(Failure::other(format!(
                    "Topic '{}' does not exist: {e}",
                    resource.name
                )));
            }
            Err(e) => return Err(e.into()),
        }
    }
    out.retain(|e| all || own.is_none_or(|source| e.source == source));
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(out)
}

async fn describe(
    admin: &Admin,
    o: &Options,
    kind: &str,
    name: Option<String>,
) -> Result<(), Failure> {
    let names = match name {
        Some(name) => vec![name],
        None if kind == "topics" => admin
            .list_topics()
            .await?
            .into_iter()
            .map(|t| t.name)
            .collect(),
        None => {
            let nodes = admin.describe_cluster().await?.nodes;
            let ids = nodes.iter().map(|n| n.id.to_string());
            ids.chain(std::iter::once(String::new())).collect()
        }
    };
    if o.format == Format::Json {
        let mut documents = Vec::new();
        for name in names {
            let entries = entries(admin, &resource(kind, &name)?, o.all).await?;
            let entries: Vec<_> = entries.iter().map(document).collect();
            documents.push(json!({"type": kind, "name": name, "configs": entries}));
        }
        return print_json(&documents.into());
    }
    let mut out = std::io::stdout().lock();
    for name in names {
        let resource = resource(kind, &name)?;
        if name.is_empty() {
            writeln!(out, "Default configs for {kind} in the cluster are:")?;
        } else {
            let which = if o.all { "All" } else { "Dynamic" };
            writeln!(out, "{which} configs for {} {name} are:", singular(kind))?;
        }
        for e in entries(admin, &resource, o.all).await? {
            let null = "null".to_owned();
            let synonyms: Vec<_> = e
                .synonyms
                .iter()
                .map(|s| {
                    let value = s.value.as_ref().unwrap_or(&null);
                    format!("{}:{}={value}", s.source.name(), s.name)
                })
                .collect();
            writeln!(
                out,
                "  {}={} sensitive={} synonyms={{{}}}",
                e.name,
                e.value.as_ref().unwrap_or(&null),
                e.sensitive,
                synonyms.join(", ")
            )?;
        }
    }
    Ok(())
}

fn document(e: &ConfigEntry) -> Value {
    let synonyms: Vec<_> = e
        .synonyms
        .iter()
        .map(|s| json!({"name": s.name, "value": s.value, "source": s.source.name()}))
        .collect();
    json!({
        "name": e.name,
        "value": e.value,
        "source": e.source.name(),
        "read_only": e.read_only,
        "sensitive": e.sensitive,
        "synonyms": synonyms,
    })
}

/// Splits at commas outside of square brackets.
fn split_list(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth <= 0 {
            out.push(String::new());
        } else if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out
}

fn changes(o: &Options) -> Result<Vec<(String, ConfigOp)>, Failure> {
    let mut out = Vec::new();
    if let Some(path) = &o.add_config_file {
        let pairs = properties_file(path)?;
        out.extend(pairs.into_iter().map(|(k, v)| (k, ConfigOp::Set(v))));
    }
    if let Some(text) = &o.add_config {
        for pair in split_list(text) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Failure::usage(
                    "requirement failed: Invalid entity config: all configs to be added must be in the format \"key=val\".",
                ));
            };
            let value = value.replace(['[', ']'], "");
            out.push((
                key.trim().to_owned(),
                ConfigOp::Set(value.trim().to_owned()),
            ));
        }
    }
    for (key, _) in &out {
        if !key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        {
            return Err(Failure::usage(format!(
                "Invalid character found for config key: {key}"
            )));
        }
    }
    for key in &o.delete_config {
        out.push((key.trim().to_owned(), ConfigOp::Delete));
    }
    if out.is_empty() {
        return Err(Failure::usage(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        ));
    }
    Ok(out)
}

async fn alter(
    admin: &Admin,
    kind: &str,
    name: &str,
    changes: Vec<(String, ConfigOp)>,
) -> Result<(), Failure> {
    let resource = resource(kind, name)?;
    let present = entries(admin, &resource, false).await?;
    let missing: Vec<_> = changes
        .iter()
        .filter(|(key, op)| *op == ConfigOp::Delete && !present.iter().any(|e| e.name == *key))
        .map(|(key, _)| key.as_str())
        .collect();
    if !missing.is_empty() {
        return Err(Failure::usage(format!(
            "Invalid config(s): {}",
            missing.join(",")
        )));
    }
    for (_, result) in admin.alter_configs(&[(resource, changes)], false).await? {
        result?;
    }
    if name.is_empty() {
        println!("Completed updating default config for {kind} in the cluster.");
    } else {
        println!("Completed updating config for {} {name}.", singular(kind));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn brackets_keep_commas_together() {
        assert_eq!(split_list("a=1,b=[x,y],c="), ["a=1", "b=[x,y]", "c="]);
    }
}
