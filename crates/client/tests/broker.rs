//! The client against a real cluster. Needs one: `GRACCHUS_TEST_BOOTSTRAP=host:port cargo test -p gracchus-client -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cloned_ref_to_slice_refs,
    reason = "tests"
)]

use gracchus_client::admin::{
    Admin, ConfigOp, ConfigResource, IsolationLevel, NewPartitions, NewTopic, OffsetSpec,
};
use gracchus_client::consumer::OffsetReset;
use gracchus_client::producer::ProducerRecord;
use gracchus_client::{
    Cluster, ClusterConfig, Consumer, ConsumerConfig, Producer, ProducerConfig, TopicPartition,
};
use gracchus_kafka_proto::ErrorCode;
use gracchus_record::Codec;
use std::collections::BTreeSet;
use std::time::Duration;

async fn cluster() -> Cluster {
    let bootstrap = std::env::var("GRACCHUS_TEST_BOOTSTRAP").unwrap_or("127.0.0.1:9092".into());
    Cluster::connect(ClusterConfig::new(&bootstrap), |_| ())
        .await
        .unwrap()
}

/// A topic of its own for each test and run.
async fn topic(admin: &Admin, name: &str, partitions: i32) -> String {
    let name = format!("{name}-{}", std::process::id());
    let topic = NewTopic {
        name: name.clone(),
        partitions: Some(partitions),
        replication_factor: Some(1),
        ..Default::default()
    };
    for (_, result) in admin.create_topics(&[topic], false).await.unwrap() {
        result.unwrap();
    }
    name
}

async fn produce(cluster: &Cluster, config: ProducerConfig, topic: &str, count: usize) {
    let producer = Producer::new(cluster.clone(), config).unwrap();
    let mut deliveries = Vec::new();
    for i in 0..count {
        let record = ProducerRecord {
            topic: topic.to_owned(),
            key: Some(format!("key-{i}").into_bytes()),
            value: Some(format!("value-{i}").into_bytes()),
            headers: vec![("h".into(), None)],
            ..Default::default()
        };
        deliveries.push(producer.send(record).await.unwrap());
    }
    producer.flush().await.unwrap();
    for d in deliveries {
        d.await.unwrap().unwrap();
    }
}

