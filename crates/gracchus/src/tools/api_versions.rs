//! `gracchus api-versions`, as `kafka-broker-api-versions.sh`.

use super::Failure;
use super::arguments::{Format, connect, parse, print_json, properties};
use clap::Parser;
use gracchus_client::Connection;
use gracchus_kafka_proto::ApiKey;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// The APIs and versions that each broker serves.
#[derive(Debug, Parser)]
#[command(name = "gracchus api-versions", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: String,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Keys of Kafka 3.9 that clients of a broker have no business with: between controllers only.
const BETWEEN_CONTROLLERS: &[i16] = &[52, 53, 54, 59, 62, 63, 70, 73, 82];

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus api-versions", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let properties = properties(o.command_config.as_deref(), &[])?;
    let cluster = connect(&o.bootstrap_server, &properties, "gracchus-api-versions").await?;
    let mut out = std::io::stdout().lock();
    let mut documents = Vec::new();
    for node in cluster.nodes() {
        let broker = cluster.broker(node.id).await;
        if o.format == Format::Json {
            let apis = broker
                .as_ref()
                .map(|c| rows(c).iter().map(Row::document).collect::<Vec<_>>());
            documents.push(json!({
                "host": node.host,
                "port": node.port,
                "id": node.id,
                "rack": node.rack,
                "apis": apis.ok(),
                "error": broker.err().map(|e| e.to_string()),
            }));
            continue;
        }
        let rack = node.rack.as_deref().unwrap_or("null");
        write!(
            out,
            "{}:{} (id: {} rack: {rack}) -> ",
            node.host, node.port, node.id
        )?;
        match broker {
            Ok(connection) => {
                let lines: Vec<_> = rows(&connection).iter().map(Row::text).collect();
                writeln!(out, "(\n{}\n)", lines.join(",\n"))?;
            }
            Err(e) => writeln!(out, "ERROR: {e}")?,
        }
    }
    if o.format == Format::Json {
        return print_json(&documents.into());
    }
    Ok(())
}

/// An API of the broker's, of this client's, or of both.
struct Row {
    key: i16,
    broker: Option<(i16, i16)>,
}

fn rows(connection: &Connection) -> Vec<Row> {
    let mut rows: Vec<Row> = connection
        .all_versions()
        .map(|(key, min, max)| Row {
            key,
            broker: Some((min, max)),
        })
        .collect();
    let served: Vec<i16> = rows.iter().map(|r| r.key).collect();
    let ours = (0..=i16::from(u8::MAX)).filter(|key| ApiKey::from_i16(*key).is_some());
    rows.extend(
        ours.filter(|key| !served.contains(key) && !BETWEEN_CONTROLLERS.contains(key))
            .map(|key| Row { key, broker: None }),
    );
    rows.sort_by_key(|r| r.key);
    rows
}

impl Row {
    fn text(&self) -> String {
        let key = self.key;
        let Some(api) = ApiKey::from_i16(key) else {
            return format!("\tUNKNOWN({key}): {}", self.range());
        };
        match self.broker {
            None => format!("\t{}({key}): UNSUPPORTED", api.name()),
            Some(_) => format!(
                "\t{}({key}): {} [{}]",
                api.name(),
                self.range(),
                self.usable(api)
            ),
        }
    }

    fn range(&self) -> String {
        match self.broker {
            Some((min, max)) if min == max => min.to_string(),
            Some((min, max)) => format!("{min} to {max}"),
            None => String::new(),
        }
    }

    fn usable(&self, api: ApiKey) -> String {
        let (min, max) = self.broker.unwrap_or((0, -1));
        let ours = api.valid_versions();
        if *ours.end() < min {
            "unusable: node too new".to_owned()
        } else if max < *ours.start() {
            "unusable: node too old".to_owned()
        } else {
            format!("usable: {}", max.min(*ours.end()))
        }
    }

    fn document(&self) -> serde_json::Value {
        json!({
            "key": self.key,
            "name": ApiKey::from_i16(self.key).map(ApiKey::name),
            "min": self.broker.map(|b| b.0),
            "max": self.broker.map(|b| b.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_kafkas_tool_prints_them() {
        let text = |key, broker| Row { key, broker }.text();
        assert_eq!(text(0, Some((0, 11))), "\tProduce(0): 0 to 11 [usable: 11]");
        assert_eq!(text(0, Some((3, 99))), "\tProduce(0): 3 to 99 [usable: 11]");
        assert_eq!(
            text(0, Some((77, 99))),
            "\tProduce(0): 77 to 99 [unusable: node too new]"
        );
        assert_eq!(text(47, Some((0, 0))), "\tOffsetDelete(47): 0 [usable: 0]");
        assert_eq!(text(24, None), "\tAddPartitionsToTxn(24): UNSUPPORTED");
        assert_eq!(text(999, Some((0, 2))), "\tUNKNOWN(999): 0 to 2");
    }
}
