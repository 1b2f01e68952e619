//! Changes of configuration that clients ask for: what becomes of the stored texts, and whether Kafka would take them.

use super::catalogue::{self, Kind, UpdateMode, ValueType};
use super::describe::QUOTA_KEYS;
use super::store::Props;
use super::validate;
use super::value::split_list;
use super::{BrokerConfig, ConfigError, TopicConfig};
use gracchus_kafka_proto::ErrorCode;

/// One operation of IncrementalAlterConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Set the value.
    Set,
    /// Back to the default.
    Delete,
    /// Add elements to a list.
    Append,
    /// Take elements out of a list.
    Subtract,
}

impl Operation {
    /// By its number on the wire.
    pub fn from_id(id: i8) -> Option<Self> {
        Some(match id {
            0 => Self::Set,
            1 => Self::Delete,
            2 => Self::Append,
            3 => Self::Subtract,
            _ => return None,
        })
    }
}

/// A refusal as it goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub error: ErrorCode,
    /// The text.
    pub message: String,
}

impl Refusal {
    /// INVALID_REQUEST.
    pub fn request(message: impl Into<String>) -> Self {
        Self {
            error: ErrorCode::InvalidRequest,
            message: message.into(),
        }
    }

    /// INVALID_CONFIG.
    pub fn config(message: impl Into<String>) -> Self {
        Self {
            error: ErrorCode::InvalidConfig,
            message: message.into(),
        }
    }
}

/// Applies the operations to the stored texts.
pub fn apply(
    kind: Kind,
    stored: &Props,
    changes: &[(String, Operation, Option<String>)],
) -> Result<Props, Refusal> {
    let mut seen = std::collections::BTreeSet::new();
    let duplicates: Vec<&str> = changes
        .iter()
        .filter(|(k, _, _)| !seen.insert(k))
        .map(|(k, _, _)| k.as_str())
        .collect();
    if !duplicates.is_empty() {
        return Err(Refusal::request(format!(
            "Error due to duplicate config keys : {}",
            duplicates.join(",")
        )));
    }
    let nulls: Vec<&str> = changes
        .iter()
        .filter(|(_, op, value)| *op != Operation::Delete && value.is_none())
        .map(|(k, _, _)| k.as_str())
        .collect();
    if !nulls.is_empty() {
        return Err(Refusal::request(format!(
            "Null value not supported for : {}",
            nulls.join(",")
        )));
    }
    let mut result = stored.clone();
    for (key, operation, value) in changes {
        let value = value.as_deref().unwrap_or("");
        match operation {
            Operation::Set => {
                result.insert(key.clone(), value.to_owned());
            }
            Operation::Delete => {
                result.remove(key);
            }
            Operation::Append | Operation::Subtract => {
                let what = if *operation == Operation::Append {
                    "append"
                } else {
                    "subtract"
                };
                let Some(def) = catalogue::find(kind, key) else {
                    return Err(Refusal::config(format!("Unknown config name: {key}")));
                };
                if def.value_type != ValueType::List {
                    return Err(Refusal::config(format!(
                        "Config value {what} is not allowed for config key: {key}"
                    )));
                }
                let present = result
                    .get(key)
                    .cloned()
                    .or_else(|| def.default.clone())
                    .unwrap_or_default();
                let mut list = split_list(&present);
                let named = split_list(value);
                if *operation == Operation::Append {
                    let new: Vec<String> =
                        named.into_iter().filter(|v| !list.contains(v)).collect();
                    list.extend(new);
                } else {
                    list.retain(|v| !named.contains(v));
                }
                result.insert(key.clone(), list.join(","));
            }
        }
    }
    Ok(result)
}

/// A topic's overrides, as CreateTopics and the config requests check them: unknown keys, values, conflicts.
/// The message is Kafka's of CreateTopics; the config requests put [`topic_prefix`] in front of a bad value's.
pub fn check_topic(broker: &BrokerConfig, overrides: &Props) -> Result<(), TopicRefusal> {
    for key in overrides.keys() {
        if catalogue::find(Kind::Topic, key).is_none() {
            return Err(TopicRefusal::Other(format!(
                "Unknown topic config name: {key}"
            )));
        }
    }
    for (key, value) in overrides {
        if let Some(def) = catalogue::find(Kind::Topic, key) {
            validate::check_value(def, value).map_err(|e| TopicRefusal::Value(e.to_string()))?;
        }
    }
    if overrides
        .get("remote.storage.enable")
        .is_some_and(|v| v.trim().eq_ignore_ascii_case("true"))
    {
        return Err(TopicRefusal::Value(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
                .into(),
        ));
    }
    let resolved = TopicConfig::resolve(broker, overrides)
        .map_err(|e: ConfigError| TopicRefusal::Value(e.to_string()))?;
    if resolved.min_compaction_lag_ms > resolved.max_compaction_lag_ms {
        return Err(TopicRefusal::Other(format!(
            "conflict topic config setting min.compaction.lag.ms ({}) > max.compaction.lag.ms ({})",
            resolved.min_compaction_lag_ms, resolved.max_compaction_lag_ms
        )));
    }
    Ok(())
}

