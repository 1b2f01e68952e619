//! Every znode content captured from Apache Kafka 3.9.2 is read, and written again as Kafka wrote it.

use bytes::Bytes;
use gracchus_registry::json::*;
use gracchus_registry::{ZnodeError, paths};
use serde_json::Value;

fn rewrite(path: &str, data: &[u8]) -> Result<Bytes, ZnodeError> {
    let below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    Ok(match path {
        paths::CLUSTER_ID => ClusterId::parse(data)?.to_bytes(),
        paths::CONTROLLER => ControllerZnode::parse(data)?.to_bytes(),
        paths::CONTROLLER_EPOCH => format_controller_epoch(parse_controller_epoch(data)?),
        paths::FEATURE => FeatureZnode::parse(data)?.to_bytes(),
        paths::PRODUCER_ID_BLOCK => ProducerIdBlock::parse(data)?.to_bytes(),
        paths::REASSIGN_PARTITIONS => ReassignPartitions::parse(data)?.to_bytes(),
        paths::PREFERRED_REPLICA_ELECTION => PreferredElection::parse(data)?.to_bytes(),
        _ if below(paths::BROKER_IDS) => BrokerRegistration::parse(data)?.to_bytes(),
        _ if below(paths::ISR_CHANGE_NOTIFICATION) => IsrChange::parse(data)?.to_bytes(),
        _ if below(paths::LOG_DIR_EVENT_NOTIFICATION) => LogDirEvent::parse(data)?.to_bytes(),
        _ if below(paths::CONFIG_CHANGES) => {
            let change = ConfigChange::parse(data)?;
            let entity = change.entity().ok_or(ZnodeError::Value {
                what: "the entity",
                found: change.entity_path.clone(),
            })?;
            assert_eq!(entity.entity_path(), change.entity_path);
            change.to_bytes()
        }
        _ if below(paths::CONFIG) => ConfigZnode::parse(data)?.to_bytes(),
        _ if below(paths::KAFKA_ACL_CHANGES) => AclChange::parse_literal(data)?.to_bytes(),
        _ if below(paths::KAFKA_ACL_EXTENDED_CHANGES) => {
            AclChange::parse_extended(data)?.to_bytes()
        }
        _ if below(paths::KAFKA_ACL) || below(paths::KAFKA_ACL_EXTENDED) => {
            AclZnode::parse(data)?.to_bytes()
        }
        _ if below(paths::DELEGATION_TOKENS) => DelegationToken::parse(data)?.to_bytes(),
        _ if below(paths::DELEGATION_TOKEN_CHANGES) => Bytes::copy_from_slice(data),
        _ if paths::topic_of(path).is_some() => TopicAssignment::parse(data)?.to_bytes(),
        _ if paths::partition_of_state(path).is_some() => PartitionState::parse(data)?.to_bytes(),
        _ => unreachable!("no type for {path}"),
    })
}

/// Maps that Kafka writes in hash order are put in order, all other keys stay where they are.
fn normal(text: &[u8]) -> String {
    let Ok(mut value) = serde_json::from_slice::<Value>(text) else {
        return String::from_utf8_lossy(text).into_owned();
    };
    if let Some(object) = value.as_object_mut() {
        for key in [
            "partitions",
            "adding_replicas",
            "removing_replicas",
            "config",
            "listener_security_protocol_map",
        ] {
            if let Some(map) = object.get_mut(key).and_then(Value::as_object_mut) {
                map.sort_keys();
            }
        }
    }
    value.to_string()
}