async fn consume(consumer: &mut Consumer, count: usize) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while seen.len() < count {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{} of {count}",
            seen.len()
        );
        for r in consumer.poll(Duration::from_millis(500)).await.unwrap() {
            assert_eq!(r.headers, [("h".to_owned(), None)]);
            let value = String::from_utf8(r.value.unwrap().to_vec()).unwrap();
            assert!(seen.insert(value), "twice");
        }
    }
    seen
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn topics_and_their_configuration() {
    let admin = Admin::new(cluster().await);
    let name = topic(&admin, "admin", 2).await;
    let again = NewTopic {
        name: name.clone(),
        ..Default::default()
    };
    let results = admin.create_topics(&[again], false).await.unwrap();
    let error = results[0].1.as_ref().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::TopicAlreadyExists));
    assert_eq!(error.to_string(), format!("Topic '{name}' already exists."));

    admin
        .create_partitions(&[NewPartitions {
            name: name.clone(),
            count: 5,
            assignment: None,
        }])
        .await
        .unwrap()[0]
        .1
        .as_ref()
        .unwrap();
    let described = admin.describe_topics(&[name.clone()]).await.unwrap();
    assert_eq!(described[0].1.as_ref().unwrap().partitions.len(), 5);
    assert!(
        admin
            .list_topics()
            .await
            .unwrap()
            .iter()
            .any(|t| t.name == name)
    );

    let resource = ConfigResource::topic(&name);
    let change = ("retention.ms".to_owned(), ConfigOp::Set("12345".into()));
    admin
        .alter_configs(&[(resource.clone(), vec![change])], false)
        .await
        .unwrap()[0]
        .1
        .as_ref()
        .unwrap();
    let configs = admin
        .describe_configs(&[resource.clone()], true)
        .await
        .unwrap();
    let entries = configs[0].1.as_ref().unwrap();
    let retention = entries.iter().find(|e| e.name == "retention.ms").unwrap();
    assert_eq!(retention.value.as_deref(), Some("12345"));
    assert!(!retention.is_default());

    admin.delete_topics(&[name.clone()]).await.unwrap()[0]
        .1
        .as_ref()
        .unwrap();
    let info = admin.describe_cluster().await.unwrap();
    assert!(!info.nodes.is_empty());
    assert!(
        !admin
            .describe_log_dirs(info.nodes[0].id, None)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn every_codec_comes_back() {
    let cluster = cluster().await;
    let admin = Admin::new(cluster.clone());
    for (codec, idempotence) in [
        (Codec::None, true),
        (Codec::Gzip, false),
        (Codec::Snappy, true),
        (Codec::Lz4, true),
        (Codec::Zstd, true),
    ] {
        let name = topic(&admin, &format!("codec-{}", codec.name()), 3).await;
        let config = ProducerConfig {
            compression: codec,
            idempotence,
            linger: Duration::from_millis(5),
            ..Default::default()
        };
        produce(&cluster, config, &name, 2000).await;
        let mut consumer = Consumer::new(cluster.clone(), ConsumerConfig::default());
        let partitions: Vec<_> = (0..3)
            .map(|p| (TopicPartition::new(&name, p), Some(0)))
            .collect();
        consumer.assign(&partitions);
        assert_eq!(consume(&mut consumer, 2000).await.len(), 2000);
        let ends: Vec<_> = (0..3)
            .map(|p| (TopicPartition::new(&name, p), OffsetSpec::Latest))
            .collect();
        let listed = admin
            .list_offsets(&ends, IsolationLevel::ReadUncommitted)
            .await
            .unwrap();
        let total: i64 = listed.iter().map(|(_, r)| r.as_ref().unwrap().offset).sum();
        assert_eq!(total, 2000);
        let cut = admin
            .delete_records(&[(TopicPartition::new(&name, 0), 5)])
            .await
            .unwrap();
        assert_eq!(*cut[0].1.as_ref().unwrap(), 5);
    }
}

#[tokio::test]
#[ignore = "needs a broker"]
async fn a_group_shares_partitions_and_remembers_offsets() {
    let cluster = cluster().await;
    let admin = Admin::new(cluster.clone());
    let name = topic(&admin, "group", 4).await;
    let group = format!("g-{}", std::process::id());
    produce(&cluster, ProducerConfig::default(), &name, 200).await;
    let config = ConsumerConfig {
        group: Some(group.clone()),
        offset_reset: OffsetReset::Earliest,
        heartbeat_interval: Duration::from_millis(300),
        session_timeout: Duration::from_secs(10),
        ..Default::default()
    };
    let mut first = Consumer::new(cluster.clone(), config.clone());
    first.subscribe(&[name.clone()]).unwrap();
    assert_eq!(consume(&mut first, 200).await.len(), 200);
    assert_eq!(first.assigned().len(), 4);

    // a second member takes half of them
    let mut second = Consumer::new(cluster.clone(), config.clone());
    second.subscribe(&[name.clone()]).unwrap();
    let (a, b) = tokio::join!(
        async {
            while first.assigned().len() != 2 {
                first.poll(Duration::from_millis(200)).await.unwrap();
            }
            first
        },
        async {
            while second.assigned().len() != 2 {
                let records = second.poll(Duration::from_millis(200)).await.unwrap();
                assert!(records.is_empty(), "committed before the rebalance");
            }
            second
        }
    );
    let described = admin.describe_groups(&[group.clone()]).await.unwrap();
    let described = described[0].1.as_ref().unwrap();
    assert_eq!(
        (described.state.as_str(), described.members.len()),
        ("Stable", 2)
    );
    assert!(described.members.iter().all(|m| m.assignment.len() == 2));
    a.close().await.unwrap();
    b.close().await.unwrap();
    let committed = admin.committed_offsets(&group, None).await.unwrap();
    assert_eq!(committed.values().map(|c| c.offset).sum::<i64>(), 200);
    assert!(
        admin
            .list_groups(&[])
            .await
            .unwrap()
            .iter()
            .any(|g| g.group == group)
    );
    let tp = TopicPartition::new(&name, 0);
    admin.delete_offsets(&group, &[tp]).await.unwrap()[0]
        .1
        .as_ref()
        .unwrap();
    admin.delete_groups(&[group.clone()]).await.unwrap()[0]
        .1
        .as_ref()
        .unwrap();
}
