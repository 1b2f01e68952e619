//! Ids for producers, unique in the cluster: taken from the controller a block at a time (KIP-730), or from ZooKeeper
//! below inter.broker.protocol.version 3.0.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::AllocateProducerIdsRequest;

use crate::broker::Broker;
use crate::config::version::MetadataVersion;

/// How long a producer waits for a block; then it asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is left of the present block.
#[derive(Debug, Default)]
pub struct ProducerIds {
    block: tokio::sync::Mutex<Range<i64>>,
}

impl ProducerIds {
    /// The next id. COORDINATOR_LOAD_IN_PROGRESS, on which producers try again, while no block can be had.
    pub async fn next(&self, broker: &Arc<Broker>) -> Result<i64, ErrorCode> {
        let next = async {
            let mut block = self.block.lock().await;
            if let Some(id) = block.next() {
                return Ok(id);
            }
            *block = allocate(broker).await?;
            block.next().ok_or_else(|| "the block is empty".to_owned())
        };
        let outcome = tokio::time::timeout(PATIENCE, next)
            .await
            .unwrap_or_else(|_| Err(format!("nothing came within {PATIENCE:?}")));
        outcome.map_err(|reason| {
            tracing::warn!(
                "no block of producer ids for now: {reason}; producers try again by themselves"
            );
            ErrorCode::CoordinatorLoadInProgress
        })
    }
}

async fn allocate(broker: &Arc<Broker>) -> Result<Range<i64>, String> {
    let config = broker.config.current();
    let (id, epoch) = (broker.identity.broker_id, broker.identity.broker_epoch());
    let by_controller = MetadataVersion::parse(&config.inter_broker_protocol_version)
        .is_some_and(|version| version.at_least("3.0-IV0"));
    if !by_controller {
        let block = broker.registry.next_producer_id_block(id).await;
        let block = block.map_err(|error| error.to_string())?;
        return Ok(block.first..block.last.saturating_add(1));
    }
    let (first, length) = if broker.controller.is_active() {
        let allocated = broker.controller.allocate_producer_ids(id, epoch).await;
        allocated.map_err(|error| format!("this controller answered {}", error.name()))?
    } else {
        let request = AllocateProducerIdsRequest {
            broker_id: id,
            broker_epoch: epoch,
            ..Default::default()
        };
        let answer = broker.controller_link.send(broker, 0, &request).await?;
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::None => (answer.producer_id_start, answer.producer_id_len),
            error => return Err(format!("the controller answered {}", error.name())),
        }
    };
    if first < 0 || length <= 0 {
        return Err(format!("a block of {length} ids from {first}"));
    }
    Ok(first..first.saturating_add(length.into()))
}