/// Contents that were broken on purpose, or of an older version that is written anew as the newest.
fn is_no_kafka_3_9_text(path: &str, data: &str) -> bool {
    let broken = [
        "{oops",
        "{not json",
        "{nope",
        "junk",
        r#"{"version":9}"#,
        r#"{"version":2,"entity_path":"planets/mars"}"#,
    ];
    broken.contains(&data)
        || (path == paths::CONTROLLER && data.contains(r#""version":1"#))
        || (path == paths::REASSIGN_PARTITIONS && !data.contains("replicas"))
        || (paths::topic_of(path).is_some() && !data.contains(r#""version":3"#))
        || (path.starts_with(paths::CONFIG_CHANGES) && data.contains("entity_type"))
}

#[test]
fn what_kafka_wrote_is_written_the_same() {
    let mut same = 0;
    for line in include_str!("golden/znodes.jsonl").lines().skip(1) {
        let line: Value = serde_json::from_str(line).unwrap();
        let (path, data) = (
            line["path"].as_str().unwrap(),
            line["data"].as_str().unwrap(),
        );
        let written = rewrite(path, data.as_bytes());
        if is_no_kafka_3_9_text(path, data) {
            assert_ne!(
                written.as_deref().ok(),
                Some(data.as_bytes()),
                "{path} {data}"
            );
            continue;
        }
        let written = written.unwrap_or_else(|error| panic!("{path}: {error}: {data}"));
        assert_eq!(normal(&written), normal(data.as_bytes()), "{path}");
        same += 1;
    }
    assert!(same > 250, "only {same}");
}

#[test]
fn registrations_follow_the_protocol_version() {
    let levels = ["0.9.0", "0.10.0", "2.7", "2.8", "3.2", "3.3", "3.9"];
    let mut seen = 0;
    for line in include_str!("golden/znodes.jsonl").lines().skip(1) {
        let line: Value = serde_json::from_str(line).unwrap();
        let (Some(ibp), Some(data)) = (line["ibp"].as_str(), line["data"].as_str()) else {
            continue;
        };
        if !line["path"]
            .as_str()
            .unwrap()
            .starts_with(paths::BROKER_IDS)
        {
            continue;
        }
        let rank = |name: &str| {
            levels
                .iter()
                .position(|level| {
                    name == *level
                        || name.strip_suffix("-IV0") == Some(level)
                        || name.strip_suffix("-IV1") == Some(level)
                })
                .unwrap()
        };
        let version = BrokerRegistration::version_for(|wanted| rank(ibp) >= rank(wanted));
        assert_eq!(
            version,
            BrokerRegistration::parse(data.as_bytes()).unwrap().version,
            "{ibp}"
        );
        seen += 1;
    }
    assert_eq!(seen, levels.len());
}

mod any_bytes {
    use super::*;
    use proptest::prelude::*;

    const PATHS: &[&str] = &[
        paths::CLUSTER_ID,
        paths::CONTROLLER,
        paths::CONTROLLER_EPOCH,
        paths::FEATURE,
        paths::PRODUCER_ID_BLOCK,
        paths::REASSIGN_PARTITIONS,
        paths::PREFERRED_REPLICA_ELECTION,
        "/brokers/ids/1",
        "/isr_change_notification/x",
        "/log_dir_event_notification/x",
        "/config/topics/t",
        "/kafka-acl-changes/x",
        "/kafka-acl-extended-changes/x",
        "/kafka-acl/Topic/t",
        "/delegation_token/tokens/x",
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/0/state",
    ];

    proptest! {
        #[test]
        fn never_panic(data in any::<Vec<u8>>(), at in 0..PATHS.len()) {
            let _ = rewrite(PATHS[at], &data);
        }

        #[test]
        fn mutated_contents_never_panic(line in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
            let lines: Vec<&str> = include_str!("golden/znodes.jsonl").lines().skip(1).collect();
            let line: Value = serde_json::from_str(lines[line.index(lines.len())]).unwrap();
            let (path, mut data) = (line["path"].as_str().unwrap(), line["data"].as_str().unwrap().as_bytes().to_vec());
            let at = at.index(data.len());
            if cut { data.truncate(at) } else { data[at] = byte }
            if !path.starts_with(paths::CONFIG_CHANGES) {
                let _ = rewrite(path, &data);
            }
        }
    }
}
