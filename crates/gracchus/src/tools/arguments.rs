//! What the tools' command lines have in common: usage errors, properties, the way to the cluster.

use super::Failure;
use clap::Parser;
use gracchus_client::{Cluster, ClusterConfig};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Configuration as `key=value`.
pub(super) type Properties = BTreeMap<String, String>;

/// What is printed: Kafka's text, or one JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Prints a document and a line end.
pub(super) fn print_json(document: &serde_json::Value) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{document:#}")?;
    Ok(())
}

/// Parses a tool's arguments; `Err` is the exit code after help or an error has been printed.
pub(super) fn parse<T: Parser>(name: &'static str, arguments: &[String]) -> Result<T, u8> {
    let all = std::iter::once(name.to_owned()).chain(arguments.iter().cloned());
    T::try_parse_from(all).map_err(|e| {
        let _ = e.print();
        u8::from(e.use_stderr())
    })
}

/// Reads a `.properties` file by Java's rules.
pub(super) fn properties_file(path: &Path) -> Result<Properties, Failure> {
    let bytes =
        std::fs::read(path).map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
    let entries = gracchus_broker::config::properties::parse(&bytes)
        .map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
    Ok(entries.into_iter().map(|e| (e.key, e.value)).collect())
}

/// A file's properties (if there is one), overridden by `key=value` arguments.
pub(super) fn properties(file: Option<&Path>, pairs: &[String]) -> Result<Properties, Failure> {
    let mut all = match file {
        Some(path) => properties_file(path)?,
        None => Properties::new(),
    };
    for pair in pairs {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => all.insert(key.to_owned(), value.to_owned()),
            _ => {
                return Err(Failure::usage(format!(
                    "Invalid command line properties: '{pair}'"
                )));
            }
        };
    }
    Ok(all)
}

/// A property as a number, if it is there.
pub(super) fn number<T: std::str::FromStr>(
    properties: &Properties,
    key: &str,
) -> Result<Option<T>, Failure> {
    let Some(text) = properties.get(key) else {
        return Ok(None);
    };
    text.trim().parse().map(Some).map_err(|_| {
        Failure::usage(format!(
            "Invalid value {text} for configuration {key}: not a number"
        ))
    })
}

/// `true` in any case of letters.
pub(super) fn is_true(properties: &Properties, key: &str) -> Option<bool> {
    properties
        .get(key)
        .map(|v| v.trim().eq_ignore_ascii_case("true"))
}

/// Connects as the properties say, for as long as `default.api.timeout.ms` allows; tells why it does not get there at once.
pub(super) async fn connect(
    bootstrap: &str,
    properties: &Properties,
    client_id: &str,
) -> Result<Cluster, Failure> {
    let mut config = ClusterConfig::new(bootstrap);
    for server in &config.bootstrap {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(Failure::usage(format!(
                "Please provide valid host:port like host1:9091,host2:9092, not {server}"
            )));
        }
    }
    if config.bootstrap.is_empty() {
        return Err(Failure::usage("--bootstrap-server names no server"));
    }
    if let Some(protocol) = properties.get("security.protocol")
        && !protocol.eq_ignore_ascii_case("PLAINTEXT")
    {
        return Err(Failure::other(format!(
            "security.protocol={protocol} is not supported by this tool yet; PLAINTEXT is"
        )));
    }
    let millis = |key| number::<u64>(properties, key).map(|v| v.map(Duration::from_millis));
    config.connection.client_id = properties
        .get("client.id")
        .cloned()
        .unwrap_or_else(|| client_id.to_owned());
    if let Some(d) = millis("request.timeout.ms")? {
        config.connection.request_timeout = d;
    }
    if let Some(d) = millis("default.api.timeout.ms")? {
        config.api_timeout = d;
    }
    if let Some(d) = millis("retry.backoff.ms")? {
        config.retry_backoff = d;
    }
    let patience = config.api_timeout;
    // the first reason is told, for the rest of the wait repeats it
    let told = std::cell::Cell::new(false);
    let tell = |error: &gracchus_client::ClientError| {
        if error.is_retriable() && !told.replace(true) {
            eprintln!(
                "WARN {error}; trying again for {} ms in all",
                patience.as_millis()
            );
        }
    };
    Ok(Cluster::connect(config, tell).await?)
}

/// Java's way to put a list of names from the command line into one regular expression over whole names.
pub(super) fn name_filter(text: &str) -> Result<regex::Regex, Failure> {
    let pattern = text.trim().replace(',', "|").replace(' ', "");
    let pattern = pattern.trim_matches(['"', '\'']);
    regex::Regex::new(&format!("^(?:{pattern})$"))
        .map_err(|e| Failure::usage(format!("{text} is an invalid regex: {e}")))
}

/// The internal topics, which tools may leave out.
pub(super) fn is_internal(topic: &str) -> bool {
    topic == "__consumer_offsets" || topic == "__transaction_state"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole_and_lists_are_alternatives() {
        let f = name_filter(" 'a, b.*' ").unwrap();
        assert!(f.is_match("a") && f.is_match("bcd"));
        assert!(!f.is_match("ab") && !f.is_match("cb"));
        assert!(name_filter("*").is_err());
    }

    #[test]
    fn later_pairs_win_and_pairs_need_a_key() {
        let all = properties(None, &["a=1".into(), "a=2=3".into(), "b=".into()]).unwrap();
        assert_eq!(all["a"], "2=3");
        assert_eq!(all["b"], "");
        assert!(properties(None, &["=x".into()]).is_err());
        assert!(properties(None, &["x".into()]).is_err());
    }
}
