//! CreatePartitions: all topics of a request are checked, then rewritten at once, then waited for.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::create_partitions_request::CreatePartitionsTopic;
use gracchus_kafka_proto::messages::create_partitions_response::CreatePartitionsTopicResult;
use gracchus_registry::json::TopicAssignment;
use gracchus_registry::op::ZkOp;
use gracchus_registry::{ANY_VERSION, RegistryError, paths};

use super::create::Options;
use super::{MAX_ASSIGNMENT_BYTES, Refusal, candidates, growth, plan, refusal, wait};
use crate::broker::Broker;

/// Adds partitions to topics with distinct names; one result each, in the same order.
pub async fn grow(
    broker: &Arc<Broker>,
    topics: &[CreatePartitionsTopic],
    options: Options,
) -> Vec<CreatePartitionsTopicResult> {
    let checked = match check(broker, topics).await {
        Ok(checked) => checked,
        Err(error) => {
            tracing::warn!(%error, "partitions cannot be created: ZooKeeper's topics are unknown");
            let refused = refusal(ErrorCode::UnknownServerError, error.to_string());
            return topics
                .iter()
                .map(|topic| answer(&topic.name, Err(refused.clone())))
                .collect();
        }
    };
    if options.validate_only {
        return topics
            .iter()
            .zip(checked)
            .map(|(topic, checked)| answer(&topic.name, checked.map(|_| ())))
            .collect();
    }
    let mut outcomes: Vec<Result<(), Refusal>> = Vec::with_capacity(topics.len());
    let mut writing = Vec::new();
    let mut writes = Vec::new();
    for (at, (topic, checked)) in topics.iter().zip(checked).enumerate() {
        outcomes.push(match checked {
            Ok(grown) => {
                // unfenced, as in Kafka; the controller's watch on the node does the rest
                writes.push(ZkOp::SetData {
                    path: paths::topic(&topic.name),
                    data: Some(grown.to_bytes()),
                    version: ANY_VERSION,
                });
                writing.push(at);
                Ok(())
            }
            Err(refused) => Err(refused),
        });
    }
    let written = broker.registry.execute(writes).await;
    let mut awaited = Vec::new();
    for (at, written) in writing.into_iter().zip(written) {
        let (Some(topic), Some(outcome)) = (topics.get(at), outcomes.get_mut(at)) else {
            continue;
        };
        match written {
            Ok(_) => {
                tracing::info!(
                    topic = topic.name,
                    partitions = topic.count,
                    "partitions added"
                );
                awaited.push((topic.name.clone(), topic.count));
            }
            Err(failure) => {
                let path = paths::topic(&topic.name);
                let text = format!("ZooKeeper answered {} for {path}", failure.error);
                *outcome = Err(refusal(ErrorCode::UnknownServerError, text));
            }
        }
    }
    let late = if options.timeout_ms <= 0 {
        awaited.into_iter().map(|(topic, _)| topic).collect()
    } else {
        wait::leaders(&broker.metadata, awaited, options.timeout_ms).await
    };
    topics
        .iter()
        .zip(outcomes)
        .map(|(topic, outcome)| {
            let text = ErrorCode::RequestTimedOut.message();
            let outcome = match outcome {
                Ok(()) if late.contains(&topic.name) => {
                    Err(refusal(ErrorCode::RequestTimedOut, text))
                }
                outcome => outcome,
            };
            answer(&topic.name, outcome)
        })
        .collect()
}

async fn check(
    broker: &Broker,
    topics: &[CreatePartitionsTopic],
) -> Result<Vec<Result<TopicAssignment, Refusal>>, RegistryError> {
    let marked = broker
        .registry
        .children(paths::DELETE_TOPICS, false)
        .await?;
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let valid: Vec<String> = names
        .iter()
        .filter(|name| crate::metadata::view::invalid_name(name).is_none())
        .cloned()
        .collect();
    let mut stored: hashbrown::HashMap<String, _> = broker
        .registry
        .topics(&valid)
        .await?
        .into_iter()
        .map(|topic| (topic.name, topic.assignment))
        .collect();
    let brokers = candidates(&broker.metadata.snapshot());
    let one = |topic: &CreatePartitionsTopic| {
        if marked.contains(&topic.name) {
            return Err(refusal(
                ErrorCode::InvalidTopicException,
                "The topic is queued for deletion.",
            ));
        }
        let grown = match stored.remove(&topic.name) {
            None => Err(refusal(
                ErrorCode::UnknownTopicOrPartition,
                format!("The topic '{}' does not exist.", topic.name),
            )),
            Some(Err(error)) => Err(refusal(
                ErrorCode::UnknownServerError,
                format!("{} cannot be read: {error}", paths::topic(&topic.name)),
            )),
            Some(Ok(present)) => growth::grow(topic, &present, &brokers),
        }?;
        if grown.to_bytes().len() > MAX_ASSIGNMENT_BYTES {
            return Err(plan::too_many());
        }
        Ok(grown)
    };
    Ok(topics.iter().map(one).collect())
}

/// One topic's result.
pub fn answer(name: &str, outcome: Result<(), Refusal>) -> CreatePartitionsTopicResult {
    let mut result = CreatePartitionsTopicResult {
        name: name.to_owned(),
        ..Default::default()
    };
    if let Err(Refusal { error, message }) = outcome {
        tracing::info!(
            topic = name,
            error = error.name(),
            "partitions not added: {message}"
        );
        result.error_code = error.code();
        result.error_message = Some(message);
    }
    result
}
