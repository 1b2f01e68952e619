//! IncrementalAlterConfigs (44): sets, deletes, appends to, subtracts from single keys.

use std::sync::Arc;

use gracchus_kafka_proto::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use gracchus_kafka_proto::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::{Resource, change};
use crate::broker::Broker;
use crate::config::alter::{self as rules, Operation, Refusal};
use crate::config::catalogue::Kind;
use crate::config::store::Props;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for r in request.resources {
        let configs = r.configs;
        let wanted = |resource: &Resource, stored: Props| {
            let kind = match resource {
                Resource::Topic(_) => Kind::Topic,
                Resource::Broker(_) => Kind::Broker,
            };
            let mut changes = Vec::with_capacity(configs.len());
            for c in configs {
                let operation = Operation::from_id(c.config_operation).ok_or_else(|| {
                    Refusal::request(format!("Unknown operation type {}", c.config_operation))
                })?;
                changes.push((c.name, operation, c.value));
            }
            rules::apply(kind, &stored, &changes)
        };
        let (error_code, error_message) = change(
            broker,
            r.resource_type,
            &r.resource_name,
            request.validate_only,
            wanted,
        )
        .await;
        responses.push(AlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type: r.resource_type,
            resource_name: r.resource_name,
            ..Default::default()
        });
    }
    IncrementalAlterConfigsResponse {
        responses,
        ..Default::default()
    }
}
