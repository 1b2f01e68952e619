//! The task behind a producer: gathers records by partition, sends batches to leaders, retries, answers.

use super::batch::{Answer, Batch, Sent, send};
use super::{ProducerConfig, ProducerRecord, partition_for_key};
use crate::{ClientError, Cluster, TopicPartition};
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::InitProducerIdRequest;
use gracchus_record::batch::increment_sequence;
use gracchus_record::{BatchBuilder, Header, NewRecord};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) enum Command {
    Send {
        record: ProducerRecord,
        answer: Answer,
        memory: OwnedSemaphorePermit,
    },
    Flush(oneshot::Sender<()>),
}

#[derive(Default)]
struct Lane {
    batches: VecDeque<Batch>,
    in_flight: bool,
    next_sequence: i32,
}

pub(super) struct Sender {
    cluster: Cluster,
    config: Arc<ProducerConfig>,
    lanes: HashMap<TopicPartition, Lane>,
    /// Where records without a key go: a batch to one partition, then the next.
    turn: HashMap<String, i32>,
    producer: Option<(i64, i16)>,
    requests: JoinSet<Sent>,
    flushes: Vec<oneshot::Sender<()>>,
    closing: bool,
}

impl Sender {
    pub(super) fn new(cluster: Cluster, config: Arc<ProducerConfig>) -> Self {
        Sender {
            cluster,
            config,
            lanes: HashMap::new(),
            turn: HashMap::new(),
            producer: None,
            requests: JoinSet::new(),
            flushes: Vec::new(),
            closing: false,
        }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        loop {
            let wake = self.pump().await;
            if self.idle() {
                for done in self.flushes.drain(..) {
                    let _ = done.send(());
                }
                if self.closing {
                    return;
                }
            }
            tokio::select! {
                biased;
                Some(done) = self.requests.join_next(), if !self.requests.is_empty() => {
                    if let Ok(sent) = done {
                        self.settle(sent);
                    }
                }
                command = queue.recv(), if !self.closing => match command {
                    None => self.closing = true,
                    Some(command) => {
                        self.accept(command).await;
                        // take what else is there before sending
                        for _ in 0..512 {
                            match queue.try_recv() {
                                Ok(command) => self.accept(command).await,
                                Err(_) => break,
                            }
                        }
                    }
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                else => tokio::task::yield_now().await,
            }
        }
    }

    fn idle(&self) -> bool {
        self.requests.is_empty() && self.lanes.values().all(|l| l.batches.is_empty())
    }

    async fn accept(&mut self, command: Command) {
        match command {
            Command::Flush(done) => self.flushes.push(done),
            Command::Send {
                record,
                answer,
                memory,
            } => match self.choose(&record).await {
                Err(e) => drop(answer.send(Err(e))),
                Ok(tp) => self.add(tp, record, answer, memory),
            },
        }
    }

    /// How many partitions the topic has, creating it if the broker does so.
    async fn partitions(&self, topic: &str) -> Result<i32, ClientError> {
        if let Some(count) = self.cluster.known_partitions(topic) {
            return Ok(count);
        }
        let name = [topic.to_owned()];
        self.cluster
            .retry(|| async {
                let answer = self.cluster.metadata_creating(&name).await?;
                for t in answer.topics {
                    ClientError::check(t.error_code, None)?;
                }
                self.cluster
                    .known_partitions(topic)
                    .filter(|n| *n > 0)
                    .ok_or_else(|| ClientError::api(ErrorCode::UnknownTopicOrPartition, None))
            })
            .await
    }

    async fn choose(&mut self, record: &ProducerRecord) -> Result<TopicPartition, ClientError> {
        let topic = record.topic.as_str();
        if let Some(partition) = record.partition {
            return Ok(TopicPartition::new(topic, partition));
        }
        let count = self.partitions(topic).await?;
        if let Some(key) = &record.key {
            return Ok(TopicPartition::new(topic, partition_for_key(key, count)));
        }
        // many short-lived producers must not all begin with partition 0
        let turn = self
            .turn
            .entry(topic.to_owned())
            .or_insert_with(|| any_number() % count);
        let mut tp = TopicPartition::new(topic, *turn % count);
        let full = self
            .lanes
            .get(&tp)
            .and_then(|l| l.batches.back())
            .is_some_and(|b| b.builder.size() + record.size() > self.config.batch_size);
        if full {
            *turn = (*turn + 1) % count;
            tp.partition = *turn;
        }
        Ok(tp)
    }

    fn add(
        &mut self,
        tp: TopicPartition,
        record: ProducerRecord,
        answer: Answer,
        memory: OwnedSemaphorePermit,
    ) {
        let config = &self.config;
        let lane = self.lanes.entry(tp).or_default();
        let fits = lane.batches.back().is_some_and(|b| {
            b.encoded.is_none() && b.builder.size() + record.size() <= config.batch_size
        });
        if !fits {
            lane.batches.push_back(Batch {
                builder: BatchBuilder::new(config.compression).levels(config.levels),
                answers: Vec::new(),
                memory: Vec::new(),
                created: Instant::now(),
                retry_at: None,
                encoded: None,
            });
        }
        let Some(batch) = lane.batches.back_mut() else {
            return;
        };
        let timestamp = record.timestamp.unwrap_or_else(now_ms);
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| Header {
                key: key.as_bytes(),
                value: value.as_deref(),
            })
            .collect();
        batch.builder.push(NewRecord {
            timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
        batch.answers.push((answer, timestamp));
        batch.memory.push(memory);
    }

    /// Sends what is ready; gives the time when more will be.
    async fn pump(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let hurry = self.closing || !self.flushes.is_empty();
        let mut wake: Option<Instant> = None;
        let mut later = |at: Instant| wake = Some(wake.map_or(at, |w| w.min(at)));
        let mut ready = Vec::new();
        let timeout = self.config.delivery_timeout;
        for (tp, lane) in &mut self.lanes {
            if lane.in_flight {
                continue;
            }
            while let Some(old) = lane.batches.pop_front_if(|b| now >= b.created + timeout) {
                old.fail(&ClientError::api(
                    ErrorCode::RequestTimedOut,
                    Some(&format!(
                        "Expiring records for {tp}: {} ms has passed since batch creation",
                        timeout.as_millis()
                    )),
                ));
            }
            let more_behind = lane.batches.len() > 1;
            let Some(first) = lane.batches.front() else {
                continue;
            };
            let full = more_behind || first.builder.size() >= self.config.batch_size;
            let at = first.retry_at.unwrap_or(if hurry || full {
                first.created
            } else {
                first.created + self.config.linger
            });
            if at <= now {
                ready.push(tp.clone());
            } else {
                later(at);
            }
        }
        if !ready.is_empty()
            && let Err(e) = self.dispatch(ready).await
        {
            // the cluster cannot be asked now: all that was ready waits
            tracing::debug!(error = %e, "producer waits");
            later(now + self.cluster.config().retry_backoff);
        }
        wake
    }

    async fn producer_id(&mut self) -> Result<Option<(i64, i16)>, ClientError> {
        if !self.config.idempotence {
            return Ok(None);
        }
        if self.producer.is_none() {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                producer_id: -1,
                producer_epoch: -1,
                ..Default::default()
            };
            let answer = self.cluster.any().await?.send(&request).await?;
            ClientError::check(answer.error_code, None)?;
            self.producer = Some((answer.producer_id, answer.producer_epoch));
            for lane in self.lanes.values_mut() {
                lane.next_sequence = 0;
            }
        }
        Ok(self.producer)
    }

    async fn dispatch(&mut self, ready: Vec<TopicPartition>) -> Result<(), ClientError> {
        let producer = match self.producer_id().await {
            Ok(producer) => producer,
            Err(e) if e.is_retriable() => return Err(e),
            Err(e) => {
                self.fail_all(&ready, &e);
                return Ok(());
            }
        };
        let mut by_broker: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for tp in ready {
            match self.cluster.leader(&tp).await {
                Ok(leader) => by_broker.entry(leader.broker).or_default().push(tp),
                Err(e) if e.is_retriable() => self.postpone(&tp),
                Err(e) => self.fail_all(&[tp], &e),
            }
        }
        for (broker, partitions) in by_broker {
            let mut batches = Vec::new();
            let mut size = 0;
            for tp in partitions {
                let Some(lane) = self.lanes.get_mut(&tp) else {
                    continue;
                };
                let next = lane.batches.front().map_or(0, |b| {
                    b.encoded.as_ref().map_or(b.builder.size(), Bytes::len)
                });
                if size > 0 && size + next > self.config.max_request_size {
                    continue; // next time
                }
                let Some(mut batch) = lane.batches.pop_front() else {
                    continue;
                };
                if batch.encoded.is_none() {
                    let mut builder = batch.builder.clone();
                    if let Some((id, epoch)) = producer {
                        builder = builder.producer(id, epoch, lane.next_sequence);
                        lane.next_sequence =
                            increment_sequence(lane.next_sequence, batch.builder.count());
                    }
                    match builder.build() {
                        Ok(built) => batch.encoded = Some(built.bytes().clone()),
                        Err(e) => {
                            batch.fail(&e.into());
                            continue;
                        }
                    }
                }
                size += next;
                lane.in_flight = true;
                batches.push((tp, batch));
            }
            if !batches.is_empty() {
                let cluster = self.cluster.clone();
                let config = self.config.clone();
                self.requests.spawn(send(cluster, config, broker, batches));
            }
        }
        Ok(())
    }

    fn postpone(&mut self, tp: &TopicPartition) {
        let at = Instant::now() + self.cluster.config().retry_backoff;
        if let Some(batch) = self.lanes.get_mut(tp).and_then(|l| l.batches.front_mut()) {
            batch.retry_at = Some(at);
        }
    }

    fn fail_all(&mut self, partitions: &[TopicPartition], error: &ClientError) {
        for tp in partitions {
            if let Some(lane) = self.lanes.get_mut(tp) {
                for batch in lane.batches.drain(..) {
                    batch.fail(error);
                }
            }
        }
    }

    /// Answers the records of a request, or puts its batches back for another try.
    fn settle(&mut self, sent: Sent) {
        let mut outcomes: HashMap<TopicPartition, (i16, Option<String>, i64, i64)> = HashMap::new();
        let failure = match sent.result {
            Ok(None) => None,
            Ok(Some(answer)) => {
                for topic in answer.responses {
                    for p in topic.partition_responses {
                        outcomes.insert(
                            TopicPartition::new(&topic.name, p.index),
                            (
                                p.error_code,
                                p.error_message,
                                p.base_offset,
                                p.log_append_time_ms,
                            ),
                        );
                    }
                }
                None
            }
            Err(e) => Some(e),
        };
        for (tp, mut batch) in sent.batches {
            let result = match (&failure, outcomes.remove(&tp)) {
                (Some(e), _) => Err(e.clone()),
                (None, Some((code, message, base_offset, append_time))) => {
                    match ErrorCode::from_code(code) {
                        ErrorCode::None => Ok((base_offset, append_time)),
                        // stored before: the answer was lost
                        ErrorCode::DuplicateSequenceNumber => Ok((-1, -1)),
                        code => Err(ClientError::api(code, message.as_deref())),
                    }
                }
                // acks 0 has no answer
                (None, None) if self.config.acks == 0 => Ok((-1, -1)),
                (None, None) => Err(ClientError::Invalid(format!(
                    "the produce answer has nothing about {tp}"
                ))),
            };
            let lane = self.lanes.entry(tp.clone()).or_default();
            lane.in_flight = false;
            match result {
                Ok((base_offset, append_time)) => batch.succeed(&tp, base_offset, append_time),
                Err(e) if e.is_retriable() => {
                    self.cluster.forget_leader(&tp);
                    batch.retry_at = Some(Instant::now() + self.cluster.config().retry_backoff);
                    lane.batches.push_front(batch);
                }
                Err(e) => {
                    batch.fail(&e);
                    // sequences have a hole now: begin anew under another producer id
                    self.producer = None;
                }
            }
        }
    }
}

/// Not negative.
fn any_number() -> i32 {
    let random = std::collections::hash_map::RandomState::new().hash_one(());
    (random >> 33) as i32
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
