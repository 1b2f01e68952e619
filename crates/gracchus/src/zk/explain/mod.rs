//! `explain PATH`: what a Kafka znode is, who writes it, who watches it, what each field means, and what stands there now.

mod catalogue;

use super::output::{local_time, text};
use bytes::Bytes;
use catalogue::{Entry, KIND};
use gracchus_zk_client::{Stat, ZkError};
use serde_json::{Value, json};

/// What the server said, if it could be asked.
pub(super) type Found = Option<Result<(Option<Bytes>, Stat), ZkError>>;

/// An entry that fits a path, with the names that its placeholders stand for.
struct Match<'a> {
    entry: &'static Entry,
    names: Vec<(&'static str, &'a str)>,
}

fn find(path: &str) -> Option<Match<'_>> {
    catalogue::entries().find_map(|entry| fit(entry, path))
}

fn fit<'a>(entry: &'static Entry, path: &'a str) -> Option<Match<'a>> {
    let (mut pattern, mut parts) = (entry.path.split('/'), path.split('/'));
    let mut names = Vec::new();
    loop {
        match (pattern.next(), parts.next()) {
            (None, None) => return Some(Match { entry, names }),
            (Some(want), Some(part)) => match want.split_once('{') {
                Some((prefix, name)) => {
                    names.push((name.trim_end_matches('}'), part.strip_prefix(prefix)?))
                }
                None if want == part => {}
                None => return None,
            },
            _ => return None,
        }
    }
}

/// The value of a dotted key (`config.retention.ms` is one key below `config`).
fn value<'a>(content: &'a Value, key: &str) -> Option<&'a Value> {
    content.get(key)
}

pub(super) fn as_text(path: &str, found: Found) -> String {
    let Some(Match { entry, names }) = find(path) else {
        return unknown(path, &found);
    };
    let mut out = format!("{path}\n");
    let mut row = |label: &str, text: &str| {
        for (n, line) in wrap(text, 96).iter().enumerate() {
            out.push_str(&format!(
                "  {:<9} {line}\n",
                if n == 0 { label } else { "" }
            ));
        }
    };
    row("what", entry.what);
    for (name, part) in &names {
        row("", &format!("{name} = {part}"));
    }
    row("kind", entry.kind);
    row("written", entry.written);
    row("watched", entry.watched);
    if !entry.stat.is_empty() {
        row("stat", entry.stat);
    }
    if !entry.warning.is_empty() {
        row("beware", entry.warning);
    }
    let content = match &found {
        Some(Ok((Some(data), _))) => serde_json::from_slice::<Value>(data).ok(),
        _ => None,
    };
    if !entry.fields.is_empty() {
        out.push_str("  fields\n");
        let width = entry
            .fields
            .iter()
            .map(|(key, _)| key.len())
            .max()
            .unwrap_or(0);
        for (key, meaning) in entry.fields {
            out.push_str(&format!("    {key:<width$}  {meaning}\n"));
            if let Some(value) = content.as_ref().and_then(|content| value(content, key)) {
                out.push_str(&format!("    {:<width$}  = {value}\n", ""));
            }
        }
    }
    out.push_str(&present(entry, &found, content.as_ref()));
    out
}

/// What stands at the node now.
fn present(entry: &Entry, found: &Found, content: Option<&Value>) -> String {
    match found {
        None => "  now       not asked: no server answers\n".to_owned(),
        Some(Err(ZkError::NoNode)) => "  now       there is no such node\n".to_owned(),
        Some(Err(error)) => format!("  now       cannot be read: {error}\n"),
        Some(Ok((data, stat))) => {
            let mut out = format!("  now       {}\n", text(data.as_deref()));
            out.push_str(&format!(
                "            version {}, changed {}",
                stat.version,
                local_time(stat.mtime)
            ));
            if stat.ephemeral_owner != 0 {
                out.push_str(&format!(
                    ", ephemeral of session 0x{:x}",
                    stat.ephemeral_owner
                ));
            }
            out.push('\n');
            let is_json =
                !entry.fields.is_empty() && entry.fields.iter().all(|(key, _)| *key != KIND);
            match content {
                None if is_json && data.as_ref().is_some_and(|data| !data.is_empty()) => {
                    out.push_str("  warning   the content is not JSON: see what Kafka does with it above, and repair it\n");
                }
                Some(Value::Object(map)) => {
                    let extra: Vec<&str> = map
                        .keys()
                        .map(String::as_str)
                        .filter(|key| entry.fields.iter().all(|(known, _)| known != key))
                        .collect();
                    if is_json && !extra.is_empty() {
                        out.push_str(&format!(
                            "  warning   keys that Kafka 3.9 does not know: {}\n",
                            extra.join(", ")
                        ));
                    }
                }
                _ => {}
            }
            out
        }
    }
}

