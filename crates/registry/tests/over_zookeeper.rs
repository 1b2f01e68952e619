//! The registry over a coordination server in this process, or over another: `ZOOKEEPER=host:port cargo test -p gracchus-registry`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use gracchus_registry::entity::ConfigEntity;
use gracchus_registry::json::*;
use gracchus_registry::op::{CreateMode, MultiReply, MultiStep};
use gracchus_registry::registry::*;
use gracchus_registry::{ANY_VERSION, Registry, RegistryError, ZkOp, ZkReply, paths};
use gracchus_zk_client::{EventReceiver, SessionState, ZkClient, ZkConfig, ZkError, ZkEvent};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The server that all tests share; it lives as long as the test process.
fn server() -> String {
    static SERVER: OnceLock<String> = OnceLock::new();
    let start = || {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap()
            .keep();
        let mut config = gracchus_zk_server::ZkConfig::new(dir);
        config.client_address = "127.0.0.1:0".parse().unwrap();
        config.tick_time_ms = 500;
        let (told, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let server = gracchus_zk_server::ZkServer::start(config).await.unwrap();
                told.send(server.local_addr().to_string()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        address.recv().unwrap()
    };
    std::env::var("ZOOKEEPER").unwrap_or_else(|_| SERVER.get_or_init(start).clone())
}

/// A chroot of its own for each test, made anew.
async fn fresh(name: &str) -> (Registry, EventReceiver, ZkConfig) {
    let mut config = ZkConfig::new(
        format!("{}/registry-test/{name}", server())
            .parse()
            .unwrap(),
    );
    config.session_timeout = Duration::from_secs(6);
    let mut root = config.clone();
    root.connect.chroot = String::new();
    let (zk, _events) = ZkClient::start(root);
    Registry::new(zk.clone(), false)
        .delete_recursive(&format!("/registry-test/{name}"))
        .await
        .unwrap();
    zk.close().await;
    create_chroot(&config, false).await.unwrap();
    let (zk, events) = ZkClient::start(config.clone());
    (Registry::new(zk, false), events, config)
}

fn registration(port: i32) -> BrokerRegistration {
    BrokerRegistration {
        version: 5,
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".into(),
            security_protocol: SecurityProtocol::Plaintext,
            host: "localhost".into(),
            port,
        }],
        rack: None,
        jmx_port: -1,
        timestamp_ms: 1,
        features: BTreeMap::new(),
    }
}

#[tokio::test]
async fn start_paths_have_null_data_and_kafkas_order() {
    let (registry, _events, _) = fresh("paths").await;
    registry.create_paths_at_start().await.unwrap();
    registry.create_paths_at_start().await.unwrap();
    let mut last = 0;
    for path in paths::AT_START {
        let (data, stat) = registry.zk().get_data(path, false).await.unwrap();
        assert_eq!(data, None, "{path}");
        assert!(stat.czxid > last, "{path}");
        last = stat.czxid;
    }
    assert_eq!(registry.next_broker_id(1000).await.unwrap(), 1001);
    assert_eq!(registry.next_broker_id(1000).await.unwrap(), 1002);
    let (data, _) = registry
        .zk()
        .get_data(paths::BROKER_SEQUENCE_ID, false)
        .await
        .unwrap();
    assert_eq!(data.as_deref(), Some(&b""[..]));
    registry.zk().close().await;
}

#[tokio::test]
async fn the_cluster_id_is_made_once() {
    let (registry, _events, _) = fresh("cluster").await;
    assert_eq!(registry.cluster_id().await.unwrap(), None);
    let first = ClusterId::from_random([7; 16]);
    assert_eq!(
        registry.get_or_create_cluster_id(&first).await.unwrap(),
        first.0
    );
    assert_eq!(
        registry
            .get_or_create_cluster_id(&ClusterId::from_random([8; 16]))
            .await
            .unwrap(),
        first.0
    );
    registry.zk().close().await;
}

