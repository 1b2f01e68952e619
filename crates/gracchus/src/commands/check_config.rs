//! `gracchus check-config server.properties`: every key's value and where it comes from, without touching anything.

use std::io::Write;
use std::process::ExitCode;

use gracchus_broker::config::Loaded;
use gracchus_broker::config::effective::{self, Effective};
use serde_json::json;

use super::{CheckConfigArgs, Format};
use crate::process;

/// Prints warnings and values; exit code 1 for what would stop the start.
pub fn run(args: &CheckConfigArgs) -> ExitCode {
    let loaded = match args.config.load() {
        Ok(loaded) => loaded,
        Err(error) => return process::fail(&error),
    };
    let mut keys = effective::all(&loaded);
    if args.given {
        keys.retain(|e| e.origin.is_some());
    }
    let text = match args.format {
        Format::Text => {
            // apart from the list, which may be going to a file
            for warning in &loaded.warnings {
                eprintln!("WARN {warning}");
            }
            as_text(&keys)
        }
        Format::Json => as_json(&loaded, &keys),
    };
    // nobody reads on: no failure
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::SUCCESS
}

fn as_text(keys: &[Effective<'_>]) -> String {
    let pair = |e: &Effective<'_>| format!("{}={}", e.key, e.value.unwrap_or("null"));
    // one long value must not push all origins to the right
    let width = keys
        .iter()
        .map(|e| pair(e).len())
        .filter(|n| *n <= 64)
        .max()
        .unwrap_or(0);
    let lines: Vec<String> = keys
        .iter()
        .map(|e| format!("{:width$}  {}", pair(e), origin(e)))
        .collect();
    lines.join("\n")
}

fn origin(e: &Effective<'_>) -> String {
    e.origin
        .map_or_else(|| "default".to_owned(), ToString::to_string)
}

fn as_json(loaded: &Loaded, keys: &[Effective<'_>]) -> String {
    let keys: Vec<_> = keys
        .iter()
        .map(|e| {
            json!({
                "key": e.key,
                "value": e.value,
                "origin": origin(e),
                "known": e.known,
                "honoured": e.honoured,
            })
        })
        .collect();
    format!("{:#}", json!({"warnings": loaded.warnings, "keys": keys}))
}
