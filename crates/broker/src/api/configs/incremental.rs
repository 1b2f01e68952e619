//! IncrementalAlterConfigs (44): sets, deletes, appends to, subtracts from single keys.

use std::sync::Arc;

use gracchus_kafka_proto::messages::incremental_alter_configs_request::AlterableConfig;
use gracchus_kafka_proto::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use gracchus_kafka_proto::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::{BROKER_LOGGER, Resource, answered, change};
use crate::broker::Broker;
use crate::config::alter::{self as rules, Operation, Refusal};
use crate::config::catalogue::Kind;
use crate::config::store::Props;
use crate::context::RequestContext;
use crate::loggers;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for r in request.resources {
        let configs = r.configs;
        let validate_only = request.validate_only;
        let (error_code, error_message) = if r.resource_type == BROKER_LOGGER {
            change_loggers(broker, &r.resource_name, configs, validate_only)
        } else {
            let wanted = |resource: &Resource, stored: Props| {
                let kind = match resource {
                    Resource::Topic(_) => Kind::Topic,
                    Resource::Broker(_) => Kind::Broker,
                };
                rules::apply(kind, &stored, &changes(configs)?)
            };
            change(
                broker,
                r.resource_type,
                &r.resource_name,
                validate_only,
                wanted,
            )
            .await
        };
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

type Changes = Vec<(String, Operation, Option<String>)>;

fn changes(configs: Vec<AlterableConfig>) -> Result<Changes, Refusal> {
    let changes = configs.into_iter().map(|c| {
        let operation = Operation::from_id(c.config_operation).ok_or_else(|| {
            Refusal::request(format!("Unknown operation type {}", c.config_operation))
        })?;
        Ok((c.name, operation, c.value))
    });
    changes.collect()
}

fn change_loggers(
    broker: &Broker,
    node: &str,
    configs: Vec<AlterableConfig>,
    validate_only: bool,
) -> (i16, Option<String>) {
    let own = broker.identity.broker_id;
    let outcome = match node.parse::<i32>() {
        Ok(id) if id == own => {
            changes(configs).and_then(|changes| loggers::change(&changes, validate_only))
        }
        Ok(id) => Err(Refusal::request(format!(
            "Unexpected node id. Expected {own}, but received {id}"
        ))),
        Err(_) => Err(Refusal::request(format!(
            "Node id must be an integer, but it is: {node}"
        ))),
    };
    answered(BROKER_LOGGER, node, outcome)
}