#[tokio::test]
async fn a_stale_registration_is_told_and_can_be_taken_over() {
    // a process that dies without closing its session: a runtime of its own, dropped
    let first = tokio::runtime::Runtime::new().unwrap();
    let (config, session, epoch) = first
        .spawn(async {
            let (registry, _events, config) = fresh("brokers").await;
            registry.create_paths_at_start().await.unwrap();
            let RegisterOutcome::Registered { epoch } = registry
                .register_broker(1, &registration(9092))
                .await
                .unwrap()
            else {
                unreachable!("not registered")
            };
            let (_, stat) = registry
                .zk()
                .get_data("/brokers/ids/1", false)
                .await
                .unwrap();
            assert_eq!((stat.czxid, stat.version), (epoch, 1));
            // again by the same session: the epoch stays, the content follows
            let again = registry
                .register_broker(1, &registration(9093))
                .await
                .unwrap();
            assert_eq!(again, RegisterOutcome::Registered { epoch });
            assert_eq!(
                registry.broker(1).await.unwrap(),
                Some((registration(9093), epoch))
            );
            let session = registry.zk().session().unwrap();
            std::mem::forget(registry); // or its last handle would close the session
            (config, session, epoch)
        })
        .await
        .unwrap();
    first.shutdown_background();
    // another process
    let (zk, mut events) = ZkClient::start(config.clone());
    let other = Registry::new(zk, false);
    let taken = other.register_broker(1, &registration(9094)).await.unwrap();
    assert!(
        matches!(taken, RegisterOutcome::Taken { owner, registration: Ok(_), .. } if owner == session.0),
        "{taken:?}"
    );
    assert!(other.watch_broker(1).await.unwrap());
    end_session(&config, session).await;
    loop {
        if let Some(ZkEvent::Watch(event)) = events.recv().await {
            assert_eq!(event.path, "/brokers/ids/1");
            break;
        }
    }
    assert!(
        matches!(other.register_broker(1, &registration(9094)).await.unwrap(), RegisterOutcome::Registered { epoch: later } if later > epoch)
    );
    other
        .zk()
        .set_data("/brokers/ids/1", Some(Bytes::from_static(b"{oops")), -1)
        .await
        .unwrap();
    let brokers = other.brokers().await.unwrap();
    assert!(matches!(
        &brokers[..],
        [LiveBroker {
            id: 1,
            registration: Err(_),
            ..
        }]
    ));
    other.zk().close().await;
}

