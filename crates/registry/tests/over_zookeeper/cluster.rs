//! What a broker makes at its start, registrations, elections, producer ids.

use crate::rig::{fresh, registration};
use bytes::Bytes;
use gracchus_registry::json::*;
use gracchus_registry::op::{CreateMode, MultiReply, MultiStep};
use gracchus_registry::registry::*;
use gracchus_registry::{ANY_VERSION, Registry, RegistryError, ZkOp, ZkReply, paths};
use gracchus_zk_client::{SessionState, ZkClient, ZkError, ZkEvent};

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
