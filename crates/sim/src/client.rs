//! Producers with acks=all and consumers, each with one request under way.

use bytes::Bytes;
use gracchus_kafka_proto::Records;
use gracchus_kafka_proto::messages::fetch_request::{FetchPartition, FetchTopic};
use gracchus_kafka_proto::messages::produce_request::{PartitionProduceData, TopicProduceData};
use gracchus_kafka_proto::messages::{FetchRequest, ProduceRequest};
use gracchus_record::{BatchBuilder, Codec, NewRecord};

use crate::cluster::{BROKERS, TOPIC};
use crate::oracle::{Oracle, values};
use crate::requests::{Purpose, Request, Response};
use crate::world::{Event, World};

/// A version that names topics, and in which a follower may answer.
const FETCH_VERSION: i16 = 12;
const PAUSE_US: u64 = 50_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Producer,
    Consumer,
}

pub struct Client {
    id: i32,
    kind: Kind,
    leader: Option<i32>,
    call: Option<u64>,
    value: String,
    count: u64,
    /// A consumer's place.
    offset: i64,
    not_before: u64,
}

impl Client {
    pub fn new(id: i32, kind: Kind) -> Self {
        Self {
            id,
            kind,
            leader: None,
            call: None,
            value: String::new(),
            count: 0,
            offset: 0,
            not_before: 0,
        }
    }

    fn wait(&mut self, world: &mut World, pause_us: u64) {
        self.not_before = world.now_us + pause_us;
        world.at(self.not_before, Event::Wake(self.id, 0));
    }

    pub fn go_on(&mut self, world: &mut World) {
        if self.call.is_some() || self.not_before > world.now_us {
            return;
        }
        let any = world.random.pick(&BROKERS);
        let (to, request) = match (self.leader, self.kind) {
            (None, _) => (any, Request::Leader),
            (Some(leader), Kind::Producer) => {
                self.count += 1;
                let size = world.random.between(0, 60) as usize;
                self.value = format!("{}-{}-{}", self.id, self.count, "x".repeat(size));
                let request = produce(&self.value, world.now_ms());
                (leader, Request::Produce(request, self.value.clone()))
            }
            (Some(leader), Kind::Consumer) => {
                if world.random.chance(20) {
                    self.offset = 0; // somebody who reads everything again
                }
                let from = if world.random.chance(200) {
                    any
                } else {
                    leader
                };
                (from, Request::Fetch(consume(self.offset), FETCH_VERSION))
            }
        };
        self.call = Some(world.call(self.id, 0, to, Purpose::Client, request));
    }

    pub fn answered(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        call: u64,
        response: Result<Response, &'static str>,
    ) {
        if self.call != Some(call) {
            return;
        }
        self.call = None;
        let pause = world.random.between(5_000, 400_000);
        match response {
            Ok(Response::Leader(leader)) => {
                self.leader = leader;
                self.wait(world, if leader.is_some() { 1 } else { PAUSE_US });
            }
            Ok(Response::Produce(answer)) => {
                let part = answer
                    .responses
                    .first()
                    .and_then(|topic| topic.partition_responses.first());
                match part {
                    Some(part) if part.error_code == 0 => {
                        oracle.acknowledge(world, part.base_offset, &self.value);
                        self.wait(world, pause);
                    }
                    _ => {
                        self.leader = None;
                        self.wait(world, PAUSE_US);
                    }
                }
            }
            Ok(Response::Fetch(answer)) => {
                let part = answer
                    .responses
                    .first()
                    .and_then(|topic| topic.partitions.first());
                match part {
                    Some(part) if part.error_code == 0 => {
                        let read = part.records.as_ref().map(values).unwrap_or_default();
                        for (offset, value) in read.iter().filter(|(o, _)| *o >= self.offset) {
                            oracle.read(world, *offset, value, part.high_watermark);
                        }
                        if let Some((last, _)) = read.last() {
                            self.offset = self.offset.max(last + 1);
                        }
                        self.wait(world, pause);
                    }
                    _ => {
                        self.leader = None;
                        self.wait(world, PAUSE_US);
                    }
                }
            }
            Ok(_) | Err(_) => {
                self.leader = None;
                self.wait(world, PAUSE_US);
            }
        }
    }
}

fn produce(value: &str, timestamp: i64) -> ProduceRequest {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(NewRecord {
        timestamp,
        key: None,
        value: Some(value.as_bytes()),
        headers: Default::default(),
    });
    let records: Bytes = builder.build().expect("a batch").bytes().clone();
    ProduceRequest {
        acks: -1,
        timeout_ms: 2_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC.into(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::from(records)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn consume(offset: i64) -> FetchRequest {
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: TOPIC.into(),
            partitions: vec![FetchPartition {
                partition: 0,
                current_leader_epoch: -1,
                fetch_offset: offset,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: 1 << 16,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}
