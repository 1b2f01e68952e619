//! CreateTopics: all topics of a request are planned, then written at once, then waited for.

use std::sync::Arc;

use gracchus_kafka_proto::messages::create_topics_request::CreatableTopic;
use gracchus_kafka_proto::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::json::TopicAssignment;
use gracchus_registry::registry::NewTopic;
use gracchus_registry::{RegistryError, paths};
use gracchus_zk_client::ZkError;

use super::placement::Start;
use super::plan::{self, Facts, Names, Plan, plan};
use super::{MAX_ASSIGNMENT_BYTES, Refusal, candidates, refusal, wait};
use crate::broker::Broker;
use crate::config::version::MetadataVersion;

/// How a request wants it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long to wait for leaders, ms; 0 or less does not wait and answers REQUEST_TIMED_OUT for what was made.
    pub timeout_ms: i32,
    /// Check only.
    pub validate_only: bool,
}

/// Makes topics with distinct names; one result each, in the same order.
pub async fn create(
    broker: &Arc<Broker>,
    topics: Vec<CreatableTopic>,
    options: Options,
) -> Vec<CreatableTopicResult> {
    let mut results: Vec<CreatableTopicResult> = topics
        .iter()
        .map(|topic| CreatableTopicResult {
            name: topic.name.clone(),
            ..unmade()
        })
        .collect();
    let planned = match all_plans(broker, &topics, options.validate_only).await {
        Ok(planned) => planned,
        Err(error) => {
            tracing::warn!(%error, "topics cannot be created: ZooKeeper's topics are unknown");
            for result in &mut results {
                refuse(result, unreadable(&error));
            }
            return results;
        }
    };
    drop(topics);
    let mut making = Vec::with_capacity(results.len());
    let mut new = Vec::with_capacity(results.len());
    for (result, planned) in results.iter_mut().zip(planned) {
        match planned {
            Err(refused) => refuse(result, refused),
            Ok(plan) => {
                describe(broker, &plan, result);
                if !options.validate_only {
                    let made = znodes(broker, &result.name, plan);
                    if made.assignment.to_bytes().len() > MAX_ASSIGNMENT_BYTES {
                        refuse(result, plan::too_many());
                        continue;
                    }
                    new.push(made);
                    making.push(result);
                }
            }
        }
    }
    let written = broker.registry.create_topics(&new).await;
    let mut awaited = Vec::with_capacity(new.len());
    for ((result, new), written) in making.iter_mut().zip(new).zip(written) {
        match written {
            Ok(()) => {
                tracing::info!(
                    topic = new.name,
                    partitions = result.num_partitions,
                    replication_factor = result.replication_factor,
                    config = ?new.config.config,
                    "topic created"
                );
                result.topic_id = new.assignment.topic_id.unwrap_or(Uuid::ZERO);
                awaited.push((new.name, result.num_partitions));
            }
            Err(error) => refuse(result, refusal_of(&new.name, &error)),
        }
    }
    if awaited.is_empty() {
        return results;
    }
    let at_once = options.timeout_ms <= 0;
    let late = if at_once {
        awaited.into_iter().map(|(topic, _)| topic).collect()
    } else {
        wait::leaders(&broker.metadata, awaited, options.timeout_ms).await
    };
    for result in making {
        if late.contains(&result.name) {
            let text = (!at_once).then(|| ErrorCode::RequestTimedOut.message().to_owned());
            failed(result, ErrorCode::RequestTimedOut, text);
        }
    }
    results
}

