//! Blocks of producer ids, one owner each (AllocateProducerIds, KIP-730).

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::ProducerIdBlock;
use gracchus_registry::op::{ZkError, ZkOp, ZkReply};
use gracchus_registry::paths;

use crate::action::ApiResult;
use crate::event::ApiToken;
use crate::machine::Controller;

impl Controller {
    pub(crate) fn allocate_producer_ids(
        &mut self,
        token: ApiToken,
        broker_id: i32,
        broker_epoch: i64,
    ) {
        let refuse =
            move |me: &mut Self, error| me.reply(token, ApiResult::ProducerIds(Err(error)));
        let Some(known) = self.cx.brokers.get(&broker_id) else {
            return refuse(self, ErrorCode::BrokerIdNotRegistered);
        };
        if known.epoch != broker_epoch {
            return refuse(self, ErrorCode::StaleBrokerEpoch);
        }
        self.zk(vec![ZkOp::get(paths::PRODUCER_ID_BLOCK)], move |me, results| {
            let Some(Ok(ZkReply::Data { data, stat })) = results.first() else {
                return refuse(me, ErrorCode::UnknownServerError);
            };
            let latest = match data.as_deref().filter(|d| !d.is_empty()).map(ProducerIdBlock::parse).transpose() {
                Ok(latest) => latest,
                Err(error) => {
                    tracing::error!("{} can't be read ({error}): no producer ids can be given out until it is repaired", paths::PRODUCER_ID_BLOCK);
                    return refuse(me, ErrorCode::UnknownServerError);
                }
            };
            let Some(block) = ProducerIdBlock::next(latest.as_ref(), broker_id) else {
                tracing::error!("all producer ids are used up");
                return refuse(me, ErrorCode::UnknownServerError);
            };
            let ops = vec![ZkOp::SetData {
                path: paths::PRODUCER_ID_BLOCK.into(),
                data: Some(block.to_bytes()),
                version: stat.version,
            }];
            me.zk(ops, move |me, results| match results.first() {
                Some(Ok(_)) => {
                    let length = i32::try_from(block.last - block.first + 1).unwrap_or(0);
                    me.reply(token, ApiResult::ProducerIds(Ok((block.first, length))));
                }
                // another broker took it; the version rises with each, so this ends
                Some(Err(f)) if f.error == ZkError::BadVersion => me.allocate_producer_ids(token, broker_id, broker_epoch),
                _ => me.reply(token, ApiResult::ProducerIds(Err(ErrorCode::NotController))),
            });
        });
    }
}
