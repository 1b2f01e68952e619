//! `gracchus delete-records`, as `kafka-delete-records.sh`.

use super::arguments::{Format, connect, parse, print_json, properties};
use super::{Failure, java_text};
use clap::Parser;
use gracchus_client::TopicPartition;
use gracchus_client::admin::Admin;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// Deletes the oldest records of partitions, up to an offset each.
#[derive(Debug, Parser)]
#[command(name = "gracchus delete-records", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}; offset -1 deletes all there is now
    #[arg(long, value_name = "FILE")]
    offset_json_file: PathBuf,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus delete-records", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

/// The offsets of the file.
fn read(text: &str) -> Result<Vec<(TopicPartition, i64)>, Failure> {
    let document: Value = serde_json::from_str(text)
        .map_err(|e| Failure::other(format!("The input string is not a valid JSON: {e}")))?;
    let missing = |field: &str| Failure::other(format!("No such field exists: `{field}`"));
    if let Some(version) = document.get("version")
        && version.as_i64() != Some(1)
    {
        return Err(Failure::other(format!(
            "Not supported version field value {version}"
        )));
    }
    let partitions = document
        .get("partitions")
        .and_then(Value::as_array)
        .ok_or_else(|| missing("partitions"))?;
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for p in partitions {
        let number = |field: &str| {
            p.get(field)
                .and_then(Value::as_i64)
                .ok_or_else(|| missing(field))
        };
        let topic = p
            .get("topic")
            .and_then(Value::as_str)
            .ok_or_else(|| missing("topic"))?;
        let partition = i32::try_from(number("partition")?)
            .map_err(|_| Failure::other(format!("no partition: {}", p["partition"])))?;
        let tp = TopicPartition::new(topic, partition);
        if !seen.insert(tp.clone()) {
            twice.insert(tp.to_string());
        }
        out.push((tp, number("offset")?));
    }
    if !twice.is_empty() {
        let twice: Vec<_> = twice.into_iter().collect();
        return Err(Failure::other(format!(
            "Offset json file contains duplicate topic partitions: {}",
            twice.join(",")
        )));
    }
    Ok(out)
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&o.offset_json_file)
        .map_err(|e| Failure::other(format!("{}: {e}", o.offset_json_file.display())))?;
    let offsets = read(&text)?;
    let properties = properties(o.command_config.as_deref(), &[])?;
    let admin =
        Admin::new(connect(&o.bootstrap_server, &properties, "gracchus-delete-records").await?);
    let mut out = std::io::stdout().lock();
    if o.format == Format::Text {
        writeln!(out, "Executing records delete operation")?;
    }
    let mut results = admin.delete_records(&offsets).await?;
    results.sort_by_key(|(tp, _)| tp.to_string());
    if o.format == Format::Json {
        let rows: Vec<_> = results
            .iter()
            .map(|(tp, r)| {
                json!({
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "low_watermark": r.as_ref().ok(),
                    "error": r.as_ref().err().map(ToString::to_string),
                })
            })
            .collect();
        return print_json(&rows.into());
    }
    writeln!(out, "Records delete operation completed:")?;
    for (tp, result) in results {
        match result {
            Ok(low) => writeln!(out, "partition: {tp}\tlow_watermark: {low}")?,
            Err(e) => writeln!(out, "partition: {tp}\terror: {}", java_text(&e))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let read = |text: &str| read(text).map_err(|e| e.to_string());
        let one = r#"{"topic":"t","partition":1,"offset":-1}"#;
        assert_eq!(
            read(&format!(r#"{{"partitions":[{one}],"version":1}}"#)).unwrap(),
            [(TopicPartition::new("t", 1), -1)]
        );
        let error = |text: &str| read(text).unwrap_err();
        assert_eq!(
            error(&format!(r#"{{"partitions":[{one},{one}]}}"#)),
            "Offset json file contains duplicate topic partitions: t-1"
        );
        assert_eq!(
            error(r#"{"partitions":[{"topic":"t","partition":1}]}"#),
            "No such field exists: `offset`"
        );
        assert!(error("{").starts_with("The input string is not a valid JSON"));
        assert!(error(r#"{"partitions":[],"version":2}"#).contains("version"));
        assert!(error("[]").contains("partitions"));
    }
}
