//! Configurations that stop the start: keys whose being ignored would lose data or open a door, and contradictions.

use super::broker_config::BrokerConfig;
use super::catalogue::{self, Kind};
use super::error::ConfigError;
use super::store::Props;
use super::version::MetadataVersion;

fn is_true(values: &Props, key: &str) -> bool {
    values
        .get(key)
        .is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// Keys whose being ignored would lose data or open a door.
pub(super) fn refuse_harmful(values: &Props) -> Result<(), ConfigError> {
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
    for key in ["zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"] {
        if is_true(values, key) {
            return refuse(format!(
                "{key}=true: whether certificates were revoked is not looked at, so that a server which should be kept out \
                 would be talked to. Remove it, or leave this broker on Apache Kafka for now."
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

pub(super) fn refuse_contradictions(
    config: &BrokerConfig,
    values: &Props,
) -> Result<(), ConfigError> {
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

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::super::load::tests::check;

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
            ("zookeeper.ssl.client.enable", "true"),
            ("zookeeper.ssl.crl.enable", "true"),
            ("create.topic.policy.class.name", "org.example.Policy"),
            ("listeners", "PLAINTEXT://:9092,SSL://:9093"),
            ("offsets.commit.required.acks", "1"),
            ("broker.id", "1001"),
        ] {
            let error = check(&[(key, value)]).unwrap_err();
            assert!(
                error.contains(key)
                    || error.contains("SSL")
                    || error.contains("zookeeper.ssl.truststore.location"),
                "{key}: {error}"
            );
        }
        assert!(
            Sources::default().check().is_err(),
            "zookeeper.connect is required"
        );
    }
}
