//! Every key of a checked configuration with its value and where that comes from.

use super::broker_config::HONOURED;
use super::catalogue::{self, Kind, ValueType};
use super::load::{Loaded, Origin};

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective<'a> {
    /// Its name.
    pub key: &'a str,
    /// Its value, None for null. A secret is not shown.
    pub value: Option<&'a str>,
    /// Where the value was given; None: it is the default.
    pub origin: Option<&'a Origin>,
    /// Kafka has such a key.
    pub known: bool,
    /// It changes what this broker does.
    pub honoured: bool,
}

/// As Kafka shows secrets in its logs.
const HIDDEN: &str = "[hidden]";

/// All of Kafka's keys, and those that were given beside them, by name.
pub fn all(loaded: &Loaded) -> Vec<Effective<'_>> {
    let mut keys: Vec<&str> = catalogue::all(Kind::Broker).map(|def| def.name).collect();
    keys.extend(loaded.origins.keys().map(String::as_str));
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| effective(loaded, key)).collect()
}

fn effective<'a>(loaded: &'a Loaded, key: &'a str) -> Effective<'a> {
    let def = catalogue::find(Kind::Broker, key);
    let given = loaded.values.get(key).map(String::as_str);
    let value = given.or_else(|| def.and_then(|d| d.default.as_deref()));
    // a key that nobody knows may be a plugin's secret
    let secret = def.map_or_else(
        || {
            let key = key.to_ascii_lowercase();
            ["password", "secret", "jaas", "token", "credential"]
                .iter()
                .any(|word| key.contains(word))
        },
        |d| d.value_type == ValueType::Password,
    );
    let other_name = match key {
        "broker.id" => Some("node.id"),
        "node.id" => Some("broker.id"),
        _ => None,
    };
    let origin = loaded
        .origins
        .get(key)
        .or_else(|| other_name.and_then(|other| loaded.origins.get(other)));
    Effective {
        key,
        value: value.map(|v| if secret { HIDDEN } else { v }),
        origin,
        known: def.is_some(),
        honoured: HONOURED.contains(&key) || key == "node.id",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    #[test]
    fn each_key_says_where_its_value_is_from() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        let text = "zookeeper.connect=z\nbroker.id=4\nlog.retention.hour=1\nssl.key.password=abc\nmy.apiSecret=abc\nbroker.rack=\n";
        std::fs::write(&path, text).unwrap();
        let mut sources = Sources::default();
        sources.file(&path).unwrap();
        sources
            .assignment("--override", "num.partitions=3")
            .unwrap();
        let loaded = sources.check().unwrap();
        let all = all(&loaded);
        let shown = |key: &str| {
            let e = all.iter().find(|e| e.key == key).unwrap();
            let origin = e.origin.map_or("default".to_owned(), |o| {
                o.to_string().replace(&path.display().to_string(), "FILE")
            });
            format!("{}={} {origin}", e.key, e.value.unwrap_or("null"))
        };
        assert_eq!(shown("broker.id"), "broker.id=4 FILE:2");
        assert_eq!(shown("node.id"), "node.id=4 FILE:2");
        assert_eq!(shown("num.partitions"), "num.partitions=3 --override");
        assert_eq!(
            shown("log.retention.hours"),
            "log.retention.hours=168 default"
        );
        assert_eq!(shown("log.retention.hour"), "log.retention.hour=1 FILE:3");
        assert_eq!(
            shown("ssl.key.password"),
            "ssl.key.password=[hidden] FILE:4"
        );
        assert_eq!(shown("my.apiSecret"), "my.apiSecret=[hidden] FILE:5");
        assert_eq!(shown("broker.rack"), "broker.rack=null FILE:6");
        let unknown: Vec<_> = all.iter().filter(|e| !e.known).map(|e| e.key).collect();
        assert_eq!(unknown, ["log.retention.hour", "my.apiSecret"]);
        assert_eq!(all.len(), 329 + 2);
    }
}