async fn all_plans(
    broker: &Arc<Broker>,
    topics: &[CreatableTopic],
    validate_only: bool,
) -> Result<Vec<Result<Plan, Refusal>>, RegistryError> {
    let snapshot = broker.metadata.snapshot();
    let config = broker.config.current();
    let brokers = candidates(&snapshot);
    let mut names = Names::default();
    for topic in topics {
        if snapshot.topics.contains_key(topic.name.as_str()) {
            names.take(&topic.name);
        }
    }
    // what the cache does not know yet, or no more: a creation hears of it from ZooKeeper, a mere check has to ask
    let marked = if validate_only {
        broker
            .registry
            .children(paths::DELETE_TOPICS, false)
            .await?
    } else {
        Vec::new()
    };
    let alike = |topic: &CreatableTopic| plan::has_collision_chars(&topic.name);
    if validate_only || topics.iter().any(alike) {
        for name in broker.registry.topic_names(false).await? {
            if validate_only && !marked.contains(&name) {
                names.take(&name);
            } else {
                names.keep_apart(&name);
            }
        }
    }
    let mut budget = Facts::new(&config, &brokers, &names).budget;
    let mut plans = Vec::with_capacity(topics.len());
    for topic in topics {
        let facts = Facts {
            budget,
            ..Facts::new(&config, &brokers, &names)
        };
        let mut planned = plan(topic, &facts, Start::random(brokers.len()));
        if planned.is_ok() && marked.contains(&topic.name) {
            planned = Err(being_deleted(&topic.name));
        }
        if let Ok(plan) = &planned {
            budget = budget.saturating_sub(plan.partitions());
            names.take(&topic.name);
        }
        plans.push(planned);
    }
    Ok(plans)
}

fn znodes(broker: &Broker, name: &str, plan: Plan) -> NewTopic {
    let config = broker.config.current();
    // topic ids came with 2.8
    let with_id = MetadataVersion::parse(&config.inter_broker_protocol_version)
        .is_some_and(|version| version.at_least("2.8-IV0"));
    NewTopic {
        name: name.to_owned(),
        assignment: TopicAssignment {
            topic_id: with_id.then(random_id),
            partitions: plan.assignment,
            ..Default::default()
        },
        config: plan.config,
    }
}

/// Like Kafka's, none begins with `-` as text, which command lines would take for an option.
fn random_id() -> Uuid {
    loop {
        let id = Uuid::from_bytes(uuid::Uuid::new_v4().into_bytes());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}

fn describe(broker: &Broker, plan: &Plan, result: &mut CreatableTopicResult) {
    result.num_partitions = plan.partitions();
    result.replication_factor = plan.replication_factor();
    let entries = broker.config.describe_overrides(&plan.overrides);
    result.configs = Some(
        entries
            .into_iter()
            .map(|entry| CreatableTopicConfigs {
                name: entry.name,
                value: entry.value,
                read_only: entry.read_only,
                config_source: entry.source as i8,
                is_sensitive: entry.sensitive,
                ..Default::default()
            })
            .collect(),
    );
}

fn unmade() -> CreatableTopicResult {
    CreatableTopicResult {
        num_partitions: -1,
        replication_factor: -1,
        configs: Some(Vec::new()),
        ..Default::default()
    }
}

/// A result for a topic that is not looked at further.
pub fn refused(name: String, error: ErrorCode, message: Option<&str>) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: error.code(),
        error_message: message.map(str::to_owned),
        ..unmade()
    }
}

fn refuse(result: &mut CreatableTopicResult, Refusal { error, message }: Refusal) {
    tracing::info!(
        topic = result.name,
        error = error.name(),
        "topic not created: {message}"
    );
    failed(result, error, Some(message));
}

/// The topic's id stays: a creation that only timed out has one.
fn failed(result: &mut CreatableTopicResult, error: ErrorCode, message: Option<String>) {
    *result = CreatableTopicResult {
        name: std::mem::take(&mut result.name),
        topic_id: result.topic_id,
        error_code: error.code(),
        error_message: message,
        ..unmade()
    };
}

fn being_deleted(name: &str) -> Refusal {
    refusal(
        ErrorCode::TopicAlreadyExists,
        format!("Topic '{name}' is marked for deletion."),
    )
}

fn refusal_of(name: &str, error: &RegistryError) -> Refusal {
    match error {
        RegistryError::MarkedForDeletion(_) => being_deleted(name),
        error if error.zk() == Some(ZkError::NodeExists) => plan::exists(name),
        error => unreadable(error),
    }
}

fn unreadable(error: &RegistryError) -> Refusal {
    refusal(ErrorCode::UnknownServerError, error.to_string())
}
