//! What DescribeConfigs tells of a topic or broker: effective values, where each comes from, and what else was given.

use std::collections::BTreeMap;

use super::catalogue::{self, KeyDef, Kind, UpdateMode, ValueType};
use super::store::{ConfigStore, Props};

/// Where a value comes from; `as i8` is the number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// `/config/topics/T`
    Topic = 1,
    /// `/config/brokers/N`
    Broker = 2,
    /// `/config/brokers/<default>`
    BrokerDefault = 3,
    /// `server.properties`
    Static = 4,
    /// Kafka's own
    Default = 5,
    /// A logger's level, in memory only
    Logger = 6,
}

/// One place where a key, or one it falls back to, has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The key there.
    pub name: String,
    /// None = secret.
    pub value: Option<String>,
    /// Where.
    pub source: Source,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// None = null or secret.
    pub value: Option<String>,
    /// Changes only by a restart.
    pub read_only: bool,
    /// A secret, or of unknown type.
    pub sensitive: bool,
    /// None = unknown key.
    pub value_type: Option<ValueType>,
    /// The winner's.
    pub source: Source,
    /// In order of precedence.
    pub synonyms: Vec<Synonym>,
}

/// Throttles that the configuration handlers know although they are no broker keys.
pub const QUOTA_KEYS: &[&str] = &[
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// The layers below the topic's.
pub(super) struct Layer<'a> {
    pub(super) values: &'a Props,
    pub(super) source: Source,
}

/// Broker keys that give one value between them, highest precedence first.
fn family(key: &str) -> Vec<&str> {
    match key {
        "log.roll.ms" | "log.roll.hours" => vec!["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" | "log.roll.jitter.hours" => {
            vec!["log.roll.jitter.ms", "log.roll.jitter.hours"]
        }
        "log.flush.interval.ms" => vec!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "log.retention.ms" | "log.retention.minutes" | "log.retention.hours" => {
            vec![
                "log.retention.ms",
                "log.retention.minutes",
                "log.retention.hours",
            ]
        }
        other => match listener_base(other) {
            Some(base) => vec![other, base],
            None => vec![other],
        },
    }
}

/// `ssl.keystore.type` of `listener.name.internal.ssl.keystore.type`.
fn listener_base(key: &str) -> Option<&str> {
    key.strip_prefix("listener.name.")?
        .split_once('.')
        .map(|(_, base)| base)
}

fn definition(key: &str) -> Option<&'static KeyDef> {
    catalogue::find(Kind::Broker, key)
        .or_else(|| listener_base(key).and_then(|base| catalogue::find(Kind::Broker, base)))
}

fn value_type(key: &str) -> Option<ValueType> {
    if QUOTA_KEYS.contains(&key) {
        return Some(ValueType::Long);
    }
    definition(key).map(|d| d.value_type)
}