#[tokio::test]
async fn topics_are_created_and_states_written_conditionally() {
    let (registry, _events, _) = fresh("topics").await;
    registry.create_paths_at_start().await.unwrap();
    let topics: Vec<NewTopic> = (0..300)
        .map(|n| NewTopic {
            name: format!("t{n}"),
            assignment: TopicAssignment {
                topic_id: Some(TopicId::from_bytes([n as u8; 16])),
                partitions: [(0, vec![1])].into(),
                ..Default::default()
            },
            config: ConfigZnode::default(),
        })
        .collect();
    registry
        .zk()
        .create(
            "/config/topics/t3",
            None,
            registry.acl_for("/"),
            CreateMode::Persistent,
        )
        .await
        .unwrap();
    assert!(
        registry
            .mark_for_deletion(&["t4".into(), "t4".into()])
            .await
            .iter()
            .all(Result::is_ok)
    );
    let outcomes = registry.create_topics(&topics).await;
    assert_eq!(
        outcomes[4],
        Err(RegistryError::MarkedForDeletion("t4".into()))
    );
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        299
    );
    assert_eq!(
        registry.create_topics(&topics[..1]).await[0]
            .as_ref()
            .unwrap_err()
            .zk(),
        Some(ZkError::NodeExists)
    );
    let names = registry.topic_names(false).await.unwrap();
    assert_eq!(names.len(), 299);
    let stored = registry.topics(&names).await.unwrap();
    assert!(
        stored
            .iter()
            .all(|topic| topic.assignment.is_ok() && topic.version == 0)
    );
    assert_eq!(
        registry
            .config(&ConfigEntity::Topic("t3".into()))
            .await
            .unwrap(),
        ConfigZnode::default()
    );

    let partition = TopicPartition {
        topic: "t0".into(),
        partition: 0,
    };
    let mut state = PartitionState {
        controller_epoch: 1,
        leader: 1,
        leader_epoch: 0,
        isr: vec![1],
        leader_recovery_state: 0,
    };
    registry
        .create_recursive(&paths::partition_state("t0", 0), Some(state.to_bytes()))
        .await
        .unwrap();
    state.isr = vec![1, 2];
    assert_eq!(
        registry.set_partition_state(&partition, &state, 0).await,
        Ok(1)
    );
    assert_eq!(
        registry.set_partition_state(&partition, &state, 0).await,
        Ok(1),
        "already so"
    );
    state.isr = vec![2];
    assert_eq!(
        registry
            .set_partition_state(&partition, &state, 0)
            .await
            .unwrap_err()
            .zk(),
        Some(ZkError::BadVersion)
    );
    let states = registry
        .partition_states(&[
            partition,
            TopicPartition {
                topic: "t1".into(),
                partition: 0,
            },
        ])
        .await
        .unwrap();
    assert!(
        matches!(&states[..], [Some((Ok(found), stat)), None] if found.isr == [1, 2] && stat.version == 1)
    );
    registry
        .delete_recursive("/brokers/topics/t0")
        .await
        .unwrap();
    assert_eq!(registry.assignment("t0").await.unwrap(), None);
    registry.zk().close().await;
}

#[tokio::test]
async fn elections_raise_the_epoch_and_fences_hold() {
    let (registry, _events, config) = fresh("election").await;
    assert_eq!(
        registry.elect(1, 5).await.unwrap(),
        Election::Won {
            epoch: 1,
            epoch_version: 1
        }
    );
    let (zk, _events2) = ZkClient::start(config);
    let other = Registry::new(zk, false);
    assert_eq!(other.elect(2, 6).await.unwrap(), Election::Lost(Some(1)));
    assert_eq!(
        other.controller(true).await.unwrap().unwrap().znode,
        ControllerZnode::new(1, 5)
    );
    let step = |path: &str| MultiStep::Create {
        path: path.into(),
        data: None,
        mode: CreateMode::Persistent,
    };
    assert_eq!(
        registry.execute_one(ZkOp::fenced(1, step("/a"))).await,
        Ok(ZkReply::Multi(vec![
            MultiReply::Checked,
            MultiReply::Created { path: "/a".into() }
        ]))
    );
    let failure = registry
        .execute_one(ZkOp::fenced(1, step("/a")))
        .await
        .unwrap_err();
    assert_eq!((failure.error, failure.step), (ZkError::NodeExists, 1));
    registry.zk().close().await;
    assert_eq!(
        other.elect(2, 7).await.unwrap(),
        Election::Won {
            epoch: 2,
            epoch_version: 2
        }
    );
    let failure = other
        .execute_one(ZkOp::fenced(1, step("/b")))
        .await
        .unwrap_err();
    assert_eq!((failure.error, failure.step), (ZkError::BadVersion, 0));
    other.zk().close().await;
    assert!(
        other.execute_one(ZkOp::get("/a")).await.is_err(),
        "a closed client must not wait for ever"
    );
}

