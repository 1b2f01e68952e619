//! CreatePartitions (37), by the active controller.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::create_partitions_response::CreatePartitionsTopicResult;
use gracchus_kafka_proto::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use hashbrown::HashMap;

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::topic_creation::Refusal;
use crate::topic_creation::create::Options;
use crate::topic_creation::grow::{answer, grow};

/// Answers when all partitions have leaders, or after the request's timeout.
pub async fn handle(
    broker: &Arc<Broker>,
    _ctx: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut times: HashMap<String, usize> = HashMap::with_capacity(request.topics.len());
    for topic in &request.topics {
        *times.entry_ref(topic.name.as_str()).or_default() += 1;
    }
    let mut results: Vec<CreatePartitionsTopicResult> = Vec::with_capacity(times.len());
    let mut wanted = Vec::with_capacity(times.len());
    let active = broker.controller.is_active();
    for topic in request.topics {
        // one answer a name
        let Some(times) = times.remove(&topic.name) else {
            continue;
        };
        if !active {
            results.push(CreatePartitionsTopicResult {
                name: topic.name,
                error_code: ErrorCode::NotController.code(),
                ..Default::default()
            });
        } else if times > 1 {
            let refused = Refusal::request("Duplicate topic in request.");
            results.push(answer(&topic.name, Err(refused)));
        } else {
            wanted.push(topic);
        }
    }
    let options = Options {
        timeout_ms: request.timeout_ms,
        validate_only: request.validate_only,
    };
    if !wanted.is_empty() {
        results.extend(grow(broker, &wanted, options).await);
    }
    CreatePartitionsResponse {
        results,
        ..Default::default()
    }
}
