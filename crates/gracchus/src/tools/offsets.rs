//! `gracchus offsets`, as `kafka-get-offsets.sh`.

use super::Failure;
use super::arguments::{Format, connect, is_internal, name_filter, parse, print_json, properties};
use clap::Parser;
use gracchus_client::TopicPartition;
use gracchus_client::admin::{Admin, IsolationLevel, OffsetSpec};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Offsets of partitions: last, first, or by time.
#[derive(Debug, Parser)]
#[command(name = "gracchus offsets", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", alias = "broker-list")]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// A regular expression of topics (default: all)
    #[arg(long, value_name = "REGEX", conflicts_with = "topic_partitions")]
    topic: Option<String>,
    /// Only these partitions: 0,1
    #[arg(long, value_name = "N,...", conflicts_with = "topic_partitions")]
    partitions: Option<String>,
    /// Patterns of topics and partitions: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3 (the upper bound is not included)
    #[arg(long, value_name = "PATTERN,...")]
    topic_partitions: Option<String>,
    /// A time in ms; latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "latest",
        allow_hyphen_values = true
    )]
    time: String,
    /// Leave internal topics out
    #[arg(long)]
    exclude_internal_topics: bool,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus offsets", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) if e.is_closed_output() => 1,
        Err(e) => {
            eprintln!("Error occurred: {e}");
            1
        }
    }
}

fn spec(text: &str) -> Result<OffsetSpec, Failure> {
    Ok(match text {
        "latest" | "-1" => OffsetSpec::Latest,
        "earliest" | "-2" => OffsetSpec::Earliest,
        "max-timestamp" | "-3" => OffsetSpec::MaxTimestamp,
        "earliest-local" | "-4" => OffsetSpec::EarliestLocal,
        "latest-tiered" | "-5" => OffsetSpec::LatestTiered,
        _ => OffsetSpec::AtOrAfter(text.parse().map_err(|_| {
            Failure::other(format!(
                "Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or \
                 earliest-local / -5 or latest-tiered, or a specified long format timestamp"
            ))
        })?),
    })
}

/// Some partitions of the topics that match.
struct Pattern {
    topic: regex::Regex,
    partitions: Vec<std::ops::Range<i32>>,
}

impl Pattern {
    fn fits(&self, topic: &str, partition: i32) -> bool {
        self.topic.is_match(topic) && self.partitions.iter().any(|r| r.contains(&partition))
    }
}

const ALL: std::ops::Range<i32> = 0..i32::MAX;

fn patterns(o: &Options) -> Result<Vec<Pattern>, Failure> {
    if let Some(list) = &o.topic_partitions {
        return list.split(',').map(pattern).collect();
    }
    let topic = name_filter(o.topic.as_deref().unwrap_or(".*"))?;
    let partitions = match o.partitions.as_deref() {
        None => vec![ALL],
        Some(list) => list
            .split(',')
            .filter(|n| !n.is_empty())
            .map(|n| {
                let n: i32 = n.parse().map_err(|_| {
                    Failure::other(format!(
                        "--partitions expects a comma separated list of numeric partition ids, but received: {list}"
                    ))
                })?;
                Ok(n..n.saturating_add(1))
            })
            .collect::<Result<_, Failure>>()?,
    };
    Ok(vec![Pattern { topic, partitions }])
}

/// `topic`, `topic:1`, `topic:0-3`, `topic:5-`, `topic:-3`; without a topic: every one.
fn pattern(text: &str) -> Result<Pattern, Failure> {
    let (topic, range) = text.split_once(':').unwrap_or((text, ""));
    let topic = name_filter(if topic.is_empty() { ".*" } else { topic })?;
    let number = |n: &str, default: i32| {
        if n.is_empty() {
            return Ok(default);
        }
        n.parse()
            .map_err(|_| Failure::other(format!("Invalid topic partition filter: {text}")))
    };
    let range = match range.split_once('-') {
        None if range.is_empty() => ALL,
        None => {
            let n = number(range, 0)?;
            n..n.saturating_add(1)
        }
        Some((low, high)) => number(low, 0)?..number(high, i32::MAX)?,
    };
    Ok(Pattern {
        topic,
        partitions: vec![range],
    })
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let spec = spec(&o.time)?;
    let patterns = patterns(o)?;
    let properties = properties(o.command_config.as_deref(), &[])?;
    let admin = Admin::new(connect(&o.bootstrap_server, &properties, "GetOffsetShell").await?);
    let mut wanted = Vec::new();
    for topic in admin.list_topics().await? {
        if o.exclude_internal_topics && is_internal(&topic.name) {
            continue;
        }
        for p in &topic.partitions {
            if patterns.iter().any(|w| w.fits(&topic.name, p.partition)) {
                wanted.push((TopicPartition::new(&topic.name, p.partition), spec));
            }
        }
    }
    if wanted.is_empty() {
        return Err(Failure::other(
            "Could not match any topic-partitions with the specified filters",
        ));
    }
    let mut listed = admin
        .list_offsets(&wanted, IsolationLevel::ReadUncommitted)
        .await?;
    // by text, so that partition 10 comes before 2, as there
    listed.sort_by_key(|(tp, _)| tp.to_string());
    let mut found = Vec::new();
    for (tp, result) in listed {
        match result {
            Ok(at) if at.offset >= 0 => found.push((tp, at.offset)),
            Ok(_) => {}
            Err(e) => {
                eprintln!("Skip getting offsets for topic-partition {tp} due to error: {e}");
            }
        }
    }
    if o.format == Format::Json {
        let rows: Vec<_> = found
            .iter()
            .map(|(tp, offset)| json!({"topic": tp.topic, "partition": tp.partition, "offset": offset}))
            .collect();
        return print_json(&rows.into());
    }
    let mut out = std::io::stdout().lock();
    for (tp, offset) in found {
        writeln!(out, "{}:{}:{offset}", tp.topic, tp.partition)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_partitions() {
        for (text, fits, fits_not) in [
            ("a", vec![("a", 0), ("a", 99)], vec![("ab", 0)]),
            ("a:2", vec![("a", 2)], vec![("a", 1), ("b", 2)]),
            (
                "a.*:1-3",
                vec![("ab", 1), ("a", 2)],
                vec![("a", 3), ("a", 0)],
            ),
            ("a:5-", vec![("a", 5), ("a", 6)], vec![("a", 4)]),
            (":-2", vec![("any", 0), ("a", 1)], vec![("a", 2)]),
        ] {
            let pattern = pattern(text).unwrap();
            assert!(fits.iter().all(|(t, p)| pattern.fits(t, *p)), "{text}");
            assert!(!fits_not.iter().any(|(t, p)| pattern.fits(t, *p)), "{text}");
        }
        assert!(pattern("a:x").is_err() && pattern("a:1-x").is_err());
    }

    #[test]
    fn times() {
        assert_eq!(spec("latest").unwrap(), spec("-1").unwrap());
        assert_eq!(spec("17").unwrap(), OffsetSpec::AtOrAfter(17));
        assert!(
            spec("soon")
                .unwrap_err()
                .to_string()
                .starts_with("Malformed time argument soon.")
        );
    }
}
