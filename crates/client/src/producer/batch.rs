//! Batches of records, and the request that carries those of one broker.

use super::{ProducerConfig, RecordMetadata};
use crate::{ClientError, Cluster, TopicPartition};
use bytes::Bytes;
use gracchus_kafka_proto::Records;
use gracchus_kafka_proto::messages::produce_request::{PartitionProduceData, TopicProduceData};
use gracchus_kafka_proto::messages::{ProduceRequest, ProduceResponse};
use gracchus_record::BatchBuilder;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

pub(super) type Answer = oneshot::Sender<Result<RecordMetadata, ClientError>>;

/// Records of one partition that go together.
pub(super) struct Batch {
    pub builder: BatchBuilder,
    pub answers: Vec<(Answer, i64)>,
    /// Given back when the batch is answered.
    pub memory: Vec<OwnedSemaphorePermit>,
    pub created: Instant,
    /// Not before this, after a failure.
    pub retry_at: Option<Instant>,
    /// Encoded once; a retry sends the same bytes.
    pub encoded: Option<Bytes>,
}

impl Batch {
    pub(super) fn fail(self, error: &ClientError) {
        for (answer, _) in self.answers {
            let _ = answer.send(Err(error.clone()));
        }
    }

    pub(super) fn succeed(self, partition: &TopicPartition, base_offset: i64, append_time: i64) {
        for (i, (answer, timestamp)) in self.answers.into_iter().enumerate() {
            let _ = answer.send(Ok(RecordMetadata {
                partition: partition.clone(),
                offset: if base_offset < 0 {
                    -1
                } else {
                    base_offset + i as i64
                },
                timestamp: if append_time >= 0 {
                    append_time
                } else {
                    timestamp
                },
            }));
        }
    }
}

/// One request's batches and what became of it.
pub(super) struct Sent {
    pub batches: Vec<(TopicPartition, Batch)>,
    pub result: Result<Option<ProduceResponse>, ClientError>,
}

pub(super) async fn send(
    cluster: Cluster,
    config: Arc<ProducerConfig>,
    broker: i32,
    batches: Vec<(TopicPartition, Batch)>,
) -> Sent {
    let mut topics: BTreeMap<&str, Vec<PartitionProduceData>> = BTreeMap::new();
    for (tp, batch) in &batches {
        topics
            .entry(&tp.topic)
            .or_default()
            .push(PartitionProduceData {
                index: tp.partition,
                records: batch.encoded.clone().map(Records::from),
                ..Default::default()
            });
    }
    let request = ProduceRequest {
        transactional_id: None,
        acks: config.acks,
        timeout_ms: i32::try_from(config.request_timeout.as_millis()).unwrap_or(i32::MAX),
        topic_data: topics
            .into_iter()
            .map(|(name, partition_data)| TopicProduceData {
                name: name.to_owned(),
                partition_data,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let timeout = config.request_timeout + Duration::from_secs(5);
    let result = async {
        let connection = cluster.broker(broker).await?;
        if config.acks == 0 {
            connection.send_unanswered(&request, i16::MAX).await?;
            return Ok(None);
        }
        connection
            .send_waiting(&request, i16::MAX, timeout)
            .await
            .map(Some)
    }
    .await;
    Sent { batches, result }
}
