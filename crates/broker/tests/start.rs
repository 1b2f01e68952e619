//! A broker's start over a real coordination server: who it is, what stops it, and what it answers to bad requests over
//! its socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use gracchus_broker::config::{Origin, Sources};
use gracchus_broker::lifecycle::{
    self, LifecycleError, Phase, Prepared, Running, StartOptions, Status,
};
use gracchus_broker::metrics::Exposition;
use gracchus_broker::net::client::BrokerConnection;
use gracchus_kafka_proto::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest};
use gracchus_kafka_proto::{Message, Reader};
use gracchus_registry::json::TopicAssignment;
use gracchus_registry::registry::NewTopic;
use gracchus_zk_server::{ZkConfig, ZkServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn zookeeper(dir: &Path) -> ZkServer {
    let mut config = ZkConfig::new(dir);
    config.client_address = "127.0.0.1:0".parse().unwrap();
    config.pre_alloc_size = 1 << 16;
    ZkServer::start(config).await.unwrap()
}

struct Start<'a> {
    zookeeper: &'a ZkServer,
    log_dir: &'a Path,
    pairs: Vec<(&'a str, String)>,
    options: StartOptions,
    status: Arc<Status>,
}

impl<'a> Start<'a> {
    fn new(zookeeper: &'a ZkServer, log_dir: &'a Path) -> Self {
        Self {
            zookeeper,
            log_dir,
            pairs: Vec::new(),
            options: StartOptions::default(),
            status: Arc::default(),
        }
    }

    fn with(mut self, key: &'a str, value: impl ToString) -> Self {
        self.pairs.push((key, value.to_string()));
        self
    }

    async fn run(self) -> Result<Running, LifecycleError> {
        self.run_until(std::future::pending()).await
    }

    async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Running, LifecycleError> {
        let mut sources = Sources::default();
        let connect = self.zookeeper.local_addr().to_string();
        let dir = self.log_dir.display().to_string();
        for (key, value) in [
            ("zookeeper.connect", connect),
            ("log.dirs", dir),
            ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ] {
            sources.set(key, &value, Origin::Preset);
        }
        for (key, value) in &self.pairs {
            sources.set(key, value, Origin::Preset);
        }
        let prepared = Prepared::bind(sources.check()?)?;
        lifecycle::start(prepared, self.options, self.status, stop).await
    }
}

fn port(running: &Running) -> u16 {
    running.broker.listeners.advertised[0].port
}

async fn error(start: Start<'_>) -> String {
    match start.run().await {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_generated_kept_and_compared() {
    let (zk_dir, a, b) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let zk = zookeeper(zk_dir.path()).await;
    let first = Start::new(&zk, a.path()).run().await.unwrap();
    let second = Start::new(&zk, b.path()).run().await.unwrap();
    assert_eq!(
        (
            first.broker.identity.broker_id,
            second.broker.identity.broker_id
        ),
        (1001, 1002)
    );
    assert_eq!(
        first.broker.identity.cluster_id,
        second.broker.identity.cluster_id
    );
    assert!(first.broker.identity.broker_epoch() > 0);
    first.stop().await;
    let again = Start::new(&zk, a.path()).run().await.unwrap();
    assert_eq!(
        again.broker.identity.broker_id, 1001,
        "the stored id is taken"
    );
    again.stop().await;
    let text = error(Start::new(&zk, a.path()).with("broker.id", 7)).await;
    assert!(
        text.contains("broker.id=7")
            && text.contains("broker.id=1001")
            && text.contains("live now: 1002"),
        "{text}"
    );
    second.stop().await;
    zk.shutdown().await;
}

/// Dashboards add these up over all brokers: only the active controller has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_the_cluster_are_the_controllers_alone() {
    let (zk_dir, a, b) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let zk = zookeeper(zk_dir.path()).await;
    let first = Start::new(&zk, a.path()).run().await.unwrap();
    let second = Start::new(&zk, b.path()).run().await.unwrap();
    let brokers = [&first, &second];
    let topic = NewTopic {
        name: "t".into(),
        assignment: TopicAssignment {
            partitions: (0..3).map(|p| (p, vec![1001])).collect(),
            ..Default::default()
        },
        config: Default::default(),
    };
    for made in first.broker.registry.create_topics(&[topic]).await {
        made.unwrap();
    }
    for running in brokers {
        let patience = std::time::Duration::from_secs(60);
        let metadata = &running.broker.metadata;
        let told = metadata.wait_until(patience, |s| (0..3).all(|p| s.partition("t", p).is_some()));
        assert!(told.await);
    }
    let figure = |name: &str| -> Vec<i64> {
        let of = |running: &&Running| {
            let figures = Exposition::default();
            figures.set(&running.broker);
            let text = figures.render();
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(&format!("{name} ")));
            value.unwrap().parse().unwrap()
        };
        let mut values: Vec<i64> = brokers.iter().map(of).collect();
        values.sort_unstable();
        values
    };
    let controller = "kafka_controller_kafkacontroller";
    assert_eq!(
        figure(&format!("{controller}_activecontrollercount")),
        [0, 1]
    );
    assert_eq!(figure(&format!("{controller}_globaltopiccount")), [0, 1]);
    assert_eq!(
        figure(&format!("{controller}_globalpartitioncount")),
        [0, 3]
    );
    first.stop().await;
    second.stop().await;
    zk.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_or_directory_in_use_is_refused() {
    let (zk_dir, a, b) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 3)
        .run()
        .await
        .unwrap();
    let alive = error(Start::new(&zk, b.path()).with("broker.id", 3)).await;
    assert!(
        alive.contains(&format!(
            "broker 3 is alive at 127.0.0.1:{}",
            port(&running)
        )),
        "{alive}"
    );
    assert!(
        !b.path().join("meta.properties").exists(),
        "nothing was written"
    );
    let locked = error(Start::new(&zk, a.path()).with("broker.id", 3)).await;
    assert!(locked.contains("in use by another process"), "{locked}");
    let listeners = format!("PLAINTEXT://127.0.0.1:{}", port(&running));
    let taken = error(Start::new(&zk, b.path()).with("listeners", listeners)).await;
    assert!(
        taken.contains(&format!("port {} is in use", port(&running))),
        "{taken}"
    );
    running.stop().await;
    zk.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_another_cluster_is_refused_and_can_be_adopted() {
    let (zk_a, zk_b, zk_c) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two, empty) = (
        zookeeper(zk_a.path()).await,
        zookeeper(zk_b.path()).await,
        zookeeper(zk_c.path()).await,
    );
    let first = Start::new(&one, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let cluster = first.broker.identity.cluster_id.clone();
    first.stop().await;
    let second = Start::new(&two, b.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let other = second.broker.identity.cluster_id.clone();
    second.stop().await;
    let mixed = error(Start::new(&two, a.path()).with("broker.id", 1)).await;
    assert!(
        mixed.contains(&cluster) && mixed.contains(&other),
        "{mixed}"
    );
    let new = error(Start::new(&empty, a.path()).with("broker.id", 1)).await;
    assert!(
        new.contains("is new") && new.contains(&cluster) && new.contains("--adopt-cluster-id"),
        "{new}"
    );
    let mut adopting = Start::new(&empty, a.path()).with("broker.id", 1);
    adopting.options.adopt_cluster_id = true;
    let adopted = adopting.run().await.unwrap();
    assert_eq!(adopted.broker.identity.cluster_id, cluster);
    adopted.stop().await;
}

/// As after `kill -9`: the session of the earlier process is still there, and nobody answers at its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_stale_registration_is_taken_over_at_once() {
    let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let session_file = a.path().join(".gracchus-session");
    let kept = std::fs::read(&session_file).unwrap();
    running.stop().await;
    // a session with an ephemeral registration that nobody serves
    let text = String::from_utf8(kept).unwrap();
    let connect = text.lines().next().unwrap().to_owned();
    let mut config = gracchus_zk_client::ZkConfig::new(connect.parse().unwrap());
    config.session_timeout = std::time::Duration::from_secs(40);
    let (stale, mut events) = gracchus_zk_client::ZkClient::start(config);
    events.recv().await;
    let dead = br#"{"version":4,"host":"127.0.0.1","port":1,"endpoints":["PLAINTEXT://127.0.0.1:1"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"jmx_port":-1,"timestamp":"1"}"#;
    stale
        .create(
            "/brokers/ids/1",
            Some(bytes::Bytes::from_static(dead)),
            gracchus_zk_client::Acl::open(),
            gracchus_zk_client::CreateMode::Ephemeral,
        )
        .await
        .unwrap();
    let (id, password) = stale.session().unwrap();
    let hex: String = password.iter().map(|b| format!("{b:02x}")).collect();
    std::fs::write(&session_file, format!("{connect}\n{id:x}\n{hex}\n")).unwrap();
    // far below the session's 40 s, which the test's own patience stands for
    let again = tokio::time::timeout(
        std::time::Duration::from_secs(20),
        Start::new(&zk, a.path()).with("broker.id", 1).run(),
    );
    let again = again
        .await
        .expect("waited for the session to expire")
        .unwrap();
    assert!(again.broker.identity.broker_epoch() > 0);
    again.stop().await;
    zk.shutdown().await;
}

/// As after `kill -9` of another Kafka broker at this address: its registration names the very address at which we answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_registration_at_our_own_address_is_waited_for() {
    let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let port = port(&running);
    running.stop().await;
    let connect = zk.local_addr().to_string();
    let config = gracchus_zk_client::ZkConfig::new(connect.parse().unwrap());
    let (stale, mut events) = gracchus_zk_client::ZkClient::start(config);
    events.recv().await;
    let dead = format!(
        r#"{{"version":4,"host":"localhost","port":{port},"endpoints":["PLAINTEXT://localhost:{port}"],"listener_security_protocol_map":{{"PLAINTEXT":"PLAINTEXT"}},"jmx_port":-1,"timestamp":"1"}}"#
    );
    stale
        .create(
            "/brokers/ids/1",
            Some(dead.into()),
            gracchus_zk_client::Acl::open(),
            gracchus_zk_client::CreateMode::Ephemeral,
        )
        .await
        .unwrap();
    let start = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .with("listeners", format!("PLAINTEXT://127.0.0.1:{port}"));
    let status = start.status.clone();
    let waits = async {
        while !format!("{:?}", status.phase()).contains("belongs to session") {
            tokio::task::yield_now().await;
        }
        stale.close().await;
    };
    let mut start = Box::pin(start.run());
    let again = tokio::select! {
        ended = &mut start => ended,
        () = waits => start.as_mut().await,
    };
    drop(start);
    again.unwrap().stop().await;
    zk.shutdown().await;
}

async fn raw(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

/// A request header of version 1 and what follows it.
fn request(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&key.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&7i32.to_be_bytes());
    bytes.extend_from_slice(&(-1i16).to_be_bytes());
    bytes.extend_from_slice(body);
    framed(&bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_end_their_connection_only() {
    let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let port = port(&running);
    let patience = std::time::Duration::from_secs(10);
    let mut good = BrokerConnection::connect("127.0.0.1", port, "good", patience)
        .await
        .unwrap();
    for (what, bytes) in [
        ("an unknown api key", request(999, 0, &[])),
        ("a negative api key", request(-5, 0, &[])),
        ("an unknown version of Metadata", request(3, 99, &[])),
        ("a key of KRaft (Vote)", request(52, 0, &[])),
        ("Envelope", request(58, 0, &[0; 16])),
        ("a truncated body", request(3, 1, &[0, 0])),
        (
            "an array of 2^31-1 elements",
            request(0, 2, &[0, 1, 0, 0, 0, 10, 0x7f, 0xff, 0xff, 0xff]),
        ),
        ("an empty frame", framed(&[])),
        ("one byte", framed(&[1])),
        (
            "a header cut in its client id",
            framed(&[0, 3, 0, 1, 0, 0, 0, 7, 0, 9, b'x']),
        ),
        (
            "a frame larger than the limit",
            (i32::MAX).to_be_bytes().to_vec(),
        ),
        ("a negative length", (-1i32).to_be_bytes().to_vec()),
    ] {
        assert_eq!(raw(port, &bytes).await, b"", "{what}");
    }
    let metadata = good.send(12, &MetadataRequest::default()).await.unwrap();
    assert_eq!(
        metadata.cluster_id.as_deref(),
        Some(running.broker.identity.cluster_id.as_str())
    );
    let versions = good.send(4, &ApiVersionsRequest::default()).await.unwrap();
    assert_eq!(versions.error_code, 42, "no software name: INVALID_REQUEST");
    running.stop().await;
    zk.shutdown().await;
}

/// KIP-511: a client from the future is answered in version 0, with the range of ApiVersions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_version_of_api_versions_is_answered() {
    let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port(&running)))
        .await
        .unwrap();
    // flexible header: a tagged-field count after the client id
    stream.write_all(&request(18, 99, &[0])).await.unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut answer = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    let mut reader = Reader::new(answer.into());
    assert_eq!(reader.i32().unwrap(), 7, "correlation id");
    let response = ApiVersionsResponse::decode(&mut reader, 0).unwrap();
    assert_eq!(response.error_code, 35);
    let keys: Vec<_> = response
        .api_keys
        .iter()
        .map(|k| (k.api_key, k.min_version, k.max_version))
        .collect();
    assert_eq!(keys, [(18, 0, 4)]);
    running.stop().await;
    zk.shutdown().await;
}

