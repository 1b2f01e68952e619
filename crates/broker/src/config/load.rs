//! From `server.properties` and `--override` to checked values, warnings, or a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::broker_config::{BrokerConfig, HONOURED};
use super::catalogue::{self, Kind, UpdateMode};
use super::error::ConfigError;
use super::listeners::{Listeners, SecurityProtocol};
use super::properties;
use super::store::Props;
use super::validate;
use super::version::MetadataVersion;

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

/// Checked static values.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// All given pairs, unknown keys too.
    pub values: Props,
    /// Where each came from.
    pub origins: BTreeMap<String, Origin>,
    /// Typed.
    pub config: BrokerConfig,
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
}

impl Sources {
    /// Adds a pair.
    pub fn set(&mut self, key: &str, value: &str, origin: Origin) {
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
        let Self { values, origins } = self;
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
        let mut warnings = warnings(&set);
        warnings.extend(ignored_format(&config));
        Ok(Loaded {
            values: set,
            origins,
            config,
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

fn is_true(values: &Props, key: &str) -> bool {
    values
        .get(key)
        .is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// Keys whose being ignored would lose data or open a door.
fn refuse_harmful(values: &Props) -> Result<(), ConfigError> {
    let refuse = |text: String| Err(ConfigError::Refused(text));
    if let Some(roles) = values.get("process.roles").filter(|v| !v.is_empty()) {
        return refuse(format!(
            "process.roles={roles} is a KRaft configuration. This broker runs in ZooKeeper mode: remove process.roles and \
             set zookeeper.connect."
        ));
    }
    if is_true(values, "zookeeper.metadata.migration.enable") {
        return refuse(
            "zookeeper.metadata.migration.enable=true would make the cluster believe that this broker can migrate to KRaft, \
             which it cannot. Remove the key."
                .into(),
        );
    }
    if is_true(values, "remote.log.storage.system.enable") {
        return refuse(
            "remote.log.storage.system.enable=true: tiered storage is not offered; ignoring the key would keep from \
             clients what lies in the remote tier. Remove it, or leave this broker on Apache Kafka."
                .into(),
        );
    }
    for key in ["zookeeper.set.acl", "zookeeper.ssl.client.enable"] {
        if is_true(values, key) {
            return refuse(format!(
                "{key}=true is not offered yet; ignoring it would leave znodes or their traffic open to anybody. Remove \
                 it, or leave this broker on Apache Kafka for now."
            ));
        }
    }
    const OPENS_A_DOOR: &[&str] = &[
        "authorizer.class.name",
        "principal.builder.class",
        "security.providers",
    ];
    const CHANGES_BEHAVIOUR: &[&str] = &[
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "sasl.server.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "ssl.engine.factory.class",
    ];
    for key in OPENS_A_DOOR.iter().chain(CHANGES_BEHAVIOUR) {
        let Some(value) = values.get(*key).filter(|v| !v.is_empty()) else {
            continue;
        };
        let default = catalogue::find(Kind::Broker, key).and_then(|d| d.default.as_deref());
        if Some(value.as_str()) == default {
            continue;
        }
        let why = if *key == "authorizer.class.name" {
            "access control is not offered yet, and without it every client could do everything"
        } else {
            "it names a Java class, which cannot run here, and the broker would behave otherwise than configured"
        };
        return refuse(format!(
            "{key}={value}: {why}. Remove the key, or leave this broker on Apache Kafka for now."
        ));
    }
    if values.contains_key("config.providers")
        && let Some((key, value)) = values.iter().find(|(_, v)| v.contains("${"))
    {
        return refuse(format!(
            "{key}={value} refers to config.providers, which is not offered yet; the text would be taken literally. Write \
             the value itself."
        ));
    }
    Ok(())
}

fn refuse_contradictions(config: &BrokerConfig, values: &Props) -> Result<(), ConfigError> {
    let refuse = |text: String| Err(ConfigError::Refused(text));
    if config.zookeeper_connect.is_none() {
        return Err(ConfigError::Missing {
            key: "zookeeper.connect".into(),
        });
    }
    if config.broker_id < -1 || (!config.broker_id_generation_enable && config.broker_id < 0) {
        return refuse(format!(
            "broker.id={} must be equal or greater than 0 (or -1 with broker.id.generation.enable=true)",
            config.broker_id
        ));
    }
    if config.broker_id_generation_enable && config.broker_id > config.reserved_broker_max_id {
        return refuse(format!(
            "broker.id={} must be greater than or equal to -1 and not greater than reserved.broker.max.id={}. Raise \
             reserved.broker.max.id, or set broker.id.generation.enable=false.",
            config.broker_id, config.reserved_broker_max_id
        ));
    }
    if config.data_dirs().is_empty() || config.data_dirs().iter().any(String::is_empty) {
        return refuse(
            "At least one log directory must be defined via log.dirs or log.dir.".into(),
        );
    }
    if values.contains_key("inter.broker.listener.name")
        && values.contains_key("security.inter.broker.protocol")
    {
        return refuse(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.".into(),
        );
    }
    if config.offsets_commit_required_acks != -1 {
        return refuse(format!(
            "offsets.commit.required.acks={} would risk committed offsets; only -1 (all) is served. Remove the key.",
            config.offsets_commit_required_acks
        ));
    }
    if config.log_cleanup_policy.is_empty() {
        return refuse("log.cleanup.policy must name delete, compact or both.".into());
    }
    for (hours_key, value) in [
        ("log.retention.hours", i64::from(config.log_retention_hours)),
        (
            "log.retention.minutes",
            config.log_retention_minutes.map_or(-1, i64::from),
        ),
        ("log.retention.ms", config.log_retention_ms.unwrap_or(-1)),
    ] {
        if value == 0 || value < -1 {
            return refuse(format!(
                "{hours_key} must be unlimited (-1) or, equal or greater than 1, but is {value}"
            ));
        }
    }
    if config.replica_fetch_wait_max_ms as i64 > config.replica_lag_time_max_ms {
        return refuse(format!(
            "replica.fetch.wait.max.ms={} should always be less than or equal to replica.lag.time.max.ms={} to prevent \
             frequent changes in ISR",
            config.replica_fetch_wait_max_ms, config.replica_lag_time_max_ms
        ));
    }
    let ibp = MetadataVersion::parse(&config.inter_broker_protocol_version);
    let format = MetadataVersion::parse(&config.log_message_format_version);
    if let (Some(ibp), Some(format)) = (ibp, format)
        && ibp.honours_message_format()
        && format.record_version() > ibp.record_version()
    {
        let needed = if format.record_version() == 2 {
            "0.11.0"
        } else {
            "0.10.0"
        };
        return refuse(format!(
            "log.message.format.version {} can only be used when inter.broker.protocol.version is set to version {needed} or higher",
            config.log_message_format_version
        ));
    }
    Ok(())
}

/// `log.message.format.version` asks for an old format under a protocol that always stores v2 (KIP-724).
fn ignored_format(config: &BrokerConfig) -> Option<String> {
    let protocol = MetadataVersion::parse(&config.inter_broker_protocol_version)?;
    let format = MetadataVersion::parse(&config.log_message_format_version)?;
    (!protocol.honours_message_format() && format.record_version() < 2).then(|| {
        format!(
            "log.message.format.version={} is ignored, since inter.broker.protocol.version={} is 3.0 or later: messages are stored in the newest format",
            config.log_message_format_version, config.inter_broker_protocol_version
        )
    })
}

/// Prefixes under which anything goes: listener and plugin parameters.
const FREE_PREFIXES: &[&str] = &[
    "listener.name.",
    "authorizer.",
    "config.providers",
    "rlmm.config.",
    "rsm.config.",
];
/// Keys that Kafka reads although its definitions lack them.
const OUTSIDE_THE_CATALOGUE: &[&str] = &[
    "super.users",
    "allow.everyone.if.no.acl.found",
    "zookeeper.sasl.client",
];

fn warnings(values: &Props) -> Vec<String> {
    let honoured: BTreeSet<&str> = HONOURED.iter().copied().collect();
    let mut warnings = Vec::new();
    for (key, value) in values {
        if honoured.contains(key.as_str()) || key == "node.id" {
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

/// True if the key may be set dynamically at the given level; used by the config handlers and the start-up check.
pub fn dynamic_at(key: &str, per_broker: bool) -> bool {
    match catalogue::find(Kind::Broker, key).map(|d| d.update_mode) {
        Some(UpdateMode::ClusterWide) => true,
        Some(UpdateMode::PerBroker) => per_broker,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::topic_config::TopicConfig;
    use super::*;

    fn check(pairs: &[(&str, &str)]) -> Result<Loaded, String> {
        let mut sources = Sources::default();
        sources.set("zookeeper.connect", "localhost:2181", Origin::Preset);
        for (key, value) in pairs {
            sources.set(key, value, Origin::Preset);
        }
        sources.check().map_err(|e| e.to_string())
    }

    #[test]
    fn harmful_keys_stop_the_start() {
        for (key, value) in [
            ("process.roles", "broker"),
            ("zookeeper.metadata.migration.enable", "true"),
            ("remote.log.storage.system.enable", "true"),
            (
                "authorizer.class.name",
                "kafka.security.authorizer.AclAuthorizer",
            ),
            ("zookeeper.set.acl", "true"),
            ("create.topic.policy.class.name", "org.example.Policy"),
            ("listeners", "PLAINTEXT://:9092,SSL://:9093"),
            ("offsets.commit.required.acks", "1"),
            ("broker.id", "1001"),
        ] {
            let error = check(&[(key, value)]).unwrap_err();
            assert!(
                error.contains(key) || error.contains("SSL"),
                "{key}: {error}"
            );
        }
        assert!(
            Sources::default().check().is_err(),
            "zookeeper.connect is required"
        );
    }

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

#[cfg(test)]
mod document {
    use super::*;

    /// `docs/server-properties.md` lists every key under what this broker does with it; this test makes the list.
    fn table() -> String {
        let mut text = String::from(
            "# Broker keys\n\n\
             What this broker does with each of Kafka 3.9's keys in `server.properties`. Precedence: `/config/brokers/N` >\n\
             `/config/brokers/<default>` > `server.properties` > default. Made by a test of `crates/broker` (run it with\n\
             `UPDATE_DOCS=1` after a change).\n\n\
             ## Refused at start\n\n\
             A value other than the default stops the start, since ignoring it would lose data or open a door:\n\n",
        );
        let refused = |key: &str| {
            let value = match catalogue::find(Kind::Broker, key).map(|d| d.value_type) {
                Some(catalogue::ValueType::Boolean) => "true",
                Some(catalogue::ValueType::List) => "broker",
                _ => "org.example.Class",
            };
            refuse_harmful(&Props::from([(key.to_owned(), value.to_owned())])).is_err()
        };
        let list = |wanted: &dyn Fn(&str) -> bool| -> String {
            let mut lines = String::new();
            for def in catalogue::all(Kind::Broker).filter(|d| wanted(d.name)) {
                let default = def.default.as_deref().unwrap_or("null");
                let mode = match def.update_mode {
                    UpdateMode::ReadOnly => "restart",
                    UpdateMode::PerBroker => "per broker",
                    UpdateMode::ClusterWide => "dynamic",
                };
                lines += &format!("| `{}` | `{default}` | {mode} |\n", def.name);
            }
            format!("| key | default | change |\n| --- | --- | --- |\n{lines}")
        };
        text += &list(&refused);
        text += "\nAlso refused: listeners of the protocols SSL, SASL_PLAINTEXT and SASL_SSL, `offsets.commit.required.acks` other than -1,\n\
                 and values with `${...}` where `config.providers` is set.\n\n## Honoured\n\n";
        text += &list(&|key| HONOURED.contains(&key) || key == "node.id");
        text += "\n## Known, without effect\n\nA warning names them at start if they are set to anything but their default.\n\n";
        text += &list(&|key| !HONOURED.contains(&key) && key != "node.id" && !refused(key));
        text
    }

    #[test]
    fn is_current() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/server-properties.md"
        );
        let wanted = table();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == wanted,
            "{path} is not current: run the test with UPDATE_DOCS=1"
        );
    }
}
