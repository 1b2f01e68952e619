//! What is said of a configuration that is taken: keys without effect, unknown keys and what they may have meant.

use std::collections::BTreeSet;

use super::broker_config::{BrokerConfig, HONOURED};
use super::catalogue::{self, Kind, ValueType};
use super::store::Props;
use super::version::MetadataVersion;
use super::zookeeper_security;

/// Prefixes under which anything goes: listener and plugin parameters.
const FREE_PREFIXES: &[&str] = &[
    "listener.name.",
    "authorizer.",
    "config.providers",
    "rlmm.config.",
    "rsm.config.",
];
/// Keys that Kafka reads although its definitions lack them.
const OUTSIDE_THE_CATALOGUE: &[&str] = &["super.users", "allow.everyone.if.no.acl.found"];
/// What people write among the keys, and only the JVM's command line is looked for.
const OF_THE_JVM: &[&str] = &[
    "zookeeper.sasl.client",
    "zookeeper.sasl.clientconfig",
    "java.security.auth.login.config",
];

/// The classes of `replica.selector.class` that Kafka comes with.
const SELECTORS: &[&str] = &[
    "",
    "org.apache.kafka.common.replica.LeaderSelector",
    crate::replica::nearest::RACK_AWARE,
];

pub(super) fn of_keys(values: &Props) -> Vec<String> {
    let honoured: BTreeSet<&str> = HONOURED.iter().copied().collect();
    let mut warnings = Vec::new();
    for (key, value) in values {
        if key == "replica.selector.class" && !SELECTORS.contains(&value.as_str()) {
            warnings.push(format!(
                "{key}={value} is no class that this broker has: consumers read from leaders"
            ));
        }
        if honoured.contains(key.as_str())
            || key == "node.id"
            || zookeeper_security::is_honoured(key)
        {
            continue;
        }
        if OF_THE_JVM.contains(&key.as_str()) {
            warnings.push(format!(
                "{key} has no effect in this file: it is a system property, which KAFKA_OPTS sets (-D{key}={value})"
            ));
            continue;
        }
        if FREE_PREFIXES.iter().any(|p| key.starts_with(p))
            || OUTSIDE_THE_CATALOGUE.contains(&key.as_str())
        {
            warnings.push(format!("{key} is known and has no effect here yet"));
            continue;
        }
        match catalogue::find(Kind::Broker, key) {
            Some(def) if def.default.as_deref() == Some(value.as_str()) => {}
            Some(def) if def.value_type == ValueType::Password => {
                warnings.push(format!("{key} is known and has no effect in this broker"));
            }
            Some(_) => warnings.push(format!(
                "{key}={value} is known and has no effect in this broker"
            )),
            None => {
                let hint = nearest(key).map_or(String::new(), |n| format!("; did you mean {n}?"));
                warnings.push(format!("{key} was supplied but isn't a known config{hint}"));
            }
        }
    }
    warnings
}

/// The known broker key with the least edit distance, if it is near enough to be a slip of the pen.
pub fn nearest(key: &str) -> Option<&'static str> {
    if key.len() > 100 {
        return None;
    }
    catalogue::all(Kind::Broker)
        .map(|def| (edit_distance(key, def.name), def.name))
        .min()
        .filter(|(distance, _)| *distance <= 1 + key.len() / 6)
        .map(|(_, name)| name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut row = Vec::with_capacity(previous.len());
        row.push(i + 1);
        let pairs = previous.iter().zip(previous.iter().skip(1)).zip(&b);
        for ((diagonal, above), cb) in pairs {
            let left = row.last().copied().unwrap_or(0);
            row.push(
                (diagonal + usize::from(ca != *cb))
                    .min(above + 1)
                    .min(left + 1),
            );
        }
        previous = row;
    }
    previous.last().copied().unwrap_or(0)
}

/// `log.message.format.version` asks for an old format under a protocol that always stores v2 (KIP-724).
pub(super) fn ignored_format(config: &BrokerConfig) -> Option<String> {
    let protocol = MetadataVersion::parse(&config.inter_broker_protocol_version)?;
    let format = MetadataVersion::parse(&config.log_message_format_version)?;
    (!protocol.honours_message_format() && format.record_version() < 2).then(|| {
        format!(
            "log.message.format.version={} is ignored, since inter.broker.protocol.version={} is 3.0 or later: messages are stored in the newest format",
            config.log_message_format_version, config.inter_broker_protocol_version
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::TopicConfig;
    use super::super::load::tests::check;
    use super::*;

    #[test]
    fn warns_by_name_with_the_nearest_key() {
        let loaded = check(&[
            ("log.retention.hour", "1"),
            ("metric.reporters", "x.Y"),
            ("num.partitions", "3"),
            ("telemetry.max.bytes", "1048576"),
        ])
        .unwrap();
        assert_eq!(
            loaded.warnings,
            [
                "log.retention.hour was supplied but isn't a known config; did you mean log.retention.hours?",
                "metric.reporters=x.Y is known and has no effect in this broker",
            ]
        );
        assert_eq!(nearest("broker.ide"), Some("broker.id"));
        assert_eq!(nearest("something.else.altogether"), None);
    }

    #[test]
    fn message_formats() {
        let stored = |protocol: &str, format: &str| {
            let loaded = check(&[
                ("inter.broker.protocol.version", protocol),
                ("log.message.format.version", format),
            ])?;
            let topic = TopicConfig::resolve(&loaded.config, &Props::new());
            let topic = topic.map_err(|e| e.to_string())?;
            Ok::<_, String>((topic.record_version, topic.zstd, loaded.warnings.len()))
        };
        for (protocol, format, expected) in [
            ("3.9", "3.9", (2, true, 0)),
            ("3.9", "0.10.0", (2, true, 1)),
            ("3.0-IV1", "0.8.2", (2, true, 1)),
            ("3.0-IV0", "0.8.2", (0, true, 0)),
            ("2.8", "0.10.2", (1, true, 0)),
            ("2.8", "0.11.0", (2, true, 0)),
            ("2.8", "3.0", (2, true, 0)),
            ("2.0", "2.0", (2, false, 0)),
            ("0.10.2", "0.10.0", (1, false, 0)),
        ] {
            assert_eq!(
                stored(protocol, format),
                Ok(expected),
                "{protocol} {format}"
            );
        }
        for (protocol, format, needed) in [
            ("0.10.2", "0.11.0", "0.11.0"),
            ("0.10.2", "3.0-IV1", "0.11.0"),
            ("0.9.0", "0.10.0", "0.10.0"),
        ] {
            let refused = stored(protocol, format).unwrap_err();
            assert!(
                refused.contains(&format!("is set to version {needed} or higher")),
                "{refused}"
            );
        }
        let error = check(&[("inter.broker.protocol.version", "0.10.2")]).unwrap_err();
        assert!(
            error.contains("log.message.format.version 3.0-IV1"),
            "{error}"
        );
        // a topic's own does not count above the protocol
        let config = check(&[
            ("inter.broker.protocol.version", "0.10.2"),
            ("log.message.format.version", "0.9.0"),
        ])
        .unwrap()
        .config;
        for (format, expected) in [("0.9.0", 0), ("0.10.1", 1), ("2.8", 0)] {
            let own = [("message.format.version".to_owned(), format.to_owned())].into();
            let topic = TopicConfig::resolve(&config, &own).unwrap();
            assert_eq!(topic.record_version, expected, "{format}");
        }
    }
}
