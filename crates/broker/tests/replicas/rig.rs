//! Replicas with logs in a temporary directory, and requests to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gracchus_broker::api::{fetch, produce};
use gracchus_broker::config::ConfigStore;
use gracchus_broker::context::{ConnectionInfo, Principal, RequestContext};
use gracchus_broker::metadata::{MetadataCache, PartitionInfo, TopicInfo};
use gracchus_broker::net::Outcome;
use gracchus_broker::replica::assignment::Assignment;
use gracchus_broker::replica::log_config::log_config;
use gracchus_broker::replica::{LeadershipObserver, ReplicaManager};
use gracchus_kafka_proto::messages::fetch_request::{FetchPartition, FetchTopic};
use gracchus_kafka_proto::messages::fetch_response::PartitionData;
use gracchus_kafka_proto::messages::leader_and_isr_request::LeaderAndIsrPartitionState;
use gracchus_kafka_proto::messages::produce_request::{PartitionProduceData, TopicProduceData};
use gracchus_kafka_proto::messages::produce_response::PartitionProduceResponse;
use gracchus_kafka_proto::messages::{
    FetchRequest, FetchResponse, ProduceRequest, ProduceResponse,
};
use gracchus_kafka_proto::{
    ApiKey, ErrorCode, Message, Records, RecordsPart, Request, Uuid, decode_response_header,
};
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    LoadControl, LogManager, LogManagerConfig, PendingLogs, TopicPartition, in_memory,
};
use gracchus_record::{BatchBuilder, Codec, Entries, NewRecord};
use parking_lot::Mutex;
use std::path::PathBuf;

/// This broker.
pub const ME: i32 = 1;
pub const NOW: i64 = 1_700_000_000_000;
pub const TOPIC_ID: Uuid = Uuid::from_bytes([7; 16]);

pub struct Rig {
    pub replicas: Arc<ReplicaManager>,
    pub metadata: Arc<MetadataCache>,
    pub config: Arc<ConfigStore>,
    pub dir: tempfile::TempDir,
    /// `log.dirs`, in it.
    dirs: Vec<PathBuf>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(props: &[(&str, &str)]) -> Self {
        let props: BTreeMap<String, String> = props
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Self::in_dir(ME, tempfile::tempdir().unwrap(), props)
    }

    /// Several log directories, `0` and so on.
    pub fn with_dirs(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let dirs = (0..count).map(|n| dir.path().join(n.to_string())).collect();
        Self::over(ME, dir, dirs, BTreeMap::new())
    }

    /// One of the log directories.
    pub fn log_dir(&self, at: usize) -> PathBuf {
        self.dirs[at].clone()
    }

    /// Another broker.
    pub fn broker(id: i32, props: &[(&str, &str)]) -> Self {
        let props = props
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Self::in_dir(id, tempfile::tempdir().unwrap(), props)
    }

    /// Dies without a word, and starts again over what the page cache has.
    pub fn crashed(self, id: i32, props: &[(&str, &str)]) -> Self {
        let props = props
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let Self {
            dir,
            dirs,
            replicas,
            ..
        } = self;
        drop(replicas);
        Self::over(id, dir, dirs, props)
    }

    /// Stops cleanly and starts again over the same directory.
    pub fn restarted(self) -> Self {
        self.replicas.logs().shutdown(NOW);
        let Self {
            dir,
            dirs,
            replicas,
            ..
        } = self;
        drop(replicas);
        Self::over(ME, dir, dirs, BTreeMap::new())
    }

    /// Dies without a word, and starts again; its logs are found, and not loaded yet.
    pub fn recovering(self) -> (Self, PendingLogs) {
        let Self {
            dir,
            dirs,
            replicas,
            ..
        } = self;
        drop(replicas);
        Self::opened(ME, dir, dirs, BTreeMap::new())
    }

    /// Loads what is pending.
    pub fn load(&self, pending: PendingLogs) {
        let control = LoadControl {
            loaded: &|id| self.replicas.log_loaded(id, NOW),
            ..LoadControl::default()
        };
        let topic_config = |topic: &str| log_config(&self.config.topic(topic));
        let logs = self.replicas.logs();
        assert!(logs.load_pending(pending, &topic_config, NOW, &control));
    }

    fn in_dir(id: i32, dir: tempfile::TempDir, props: BTreeMap<String, String>) -> Self {
        let dirs = vec![dir.path().to_path_buf()];
        Self::over(id, dir, dirs, props)
    }

