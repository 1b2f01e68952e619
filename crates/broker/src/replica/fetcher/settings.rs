//! Versions of a follower's requests by inter.broker.protocol.version, and its limits.

use crate::config::BrokerConfig;
use crate::config::version::{MetadataVersion, version_of};

const FETCH: &[(&str, i16)] = &[
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
    ("0.10.1-IV2", 3),
    ("0.10.0-IV0", 2),
    ("0.9.0", 1),
];
const EPOCHS: &[(&str, i16)] = &[
    ("2.8-IV0", 4),
    ("2.3-IV1", 3),
    ("2.1-IV1", 2),
    ("2.0-IV0", 1),
];
const OFFSETS: &[(&str, i16)] = &[
    ("3.9-IV0", 9),
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1),
];

/// What a fetcher goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This broker.
    pub broker_id: i32,
    /// Version of Fetch; 12 where topics without an id are among the partitions.
    pub fetch_version: i16,
    /// Version of OffsetForLeaderEpoch.
    pub epochs_version: i16,
    /// Version of ListOffsets.
    pub offsets_version: i16,
    /// The leader tells with a fetch where the logs part (from Fetch 12 on).
    pub truncates_on_fetch: bool,
    /// The leader is asked for the ends of epochs at all (inter.broker.protocol.version 0.11 on).
    pub knows_epochs: bool,
    /// `replica.fetch.wait.max.ms`
    pub max_wait_ms: i32,
    /// `replica.fetch.min.bytes`
    pub min_bytes: i32,
    /// `replica.fetch.response.max.bytes`
    pub max_bytes: i32,
    /// `replica.fetch.max.bytes`
    pub partition_max_bytes: i32,
    /// `replica.fetch.backoff.ms`
    pub backoff_ms: i64,
}

impl Settings {
    /// As configured.
    pub fn new(broker_id: i32, config: &BrokerConfig) -> Self {
        let protocol = MetadataVersion::parse(&config.inter_broker_protocol_version);
        let fetch_version = version_of(protocol, FETCH);
        Self {
            broker_id,
            fetch_version,
            epochs_version: version_of(protocol, EPOCHS),
            offsets_version: version_of(protocol, OFFSETS),
            truncates_on_fetch: fetch_version >= 12,
            knows_epochs: protocol.is_none_or(|version| version.at_least("0.11.0-IV2")),
            max_wait_ms: config.replica_fetch_wait_max_ms,
            min_bytes: config.replica_fetch_min_bytes,
            max_bytes: config.replica_fetch_response_max_bytes,
            partition_max_bytes: config.replica_fetch_max_bytes,
            backoff_ms: config.replica_fetch_backoff_ms.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_the_protocol_version() {
        let of = |text: &str| {
            let protocol = MetadataVersion::parse(text);
            [FETCH, EPOCHS, OFFSETS].map(|table| version_of(protocol, table))
        };
        assert_eq!(of("3.9"), [17, 4, 9]);
        assert_eq!(of("3.0"), [12, 4, 7]);
        assert_eq!(of("2.6"), [11, 3, 5]);
        assert_eq!(of("0.10.0"), [2, 0, 0]);
    }
}
