//! From `server.properties` and `--override` to checked values, warnings, or a refusal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use gracchus_zk_client::Secured;

use super::broker_config::BrokerConfig;
use super::catalogue::{self, Kind};
use super::error::ConfigError;
use super::listeners::{Listeners, SecurityProtocol};
use super::refusals::{refuse_contradictions, refuse_harmful};
use super::store::Props;
use super::{properties, validate, warnings, zookeeper_security};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file and the line in it.
    File(String, usize),
    /// This flag of the command line.
    CommandLine(&'static str),
    /// Set by the command itself (`gracchus start`).
    Preset,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{path}:{line}"),
            Self::CommandLine(flag) => f.write_str(flag),
            Self::Preset => f.write_str("set by the command"),
        }
    }
}

/// Checked static values.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// All given pairs, unknown keys too.
    pub values: Props,
    /// Where each came from.
    pub origins: BTreeMap<String, Origin>,
    /// Typed.
    pub config: BrokerConfig,
    /// SASL and TLS to ZooKeeper.
    pub secured: Secured,
    /// Listeners, checked.
    pub listeners: Listeners,
    /// One line each, to be logged.
    pub warnings: Vec<String>,
}

/// Collects pairs; later ones replace earlier ones.
#[derive(Debug, Default)]
pub struct Sources {
    values: Props,
    origins: BTreeMap<String, Origin>,
    warnings: Vec<String>,
    /// System properties of the JVM that Kafka would be.
    jvm: Props,
}

impl Sources {
    /// Adds the system properties among a JVM's options (`KAFKA_OPTS`).
    pub fn jvm_options(&mut self, options: &str) {
        self.jvm.extend(gracchus_security::jvm::properties(options));
    }

    /// Adds a pair.
    pub fn set(&mut self, key: &str, value: &str, origin: Origin) {
        if let (Origin::File(file, line), Some(Origin::File(earlier, at))) =
            (&origin, self.origins.get(key))
            && file == earlier
            && self.values.get(key).is_some_and(|v| v != value.trim())
        {
            self.warnings.push(format!(
                "{key} stands in {file} twice: line {line} replaces line {at}"
            ));
        }
        self.values.insert(key.to_owned(), value.trim().to_owned());
        self.origins.insert(key.to_owned(), origin);
    }

    /// True if the key was given.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Adds a file's pairs.
    pub fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let shown = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| ConfigError::File {
            path: shown.clone(),
            reason: e.to_string(),
        })?;
        let entries = properties::parse(&bytes).map_err(|e| ConfigError::File {
            path: shown.clone(),
            reason: e.to_string(),
        })?;
        for entry in entries {
            self.set(
                &entry.key,
                &entry.value,
                Origin::File(shown.clone(), entry.line),
            );
        }
        Ok(())
    }

    /// Adds a `key=value` that was given to the command line's `flag`.
    pub fn assignment(&mut self, flag: &'static str, text: &str) -> Result<(), ConfigError> {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            ConfigError::Refused(format!(
                "{flag} {text}: not of the form key=value ({flag} log.retention.hours=24, for example)"
            ))
        })?;
        self.set(key.trim(), value, Origin::CommandLine(flag));
        Ok(())
    }

    /// Checks everything.
    pub fn check(self) -> Result<Loaded, ConfigError> {
        let Self {
            values,
            origins,
            mut warnings,
            jvm,
        } = self;
        for (key, value) in &values {
            if let Some(def) = catalogue::find(Kind::Broker, key) {
                let empty_is_null = value.is_empty() && def.default.is_none();
                if !empty_is_null {
                    validate::check_value(def, value).map_err(|e| located(e, origins.get(key)))?;
                }
            }
        }
        // An empty text for a key without default means "not set", e.g. `broker.rack=`.
        let set: Props = values
            .iter()
            .filter(|(key, value)| {
                !(value.is_empty()
                    && catalogue::find(Kind::Broker, key).is_some_and(|d| d.default.is_none()))
            })
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut set = set;
        // Kafka keeps the two names of the id in step
        for (given, other) in [("broker.id", "node.id"), ("node.id", "broker.id")] {
            if let Some(id) = set.get(given).cloned() {
                set.entry(other.to_owned()).or_insert(id);
            }
        }
        let config = BrokerConfig::from_values(&set)?;
        refuse_harmful(&set)?;
        refuse_contradictions(&config, &set)?;
        let listeners = Listeners::from_config(&config)?;
        if let Some(secured) = listeners
            .bound
            .iter()
            .find(|l| l.protocol != SecurityProtocol::Plaintext)
        {
            return Err(ConfigError::Refused(format!(
                "listener {} asks for {}, which this version does not offer yet; serving it as PLAINTEXT would open a \
                 door. Remove it from listeners, or leave this broker on Apache Kafka for now.",
                secured.name,
                secured.protocol.name()
            )));
        }
        let mut secured = zookeeper_security::secured(&set, &jvm)?;
        warnings.extend(warnings::of_keys(&set));
        warnings.append(&mut secured.warnings);
        warnings.extend(warnings::ignored_format(&config));
        Ok(Loaded {
            values: set,
            origins,
            config,
            secured,
            listeners,
            warnings,
        })
    }
}