#[tokio::test]
async fn configs_need_a_controller_and_leave_notices() {
    let (registry, _events, _) = fresh("configs").await;
    registry.create_paths_at_start().await.unwrap();
    let topic = ConfigEntity::Topic("t".into());
    let some = ConfigZnode {
        config: [("retention.ms".to_string(), "5".to_string())]
            .into_iter()
            .collect(),
    };
    assert_eq!(
        registry.set_config(&topic, &some).await,
        Err(RegistryError::NoController)
    );
    registry.elect(1, 5).await.unwrap();
    registry.set_config(&topic, &some).await.unwrap();
    registry
        .set_config(&topic, &ConfigZnode::default())
        .await
        .unwrap();
    assert_eq!(
        registry
            .zk()
            .get_data("/config/topics/t", false)
            .await
            .unwrap()
            .0
            .as_deref(),
        Some(&br#"{"version":1,"config":{}}"#[..])
    );
    let user = ConfigEntity::UserClient {
        user: Some("CN=bob/x".into()),
        client: None,
    };
    registry.set_config(&user, &some).await.unwrap();
    assert_eq!(registry.config(&user).await.unwrap(), some);
    assert!(
        registry
            .config_entities("users")
            .await
            .unwrap()
            .contains(&user)
    );
    registry
        .set_config(&ConfigEntity::User(Some("CN=bob/x".into())), &some)
        .await
        .unwrap();
    registry
        .set_config(
            &ConfigEntity::User(Some("CN=bob/x".into())),
            &ConfigZnode::default(),
        )
        .await
        .unwrap();
    assert_eq!(
        registry.config_entities("users").await.unwrap().len(),
        2,
        "the client keeps its user's node"
    );
    registry
        .set_config(&user, &ConfigZnode::default())
        .await
        .unwrap();
    assert_eq!(registry.config_entities("users").await.unwrap(), []);

    let notices = registry.config_change_names(true).await.unwrap();
    assert_eq!(
        notices
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(
        registry
            .config_change(&notices[2].1)
            .await
            .unwrap()
            .unwrap()
            .0,
        Some(user)
    );
    let names: Vec<String> = notices.into_iter().map(|(_, name)| name).collect();
    registry
        .purge_config_changes(&names, i64::MAX)
        .await
        .unwrap();
    assert_eq!(registry.config_change_names(false).await.unwrap(), []);
    assert_eq!(registry.config_change(&names[0]).await.unwrap(), None);
    registry.zk().close().await;
}

#[tokio::test]
async fn producer_id_blocks_are_never_given_twice() {
    let (registry, _events, config) = fresh("pids").await;
    registry.create_paths_at_start().await.unwrap();
    let (zk, _events2) = ZkClient::start(config);
    let other = Registry::new(zk, false);
    let mut starts = Vec::new();
    for _ in 0..20 {
        let (a, b) = tokio::join!(
            registry.next_producer_id_block(1),
            other.next_producer_id_block(2)
        );
        starts.extend([a.unwrap().first, b.unwrap().first]);
    }
    starts.sort();
    assert_eq!(starts, (0..40).map(|n| n * 1000).collect::<Vec<i64>>());
    registry
        .zk()
        .set_data(
            paths::PRODUCER_ID_BLOCK,
            Some(Bytes::from_static(b"junk")),
            ANY_VERSION,
        )
        .await
        .unwrap();
    assert!(matches!(
        registry.next_producer_id_block(1).await,
        Err(RegistryError::Content { .. })
    ));
    registry.zk().close().await;
    other.zk().close().await;
}

#[tokio::test]
async fn the_first_event_is_the_session() {
    let (registry, mut events, _) = fresh("events").await;
    registry.zk().exists("/x", true).await.unwrap();
    assert!(matches!(
        events.recv().await,
        Some(ZkEvent::Session(SessionState::Connected { new: true, .. }))
    ));
    registry
        .zk()
        .create("/x", None, registry.acl_for("/x"), CreateMode::Ephemeral)
        .await
        .unwrap();
    assert!(
        matches!(events.try_recv(), Ok(ZkEvent::Watch(event)) if event.path == "/x"),
        "the event comes before the reply"
    );
    registry.zk().close().await;
}

/// Stands between client and server; when told to, it swallows the next answer and cuts the connection.
#[derive(Clone, Default)]
struct Proxy {
    swallow: Arc<AtomicBool>,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start(server: String) -> (Proxy, u16) {
        let proxy = Proxy::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let this = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(this.clone().pass(client, server));
            }
        });
        (proxy, port)
    }

    async fn pass(self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let mut there = vec![0; 65536];
        let mut back = vec![0; 65536];
        loop {
            tokio::select! {
                read = from_client.read(&mut there) => match read {
                    Ok(n) if n > 0 => to_server.write_all(&there[..n]).await.unwrap(),
                    _ => return,
                },
                read = from_server.read(&mut back) => match read {
                    Ok(n) if n > 0 => {
                        if self.swallow.swap(false, Ordering::SeqCst) {
                            self.cuts.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                        to_client.write_all(&back[..n]).await.unwrap();
                    }
                    _ => return,
                },
            }
        }
    }

    /// Loses the answer to what is asked next.
    fn lose_next(&self) {
        self.swallow.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_counts_once() {
    let (direct, _events, config) = fresh("lost").await;
    direct.create_paths_at_start().await.unwrap();
    let (proxy, port) = Proxy::start(server()).await;
    let mut through = config.clone();
    through.connect.servers = vec![("127.0.0.1".into(), port)];
    let (zk, _events) = ZkClient::start(through);
    let registry = Registry::new(zk, false);
    registry.cluster_id().await.unwrap(); // connected

    let data = Some(Bytes::from_static(b"x"));
    proxy.lose_next();
    let create = ZkOp::Create {
        path: "/e".into(),
        data: data.clone(),
        mode: CreateMode::Ephemeral,
    };
    assert!(
        matches!(registry.execute_one(create).await, Ok(ZkReply::Created { path, stat }) if path == "/e" && stat.ephemeral_owner != 0)
    );
    proxy.lose_next();
    let set = ZkOp::SetData {
        path: "/e".into(),
        data: Some(Bytes::from_static(b"y")),
        version: 0,
    };
    assert!(matches!(registry.execute_one(set).await, Ok(ZkReply::Set(stat)) if stat.version == 1));
    proxy.lose_next();
    assert_eq!(
        registry.elect(7, 5).await.unwrap(),
        Election::Won {
            epoch: 1,
            epoch_version: 1
        }
    );
    proxy.lose_next();
    let step = MultiStep::Create {
        path: "/fenced".into(),
        data: data.clone(),
        mode: CreateMode::Persistent,
    };
    let done = vec![
        MultiReply::Checked,
        MultiReply::Created {
            path: "/fenced".into(),
        },
    ];
    assert_eq!(
        registry.execute_one(ZkOp::fenced(1, step)).await,
        Ok(ZkReply::Multi(done))
    );
    proxy.lose_next();
    assert_eq!(
        registry
            .execute_one(ZkOp::Delete {
                path: "/e".into(),
                version: 1
            })
            .await,
        Ok(ZkReply::Deleted)
    );
    proxy.lose_next();
    let RegisterOutcome::Registered { epoch } =
        registry.register_broker(7, &registration(9)).await.unwrap()
    else {
        unreachable!("own registration taken for another's")
    };
    assert_eq!(
        direct.broker(7).await.unwrap(),
        Some((registration(9), epoch))
    );
    // a whole batch: parents first, all lost at once
    proxy.lose_next();
    let ops = (0..500)
        .map(|n| {
            ZkOp::create(
                if n == 0 {
                    "/p".into()
                } else {
                    format!("/p/{n}")
                },
                data.clone(),
            )
        })
        .collect();
    assert!(registry.execute(ops).await.iter().all(Result::is_ok));
    assert_eq!(direct.children("/p", false).await.unwrap().len(), 499);
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 7);
    // somebody else's content is not taken for one's own
    direct
        .zk()
        .set_data("/fenced", Some(Bytes::from_static(b"other")), -1)
        .await
        .unwrap();
    proxy.lose_next();
    let set = ZkOp::SetData {
        path: "/fenced".into(),
        data,
        version: 0,
    };
    assert_eq!(
        registry.execute_one(set).await.unwrap_err().error,
        ZkError::BadVersion
    );
    registry.zk().close().await;
    direct.zk().close().await;
}
