//! DescribeConfigs (32).

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::describe_configs_request::DescribeConfigsResource;
use gracchus_kafka_proto::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use gracchus_kafka_proto::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::{BROKER, BROKER_LOGGER, Resource, TOPIC};
use crate::broker::Broker;
use crate::config::alter::Refusal;
use crate::config::describe::{Entry, Source};
use crate::context::RequestContext;
use crate::loggers;
use crate::metadata::view;

/// Answers.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let synonyms = request.include_synonyms;
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let (resource_type, resource_name) =
            (resource.resource_type, resource.resource_name.clone());
        let result = match entries(broker, &resource).await {
            Ok(entries) => DescribeConfigsResult {
                configs: entries
                    .into_iter()
                    .map(|e| on_the_wire(e, ctx.api_version, synonyms))
                    .collect(),
                ..Default::default()
            },
            Err(Refusal { error, message }) => DescribeConfigsResult {
                error_code: error.code(),
                error_message: Some(message),
                ..Default::default()
            },
        };
        results.push(DescribeConfigsResult {
            resource_type,
            resource_name,
            ..result
        });
    }
    DescribeConfigsResponse {
        results,
        ..Default::default()
    }
}

async fn entries(
    broker: &Broker,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Entry>, Refusal> {
    let name = resource.resource_name.as_str();
    let mut entries = match resource.resource_type {
        TOPIC => {
            if let Some(message) = view::invalid_name(name) {
                return Err(Refusal {
                    error: ErrorCode::InvalidTopicException,
                    message,
                });
            }
            if !broker.metadata.snapshot().topics.contains_key(name) {
                return Err(Refusal {
                    error: ErrorCode::UnknownTopicOrPartition,
                    message: String::new(),
                });
            }
            // as Kafka: what ZooKeeper has, so that a change is seen by whoever asks right after it
            let stored = Resource::Topic(name.to_owned()).stored(broker).await?;
            broker.config.describe_overrides(&stored)
        }
        BROKER if name.is_empty() => broker.config.describe_broker_defaults(),
        BROKER => {
            let own = broker.identity.broker_id;
            if name.parse::<i32>() != Ok(own) {
                return Err(Refusal::request(format!(
                    "Unexpected broker id, expected {own} or empty string, but received {name}"
                )));
            }
            broker.config.describe_broker()
        }
        BROKER_LOGGER => {
            let own = broker.identity.broker_id;
            let problem = match name.parse::<i32>() {
                Ok(id) if id == own => None,
                Ok(_) => Some(format!(
                    "Unexpected broker id, expected {own} but received {name}"
                )),
                Err(_) if name.is_empty() => Some("Broker id must not be empty".to_owned()),
                Err(_) => Some(format!("Broker id must be an integer, but it is: {name}")),
            };
            match problem {
                Some(problem) => return Err(Refusal::request(problem)),
                None => loggers::levels().into_iter().map(logger).collect(),
            }
        }
        other => {
            return Err(Refusal::request(format!(
                "Unsupported resource type: {other}"
            )));
        }
    };
    if let Some(keys) = resource
        .configuration_keys
        .as_ref()
        .filter(|k| !k.is_empty())
    {
        entries.retain(|e| keys.contains(&e.name));
    }
    Ok(entries)
}

fn logger((name, level): (String, &str)) -> Entry {
    Entry {
        name,
        value: Some(level.to_owned()),
        read_only: false,
        sensitive: false,
        value_type: None,
        source: Source::Logger,
        synonyms: Vec::new(),
    }
}

fn on_the_wire(entry: Entry, version: i16, synonyms: bool) -> DescribeConfigsResourceResult {
    let shown = if synonyms { entry.synonyms } else { Vec::new() };
    DescribeConfigsResourceResult {
        name: entry.name,
        value: entry.value,
        read_only: entry.read_only,
        // version 0 has this instead of a source
        is_default: version == 0 && entry.source == Source::Default,
        config_source: entry.source as i8,
        is_sensitive: entry.sensitive,
        synonyms: shown
            .into_iter()
            .map(|s| DescribeConfigsSynonym {
                name: s.name,
                value: s.value,
                source: s.source as i8,
                ..Default::default()
            })
            .collect(),
        config_type: entry.value_type.map_or(0, |t| t as i8),
        documentation: None,
        ..Default::default()
    }
}
