//! A producer: records gathered in batches, one request in flight a partition, so that order holds through retries.

mod batch;
mod partitioner;
mod sender;

pub use partitioner::{murmur2, partition_for_key};

use crate::{ClientError, Cluster, TopicPartition};
use gracchus_record::Codec;
use gracchus_record::compression::Levels;
use sender::{Command, Sender};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Kafka's names and defaults, but for `linger`.
#[derive(Debug, Clone)]
pub struct ProducerConfig {
    /// -1 all in-sync replicas, 1 the leader, 0 no answer.
    pub acks: i16,
    /// How long a batch waits for more records.
    pub linger: Duration,
    /// Plain bytes of a batch.
    pub batch_size: usize,
    pub compression: Codec,
    pub levels: Levels,
    /// Sequence numbers, so that a retry is stored once. Needs acks -1.
    pub idempotence: bool,
    /// From send to answer; then the record has failed.
    pub delivery_timeout: Duration,
    /// What the broker may wait for the in-sync replicas.
    pub request_timeout: Duration,
    pub max_request_size: usize,
    /// Bytes not yet acknowledged; more wait.
    pub buffer_memory: usize,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        ProducerConfig {
            acks: -1,
            linger: Duration::ZERO,
            batch_size: 16 * 1024,
            compression: Codec::None,
            levels: Levels::default(),
            idempotence: true,
            delivery_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            max_request_size: 1 << 20,
            buffer_memory: 32 << 20,
        }
    }
}

/// A record to be sent.
#[derive(Debug, Clone, Default)]
pub struct ProducerRecord {
    pub topic: String,
    /// Chosen by key, or in turn, when `None`.
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// ms since the epoch; now when `None`.
    pub timestamp: Option<i64>,
}

impl ProducerRecord {
    fn size(&self) -> usize {
        let length = |f: &Option<Vec<u8>>| f.as_ref().map_or(0, Vec::len);
        let headers = self.headers.iter().map(|(k, v)| k.len() + length(v) + 10);
        length(&self.key) + length(&self.value) + headers.sum::<usize>() + 30
    }
}

/// Where a record was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordMetadata {
    pub partition: TopicPartition,
    /// -1 with acks 0, or when only a duplicate of it is known to be stored.
    pub offset: i64,
    /// LogAppendTime if the topic has it, else the record's own.
    pub timestamp: i64,
}

/// The answer to come for one record.
pub type Delivery = oneshot::Receiver<Result<RecordMetadata, ClientError>>;

/// Cheap to clone. The task behind it ends when the last clone is gone and everything is sent.
#[derive(Clone, Debug)]
pub struct Producer {
    commands: mpsc::Sender<Command>,
    memory: Arc<Semaphore>,
    config: Arc<ProducerConfig>,
}

impl Producer {
    pub fn new(cluster: Cluster, config: ProducerConfig) -> Result<Self, ClientError> {
        if config.idempotence && config.acks != -1 {
            return Err(ClientError::Invalid(format!(
                "an idempotent producer needs acks=all, not acks={}",
                config.acks
            )));
        }
        let config = Arc::new(config);
        let (commands, queue) = mpsc::channel(1024);
        let memory = Arc::new(Semaphore::new(
            config.buffer_memory.clamp(1, Semaphore::MAX_PERMITS),
        ));
        tokio::spawn(Sender::new(cluster, config.clone()).run(queue));
        Ok(Producer {
            commands,
            memory,
            config,
        })
    }

    async fn reserve(&self, size: usize) -> Result<OwnedSemaphorePermit, ClientError> {
        // what is larger than the whole buffer takes all of it
        let size = size.min(self.config.buffer_memory.max(1));
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        self.memory
            .clone()
            .acquire_many_owned(permits)
            .await
            .map_err(|_| closed())
    }

    /// Puts a record into its batch; waits only while the buffer is full. The delivery tells how it went.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ClientError> {
        let size = record.size();
        if size > self.config.max_request_size {
            return Err(ClientError::Invalid(format!(
                "The message is {size} bytes when serialized which is larger than {}, which is the value of the max.request.size configuration.",
                self.config.max_request_size
            )));
        }
        let memory = self.reserve(size).await?;
        let (answer, delivery) = oneshot::channel();
        self.commands
            .send(Command::Send {
                record,
                answer,
                memory,
            })
            .await
            .map_err(|_| closed())?;
        Ok(delivery)
    }

    /// Sends what is gathered and waits until all of it is answered.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let (done, flushed) = oneshot::channel();
        self.commands
            .send(Command::Flush(done))
            .await
            .map_err(|_| closed())?;
        flushed.await.map_err(|_| closed())
    }
}

fn closed() -> ClientError {
    ClientError::Invalid("the producer is closed".into())
}
