//! The path of every znode that Kafka 3.9 and its older clients use. All are below the chroot of `zookeeper.connect`.

use std::fmt::Write as _;

pub const CLUSTER: &str = "/cluster";
pub const CLUSTER_ID: &str = "/cluster/id";
pub const BROKERS: &str = "/brokers";
pub const BROKER_IDS: &str = "/brokers/ids";
pub const BROKER_SEQUENCE_ID: &str = "/brokers/seqid";
pub const TOPICS: &str = "/brokers/topics";
pub const CONTROLLER: &str = "/controller";
pub const CONTROLLER_EPOCH: &str = "/controller_epoch";
pub const ADMIN: &str = "/admin";
pub const DELETE_TOPICS: &str = "/admin/delete_topics";
pub const REASSIGN_PARTITIONS: &str = "/admin/reassign_partitions";
pub const PREFERRED_REPLICA_ELECTION: &str = "/admin/preferred_replica_election";
pub const ISR_CHANGE_NOTIFICATION: &str = "/isr_change_notification";
/// Sequential: ZooKeeper appends ten digits.
pub const ISR_CHANGE_PREFIX: &str = "/isr_change_notification/isr_change_";
pub const LOG_DIR_EVENT_NOTIFICATION: &str = "/log_dir_event_notification";
pub const LOG_DIR_EVENT_PREFIX: &str = "/log_dir_event_notification/log_dir_event_";
pub const CONFIG: &str = "/config";
pub const CONFIG_CHANGES: &str = "/config/changes";
pub const CONFIG_CHANGE_PREFIX: &str = "/config/changes/config_change_";
pub const PRODUCER_ID_BLOCK: &str = "/latest_producer_id_block";
pub const FEATURE: &str = "/feature";
pub const CONSUMERS: &str = "/consumers";
pub const KAFKA_ACL: &str = "/kafka-acl";
pub const KAFKA_ACL_CHANGES: &str = "/kafka-acl-changes";
pub const KAFKA_ACL_CHANGE_PREFIX: &str = "/kafka-acl-changes/acl_changes_";
pub const KAFKA_ACL_EXTENDED: &str = "/kafka-acl-extended";
pub const KAFKA_ACL_EXTENDED_CHANGES: &str = "/kafka-acl-extended-changes";
pub const KAFKA_ACL_EXTENDED_CHANGE_PREFIX: &str = "/kafka-acl-extended-changes/acl_changes_";
pub const DELEGATION_TOKENS: &str = "/delegation_token/tokens";
pub const DELEGATION_TOKEN_CHANGES: &str = "/delegation_token/token_changes";
pub const DELEGATION_TOKEN_CHANGE_PREFIX: &str = "/delegation_token/token_changes/token_change_";
pub const MIGRATION: &str = "/migration";

/// Made at every broker start, with null data, in this order; parents come by themselves.
pub const AT_START: &[&str] = &[
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
];

pub fn broker(id: i32) -> String {
    format!("{BROKER_IDS}/{id}")
}

pub fn topic(topic: &str) -> String {
    format!("{TOPICS}/{topic}")
}

pub fn topic_partitions(topic: &str) -> String {
    format!("{TOPICS}/{topic}/partitions")
}

pub fn partition(topic: &str, partition: i32) -> String {
    format!("{TOPICS}/{topic}/partitions/{partition}")
}

pub fn partition_state(topic: &str, partition: i32) -> String {
    let mut path = String::with_capacity(TOPICS.len() + topic.len() + 30);
    let _ = write!(path, "{TOPICS}/{topic}/partitions/{partition}/state");
    path
}

pub fn delete_topic(topic: &str) -> String {
    format!("{DELETE_TOPICS}/{topic}")
}

/// `/config/topics/T`.
pub fn topic_config(topic: &str) -> String {
    format!("{CONFIG}/topics/{topic}")
}

/// `/config/brokers/N`, or `/config/brokers/<default>` for `None`.
pub fn broker_config(broker: Option<i32>) -> String {
    match broker {
        Some(id) => format!("{CONFIG}/brokers/{id}"),
        None => format!("{CONFIG}/brokers/<default>"),
    }
}

pub fn isr_change(child: &str) -> String {
    format!("{ISR_CHANGE_NOTIFICATION}/{child}")
}

pub fn log_dir_event(child: &str) -> String {
    format!("{LOG_DIR_EVENT_NOTIFICATION}/{child}")
}

pub fn config_change(child: &str) -> String {
    format!("{CONFIG_CHANGES}/{child}")
}

pub fn delegation_token(id: &str) -> String {
    format!("{DELEGATION_TOKENS}/{id}")
}

/// The id in `/brokers/ids/N`.
pub fn broker_id_of(path: &str) -> Option<i32> {
    path.strip_prefix(BROKER_IDS)?
        .strip_prefix('/')?
        .parse()
        .ok()
}

/// The topic in `/brokers/topics/T`, and of nothing below it.
pub fn topic_of(path: &str) -> Option<&str> {
    let topic = path.strip_prefix(TOPICS)?.strip_prefix('/')?;
    (!topic.is_empty() && !topic.contains('/')).then_some(topic)
}

/// Topic and partition of `/brokers/topics/T/partitions/P/state`.
pub fn partition_of_state(path: &str) -> Option<(&str, i32)> {
    let rest = path.strip_prefix(TOPICS)?.strip_prefix('/')?;
    let (topic, rest) = rest.split_once("/partitions/")?;
    Some((topic, rest.strip_suffix("/state")?.parse().ok()?))
}

/// The number that ZooKeeper appended to a sequential node's name: its last ten digits.
pub fn sequence_of(child: &str) -> Option<i32> {
    child.get(child.len().checked_sub(10)?..)?.parse().ok()
}

/// The parent, `None` for the root and for what is no absolute path.
pub fn parent(path: &str) -> Option<&str> {
    if path == "/" {
        return None;
    }
    match path.rfind('/')? {
        0 => Some("/"),
        at => path.get(..at),
    }
}

/// With `zookeeper.set.acl`, nodes under these prefixes get no world read. A plain string prefix, as in Kafka.
pub fn is_sensitive(path: &str) -> bool {
    ["/config/users", "/config/brokers", DELEGATION_TOKENS]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_again() {
        assert_eq!(broker_id_of(&broker(1001)), Some(1001));
        assert_eq!(broker_id_of("/brokers/idsx/1"), None);
        assert_eq!(topic_of(&topic("a.b_c-d")), Some("a.b_c-d"));
        assert_eq!(topic_of(&topic_partitions("t")), None);
        assert_eq!(partition_of_state(&partition_state("t", 7)), Some(("t", 7)));
        assert_eq!(partition_of_state("/brokers/topics/t/partitions/7"), None);
        assert_eq!(sequence_of("isr_change_0000000012"), Some(12));
        assert_eq!(sequence_of("junk"), None);
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), Some("/"));
        assert_eq!(parent("/"), None);
    }
}
