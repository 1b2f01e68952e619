//! Topics made, grown and refused over a real coordination server, and producer ids of old and new protocol versions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gracchus_broker::config::{Origin, Sources};
use gracchus_broker::lifecycle::{self, Prepared, Running, StartOptions, Status};
use gracchus_broker::metadata::{LiveBroker, PartitionInfo, TopicInfo};
use gracchus_broker::net::client::BrokerConnection;
use gracchus_broker::topic_creation::create::{Options, create};
use gracchus_broker::topic_creation::grow::grow;
use gracchus_kafka_proto::messages::create_partitions_request::CreatePartitionsTopic;
use gracchus_kafka_proto::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use gracchus_kafka_proto::messages::create_topics_response::CreatableTopicResult;
use gracchus_kafka_proto::messages::delete_topics_request::DeleteTopicState;
use gracchus_kafka_proto::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, InitProducerIdRequest,
};
use gracchus_kafka_proto::{ErrorCode, Request};
use gracchus_zk_server::{ZkConfig, ZkServer};

async fn started(zk_dir: &Path, log_dir: &Path, protocol: &str) -> (ZkServer, Running) {
    let mut config = ZkConfig::new(zk_dir);
    config.client_address = "127.0.0.1:0".parse().unwrap();
    config.pre_alloc_size = 1 << 16;
    let zookeeper = ZkServer::start(config).await.unwrap();
    let mut sources = Sources::default();
    for (key, value) in [
        ("zookeeper.connect", zookeeper.local_addr().to_string()),
        ("log.dirs", log_dir.display().to_string()),
        ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ("broker.id", "1".to_owned()),
        ("inter.broker.protocol.version", protocol.to_owned()),
    ] {
        sources.set(key, &value, Origin::Preset);
    }
    let prepared = Prepared::bind(sources.check().unwrap()).unwrap();
    let status = Arc::new(Status::default());
    let running = lifecycle::start(
        prepared,
        StartOptions::default(),
        status,
        std::future::pending(),
    )
    .await
    .unwrap();
    running.broker.metadata.update(|snapshot| {
        let own = LiveBroker {
            id: 1,
            rack: None,
            endpoints: Vec::new(),
        };
        snapshot.brokers.entry(1).or_insert(Arc::new(own));
    });
    (zookeeper, running)
}

fn topic(name: &str, num_partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor: 1,
        ..Default::default()
    }
}

fn codes(results: &[CreatableTopicResult]) -> Vec<(&str, ErrorCode)> {
    results
        .iter()
        .map(|r| (r.name.as_str(), ErrorCode::from_code(r.error_code)))
        .collect()
}

