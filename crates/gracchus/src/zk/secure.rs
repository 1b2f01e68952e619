//! What the shell is told about SASL and TLS: by files, and by the variables in which the scripts find a JVM's options.

use gracchus_broker::config::{properties, zookeeper_security};
use gracchus_zk_client::secured::Properties;

/// Of `zookeeper-shell.sh`, and of `zkCli.sh`.
const VARIABLES: [&str; 3] = ["KAFKA_OPTS", "CLIENT_JVMFLAGS", "JVMFLAGS"];

/// System properties.
pub fn of_the_environment() -> Properties {
    let options = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    options
        .flat_map(|options| gracchus_security::jvm::properties(&options))
        .collect()
}

/// A file of ZooKeeper's own properties.
pub(super) fn zookeepers(path: &str) -> Result<Properties, String> {
    let bytes =
        std::fs::read(path).map_err(|error| format!("Error: cannot read {path}: {error}"))?;
    let entries = properties::parse(&bytes).map_err(|error| format!("Error: {path}: {error}"))?;
    Ok(entries
        .into_iter()
        .map(|entry| (entry.key, entry.value.trim().to_owned()))
        .collect())
}

/// A file of Kafka's keys.
pub fn kafkas(path: &str) -> Result<Properties, String> {
    Ok(zookeeper_security::properties(
        &zookeepers(path)?,
        &Properties::new(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_either_names_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let own = file(
            "own",
            "zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location=/t.jks\n",
        );
        let kafka = file(
            "kafka",
            "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/t.jks\n",
        );
        let found = zookeepers(&own).unwrap();
        assert_eq!(found["zookeeper.client.secure"], "true");
        assert_eq!(kafkas(&kafka).unwrap(), found);
        assert!(
            zookeepers("/no/such/file")
                .unwrap_err()
                .contains("/no/such/file")
        );
    }
}
