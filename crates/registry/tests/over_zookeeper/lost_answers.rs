//! Writes whose answers are lost with the connection.

use crate::rig::{fresh, registration, server};
use bytes::Bytes;
use gracchus_registry::op::{CreateMode, MultiReply, MultiStep};
use gracchus_registry::registry::*;
use gracchus_registry::{Registry, ZkOp, ZkReply};
use gracchus_zk_client::{ZkClient, ZkError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

#[tokio::test]
async fn an_answer_lost_amid_many_parts_costs_none_and_leaves_the_order() {
    let (direct, _events, config) = fresh("lost-amid").await;
    let (proxy, port) = Proxy::start(server()).await;
    let mut through = config.clone();
    through.connect.servers = vec![("127.0.0.1".into(), port)];
    let (zk, _events) = ZkClient::start(through);
    let registry = Registry::new(zk, false);
    // far more than are under way at a time, so that answers still come after the first part
    let count = 10_000;
    let path = |n: usize| format!("/n{n}");
    let ops = (0..count).map(|n| ZkOp::create(path(n), None)).collect();
    let (mut parts, mut created) = (0, Vec::new());
    registry
        .execute_in_parts(ops, |part| {
            if parts == 0 {
                proxy.lose_next();
            }
            parts += 1;
            created.extend(part);
            std::future::ready(())
        })
        .await;
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 1);
    assert!(parts > 1);
    assert_eq!(created.len(), count);
    for (n, result) in created.into_iter().enumerate() {
        assert!(matches!(result, Ok(ZkReply::Created { path: made, .. }) if made == path(n)));
    }
    assert_eq!(direct.children("/", false).await.unwrap().len(), count);
    registry.zk().close().await;
    direct.zk().close().await;
}
