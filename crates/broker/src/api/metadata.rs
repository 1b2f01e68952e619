//! Metadata (3): brokers, controller, topics; creates topics on the way where that is allowed.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::messages::metadata_request::MetadataRequestTopic;
use gracchus_kafka_proto::messages::metadata_response::MetadataResponseTopic;
use gracchus_kafka_proto::messages::{MetadataRequest, MetadataResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::metadata::Snapshot;
use crate::metadata::view::{self, Rules};

/// How long an answer about a topic just created waits for its leaders, so that a client's first request does not meet
/// LEADER_NOT_AVAILABLE.
const WAIT_FOR_LEADERS: Duration = Duration::from_secs(1);
/// How long a broker that has just started waits for the controller to tell it what there is.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// Operations on a topic that AclEntry knows, as bits; without an authorizer all are allowed.
pub const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// Operations on the cluster.
pub const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let version = ctx.api_version;
    let rules = Rules::of(version);
    let listener = ctx.listener_name();
    let mut snapshot = broker.metadata.snapshot();
    if !broker.metadata.is_told(&snapshot) {
        // just started: an answer without brokers and topics would send the client away for a whole retry
        broker
            .metadata
            .wait_until(FIRST_WORD, |s| broker.metadata.is_told(s))
            .await;
        snapshot = broker.metadata.snapshot();
    }
    let all = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let mut topics = if all {
        let mut names: Vec<_> = snapshot.topics.keys().cloned().collect();
        names.sort_unstable();
        names
            .iter()
            .filter_map(|name| view::topic(&snapshot, name, listener, rules))
            .collect()
    } else {
        let wanted = request.topics.unwrap_or_default();
        match resolve(&snapshot, wanted, version) {
            Err(refused) => refused,
            Ok(resolved) => {
                let unknown: Vec<String> = resolved
                    .iter()
                    .filter_map(|r| {
                        r.as_ref()
                            .ok()
                            .filter(|n| !snapshot.topics.contains_key(n.as_str()))
                            .cloned()
                    })
                    .collect();
                let create = request.allow_auto_topic_creation
                    && broker.config.current().auto_create_topics_enable;
                let mut outcomes = Vec::new();
                if create && !unknown.is_empty() {
                    outcomes = crate::controller::auto_create_topics(broker, &unknown).await;
                    let waits: Vec<&String> = outcomes
                        .iter()
                        .filter(|(_, e)| {
                            *e == ErrorCode::LeaderNotAvailable || *e == ErrorCode::None
                        })
                        .map(|(n, _)| n)
                        .collect();
                    if !waits.is_empty() {
                        let ready = |s: &Snapshot| waits.iter().all(|n| view::has_leaders(s, n));
                        broker.metadata.wait_until(WAIT_FOR_LEADERS, ready).await;
                        snapshot = broker.metadata.snapshot();
                    }
                }
                resolved
                    .into_iter()
                    .map(|wanted| match wanted {
                        Err(by_id) => by_id,
                        Ok(name) => view::topic(&snapshot, &name, listener, rules)
                            .unwrap_or_else(|| missing(&name, &outcomes)),
                    })
                    .collect()
            }
        }
    };
    if version >= 8 && request.include_topic_authorized_operations {
        for topic in topics
            .iter_mut()
            .filter(|t: &&mut MetadataResponseTopic| t.error_code == 0)
        {
            topic.topic_authorized_operations = TOPIC_OPERATIONS;
        }
    }
    let mut response = MetadataResponse {
        brokers: view::brokers(&snapshot, listener),
        cluster_id: Some(broker.identity.cluster_id.clone()),
        controller_id: snapshot.controller_id.unwrap_or(-1),
        topics,
        ..Default::default()
    };
    if (8..=10).contains(&version) && request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

/// Names of what is asked for; an Err element answers a topic id that nobody has. The outer Err answers all topics at
/// once: ids or null names in a version that lacks them.
#[allow(clippy::type_complexity)]
fn resolve(
    snapshot: &Snapshot,
    wanted: Vec<MetadataRequestTopic>,
    version: i16,
) -> Result<Vec<Result<String, MetadataResponseTopic>>, Vec<MetadataResponseTopic>> {
    let by_id_too_early =
        |t: &MetadataRequestTopic| version < 12 && (t.name.is_none() || !t.topic_id.is_zero());
    if wanted.iter().any(by_id_too_early) {
        return Err(wanted
            .into_iter()
            .map(|t| MetadataResponseTopic {
                error_code: ErrorCode::InvalidRequest.code(),
                name: Some(t.name.unwrap_or_default()),
                topic_id: t.topic_id,
                ..Default::default()
            })
            .collect());
    }
    let by_id = wanted.iter().any(|t| !t.topic_id.is_zero());
    let mut resolved: Vec<Result<String, MetadataResponseTopic>> = Vec::with_capacity(wanted.len());
    let mut seen = hashbrown::HashSet::new();
    for topic in wanted {
        if !by_id {
            let name = topic.name.unwrap_or_default();
            if seen.insert(name.clone()) {
                resolved.push(Ok(name));
            }
            continue;
        }
        match snapshot.topic_name(&topic.topic_id) {
            Some(name) => resolved.push(Ok(name.to_string())),
            None => resolved.push(Err(MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicId.code(),
                name: None,
                topic_id: topic.topic_id,
                ..Default::default()
            })),
        }
    }
    Ok(resolved)
}

fn missing(name: &str, created: &[(String, ErrorCode)]) -> MetadataResponseTopic {
    let error = match created.iter().find(|(n, _)| n == name) {
        Some((_, ErrorCode::None)) => ErrorCode::LeaderNotAvailable,
        Some((_, error)) => *error,
        None if view::invalid_name(name).is_some() => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    MetadataResponseTopic {
        error_code: error.code(),
        name: Some(name.to_owned()),
        topic_id: Uuid::ZERO,
        is_internal: view::is_internal(name),
        ..Default::default()
    }
}
