//! A JVM's options: where Kafka's and ZooKeeper's scripts are told what no configuration file says (`KAFKA_OPTS`).

use std::collections::BTreeMap;

/// The system properties among them: `-Dname=value`, split at white space as the scripts do.
pub fn properties(options: &str) -> BTreeMap<String, String> {
    let words = options.split_whitespace();
    let pairs = words.filter_map(|word| {
        let pair = word.strip_prefix("-D")?;
        // A name alone is set, to nothing.
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_among_other_options() {
        let found = properties(
            "-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf\n -Dflag -Da=b=c -Da=last",
        );
        let expected = [
            ("java.security.auth.login.config", "/etc/jaas.conf"),
            ("flag", ""),
            ("a", "last"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
    }
}