fn unknown(path: &str, found: &Found) -> String {
    let near = catalogue::entries()
        .filter(|entry| entry.path.split('/').nth(1) == path.split('/').nth(1))
        .map(|entry| entry.path);
    let near: Vec<&str> = near.collect();
    let mut out = format!("{path}\n  what      no znode of Kafka 3.9");
    if path == "/" {
        out.push_str("'s own: the root, or the chroot of zookeeper.connect");
    }
    out.push('\n');
    if !near.is_empty() {
        out.push_str("  known     ");
        out.push_str(&near.join("\n            "));
        out.push('\n');
    }
    if let Some(Ok((data, stat))) = found {
        out.push_str(&format!(
            "  now       {} bytes, {} children, changed {}\n",
            data.as_ref().map_or(0, Bytes::len),
            stat.num_children,
            local_time(stat.mtime)
        ));
    }
    out
}

pub(super) fn as_json(path: &str, found: Found) -> String {
    let node = match &found {
        Some(Ok((data, stat))) => super::json::data(path, data.as_deref(), stat),
        _ => Value::Null,
    };
    match find(path) {
        None => json!({ "path": path, "known": false, "node": node }).to_string(),
        Some(Match { entry, names }) => {
            let fields: serde_json::Map<String, Value> = entry
                .fields
                .iter()
                .map(|(key, meaning)| ((*key).to_owned(), Value::from(*meaning)))
                .collect();
            let names: serde_json::Map<String, Value> = names
                .iter()
                .map(|(name, part)| ((*name).to_owned(), Value::from(*part)))
                .collect();
            json!({
                "path": path, "known": true, "pattern": entry.path, "names": names, "what": entry.what, "kind": entry.kind,
                "written": entry.written, "watched": entry.watched, "stat_meaning": entry.stat, "beware": entry.warning,
                "fields": fields, "node": node,
            })
            .to_string()
        }
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let needs_line = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.len() + 1 + word.len() > width);
        if needs_line {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_captured_kafka_path_is_known() {
        for line in include_str!("../../../../registry/tests/golden/znodes.jsonl")
            .lines()
            .skip(1)
        {
            let line: Value = serde_json::from_str(line).unwrap();
            let path = line["path"].as_str().unwrap();
            assert!(find(path).is_some(), "{path}");
        }
    }

    #[test]
    fn every_key_that_kafka_writes_is_explained() {
        for line in include_str!("../../../../registry/tests/golden/znodes.jsonl")
            .lines()
            .skip(1)
        {
            let line: Value = serde_json::from_str(line).unwrap();
            let (path, data) = (
                line["path"].as_str().unwrap(),
                line["data"].as_str().unwrap(),
            );
            let Ok(Value::Object(content)) = serde_json::from_str(data) else {
                continue;
            };
            let found = find(path).unwrap();
            for key in content.keys() {
                assert!(
                    found.entry.fields.iter().any(|(known, _)| known == key),
                    "{path}: {key} in {data}"
                );
            }
        }
    }

    #[test]
    fn the_paths_made_at_start_are_known() {
        for path in gracchus_registry::paths::AT_START {
            assert!(find(path).is_some(), "{path}");
        }
    }

    #[test]
    fn fields_are_shown_with_what_stands_there() {
        let stat = Stat {
            version: 3,
            ..Stat::default()
        };
        let data = Bytes::from_static(br#"{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":4,"isr":[2],"extra":0}"#);
        let shown = as_text(
            "/brokers/topics/t/partitions/7/state",
            Some(Ok((Some(data), stat))),
        );
        for part in [
            "topic = t",
            "partition = 7",
            "= -1",
            "= [2]",
            "version 3",
            "does not know: extra",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let broken = as_text(
            "/brokers/ids/1",
            Some(Ok((Some(Bytes::from_static(b"{oops")), stat))),
        );
        assert!(broken.contains("not JSON"), "{broken}");
        assert!(as_text("/brokers/ids/1", Some(Err(ZkError::NoNode))).contains("no such node"));
        assert!(as_text("/brokers/nope", None).contains("/brokers/ids/{id}"));
        assert!(serde_json::from_str::<Value>(&as_json("/feature", None)).is_ok());
    }
}