/// Why a topic's overrides are refused; always INVALID_CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicRefusal {
    /// A bad value.
    Value(String),
    /// An unknown key, a conflict.
    Other(String),
}

impl TopicRefusal {
    /// The text for CreateTopics.
    pub fn message(&self) -> &str {
        match self {
            Self::Value(text) | Self::Other(text) => text,
        }
    }

    /// The refusal for AlterConfigs and IncrementalAlterConfigs.
    pub fn for_alter(&self, topic: &str) -> Refusal {
        match self {
            Self::Value(text) => Refusal::config(format!(
                "Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}'): {text}"
            )),
            Self::Other(text) => Refusal::config(text.clone()),
        }
    }
}

/// Thread pools that may change only between half and double their size.
const POOLS: &[&str] = &[
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
];

/// A broker's dynamic values. `present` are the effective texts now.
pub fn check_broker(present: &Props, wanted: &Props, per_broker: bool) -> Result<(), Refusal> {
    let set = |keys: Vec<&str>| format!("Set({})", keys.join(", "));
    let by = |wrong: &dyn Fn(&str) -> bool| -> Vec<&str> {
        wanted
            .keys()
            .map(String::as_str)
            .filter(|k| wrong(k))
            .collect()
    };
    let def = |key: &str| catalogue::find(Kind::Broker, key);
    let fixed = by(&|k| def(k).is_some_and(|d| d.update_mode == UpdateMode::ReadOnly));
    if !fixed.is_empty() {
        return Err(Refusal::request(format!(
            "Cannot update these configs dynamically: {}",
            set(fixed)
        )));
    }
    let security = by(&|k| {
        (k.starts_with("ssl.") || k.starts_with("sasl."))
            && def(k).is_some_and(|d| d.update_mode == UpdateMode::PerBroker)
    });
    if !security.is_empty() {
        return Err(Refusal::request(format!(
            "These security configs can be dynamically updated only per-listener using the listener prefix: {}",
            set(security)
        )));
    }
    if !per_broker {
        let single = by(&|k| {
            k.starts_with("listener.name.")
                || def(k).is_some_and(|d| d.update_mode == UpdateMode::PerBroker)
        });
        if !single.is_empty() {
            return Err(Refusal::request(format!(
                "Cannot update these configs at default cluster level, broker id must be specified: {}",
                set(single)
            )));
        }
    }
    // What needs TLS, SASL or a rebind of listeners cannot take effect here, so it is not taken.
    let unserved = by(&|k| {
        k.starts_with("listener.name.")
            || def(k).is_some_and(|d| d.update_mode == UpdateMode::PerBroker)
    });
    if !unserved.is_empty() {
        return Err(Refusal::request(format!(
            "This broker takes these configs only from server.properties, at a restart: {}",
            set(unserved)
        )));
    }
    for (key, value) in wanted {
        if QUOTA_KEYS.contains(&key.as_str()) {
            if value.trim().parse::<i64>().is_err() {
                return Err(Refusal::request(format!(
                    "Invalid value {value} for configuration {key}: Not a number of type LONG"
                )));
            }
            continue;
        }
        let Some(def) = def(key) else { continue };
        validate::check_value(def, value).map_err(|e| Refusal::request(e.to_string()))?;
        if POOLS.contains(&key.as_str()) {
            check_pool(key, present.get(key).or(def.default.as_ref()), value)?;
        }
    }
    let mut merged = present.clone();
    merged.extend(wanted.iter().map(|(k, v)| (k.clone(), v.clone())));
    let config = BrokerConfig::from_values(&merged).map_err(|e| Refusal::request(e.to_string()))?;
    if let Some(ms) = config.log_retention_ms.filter(|ms| *ms == 0 || *ms < -1) {
        return Err(Refusal::request(format!(
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1, but is {ms}"
        )));
    }
    for entry in split_list(&config.max_connections_per_ip_overrides) {
        if entry
            .rsplit_once(':')
            .is_none_or(|(_, n)| n.trim().parse::<u32>().is_err())
        {
            return Err(Refusal::request(format!(
                "Error parsing configuration property 'max.connections.per.ip.overrides': `{entry}` is not of the form \
                 address:number"
            )));
        }
    }
    Ok(())
}