/// A creation leaves no notice in `/config/changes`, and a deletion must not leave its configs to the next topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_has_its_own_configs_from_its_creation_to_its_deletion() {
    use gracchus_kafka_proto::messages as m;
    let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let running = Start::new(&zk, a.path())
        .with("broker.id", 1)
        .run()
        .await
        .unwrap();
    running.ready().await;
    let patience = std::time::Duration::from_secs(30);
    let mut client = BrokerConnection::connect("127.0.0.1", port(&running), "admin", patience)
        .await
        .unwrap();
    let create = |configs: Vec<(&str, &str)>| m::CreateTopicsRequest {
        topics: vec![m::create_topics_request::CreatableTopic {
            name: "t".into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs
                .into_iter()
                .map(
                    |(name, value)| m::create_topics_request::CreatableTopicConfig {
                        name: name.into(),
                        value: Some(value.into()),
                        ..Default::default()
                    },
                )
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    let alter = m::IncrementalAlterConfigsRequest {
        resources: vec![m::incremental_alter_configs_request::AlterConfigsResource {
            resource_type: 2,
            resource_name: "t".into(),
            configs: vec![m::incremental_alter_configs_request::AlterableConfig {
                name: "segment.bytes".into(),
                value: Some("2000000".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let delete = m::DeleteTopicsRequest {
        topics: vec![m::delete_topics_request::DeleteTopicState {
            name: Some("t".into()),
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    };
    let mut changes = running.broker.config.changes();
    let config = || running.broker.config.topic("t");
    let created = client
        .send(7, &create(vec![("retention.ms", "12345")]))
        .await
        .unwrap();
    assert_eq!(created.topics[0].error_code, 0);
    assert_eq!(config().retention_ms, 12345);
    assert_eq!(
        client.send(1, &alter).await.unwrap().responses[0].error_code,
        0
    );
    while config().segment_bytes != 2_000_000 {
        changes.recv().await.unwrap();
    }
    assert_eq!(config().retention_ms, 12345, "the other override stays");
    assert_eq!(
        client.send(6, &delete).await.unwrap().responses[0].error_code,
        0
    );
    // the name is free when the controller has removed the topic's node
    while client.send(7, &create(vec![])).await.unwrap().topics[0].error_code != 0 {}
    assert_eq!(config().retention_ms, 604_800_000);
    assert_eq!(config().segment_bytes, 1 << 30);
    running.stop().await;
    zk.shutdown().await;
}

mod mutated {
    use super::*;
    use proptest::prelude::*;

    /// A plausible header of a served key, then anything.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let key = prop_oneof![8 => 0i16..70, 1 => any::<i16>()];
        let version = prop_oneof![8 => 0i16..18, 1 => any::<i16>()];
        (key, version, proptest::collection::vec(any::<u8>(), 0..200))
            // an acks=-1 produce or a group request that waits would hold the test up for its own time-out
            .prop_filter("requests that may wait", |(key, _, _)| {
                !matches!(key, 1 | 11 | 14)
            })
            .prop_map(|(key, version, body)| request(key, version, &body))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 0, ..ProptestConfig::default() })]

        #[test]
        fn requests_harm_nobody(frames in proptest::collection::vec(frame(), 40)) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let (zk_dir, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                let zk = zookeeper(zk_dir.path()).await;
                let running = Start::new(&zk, a.path()).with("broker.id", 1).run().await.unwrap();
                for frame in frames {
                    let mut stream = TcpStream::connect(("127.0.0.1", port(&running))).await.unwrap();
                    stream.write_all(&frame).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut answer = Vec::new();
                    let _ = stream.read_to_end(&mut answer).await;
                }
                let patience = std::time::Duration::from_secs(10);
                let mut good = BrokerConnection::connect("127.0.0.1", port(&running), "good", patience).await.unwrap();
                good.send(12, &MetadataRequest::default()).await.unwrap();
                running.stop().await;
                zk.shutdown().await;
            });
        }
    }
}

/// Completes when the status says this.
async fn phase(status: Arc<Status>, wanted: &str) {
    std::future::poll_fn(|cx| match &*status.phase() {
        Phase::Starting(text) if text.contains(wanted) => Poll::Ready(()),
        _ => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_clean_in_every_phase_of_a_start() {
    let (zk_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zk = zookeeper(zk_dir.path()).await;
    let first = Start::new(&zk, dir.path()).run().await.unwrap();
    first.ready().await;
    let topic = NewTopic {
        name: "t".into(),
        assignment: TopicAssignment {
            partitions: (0..30).map(|p| (p, vec![1001])).collect(),
            ..Default::default()
        },
        config: Default::default(),
    };
    for made in first.broker.registry.create_topics(&[topic]).await {
        made.unwrap();
    }
    while first.broker.replicas.logs().logs().len() < 30 {
        tokio::task::yield_now().await;
    }
    first.stop().await;
    let clean = dir.path().join(".kafka_cleanshutdown");
    let session = dir.path().join(".gracchus-session");
    assert!(clean.exists() && !session.exists());
    for wanted in [
        "waiting for ZooKeeper",
        "settling",
        "loading logs",
        "registering",
    ] {
        let status: Arc<Status> = Arc::default();
        let mut start = Start::new(&zk, dir.path());
        start.status = status.clone();
        let stopped = start.run_until(phase(status, wanted)).await;
        assert!(matches!(stopped, Err(LifecycleError::Stopped)), "{wanted}");
        assert!(
            clean.exists(),
            "stopped while {wanted}, the next start recovers"
        );
    }
    assert!(!session.exists(), "what a stop leaves needs no ending");
    let again = Start::new(&zk, dir.path()).run().await.unwrap();
    again.ready().await;
    assert_eq!(again.broker.replicas.logs().logs().len(), 30);
    again.stop().await;
    zk.shutdown().await;
}
