//! DeleteTopics (20), by the active controller: topics are marked in ZooKeeper, and gone when no broker serves them.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::messages::delete_topics_request::DeleteTopicState;
use gracchus_kafka_proto::messages::delete_topics_response::DeletableTopicResult;
use gracchus_kafka_proto::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_registry::{RegistryError, paths};
use gracchus_zk_client::ZkError;

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::metadata::Snapshot;

/// Answers when the topics are gone from the metadata, or after the request's timeout.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let wanted = wanted(request.topics, request.topic_names, ctx.api_version);
    let all = |error: ErrorCode| {
        wanted
            .iter()
            .map(|topic| result(topic.name.clone(), topic.topic_id, error))
            .collect()
    };
    let deletable = broker.config.current().delete_topic_enable;
    let responses = if !broker.controller.is_active() {
        all(ErrorCode::NotController)
    } else if !deletable {
        all(if ctx.api_version < 3 {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        })
    } else if wanted
        .iter()
        .any(|topic| topic.name.is_some() && !topic.topic_id.is_zero())
    {
        // a topic has either its name or its id
        all(ErrorCode::InvalidRequest)
    } else {
        let results = resolve(&broker.metadata.snapshot(), wanted);
        delete(broker, results, request.timeout_ms).await
    };
    DeleteTopicsResponse {
        responses,
        ..Default::default()
    }
}

/// Names alone up to version 5, names or ids from 6 on.
fn wanted(
    topics: Vec<DeleteTopicState>,
    names: Vec<String>,
    version: i16,
) -> Vec<DeleteTopicState> {
    if version >= 6 {
        return topics;
    }
    names
        .into_iter()
        .map(|name| DeleteTopicState {
            name: Some(name),
            ..Default::default()
        })
        .collect()
}

fn result(name: Option<String>, topic_id: Uuid, error: ErrorCode) -> DeletableTopicResult {
    DeletableTopicResult {
        name,
        topic_id,
        error_code: error.code(),
        ..Default::default()
    }
}

fn resolve(snapshot: &Snapshot, wanted: Vec<DeleteTopicState>) -> Vec<DeletableTopicResult> {
    wanted
        .into_iter()
        .map(|topic| {
            let id = topic.topic_id;
            let by_id = || snapshot.topic_name(&id).map(|name| name.to_string());
            if id.is_zero() {
                let known = topic
                    .name
                    .as_deref()
                    .is_some_and(|name| snapshot.topics.contains_key(name));
                let error = if known {
                    ErrorCode::None
                } else {
                    ErrorCode::UnknownTopicOrPartition
                };
                result(topic.name, id, error)
            } else {
                match by_id() {
                    Some(name) => result(Some(name), id, ErrorCode::None),
                    None => result(None, id, ErrorCode::UnknownTopicId),
                }
            }
        })
        .collect()
}

async fn delete(
    broker: &Arc<Broker>,
    mut results: Vec<DeletableTopicResult>,
    timeout_ms: i32,
) -> Vec<DeletableTopicResult> {
    let fine = |result: &&mut DeletableTopicResult| result.error_code == ErrorCode::None.code();
    let names: Vec<String> = results
        .iter_mut()
        .filter(fine)
        .filter_map(|result| result.name.clone())
        .collect();
    if names.is_empty() {
        return results;
    }
    let marked = mark(broker, &names).await;
    let mut missing = Vec::with_capacity(names.len());
    for (result, outcome) in results.iter_mut().filter(fine).zip(marked) {
        match outcome {
            Ok(()) => missing.extend(result.name.clone()),
            Err((error, text)) => {
                result.error_code = error.code();
                result.error_message = text;
            }
        }
    }
    if timeout_ms > 0 && !missing.is_empty() {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let gone = |snapshot: &Snapshot| {
            missing.retain(|name| snapshot.topics.contains_key(name.as_str()));
            missing.is_empty()
        };
        broker.metadata.wait_until(timeout, gone).await;
    }
    // still there, or not waited for: the deletion goes on
    let missing: hashbrown::HashSet<String> = missing.into_iter().collect();
    for result in results.iter_mut().filter(fine) {
        if result
            .name
            .as_ref()
            .is_some_and(|name| missing.contains(name))
        {
            result.error_code = ErrorCode::RequestTimedOut.code();
        }
    }
    results
}

/// Marks those that exist.
async fn mark(broker: &Broker, names: &[String]) -> Vec<Result<(), (ErrorCode, Option<String>)>> {
    let marked = broker.registry.mark_for_deletion(names).await;
    names
        .iter()
        .zip(marked)
        .map(|(name, outcome)| match outcome {
            Ok(()) => {
                tracing::info!(topic = name, "topic marked for deletion");
                Ok(())
            }
            Err(error) => {
                let path = paths::delete_topic(name);
                tracing::warn!(%error, "topic {name} not deleted: {path} cannot be made");
                Err(match &error {
                    RegistryError::Zk {
                        error: ZkError::NoNode,
                        ..
                    } => (ErrorCode::UnknownTopicOrPartition, None),
                    error => (ErrorCode::UnknownServerError, Some(error.to_string())),
                })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::TopicInfo;

    #[test]
    fn topics_are_found_by_name_or_id() {
        let id = Uuid::from_bytes([7; 16]);
        let mut snapshot = Snapshot::default();
        let info = TopicInfo {
            id,
            ..Default::default()
        };
        snapshot.topics.insert("t".into(), Arc::new(info));
        snapshot.topic_names.insert(id, "t".into());
        let by = |name: Option<&str>, topic_id| DeleteTopicState {
            name: name.map(str::to_owned),
            topic_id,
            ..Default::default()
        };
        let other = Uuid::from_bytes([8; 16]);
        let results = resolve(
            &snapshot,
            vec![
                by(Some("t"), Uuid::ZERO),
                by(Some("u"), Uuid::ZERO),
                by(None, id),
                by(None, other),
                by(None, Uuid::ZERO),
            ],
        );
        let found: Vec<(Option<&str>, ErrorCode)> = results
            .iter()
            .map(|r| (r.name.as_deref(), ErrorCode::from_code(r.error_code)))
            .collect();
        assert_eq!(
            found,
            [
                (Some("t"), ErrorCode::None),
                (Some("u"), ErrorCode::UnknownTopicOrPartition),
                (Some("t"), ErrorCode::None),
                (None, ErrorCode::UnknownTopicId),
                (None, ErrorCode::UnknownTopicOrPartition),
            ]
        );
    }
}
