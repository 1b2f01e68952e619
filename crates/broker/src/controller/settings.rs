//! The controller's settings out of the broker's configuration, and the request versions of each
//! inter.broker.protocol.version.

use gracchus_controller::ControllerConfig;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::config::version::{MetadataVersion, version_of};

const LEADER_AND_ISR: &[(&str, i16)] = &[
    ("3.4-IV0", 7),
    ("3.2-IV0", 6),
    ("2.8-IV1", 5),
    ("2.4-IV1", 4),
    ("2.4-IV0", 3),
    ("2.2-IV0", 2),
    ("1.0-IV0", 1),
];
const UPDATE_METADATA: &[(&str, i16)] = &[
    ("3.4-IV0", 8),
    ("2.8-IV1", 7),
    ("2.4-IV1", 6),
    ("2.2-IV0", 5),
    ("1.0-IV0", 4),
    ("0.10.2-IV0", 3),
    ("0.10.0-IV1", 2),
    ("0.9.0", 1),
];
const STOP_REPLICA: &[(&str, i16)] = &[
    ("3.4-IV0", 4),
    ("2.6-IV0", 3),
    ("2.4-IV1", 2),
    ("2.2-IV0", 1),
];

pub(crate) fn controller_config(broker: &Broker) -> ControllerConfig {
    let listener = broker.listeners.inter_broker.to_string();
    settings(
        broker.identity.broker_id,
        &broker.config.current(),
        listener,
    )
}

/// The same of a broker's configuration.
pub fn settings(
    broker_id: i32,
    config: &BrokerConfig,
    inter_broker_listener: String,
) -> ControllerConfig {
    let protocol = MetadataVersion::parse(&config.inter_broker_protocol_version);
    let at_least = |version: &str| protocol.is_none_or(|p| p.at_least(version));
    ControllerConfig {
        broker_id,
        delete_topic_enable: config.delete_topic_enable,
        unclean_leader_election: config.unclean_leader_election_enable,
        leader_and_isr_version: version_of(protocol, LEADER_AND_ISR),
        update_metadata_version: version_of(protocol, UPDATE_METADATA),
        stop_replica_version: version_of(protocol, STOP_REPLICA),
        has_features: at_least("2.7-IV0"),
        feature_version: if at_least("3.3-IV0") { 2 } else { 1 },
        has_topic_ids: at_least("2.8-IV0"),
        has_recovery_state: at_least("3.2-IV0"),
        balance_every_ms: config
            .auto_leader_rebalance_enable
            .then(|| u64::try_from(config.leader_imbalance_check_interval_seconds).unwrap_or(300))
            .map(|seconds| seconds.max(1).saturating_mul(1000)),
        balance_percentage: usize::try_from(config.leader_imbalance_per_broker_percentage)
            .unwrap_or(0),
        inter_broker_listener,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_versions_follow_the_protocol_version() {
        let of = |text: &str| {
            let p = MetadataVersion::parse(text);
            (
                version_of(p, LEADER_AND_ISR),
                version_of(p, UPDATE_METADATA),
                version_of(p, STOP_REPLICA),
            )
        };
        assert_eq!(of("3.9"), (7, 8, 4));
        assert_eq!(of("2.8"), (5, 7, 3));
        assert_eq!(of("2.6"), (4, 6, 3));
        assert_eq!(of("0.11.0"), (0, 3, 0));
        assert_eq!(of("0.8.2"), (0, 0, 0));
    }
}
