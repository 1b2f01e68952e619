//! Controlled shutdown of a broker: its leaders move away while it still serves.

use gracchus_kafka_proto::ErrorCode;

use crate::action::ApiResult;
use crate::context::PartitionKey;
use crate::event::ApiToken;
use crate::leaders::Strategy;
use crate::machine::Controller;

impl Controller {
    pub(crate) fn controlled_shutdown(
        &mut self,
        token: ApiToken,
        broker_id: i32,
        broker_epoch: i64,
    ) {
        let refuse =
            |me: &mut Self, error| me.reply(token, ApiResult::ControlledShutdown(Err(error)));
        let Some(known) = self.cx.brokers.get(&broker_id) else {
            return refuse(self, ErrorCode::BrokerNotAvailable);
        };
        if broker_epoch >= 0 && broker_epoch < known.epoch {
            return refuse(self, ErrorCode::StaleBrokerEpoch);
        }
        self.cx.shutting_down.insert(broker_id);
        // partitions with one replica can't move and don't hold the shutdown up
        let cx = &self.cx;
        let hosted = cx.keys_where(|t, p| {
            p.replicas.len() > 1 && p.replicas.contains(&broker_id) && !cx.is_going(t)
        });
        let leads = move |me: &Self, key: &PartitionKey| {
            me.cx
                .partition(key)
                .and_then(|p| p.leader_isr.as_ref())
                .is_some_and(|l| l.state.leader == broker_id)
        };
        let (led, followed): (Vec<_>, Vec<_>) =
            hosted.into_iter().partition(|key| leads(self, key));
        let answer_for = led.clone();
        self.elect_leaders(
            led,
            Strategy::ControlledShutdown,
            0,
            Box::new(move |me| {
                for key in &followed {
                    me.batch_stop(broker_id, key, false);
                }
                let cuts = followed.into_iter().map(|key| (key, broker_id)).collect();
                me.cut_replicas(cuts, move |me| {
                    me.flush();
                    let left = answer_for
                        .iter()
                        .filter(|k| leads(me, k))
                        .map(|k| (k.topic.to_string(), k.partition))
                        .collect();
                    me.reply(token, ApiResult::ControlledShutdown(Ok(left)));
                });
            }),
        );
    }
}
