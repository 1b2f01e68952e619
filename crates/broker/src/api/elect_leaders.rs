//! ElectLeaders (43), by the active controller: preferred leaders, or any live ones where there is none.

use std::sync::Arc;
use std::time::Duration;

use gracchus_controller::{Outcome, PartitionKey};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::elect_leaders_response::{
    PartitionResult, ReplicaElectionResult,
};
use gracchus_kafka_proto::messages::{ElectLeadersRequest, ElectLeadersResponse};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::metadata::Snapshot;

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Answers when the metadata show the leaders, or after the request's timeout.
pub async fn handle(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let unclean = match request.election_type {
        _ if ctx.api_version == 0 => false,
        PREFERRED => false,
        UNCLEAN => true,
        _ => {
            return ElectLeadersResponse {
                error_code: ErrorCode::InvalidRequest.code(),
                ..Default::default()
            };
        }
    };
    let of_all = request.topic_partitions.is_none();
    let partitions: Vec<PartitionKey> = match request.topic_partitions {
        None => all(&broker.metadata.snapshot()),
        Some(topics) => topics
            .iter()
            .flat_map(|topic| {
                let key = |number: &i32| PartitionKey::new(&topic.topic, *number);
                topic.partitions.iter().map(key)
            })
            .collect(),
    };
    let elected = if broker.controller.is_active() {
        broker
            .controller
            .elect_leaders(partitions.clone(), unclean)
            .await
    } else {
        Err(ErrorCode::NotController)
    };
    let mut outcomes = elected.unwrap_or_else(|error| {
        let refused = |key| (key, Err((error, error.message().to_owned())));
        partitions.into_iter().map(refused).collect()
    });
    wait(broker, &mut outcomes, request.timeout_ms).await;
    if of_all {
        // only those for which there was something to do
        outcomes.retain(
            |(_, outcome)| !matches!(outcome, Err((error, _)) if *error == ErrorCode::ElectionNotNeeded),
        );
    }
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    ElectLeadersResponse {
        replica_election_results: results(outcomes),
        ..Default::default()
    }
}

fn all(snapshot: &Snapshot) -> Vec<PartitionKey> {
    let mut keys = Vec::new();
    for (name, topic) in &snapshot.topics {
        keys.extend(topic.partitions.keys().map(|n| PartitionKey::new(name, *n)));
    }
    keys
}

/// A leader that the metadata do not show in time is an error.
async fn wait(broker: &Broker, outcomes: &mut [(PartitionKey, Outcome<i32>)], timeout_ms: i32) {
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let is_shown = |snapshot: &Snapshot, key: &PartitionKey, leader: i32| {
        let known = snapshot.partition(&key.topic, key.partition);
        known.is_some_and(|p| p.leader == leader)
    };
    let shown = |snapshot: &Snapshot| {
        outcomes.iter().all(|(key, outcome)| match outcome {
            Ok(leader) => is_shown(snapshot, key, *leader),
            Err(_) => true,
        })
    };
    if broker.metadata.wait_until(timeout, shown).await {
        return;
    }
    let snapshot = broker.metadata.snapshot();
    for (key, outcome) in outcomes {
        if let Ok(leader) = outcome
            && !is_shown(&snapshot, key, *leader)
        {
            let error = ErrorCode::RequestTimedOut;
            *outcome = Err((error, error.message().to_owned()));
        }
    }
}

fn results(outcomes: Vec<(PartitionKey, Outcome<i32>)>) -> Vec<ReplicaElectionResult> {
    let mut topics: Vec<ReplicaElectionResult> = Vec::new();
    for (key, outcome) in outcomes {
        let (code, message) = match outcome {
            Ok(_) => (ErrorCode::None, None),
            Err((error, text)) => (error, Some(text)),
        };
        let result = PartitionResult {
            partition_id: key.partition,
            error_code: code.code(),
            error_message: message,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last) if *last.topic == *key.topic => last.partition_result.push(result),
            _ => topics.push(ReplicaElectionResult {
                topic: key.topic.to_string(),
                partition_result: vec![result],
                ..Default::default()
            }),
        }
    }
    topics
}
