//! What a controller is told at its start.

/// The automatic preferred election (`auto.leader.rebalance.enable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebalance {
    /// `leader.imbalance.check.interval.seconds`, in ms.
    pub interval_ms: i64,
    /// `leader.imbalance.per.broker.percentage`, 0 to 100.
    pub percentage: i32,
}

/// The broker's configuration as far as the controller acts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    pub broker_id: i32,
    pub versions: Versions,
    /// The listener whose endpoints LeaderAndIsr names.
    pub inter_broker_listener: String,
    /// `delete.topic.enable`.
    pub delete_topic_enable: bool,
    /// `unclean.leader.election.enable`, the broker's default.
    pub unclean_leader_election_enable: bool,
    pub rebalance: Option<Rebalance>,
}

/// What follows from `inter.broker.protocol.version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub leader_and_isr: i16,
    pub stop_replica: i16,
    pub update_metadata: i16,
    /// Topics have ids (2.8-IV0).
    pub topic_ids: bool,
    /// ISR changes come by AlterPartition (2.7-IV2).
    pub alter_partition: bool,
    /// `leader_recovery_state` is kept (3.2-IV0, KIP-704).
    pub leader_recovery: bool,
    /// Feature versioning is in use (2.7-IV0).
    pub features_enabled: bool,
    /// Version of `/feature` (2 since 3.3-IV0).
    pub feature_node: i32,
}

impl Versions {
    /// `at_least` tells whether the version is at or above a named one.
    pub fn for_protocol(at_least: impl Fn(&str) -> bool) -> Self {
        let pick = |steps: &[(&str, i16)]| {
            steps
                .iter()
                .find(|(name, _)| at_least(name))
                .map_or(0, |(_, version)| *version)
        };
        Self {
            leader_and_isr: pick(&[
                ("3.4-IV0", 7),
                ("3.2-IV0", 6),
                ("2.8-IV1", 5),
                ("2.4-IV1", 4),
                ("2.4-IV0", 3),
                ("2.2-IV0", 2),
                ("1.0-IV0", 1),
            ]),
            stop_replica: pick(&[
                ("3.4-IV0", 4),
                ("2.6-IV0", 3),
                ("2.4-IV1", 2),
                ("2.2-IV0", 1),
            ]),
            update_metadata: pick(&[
                ("3.4-IV0", 8),
                ("2.8-IV1", 7),
                ("2.4-IV1", 6),
                ("2.2-IV0", 5),
                ("1.0-IV0", 4),
                ("0.10.2-IV0", 3),
                ("0.10.0-IV1", 2),
                ("0.9.0", 1),
            ]),
            topic_ids: at_least("2.8-IV0"),
            alter_partition: at_least("2.7-IV2"),
            leader_recovery: at_least("3.2-IV0"),
            features_enabled: at_least("2.7-IV0"),
            feature_node: if at_least("3.3-IV0") { 2 } else { 1 },
        }
    }
}