const NO_WAIT: Options = Options {
    timeout_ms: 0,
    validate_only: false,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_written_once_and_grow() {
    let (zk_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (zookeeper, running) = started(zk_dir.path(), dir.path(), "3.9").await;
    let broker = &running.broker;
    let retention = CreatableTopicConfig {
        name: "retention.ms".into(),
        value: Some("5000".into()),
        ..Default::default()
    };
    let configured = CreatableTopic {
        configs: vec![retention],
        ..topic("a.b", 2000)
    };

    let check = Options {
        timeout_ms: 0,
        validate_only: true,
    };
    let checked = create(broker, vec![configured.clone()], check).await;
    assert_eq!(codes(&checked), [("a.b", ErrorCode::None)]);
    assert_eq!(broker.registry.assignment("a.b").await.unwrap(), None);

    // not waited for: made, and said to be late; the third is refused because of the first
    let wanted = vec![configured, topic("c", 1), topic("a_b", 1)];
    let made = create(broker, wanted.clone(), NO_WAIT).await;
    assert_eq!(
        codes(&made),
        [
            ("a.b", ErrorCode::RequestTimedOut),
            ("c", ErrorCode::RequestTimedOut),
            ("a_b", ErrorCode::InvalidTopicException)
        ]
    );
    let stored = broker.registry.assignment("a.b").await.unwrap().unwrap();
    assert_eq!(stored.partitions.len(), 2000);
    assert!(stored.partitions.values().all(|replicas| replicas == &[1]));
    assert_eq!(stored.topic_id, Some(made[0].topic_id));

    // ZooKeeper refuses what the cache may not know yet
    let again = create(broker, wanted[..2].to_vec(), NO_WAIT).await;
    assert_eq!(
        codes(&again),
        [
            ("a.b", ErrorCode::TopicAlreadyExists),
            ("c", ErrorCode::TopicAlreadyExists)
        ]
    );
    assert_eq!(
        again[1].error_message.as_deref(),
        Some("Topic 'c' already exists.")
    );
    assert_eq!(again[1].num_partitions, -1);

    let more = |name: &str, count| CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: None,
        ..Default::default()
    };
    let grown = grow(broker, &[more("c", 3), more("none", 3)], NO_WAIT).await;
    let told: Vec<ErrorCode> = grown
        .iter()
        .map(|r| ErrorCode::from_code(r.error_code))
        .collect();
    assert_eq!(
        told,
        [
            ErrorCode::RequestTimedOut,
            ErrorCode::UnknownTopicOrPartition
        ]
    );
    let stored = broker.registry.assignment("c").await.unwrap().unwrap();
    assert_eq!(
        stored.partitions,
        BTreeMap::from([(0, vec![1]), (1, vec![1]), (2, vec![1])])
    );
    running.stop().await;
    zookeeper.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_for_leaders() {
    let (zk_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (zookeeper, running) = started(zk_dir.path(), dir.path(), "3.9").await;
    let broker = running.broker.clone();
    let wait = Options {
        timeout_ms: 60_000,
        validate_only: false,
    };
    let creating = tokio::spawn({
        let broker = broker.clone();
        async move { create(&broker, vec![topic("t", 1)], wait).await }
    });
    let led = PartitionInfo {
        leader: 1,
        leader_epoch: 0,
        controller_epoch: 1,
        isr: vec![1],
        partition_epoch: 0,
        replicas: vec![1],
        offline_replicas: Vec::new(),
    };
    let mut info = TopicInfo::default();
    Arc::make_mut(&mut info.partitions).insert(0, Arc::new(led));
    while broker.registry.assignment("t").await.unwrap().is_none() {}
    broker.metadata.update(|snapshot| {
        snapshot.topics.insert("t".into(), Arc::new(info));
    });
    let results = creating.await.unwrap();
    assert_eq!(codes(&results), [("t", ErrorCode::None)]);
    assert_eq!(
        (results[0].num_partitions, results[0].replication_factor),
        (1, 1)
    );
    let configs = results[0].configs.as_ref().unwrap();
    assert!(
        configs
            .iter()
            .any(|c| c.name == "retention.ms" && c.config_source == 5)
    );
    running.stop().await;
    zookeeper.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_get_ids_from_zookeeper_below_3_0() {
    let (zk_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (zookeeper, running) = started(zk_dir.path(), dir.path(), "2.8").await;
    let port = running.broker.listeners.advertised[0].port;
    let patience = std::time::Duration::from_secs(30);
    let mut client = BrokerConnection::connect("127.0.0.1", port, "test", patience)
        .await
        .unwrap();
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    for version in InitProducerIdRequest::MIN_VERSION..=InitProducerIdRequest::MAX_VERSION {
        let answer = client.send(version, &request).await.unwrap();
        assert_eq!(
            (answer.error_code, answer.producer_id, answer.producer_epoch),
            (0, version.into(), 0)
        );
    }
    let deletion = DeleteTopicsRequest {
        topic_names: vec!["nothing".into()],
        timeout_ms: 1000,
        ..Default::default()
    };
    let answer = client.send(1, &deletion).await.unwrap();
    let told = ErrorCode::from_code(answer.responses[0].error_code);
    assert!(
        matches!(
            told,
            ErrorCode::NotController | ErrorCode::UnknownTopicOrPartition
        ),
        "{told:?}"
    );
    running.stop().await;
    zookeeper.shutdown().await;
}

/// A topic's life through the socket of the broker that is the controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_makes_grows_and_deletes() {
    let (zk_dir, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (zookeeper, running) = started(zk_dir.path(), dir.path(), "3.9").await;
    let broker = running.broker.clone();
    let patience = std::time::Duration::from_secs(60);
    let elected = broker.metadata.wait_until(patience, |snapshot| {
        snapshot.controller_id == Some(1) && broker.controller.is_active()
    });
    assert!(elected.await, "no controller");
    let port = broker.listeners.advertised[0].port;
    let mut client = BrokerConnection::connect("127.0.0.1", port, "test", patience)
        .await
        .unwrap();

    let creation = CreateTopicsRequest {
        topics: vec![topic("t", 3), topic("twice", 1), topic("twice", 1)],
        timeout_ms: 60_000,
        validate_only: false,
        ..Default::default()
    };
    let answer = client.send(7, &creation).await.unwrap();
    assert_eq!(
        codes(&answer.topics),
        [
            ("t", ErrorCode::None),
            ("twice", ErrorCode::InvalidRequest),
            ("twice", ErrorCode::InvalidRequest)
        ]
    );
    let id = answer.topics[0].topic_id;
    assert_eq!(broker.metadata.snapshot().topic_id("t"), id);

    let growth = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "t".into(),
            count: 5,
            assignments: None,
            ..Default::default()
        }],
        timeout_ms: 60_000,
        ..Default::default()
    };
    let answer = client.send(3, &growth).await.unwrap();
    assert_eq!(answer.results[0].error_code, 0);
    assert!(broker.metadata.snapshot().partition("t", 4).is_some());

    let deletion = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: None,
            topic_id: id,
            ..Default::default()
        }],
        timeout_ms: 60_000,
        ..Default::default()
    };
    let answer = client.send(6, &deletion).await.unwrap();
    let gone = &answer.responses[0];
    assert_eq!((gone.name.as_deref(), gone.error_code), (Some("t"), 0));
    assert!(broker.metadata.snapshot().partition("t", 0).is_none());

    let producer = InitProducerIdRequest {
        transactional_id: None,
        ..Default::default()
    };
    for expected in 0..3 {
        let answer = client.send(5, &producer).await.unwrap();
        assert_eq!((answer.error_code, answer.producer_id), (0, expected));
    }
    running.stop().await;
    zookeeper.shutdown().await;
}