fn located(error: ConfigError, origin: Option<&Origin>) -> ConfigError {
    match (error, origin) {
        (ConfigError::Invalid { key, value, reason }, Some(Origin::File(path, line))) => {
            ConfigError::Invalid {
                key,
                value,
                reason: format!("{reason} ({path}, line {line})"),
            }
        }
        (error, _) => error,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::broker_config::HONOURED;
    use super::*;

    /// These keys and `zookeeper.connect`.
    pub(crate) fn check(pairs: &[(&str, &str)]) -> Result<Loaded, String> {
        let mut sources = Sources::default();
        sources.set("zookeeper.connect", "localhost:2181", Origin::Preset);
        for (key, value) in pairs {
            sources.set(key, value, Origin::Preset);
        }
        sources.check().map_err(|e| e.to_string())
    }

    #[test]
    fn every_honoured_key_is_kafkas() {
        for key in HONOURED {
            assert!(catalogue::find(Kind::Broker, key).is_some(), "{key}");
        }
        assert_eq!(catalogue::all(Kind::Broker).count(), 329);
        assert_eq!(catalogue::all(Kind::Topic).count(), 36);
        assert_eq!(
            catalogue::find(Kind::Topic, "max.message.bytes")
                .unwrap()
                .broker_key,
            Some("message.max.bytes")
        );
    }

    #[test]
    fn retention_synonyms_fold() {
        let retention = |pairs: &[(&str, &str)]| check(pairs).unwrap().config.retention_ms();
        assert_eq!(retention(&[]), 604_800_000);
        assert_eq!(retention(&[("log.retention.hours", "1")]), 3_600_000);
        assert_eq!(
            retention(&[("log.retention.hours", "1"), ("log.retention.minutes", "2")]),
            120_000
        );
        assert_eq!(
            retention(&[("log.retention.minutes", "2"), ("log.retention.ms", "5")]),
            5
        );
        assert_eq!(retention(&[("log.retention.hours", "-1")]), -1);
    }

    #[test]
    fn a_key_that_stands_twice_is_named_with_both_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        std::fs::write(
            &path,
            "zookeeper.connect=z\nnum.partitions=2\nlog.dirs=/d\nnum.partitions=3\nlog.dirs=/d\n",
        )
        .unwrap();
        let mut sources = Sources::default();
        sources.file(&path).unwrap();
        // what the command line says replaces the file on purpose
        sources.assignment("--override", "log.dirs=/e").unwrap();
        let loaded = sources.check().unwrap();
        let wanted = format!(
            "num.partitions stands in {} twice: line 4 replaces line 2",
            path.display()
        );
        assert_eq!(loaded.warnings, [wanted]);
        assert_eq!(loaded.config.num_partitions, 3);
    }

    #[test]
    fn names_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        std::fs::write(&path, "zookeeper.connect=z\n# c\nbroker.id=one\n").unwrap();
        let mut sources = Sources::default();
        sources.file(&path).unwrap();
        let error = sources.check().unwrap_err().to_string();
        assert!(
            error.contains("Not a number of type INT") && error.contains("line 3"),
            "{error}"
        );
    }
}
