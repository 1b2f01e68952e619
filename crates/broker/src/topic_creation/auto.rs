//! Topics made because a client named them.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::CreateTopicsRequest;
use gracchus_kafka_proto::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use super::create::{Options, create};
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::config::version::MetadataVersion;
use crate::metadata::view;

/// How long a client's request waits for the controller on another broker.
const PATIENCE: Duration = Duration::from_secs(5);

/// Creates topics that a client named and that do not exist yet, with this broker's defaults; answers once the znodes are
/// written (or refused), with `LeaderNotAvailable` for those created: Metadata waits for their leaders itself.
/// Called by Metadata, and by FindCoordinator for the internal topics.
pub async fn auto_create_topics(
    broker: &Arc<Broker>,
    names: &[String],
) -> Vec<(String, ErrorCode)> {
    let config = broker.config.current();
    let mut outcomes = Vec::with_capacity(names.len());
    let mut topics = Vec::with_capacity(names.len());
    for name in names {
        if view::invalid_name(name).is_some() {
            outcomes.push((name.clone(), ErrorCode::InvalidTopicException));
        } else {
            topics.push(wanted(&config, name));
        }
    }
    if topics.is_empty() {
        return outcomes;
    }
    // the znodes are enough: leaders are waited for by who asks
    let options = Options {
        timeout_ms: 0,
        validate_only: false,
    };
    let results = if broker.controller.is_active() {
        create(broker, topics, options).await
    } else {
        let asked: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        match ask(broker, &config, topics).await {
            Ok(results) => results,
            Err(reason) => {
                tracing::warn!(topics = ?asked, "topics not created automatically: {reason}");
                let unknown = |name| (name, ErrorCode::UnknownTopicOrPartition);
                outcomes.extend(asked.into_iter().map(unknown));
                return outcomes;
            }
        }
    };
    outcomes.extend(
        results
            .into_iter()
            .map(|result| (result.name, told(result.error_code))),
    );
    outcomes
}

/// What a client is told of a creation: one that was done just now, or by another, has no leaders yet.
fn told(code: i16) -> ErrorCode {
    match ErrorCode::from_code(code) {
        ErrorCode::None | ErrorCode::RequestTimedOut | ErrorCode::TopicAlreadyExists => {
            ErrorCode::LeaderNotAvailable
        }
        // the controller moved; the client's next request finds the new one
        ErrorCode::NotController => ErrorCode::UnknownTopicOrPartition,
        error => error,
    }
}

async fn ask(
    broker: &Arc<Broker>,
    config: &BrokerConfig,
    topics: Vec<CreatableTopic>,
) -> Result<Vec<gracchus_kafka_proto::messages::create_topics_response::CreatableTopicResult>, String>
{
    let ibp = MetadataVersion::parse(&config.inter_broker_protocol_version);
    let at_least = |name: &str| ibp.is_some_and(|version| version.at_least(name));
    // all fields are given, so any version says the same: one that the oldest broker allowed in this cluster has
    let version = match (at_least("2.4-IV0"), at_least("0.10.2-IV0")) {
        (true, _) => 5,
        (_, true) => 1,
        _ => 0,
    };
    let request = CreateTopicsRequest {
        topics,
        timeout_ms: 0,
        ..Default::default()
    };
    let sent = broker.controller_link.send(broker, version, &request);
    let answer = tokio::time::timeout(PATIENCE, sent)
        .await
        .map_err(|_| format!("the controller did not answer within {PATIENCE:?}"))??;
    Ok(answer.topics)
}

/// The topic as Kafka makes it: the broker's defaults, the internal topics with numbers and configs of their own.
pub(crate) fn wanted(config: &BrokerConfig, name: &str) -> CreatableTopic {
    let segment = |bytes: i32| ("segment.bytes", bytes.to_string());
    let compact = ("cleanup.policy", "compact".to_owned());
    let (num_partitions, replication_factor, configs) = match name {
        "__consumer_offsets" => (
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            vec![
                ("compression.type", "producer".to_owned()),
                compact,
                segment(config.offsets_topic_segment_bytes),
            ],
        ),
        "__transaction_state" => (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            vec![
                ("compression.type", "uncompressed".to_owned()),
                compact,
                (
                    "min.insync.replicas",
                    config.transaction_state_log_min_isr.to_string(),
                ),
                segment(config.transaction_state_log_segment_bytes),
                ("unclean.leader.election.enable", "false".to_owned()),
            ],
        ),
        _ => (
            config.num_partitions,
            i16::try_from(config.default_replication_factor).unwrap_or(i16::MAX),
            Vec::new(),
        ),
    };
    CreatableTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor,
        configs: configs
            .into_iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: name.to_owned(),
                value: Some(value),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_topics_have_their_own_numbers() {
        let config = BrokerConfig::from_values(&Default::default()).unwrap();
        let offsets = wanted(&config, "__consumer_offsets");
        assert_eq!(
            (offsets.num_partitions, offsets.replication_factor),
            (50, 3)
        );
        let texts: Vec<(&str, &str)> = offsets
            .configs
            .iter()
            .map(|c| (c.name.as_str(), c.value.as_deref().unwrap()))
            .collect();
        assert_eq!(
            texts,
            [
                ("compression.type", "producer"),
                ("cleanup.policy", "compact"),
                ("segment.bytes", "104857600")
            ]
        );
        let plain = wanted(&config, "t");
        assert_eq!((plain.num_partitions, plain.replication_factor), (1, 1));
        assert!(plain.configs.is_empty());
        assert_eq!(wanted(&config, "__transaction_state").configs.len(), 5);
    }

    #[test]
    fn what_clients_are_told() {
        assert_eq!(
            told(ErrorCode::RequestTimedOut.code()),
            ErrorCode::LeaderNotAvailable
        );
        assert_eq!(
            told(ErrorCode::TopicAlreadyExists.code()),
            ErrorCode::LeaderNotAvailable
        );
        assert_eq!(
            told(ErrorCode::InvalidReplicationFactor.code()),
            ErrorCode::InvalidReplicationFactor
        );
    }
}