    fn over(
        id: i32,
        dir: tempfile::TempDir,
        dirs: Vec<PathBuf>,
        props: BTreeMap<String, String>,
    ) -> Self {
        let (rig, pending) = Self::opened(id, dir, dirs, props);
        rig.load(pending);
        rig
    }

    fn opened(
        id: i32,
        dir: tempfile::TempDir,
        dirs: Vec<PathBuf>,
        props: BTreeMap<String, String>,
    ) -> (Self, PendingLogs) {
        let config = Arc::new(ConfigStore::new(props).unwrap());
        let metadata = Arc::new(MetadataCache::default());
        let locked = LogDirs::open(&dirs).unwrap();
        let default = log_config(&config.topic(""));
        let (logs, pending) =
            LogManager::open(locked, LogManagerConfig::default(), default, NOW).unwrap();
        let replicas = Arc::new(ReplicaManager::new(
            id,
            config.clone(),
            metadata.clone(),
            Arc::new(logs),
        ));
        let rig = Self {
            replicas,
            metadata,
            config,
            dir,
            dirs,
        };
        (rig, pending)
    }

    /// A rig that leads partition 0 of topic `t`, alone.
    pub fn leading() -> Self {
        let rig = Self::new();
        assert_eq!(rig.lead("t", 1, &[ME], &[ME]), ErrorCode::None);
        rig
    }

    /// Makes the topic known, as UpdateMetadata does.
    pub fn know(&self, topic: &str, id: Uuid, leader: i32, epoch: i32, replicas: &[i32]) {
        self.metadata.update(|snapshot| {
            let info = PartitionInfo {
                leader,
                leader_epoch: epoch,
                controller_epoch: 1,
                isr: replicas.to_vec(),
                partition_epoch: epoch,
                replicas: replicas.to_vec(),
                offline_replicas: Vec::new(),
            };
            let partitions = Arc::new(BTreeMap::from([(0, Arc::new(info))]));
            snapshot
                .topics
                .insert(topic.into(), Arc::new(TopicInfo { id, partitions }));
            snapshot.topic_names.insert(id, topic.into());
        });
    }

    pub fn state(
        leader: i32,
        epoch: i32,
        replicas: &[i32],
        isr: &[i32],
    ) -> LeaderAndIsrPartitionState {
        LeaderAndIsrPartitionState {
            partition_index: 0,
            controller_epoch: 1,
            leader,
            leader_epoch: epoch,
            isr: isr.to_vec(),
            partition_epoch: epoch,
            replicas: replicas.to_vec(),
            is_new: epoch <= 1,
            ..Default::default()
        }
    }

    pub fn assign(&self, topic: &str, id: Uuid, state: LeaderAndIsrPartitionState) -> ErrorCode {
        let assignment = Assignment {
            id: TopicPartition::new(topic, 0),
            topic_id: id,
            state,
        };
        self.replicas
            .assign(1, vec![assignment], NOW)
            .unwrap()
            .remove(0)
            .2
    }

    pub fn lead(&self, topic: &str, epoch: i32, replicas: &[i32], isr: &[i32]) -> ErrorCode {
        self.know(topic, TOPIC_ID, ME, epoch, replicas);
        self.assign(topic, TOPIC_ID, Self::state(ME, epoch, replicas, isr))
    }

    pub fn follow(&self, topic: &str, epoch: i32, leader: i32) -> ErrorCode {
        self.know(topic, TOPIC_ID, leader, epoch, &[ME, leader]);
        self.assign(
            topic,
            TOPIC_ID,
            Self::state(leader, epoch, &[ME, leader], &[ME, leader]),
        )
    }

    pub fn high_watermark(&self, topic: &str) -> i64 {
        let log = self.replicas.partition(topic, 0).unwrap().log().unwrap();
        let log = log.lock();
        log.high_watermark()
    }

    pub fn log_end(&self, topic: &str) -> i64 {
        let log = self.replicas.partition(topic, 0).unwrap().log().unwrap();
        let log = log.lock();
        log.log_end_offset()
    }

    /// Produces and gives the answer, None if there is none (acks=0).
    pub async fn produce_request(&self, version: i16, request: ProduceRequest) -> Outcome {
        produce::answer(&self.replicas, &context(ApiKey::Produce, version), request).await
    }

    pub async fn produce_as(
        &self,
        version: i16,
        acks: i16,
        topic: &str,
        records: Bytes,
    ) -> PartitionProduceResponse {
        let request = produce_request(acks, topic, records);
        let mut response = produced(version, self.produce_request(version, request).await);
        response.responses.remove(0).partition_responses.remove(0)
    }

    pub async fn produce(&self, topic: &str, records: Bytes) -> PartitionProduceResponse {
        self.produce_as(9, 1, topic, records).await
    }

