//! CreateTopics (19), by the active controller.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{CreateTopicsRequest, CreateTopicsResponse};
use hashbrown::HashMap;

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::topic_creation::create::{Options, create, refused};

/// KRaft's log, which no client may create.
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Answers when all partitions have leaders, or after the request's timeout.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut times: HashMap<String, usize> = HashMap::with_capacity(request.topics.len());
    for topic in &request.topics {
        *times.entry_ref(topic.name.as_str()).or_default() += 1;
    }
    let active = broker.controller.is_active();
    // places of the topics to be made are filled in below
    let mut results = Vec::with_capacity(request.topics.len());
    let mut wanted = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        results.push(if !active {
            Some(refused(topic.name, ErrorCode::NotController, None))
        } else if times.get(&topic.name).is_some_and(|times| *times > 1) {
            Some(refused(
                topic.name,
                ErrorCode::InvalidRequest,
                Some("Found multiple entries for this topic."),
            ))
        } else if topic.name == CLUSTER_METADATA {
            Some(refused(
                topic.name,
                ErrorCode::InvalidRequest,
                Some("Creation of internal topic __cluster_metadata is prohibited."),
            ))
        } else {
            wanted.push(topic);
            None
        });
    }
    let options = Options {
        timeout_ms: request.timeout_ms,
        validate_only: request.validate_only,
    };
    let mut made = if wanted.is_empty() {
        Vec::new()
    } else {
        create(broker, wanted, options).await
    }
    .into_iter();
    CreateTopicsResponse {
        topics: results
            .into_iter()
            .filter_map(|result| result.or_else(|| made.next()))
            .collect(),
        ..Default::default()
    }
}
