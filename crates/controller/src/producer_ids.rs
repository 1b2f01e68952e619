//! AllocateProducerIds (KIP-730): blocks of producer ids, given out by the controller.

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};
use gracchus_registry::json::ProducerIdBlock;
use gracchus_registry::json::producer_ids::BLOCK_SIZE;
use gracchus_registry::op::ZkError;
use gracchus_registry::{ZkOp, paths};

use crate::core::{Core, Failure, failed};

/// Others may write the node (brokers older than this request): how often we try to be first.
const TRIES: usize = 100;

impl Core {
    pub async fn allocate_producer_ids(
        &mut self,
        request: AllocateProducerIdsRequest,
    ) -> Result<AllocateProducerIdsResponse, Failure> {
        let refused = |error: ErrorCode| {
            Ok(AllocateProducerIdsResponse {
                error_code: error.code(),
                ..Default::default()
            })
        };
        let Some(broker) = self.cx.brokers.get(&request.broker_id) else {
            return refused(ErrorCode::BrokerIdNotRegistered);
        };
        if broker.epoch != request.broker_epoch {
            return refused(ErrorCode::StaleBrokerEpoch);
        }
        for _ in 0..TRIES {
            let stored = self.read(paths::PRODUCER_ID_BLOCK, false).await?;
            let latest = match &stored {
                Some((data, _)) if !data.is_empty() => match ProducerIdBlock::parse(data) {
                    Ok(block) => Some(block),
                    Err(error) => {
                        tracing::error!(
                            "{} cannot be read: {error}. Idempotent producers cannot start until it names the last block given out",
                            paths::PRODUCER_ID_BLOCK
                        );
                        return refused(ErrorCode::UnknownServerError);
                    }
                },
                _ => None,
            };
            let Some(block) = ProducerIdBlock::next(latest.as_ref(), request.broker_id) else {
                tracing::error!("the producer ids of this cluster have run out");
                return refused(ErrorCode::UnknownServerError);
            };
            let data = Some(block.to_bytes());
            let op = match stored {
                Some((_, stat)) => ZkOp::SetData {
                    path: paths::PRODUCER_ID_BLOCK.to_owned(),
                    data,
                    version: stat.version,
                },
                None => ZkOp::create(paths::PRODUCER_ID_BLOCK, data),
            };
            match self.one(op).await {
                Ok(_) => {
                    return Ok(AllocateProducerIdsResponse {
                        producer_id_start: block.first,
                        producer_id_len: i32::try_from(BLOCK_SIZE).unwrap_or(0),
                        ..Default::default()
                    });
                }
                Err(failure)
                    if matches!(
                        failure.error,
                        ZkError::BadVersion | ZkError::NodeExists | ZkError::NoNode
                    ) => {}
                Err(failure) => return Err(failed(paths::PRODUCER_ID_BLOCK, failure.error)),
            }
        }
        refused(ErrorCode::UnknownServerError)
    }
}
