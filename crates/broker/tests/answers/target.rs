//! Who is asked: a broker over the network, or our handlers in this process.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use gracchus_broker::api::{
    delete_records, describe_log_dirs, describe_producers, fetch, list_offsets,
    offset_for_leader_epoch, produce,
};
use gracchus_broker::net::Outcome;
use gracchus_kafka_proto::messages as m;
use gracchus_kafka_proto::{
    ApiKey, Message, Request, Uuid, decode_request_header, decode_response_header, encode_request,
    encode_response,
};

use crate::rig::{ME, Rig, context};

/// A topic of one partition, with its configuration.
pub type NewTopic = (&'static str, &'static [(&'static str, &'static str)]);

pub trait Target {
    async fn create(&mut self, topics: &[NewTopic]);
    /// A response without its length; None when the connection was closed or nothing is answered.
    async fn exchange(&mut self, key: ApiKey, version: i16, request: Bytes) -> Option<Bytes>;
}

pub async fn call<R: Request>(
    target: &mut impl Target,
    version: i16,
    request: &R,
) -> Option<R::Response> {
    let frame = encode_request(1, Some("answers"), version, request)
        .unwrap()
        .into_bytes()
        .unwrap();
    let response = target.exchange(R::KEY, version, frame).await?;
    let (_, mut reader) = decode_response_header(response, R::KEY, version).unwrap();
    Some(R::Response::decode(&mut reader, version).unwrap())
}

pub struct Network {
    address: String,
    stream: TcpStream,
}

impl Network {
    pub fn connect(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            stream: TcpStream::connect(address).unwrap(),
        }
    }
}

impl Target for Network {
    async fn create(&mut self, topics: &[NewTopic]) {
        use gracchus_kafka_proto::messages::create_topics_request::{
            CreatableTopic, CreatableTopicConfig,
        };
        let topics = topics.iter().map(|(name, config)| CreatableTopic {
            name: (*name).into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: config
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: (*name).into(),
                    value: Some((*value).into()),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let request = m::CreateTopicsRequest {
            topics: topics.collect(),
            timeout_ms: 10_000,
            ..Default::default()
        };
        let created = call(self, 5, &request).await.unwrap();
        for topic in created.topics {
            assert!(matches!(topic.error_code, 0 | 36), "{topic:?}");
        }
    }

    async fn exchange(&mut self, _: ApiKey, _: i16, request: Bytes) -> Option<Bytes> {
        self.stream.write_all(&request).unwrap();
        let mut length = [0; 4];
        if self.stream.read_exact(&mut length).is_err() {
            self.stream = TcpStream::connect(&self.address).unwrap();
            return None;
        }
        let mut response = vec![0; i32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut response).unwrap();
        Some(response.into())
    }
}

pub struct InProcess {
    rig: Rig,
}

impl InProcess {
    pub fn new() -> Self {
        Self { rig: Rig::new() }
    }
}

impl Target for InProcess {
    async fn create(&mut self, topics: &[NewTopic]) {
        for (at, (topic, config)) in topics.iter().enumerate() {
            let config = config
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            self.rig.config.set_topic(topic, config.collect()).unwrap();
            let id = Uuid::from_bytes([at as u8 + 1; 16]);
            self.rig.know(topic, id, ME, 0, &[ME]);
            let state = Rig::state(ME, 0, &[ME], &[ME]);
            assert_eq!(self.rig.assign(topic, id, state).code(), 0);
        }
    }

    async fn exchange(&mut self, key: ApiKey, version: i16, request: Bytes) -> Option<Bytes> {
        let (_, mut body) = decode_request_header(request.slice(4..)).unwrap();
        let ctx = context(key, version);
        let replicas = &self.rig.replicas;
        macro_rules! answer {
            ($request:ident, $module:ident) => {{
                let request = m::$request::decode(&mut body, version).unwrap();
                let response = $module::answer(replicas, &ctx, request).await;
                // Records may lie in files: make them memory, as a socket would.
                encode_response(1, key, version, &response).unwrap()
            }};
        }
        let frame = match key {
            ApiKey::Produce => {
                let request = m::ProduceRequest::decode(&mut body, version).unwrap();
                match produce::answer(replicas, &ctx, request).await {
                    Outcome::Reply(frame) => frame,
                    Outcome::Nothing | Outcome::Close(_) => return None,
                }
            }
            ApiKey::Fetch => {
                let request = m::FetchRequest::decode(&mut body, version).unwrap();
                let mut response = fetch::answer(replicas, &ctx, request).await;
                for topic in &mut response.responses {
                    for partition in &mut topic.partitions {
                        if let Some(records) = &mut partition.records {
                            *records = crate::rig::bytes_of(records).into();
                        }
                    }
                }
                encode_response(1, key, version, &response).unwrap()
            }
            ApiKey::ListOffsets => answer!(ListOffsetsRequest, list_offsets),
            ApiKey::DeleteRecords => answer!(DeleteRecordsRequest, delete_records),
            ApiKey::OffsetForLeaderEpoch => {
                answer!(OffsetForLeaderEpochRequest, offset_for_leader_epoch)
            }
            ApiKey::DescribeProducers => answer!(DescribeProducersRequest, describe_producers),
            ApiKey::DescribeLogDirs => answer!(DescribeLogDirsRequest, describe_log_dirs),
            other => panic!("{other:?} is not asked here"),
        };
        Some(frame.into_bytes().unwrap().slice(4..))
    }
}