fn broker_synonyms(layers: &[Layer<'_>], key: &str, sensitive: bool) -> Vec<Synonym> {
    let names = family(key);
    let mut found = Vec::new();
    let mut add = |name: &str, value: &str, source: Source| {
        let value = (!sensitive).then(|| value.to_owned());
        found.push(Synonym {
            name: name.to_owned(),
            value,
            source,
        });
    };
    for layer in layers {
        for name in &names {
            if let Some(value) = layer.values.get(*name) {
                add(name, value, layer.source);
            }
        }
    }
    for name in &names {
        if let Some(default) =
            catalogue::find(Kind::Broker, name).and_then(|d| d.default.as_deref())
        {
            add(name, default, Source::Default);
        }
    }
    // Kafka leaves out what precedes the first value of the key itself, so a key set only by its hours has none
    let first = found
        .iter()
        .position(|s| s.name == key)
        .unwrap_or(found.len());
    found.split_off(first)
}

impl ConfigStore {
    /// All keys of a topic.
    pub fn describe_topic(&self, topic: &str) -> Vec<Entry> {
        self.describe_overrides(&self.topic_overrides(topic))
    }

    /// All keys of a topic with these overrides, which need not be stored.
    pub fn describe_overrides(&self, overrides: &Props) -> Vec<Entry> {
        let config = self.current();
        self.with_layers(|layers, _| {
            catalogue::all(Kind::Topic)
                .filter(|def| !def.internal)
                .map(|def| {
                    let mut synonyms = def
                        .broker_key
                        .map_or_else(Vec::new, |key| broker_synonyms(layers, key, false));
                    if let Some(own) = overrides.get(def.name) {
                        let own = Synonym {
                            name: def.name.into(),
                            value: Some(own.clone()),
                            source: Source::Topic,
                        };
                        synonyms.insert(0, own);
                    }
                    let folded = match def.name {
                        "retention.ms" => Some(config.retention_ms()),
                        "segment.ms" => Some(config.roll_ms()),
                        "segment.jitter.ms" => Some(config.roll_jitter_ms()),
                        "flush.ms" => Some(config.flush_ms()),
                        _ => None,
                    };
                    let value = match (overrides.get(def.name), folded) {
                        (Some(own), _) => Some(own.clone()),
                        (None, Some(ms)) => Some(ms.to_string()),
                        (None, None) => match synonyms.first() {
                            Some(first) => first.value.clone(),
                            None => def.default.clone(),
                        },
                    };
                    Entry {
                        name: def.name.into(),
                        value,
                        read_only: false,
                        sensitive: false,
                        value_type: Some(def.value_type),
                        source: synonyms.first().map_or(Source::Default, |s| s.source),
                        synonyms,
                    }
                })
                .collect()
        })
    }

    /// All keys of this broker, and those given that Kafka does not know.
    pub fn describe_broker(&self) -> Vec<Entry> {
        self.with_layers(|layers, folded| {
            let mut names: BTreeMap<&str, ()> = folded.keys().map(|k| (k.as_str(), ())).collect();
            names.extend(
                catalogue::all(Kind::Broker)
                    .filter(|d| !d.internal)
                    .map(|d| (d.name, ())),
            );
            names
                .into_keys()
                .map(|name| broker_entry(layers, name, folded.get(name), |_| true))
                .collect()
        })
    }

    /// The cluster-wide defaults that were set dynamically.
    pub fn describe_broker_defaults(&self) -> Vec<Entry> {
        self.with_layers(|layers, _| {
            let defaults = layers.iter().find(|l| l.source == Source::BrokerDefault);
            defaults
                .into_iter()
                .flat_map(|l| l.values)
                .map(|(name, value)| {
                    broker_entry(layers, name, Some(value), |source| {
                        source == Source::BrokerDefault
                    })
                })
                .collect()
        })
    }
}

fn broker_entry(
    layers: &[Layer<'_>],
    name: &str,
    effective: Option<&String>,
    shown: impl Fn(Source) -> bool,
) -> Entry {
    let value_type = value_type(name);
    let sensitive = matches!(value_type, None | Some(ValueType::Password));
    let mut synonyms = broker_synonyms(layers, name, sensitive);
    synonyms.retain(|s| shown(s.source));
    let default = || definition(name).and_then(|d| d.default.clone());
    Entry {
        name: name.to_owned(),
        value: if sensitive {
            None
        } else {
            effective.cloned().or_else(default)
        },
        read_only: definition(name).is_none_or(|d| d.update_mode == UpdateMode::ReadOnly),
        sensitive,
        value_type,
        source: synonyms.first().map_or(Source::Default, |s| s.source),
        synonyms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `describe-configs.tsv` is what a broker of Kafka 3.9.2 answered to the same layers.
    #[test]
    fn as_kafka_describes() {
        let props = |pairs: &[(&str, &str)]| -> Props {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let store = ConfigStore::new(props(&[
            ("broker.id", "0"),
            ("node.id", "0"),
            ("listeners", "PLAINTEXT://127.0.0.1:9092"),
            ("zookeeper.connect", "127.0.0.1:2181"),
            ("log.dirs", "/data/kafka-0"),
            ("offsets.topic.replication.factor", "1"),
            ("transaction.state.log.replication.factor", "1"),
            ("transaction.state.log.min.isr", "1"),
            ("min.insync.replicas", "1"),
            ("log.segment.delete.delay.ms", "1000"),
            ("zookeeper.session.timeout.ms", "6000"),
            ("auto.create.topics.enable", "true"),
            ("log.retention.hours", "24"),
            ("made.up.key", "1"),
        ]))
        .unwrap();
        let defaults = props(&[
            ("log.retention.ms", "5000"),
            ("message.max.bytes", "2000000"),
            ("unknown.key", "1"),
            ("leader.replication.throttled.rate", "100"),
        ]);
        store
            .set_dynamic(defaults, props(&[("message.max.bytes", "3000000")]))
            .unwrap();
        let topic = [
            ("retention.ms", "1000"),
            ("cleanup.policy", ""),
            ("min.compaction.lag.ms", "10"),
            ("message.format.version", "2.8"),
            ("leader.replication.throttled.replicas", "0:1"),
        ];
        store.set_topic("ct", props(&topic)).unwrap();
        let mut ours: BTreeMap<(String, String, String), String> = BTreeMap::new();
        let mut add = |kind: &str, name: &str, entries: Vec<Entry>| {
            for e in entries {
                let source = |s: Source| match s {
                    Source::Topic => "DYNAMIC_TOPIC_CONFIG",
                    Source::Broker => "DYNAMIC_BROKER_CONFIG",
                    Source::BrokerDefault => "DYNAMIC_DEFAULT_BROKER_CONFIG",
                    Source::Static => "STATIC_BROKER_CONFIG",
                    Source::Default => "DEFAULT_CONFIG",
                    Source::Logger => "DYNAMIC_BROKER_LOGGER_CONFIG",
                };
                let text = |v: &Option<String>| v.clone().unwrap_or("null".into());
                let synonyms: String = e
                    .synonyms
                    .iter()
                    .map(|s| format!("{}={}@{};", s.name, text(&s.value), source(s.source)))
                    .collect();
                let line = format!(
                    "{}\t{}\t{}\t{}\t{}\t{synonyms}",
                    text(&e.value),
                    source(e.source),
                    e.read_only,
                    e.sensitive,
                    e.value_type.map_or("UNKNOWN", ValueType::name)
                );
                ours.insert((kind.into(), name.into(), e.name), line);
            }
        };
        add("TOPIC", "ct", store.describe_topic("ct"));
        add("BROKER", "0", store.describe_broker());
        add("BROKER", "", store.describe_broker_defaults());
        let mut differences = Vec::new();
        for line in include_str!("../../tests/golden/describe-configs.tsv").lines() {
            let mut columns = line.splitn(4, '\t');
            let mut next = || columns.next().unwrap().to_owned();
            let key = (next(), next(), next());
            let mut kafka = next();
            if key.2 == "log.retention.hours" {
                // after a dynamic change Kafka shows the default here, not the value of the file
                kafka = kafka.replacen("168", "24", 1);
            }
            match ours.remove(&key) {
                Some(line) if line == kafka => {}
                other => differences.push(format!("{key:?}\n  kafka {kafka}\n  ours  {other:?}")),
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(ours.is_empty(), "Kafka has no {ours:?}");
    }
}