    pub async fn fetch_request(&self, version: i16, request: FetchRequest) -> FetchResponse {
        fetch::answer(&self.replicas, &context(ApiKey::Fetch, version), request).await
    }

    /// Fetches partition 0 as a consumer that does not wait.
    pub async fn fetch(&self, version: i16, topic: &str, offset: i64) -> PartitionData {
        let mut response = self
            .fetch_request(version, fetch_request(topic, offset))
            .await;
        assert_eq!(response.error_code, 0);
        response.responses.remove(0).partitions.remove(0)
    }

    /// Fetches as a follower.
    pub async fn follower_fetch(&self, follower: i32, topic: &str, offset: i64) -> PartitionData {
        let mut request = fetch_request(topic, offset);
        request.replica_id = follower;
        let mut response = self.fetch_request(12, request).await;
        response.responses.remove(0).partitions.remove(0)
    }
}

pub fn context(key: ApiKey, version: i16) -> RequestContext {
    context_of(key, version, "test")
}

pub fn context_of(key: ApiKey, version: i16, client: &str) -> RequestContext {
    RequestContext {
        api_key: key.as_i16(),
        api_version: version,
        correlation_id: 1,
        client_id: Some(client.into()),
        connection: Arc::new(ConnectionInfo {
            peer: "127.0.0.1:5000".parse().unwrap(),
            local: "127.0.0.1:9092".parse().unwrap(),
            listener_name: "PLAINTEXT".into(),
            privileged: true,
            principal: Principal::anonymous(),
            client_software: parking_lot::Mutex::new(None),
        }),
        received: Instant::now(),
        frame_len: 0,
    }
}

pub fn produce_request(acks: i16, topic: &str, records: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
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

pub fn produced(version: i16, outcome: Outcome) -> ProduceResponse {
    let Outcome::Reply(frame) = outcome else {
        panic!("{outcome:?}")
    };
    let bytes = frame.into_bytes().unwrap().slice(4..);
    let (_, mut reader) = decode_response_header(bytes, ProduceRequest::KEY, version).unwrap();
    ProduceResponse::decode(&mut reader, version).unwrap()
}

pub fn fetch_request(topic: &str, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        topics: vec![fetch_topic(topic, offset)],
        ..Default::default()
    }
}

pub fn fetch_topic(topic: &str, offset: i64) -> FetchTopic {
    FetchTopic {
        topic: topic.into(),
        partitions: vec![FetchPartition {
            partition: 0,
            fetch_offset: offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// What an observer of leadership was told, in order.
#[derive(Default)]
pub struct Heard(pub Mutex<Vec<String>>);

impl LeadershipObserver for Heard {
    fn became_leader(&self, partition: &TopicPartition, leader_epoch: i32) {
        self.0
            .lock()
            .push(format!("{partition} leads {leader_epoch}"));
    }

    fn lost_leadership(&self, partition: &TopicPartition, leader_epoch: Option<i32>) {
        self.0
            .lock()
            .push(format!("{partition} lost {leader_epoch:?}"));
    }
}

/// A batch of records with these values, one ms apart.
pub fn batch(values: &[&str]) -> Bytes {
    build(BatchBuilder::new(Codec::None), values)
}

pub fn build(mut builder: BatchBuilder, values: &[&str]) -> Bytes {
    for (timestamp, value) in (NOW..).zip(values) {
        builder.push(NewRecord {
            timestamp,
            key: Some(b"key"),
            value: Some(value.as_bytes()),
            headers: Default::default(),
        });
    }
    builder.build().unwrap().bytes().clone()
}

/// The records' bytes, from memory or file.
pub fn bytes_of(records: &Records) -> Bytes {
    in_memory(&records.parts).unwrap()
}

/// (offset, value) of all records.
pub fn values(part: &PartitionData) -> Vec<(i64, String)> {
    let parts = part.records.as_ref().map(|records| records.parts.clone());
    values_of(parts.unwrap_or_default())
}

/// The same of what a log was read as.
pub fn values_of(parts: Vec<RecordsPart>) -> Vec<(i64, String)> {
    let bytes = bytes_of(&Records { parts });
    let mut out = Vec::new();
    for entry in Entries::new(bytes) {
        entry
            .unwrap()
            .for_each_record(1 << 20, |record| {
                let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
                out.push((record.offset, value));
                Ok::<_, gracchus_record::RecordError>(())
            })
            .unwrap();
    }
    out
}

pub fn error(code: i16) -> ErrorCode {
    ErrorCode::from_code(code)
}
