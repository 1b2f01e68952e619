//! ControlledShutdown: a broker asks to be relieved of its leaderships.

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::controlled_shutdown_response::RemainingPartition;
use gracchus_kafka_proto::messages::{ControlledShutdownRequest, ControlledShutdownResponse};

use crate::context::{PartitionStage, Replica, ReplicaStage, TopicPartition};
use crate::core::{Core, Failure};
use crate::leader_election::Strategy;

impl Core {
    /// Answers what the broker still leads; partitions with one replica never hold it up.
    pub async fn controlled_shutdown(
        &mut self,
        request: ControlledShutdownRequest,
    ) -> Result<ControlledShutdownResponse, Failure> {
        let refused = |error: ErrorCode| {
            Ok(ControlledShutdownResponse {
                error_code: error.code(),
                ..Default::default()
            })
        };
        let id = request.broker_id;
        let Some(broker) = self.cx.brokers.get(&id) else {
            return refused(ErrorCode::BrokerNotAvailable);
        };
        if request.broker_epoch != -1 && request.broker_epoch < broker.epoch {
            tracing::warn!(
                "ControlledShutdown of an earlier registration of broker {id} refused: epoch {}, now {}",
                request.broker_epoch,
                broker.epoch
            );
            return refused(ErrorCode::StaleBrokerEpoch);
        }
        tracing::info!("broker {id} shuts down");
        self.cx.shutting_down.insert(id);
        let (mut led, mut followed) = (Vec::new(), Vec::new());
        for (tp, partition) in self.cx.partitions() {
            let replicas = &partition.assignment.replicas;
            if replicas.len() < 2 || !replicas.contains(&id) || self.cx.is_deleting(&tp.topic) {
                continue;
            }
            match partition.leader() {
                Some(leader) if leader == id => led.push(tp),
                Some(_) => followed.push(tp),
                None => {}
            }
        }
        self.move_partitions(&led, PartitionStage::Online, Strategy::ControlledShutdown)
            .await?;
        self.batch.clear();
        for tp in &followed {
            self.add_stop_replica(&[id], tp, false);
        }
        self.send_batch();
        let replicas: Vec<Replica> = followed
            .into_iter()
            .map(|partition| Replica {
                partition,
                broker_id: id,
            })
            .collect();
        self.move_replicas(&replicas, ReplicaStage::Offline).await?;
        let remaining_partitions = self
            .still_led(id)
            .into_iter()
            .map(|tp| RemainingPartition {
                topic_name: tp.topic.to_string(),
                partition_index: tp.partition,
                ..Default::default()
            })
            .collect();
        Ok(ControlledShutdownResponse {
            remaining_partitions,
            ..Default::default()
        })
    }

    fn still_led(&self, id: i32) -> Vec<TopicPartition> {
        self.cx
            .partitions()
            .filter(|(tp, p)| {
                p.leader() == Some(id)
                    && p.assignment.replicas.len() > 1
                    && !self.cx.is_deleting(&tp.topic)
            })
            .map(|(tp, _)| tp)
            .collect()
    }
}
