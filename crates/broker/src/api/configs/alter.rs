//! AlterConfigs (33): replaces all overrides of a resource.

use std::sync::Arc;

use gracchus_kafka_proto::messages::alter_configs_response::AlterConfigsResourceResponse;
use gracchus_kafka_proto::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::change;
use crate::broker::Broker;
use crate::config::alter::Refusal;
use crate::config::store::Props;
use crate::context::RequestContext;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for r in request.resources {
        let configs = r.configs;
        let wanted = |_: &_, _: Props| {
            let nulls: Vec<&str> = configs
                .iter()
                .filter(|c| c.value.is_none())
                .map(|c| c.name.as_str())
                .collect();
            if !nulls.is_empty() {
                return Err(Refusal::request(format!(
                    "Null value not supported for : {}",
                    nulls.join(",")
                )));
            }
            Ok(configs
                .iter()
                .map(|c| (c.name.clone(), c.value.clone().unwrap_or_default()))
                .collect())
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
    AlterConfigsResponse {
        responses,
        ..Default::default()
    }
}