fn check_pool(key: &str, present: Option<&String>, wanted: &str) -> Result<(), Refusal> {
    let (Some(present), Ok(wanted)) = (
        present.and_then(|p| p.parse::<i64>().ok()),
        wanted.trim().parse::<i64>(),
    ) else {
        return Ok(());
    };
    let wrong = if wanted > present.saturating_mul(2) {
        format!("value should not be greater than double the current value {present}")
    } else if wanted < 1 || wanted < present / 2 {
        format!("value should be at least half the current value {present}")
    } else {
        return Ok(());
    };
    Err(Refusal::request(format!(
        "Dynamic thread count update validation failed for {key}={wanted}, {wrong}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn props(pairs: &[(&str, &str)]) -> Props {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn broker() -> BrokerConfig {
        BrokerConfig::from_values(&Props::new()).unwrap()
    }

    fn change(
        stored: &[(&str, &str)],
        key: &str,
        op: Operation,
        value: &str,
    ) -> Result<Props, Refusal> {
        apply(
            Kind::Topic,
            &props(stored),
            &[(key.into(), op, Some(value.into()))],
        )
    }

    /// The texts are those of Kafka 3.9.2, seen by asking a broker.
    #[test]
    fn topics() {
        let refused = |key: &str, value: &str| {
            check_topic(&broker(), &props(&[(key, value)]))
                .unwrap_err()
                .for_alter("ct")
        };
        assert_eq!(
            refused("foo", "1"),
            Refusal::config("Unknown topic config name: foo")
        );
        assert_eq!(
            refused("retention.ms", "x"),
            Refusal::config(
                "Invalid config value for resource ConfigResource(type=TOPIC, name='ct'): Invalid value x for \
                 configuration retention.ms: Not a number of type LONG"
            )
        );
        assert_eq!(
            refused("compression.type", "brotli")
                .message
                .rsplit(": ")
                .next(),
            Some("uncompressed, zstd, lz4, snappy, gzip, producer")
        );
        assert_eq!(
            check_topic(
                &broker(),
                &props(&[
                    ("min.compaction.lag.ms", "10"),
                    ("max.compaction.lag.ms", "5")
                ])
            )
            .unwrap_err()
            .for_alter("ct"),
            Refusal::config(
                "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
            )
        );
        assert!(
            check_topic(
                &broker(),
                &props(&[("cleanup.policy", ""), ("message.format.version", "2.8")])
            )
            .is_ok()
        );
        assert!(check_topic(&broker(), &props(&[("remote.storage.enable", "true")])).is_err());
    }

    #[test]
    fn lists_grow_and_shrink() {
        let policy = |r: Result<Props, Refusal>| r.unwrap().get("cleanup.policy").cloned();
        assert_eq!(
            policy(change(&[], "cleanup.policy", Operation::Append, "compact")).as_deref(),
            Some("delete,compact")
        );
        let both = [("cleanup.policy", "delete,compact")];
        assert_eq!(
            policy(change(
                &both,
                "cleanup.policy",
                Operation::Append,
                "compact"
            ))
            .as_deref(),
            Some("delete,compact")
        );
        assert_eq!(
            policy(change(
                &both,
                "cleanup.policy",
                Operation::Subtract,
                "delete"
            ))
            .as_deref(),
            Some("compact")
        );
        assert_eq!(
            policy(change(&both, "cleanup.policy", Operation::Delete, "")),
            None
        );
        assert_eq!(
            change(&[], "retention.ms", Operation::Append, "1").unwrap_err(),
            Refusal::config("Config value append is not allowed for config key: retention.ms")
        );
        let twice = [
            ("a".to_owned(), Operation::Set, Some("1".to_owned())),
            ("a".to_owned(), Operation::Set, Some("2".to_owned())),
        ];
        assert_eq!(
            apply(Kind::Topic, &Props::new(), &twice).unwrap_err(),
            Refusal::request("Error due to duplicate config keys : a")
        );
        let null = [("a".to_owned(), Operation::Set, None)];
        assert_eq!(
            apply(Kind::Topic, &Props::new(), &null).unwrap_err(),
            Refusal::request("Null value not supported for : a")
        );
    }

    #[test]
    fn brokers() {
        let check = |key: &str, value: &str, per_broker| {
            check_broker(&Props::new(), &props(&[(key, value)]), per_broker).map_err(|r| {
                assert_eq!(r.error, ErrorCode::InvalidRequest);
                r.message
            })
        };
        assert!(check("message.max.bytes", "2000000", false).is_ok());
        assert!(check("unknown.key", "1", false).is_ok());
        assert!(check("leader.replication.throttled.rate", "100", false).is_ok());
        assert_eq!(
            check("broker.rack", "r", true).unwrap_err(),
            "Cannot update these configs dynamically: Set(broker.rack)"
        );
        assert_eq!(
            check("listeners", "PLAINTEXT://:1", false).unwrap_err(),
            "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners)"
        );
        assert!(
            check("ssl.keystore.type", "JKS", true)
                .unwrap_err()
                .contains("per-listener")
        );
        assert!(
            check("num.io.threads", "100", true)
                .unwrap_err()
                .contains("double the current value 8")
        );
        assert!(
            check("num.io.threads", "1", true)
                .unwrap_err()
                .contains("half the current value 8")
        );
        assert_eq!(
            check("num.io.threads", "x", true).unwrap_err(),
            "Invalid value x for configuration num.io.threads: Not a number of type INT"
        );
        assert!(check("log.retention.ms", "0", true).is_err());
        assert!(check("max.connections.per.ip.overrides", "zz", true).is_err());
    }
}
