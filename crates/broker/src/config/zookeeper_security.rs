//! SASL and TLS to ZooKeeper: Kafka's keys, and the system properties that Kafka takes them from where they are not set.

use gracchus_zk_client::secured::{Names, Properties, Secured};

use super::error::ConfigError;
use super::store::Props;

/// Kafka's keys, and ZooKeeper's properties of the same meaning.
const KEYS: &[(&str, &str)] = &[
    ("zookeeper.ssl.client.enable", "zookeeper.client.secure"),
    ("zookeeper.clientCnxnSocket", "zookeeper.clientCnxnSocket"),
    (
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keyStore.location",
    ),
    (
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keyStore.password",
    ),
    ("zookeeper.ssl.keystore.type", "zookeeper.ssl.keyStore.type"),
    (
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.trustStore.location",
    ),
    (
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.trustStore.password",
    ),
    (
        "zookeeper.ssl.truststore.type",
        "zookeeper.ssl.trustStore.type",
    ),
    ("zookeeper.ssl.protocol", "zookeeper.ssl.protocol"),
    (
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.enabledProtocols",
    ),
    ("zookeeper.ssl.cipher.suites", "zookeeper.ssl.ciphersuites"),
    (ENDPOINT, "zookeeper.ssl.hostnameVerification"),
    ("zookeeper.ssl.crl.enable", "zookeeper.ssl.crl"),
    ("zookeeper.ssl.ocsp.enable", "zookeeper.ssl.ocsp"),
];

/// Its value is the name of a way to check; ZooKeeper's property says whether to.
const ENDPOINT: &str = "zookeeper.ssl.endpoint.identification.algorithm";

const NAMES: Names = Names {
    key_store: "zookeeper.ssl.keystore",
    trust_store: "zookeeper.ssl.truststore",
    of: kafkas,
};

fn kafkas(property: &'static str) -> &'static str {
    let mut keys = KEYS.iter();
    keys.find(|(_, zookeepers)| *zookeepers == property)
        .map_or(property, |(key, _)| key)
}

/// Whether this broker does what the key says.
pub(super) fn is_honoured(key: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == key)
}

/// As ZooKeeper's client takes them: keys before system properties. Where `zookeeper.ssl.protocol` is not given, TLS 1.3 is
/// spoken too: ZooKeeper's own servers of today speak nothing else, and Kafka's default, 1.2 alone, does not get in there.
pub fn properties(values: &Props, jvm: &Props) -> Properties {
    let mut properties = jvm.clone();
    for (key, property) in KEYS {
        let Some(value) = values.get(*key) else {
            continue;
        };
        let value = match *key {
            ENDPOINT => value.eq_ignore_ascii_case("HTTPS").to_string(),
            _ => value.clone(),
        };
        properties.insert((*property).to_owned(), value);
    }
    properties
}

/// What the keys and `jvm`, system properties, come to; the files that they name are read.
pub fn secured(values: &Props, jvm: &Props) -> Result<Secured, ConfigError> {
    let secured = Secured::from_properties(&properties(values, jvm), NAMES);
    let secured = secured.map_err(|error| ConfigError::Refused(format!("{error}.")))?;
    let sets_acls = values.get("zookeeper.set.acl");
    if sets_acls.is_some_and(|value| value.eq_ignore_ascii_case("true")) && !secured.has_identity {
        return Err(ConfigError::Refused(
            "zookeeper.set.acl=true, and ZooKeeper would not learn who this broker is: there is neither a login configuration with a \
             section for ZooKeeper's client (-Djava.security.auth.login.config=FILE in KAFKA_OPTS, section Client) nor a certificate \
             (zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location). Give one of them, or remove zookeeper.set.acl."
                .into(),
        ));
    }
    Ok(secured)
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::super::catalogue::{self, Kind};
    use super::super::load::Origin;
    use super::*;

    fn props(pairs: &[(&str, &str)]) -> Props {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_key_is_kafkas() {
        for (key, _) in KEYS {
            assert!(catalogue::find(Kind::Broker, key).is_some(), "{key}");
        }
    }

    #[test]
    fn keys_go_before_system_properties() {
        let jvm = props(&[
            ("zookeeper.client.secure", "true"),
            ("zookeeper.ssl.keyStore.location", "/jvm.jks"),
            ("zookeeper.ssl.keyStore.type", "JKS"),
        ]);
        let values = props(&[
            ("zookeeper.ssl.keystore.location", "/own.p12"),
            (ENDPOINT, ""),
        ]);
        let found = properties(&values, &jvm);
        for (name, expected) in [
            ("zookeeper.client.secure", "true"),
            ("zookeeper.ssl.keyStore.location", "/own.p12"),
            ("zookeeper.ssl.keyStore.type", "JKS"),
            ("zookeeper.ssl.hostnameVerification", "false"),
        ] {
            assert_eq!(found[name], expected, "{name}");
        }
        let https = properties(&props(&[(ENDPOINT, "https")]), &Props::new());
        assert_eq!(https["zookeeper.ssl.hostnameVerification"], "true");
    }

    #[test]
    fn acls_need_an_identity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jaas.conf");
        std::fs::write(
            &path,
            "Client { x.DigestLoginModule required username=\"kafka\" password=\"p\"; };",
        )
        .unwrap();
        let check = |options: &str| {
            let mut sources = Sources::default();
            sources.set("zookeeper.connect", "localhost:2181", Origin::Preset);
            sources.set("zookeeper.set.acl", "true", Origin::Preset);
            sources.jvm_options(options);
            sources.check().map_err(|error| error.to_string())
        };
        let error = check("-Xmx1g").unwrap_err();
        for word in [
            "zookeeper.set.acl",
            "KAFKA_OPTS",
            "zookeeper.ssl.keystore.location",
        ] {
            assert!(error.contains(word), "{error}");
        }
        let options = format!("-Djava.security.auth.login.config={}", path.display());
        let loaded = check(&options).unwrap();
        assert!(loaded.config.zookeeper_set_acl && loaded.secured.login.is_some());
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let error = check(&format!("{options} -Dzookeeper.sasl.client=false")).unwrap_err();
        assert!(error.contains("zookeeper.sasl.client=false"), "{error}");
    }

    #[test]
    fn stores_are_named_by_kafkas_keys() {
        let values = props(&[("zookeeper.ssl.client.enable", "true")]);
        let error = secured(&values, &Props::new()).unwrap_err().to_string();
        assert!(
            error.contains("zookeeper.ssl.truststore.location"),
            "{error}"
        );
    }
}
