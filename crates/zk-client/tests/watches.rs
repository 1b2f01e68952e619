//! Watches: their events in order, and what becomes of them when the connection breaks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use gracchus_zk_client::{
    EventType, Op, OpResult, SessionState, WatchEvent, ZkClient, ZkError, ZkEvent,
};
use gracchus_zk_proto::request::{PathWatchRequest, SetWatches2Request, SetWatchesRequest};
use gracchus_zk_proto::{Jute, OpCode};
use support::*;

#[tokio::test]
async fn an_event_comes_before_data_newer_than_it() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config("/kafka"));
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let first = zk.submit(get("/a", true));
    let (xid, mut r) = peer.expect(OpCode::GetData).await;
    assert_eq!(
        PathWatchRequest::read(&mut r).unwrap(),
        PathWatchRequest {
            path: "/kafka/a".into(),
            watch: true
        }
    );
    peer.data(xid, 1, "old").await;
    first.await.result.unwrap();
    let second = zk.submit(get("/a", false));
    let (xid, _) = peer.expect(OpCode::GetData).await;
    peer.notify(2, EventType::DataChanged, "/kafka/a").await;
    peer.data(xid, 2, "new").await;
    assert!(
        matches!(second.await.result, Ok(OpResult::Data(Some(data), _)) if data.as_ref() == b"new")
    );
    let event = WatchEvent {
        kind: EventType::DataChanged,
        path: "/a".into(),
        zxid: 2,
    };
    assert_eq!(events.try_recv().ok(), Some(ZkEvent::Watch(event)));
}

#[tokio::test]
async fn a_cut_answers_connection_loss_and_the_session_goes_on_with_its_watches() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.max_in_flight = 4;
    let (zk, mut events) = ZkClient::start(config);
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    // a data watch, an exist watch, a child watch; and one that fires before the cut
    let armed = [
        zk.submit(get("/data", true)),
        zk.submit(Op::Exists {
            path: "/not-yet".into(),
            watch: true,
        }),
        zk.submit(Op::GetChildren {
            path: "/dir".into(),
            watch: true,
        }),
        zk.submit(get("/fired", true)),
    ];
    for (n, op) in [
        OpCode::GetData,
        OpCode::Exists,
        OpCode::GetChildren2,
        OpCode::GetData,
    ]
    .into_iter()
    .enumerate()
    {
        let (xid, _) = peer.expect(op).await;
        match n {
            1 => peer.reply(xid, 50, ZkError::NoNode.code(), &[]).await,
            2 => {
                let record = gracchus_zk_proto::response::GetChildren2Response::default();
                peer.reply(xid, 50, 0, &record.to_bytes()).await;
            }
            _ => peer.data(xid, 50, "").await,
        }
    }
    for reply in armed {
        let _ = reply.await;
    }
    // of a transaction that also changes /dir, whose event the cut swallows
    peer.notify(51, EventType::DataChanged, "/fired").await;
    assert!(matches!(events.recv().await, Some(ZkEvent::Watch(_))));

    let sent: Vec<_> = (0..4).map(|_| zk.submit(get("/sent", false))).collect();
    let queued = zk.submit(get("/queued", false));
    for _ in 0..4 {
        peer.expect(OpCode::GetData).await;
    }
    drop(peer);
    assert_eq!(session(&mut events).await, SessionState::Disconnected);
    for reply in sent {
        assert_eq!(reply.await.result, Err(ZkError::ConnectionLoss));
    }
    let (mut peer, asked) = server.attach(7, 9000).await;
    assert_eq!(
        (
            asked.session_id,
            asked.last_zxid_seen,
            asked.password.as_deref()
        ),
        (7, 50, Some(PASSWORD))
    );
    assert_eq!(
        session(&mut events).await,
        SessionState::Connected {
            session_id: 7,
            new: false
        }
    );
    let (xid, mut r) = peer.expect(OpCode::SetWatches).await;
    let watches = SetWatchesRequest::read(&mut r).unwrap();
    assert_eq!(
        watches,
        SetWatchesRequest {
            relative_zxid: 50,
            data: vec!["/data".into()],
            exist: vec!["/not-yet".into()],
            child: vec!["/dir".into()]
        }
    );
    peer.reply(xid, 60, 0, &[]).await;
    let (xid, mut r) = peer.expect(OpCode::GetData).await;
    assert_eq!(PathWatchRequest::read(&mut r).unwrap().path, "/queued");
    peer.data(xid, 60, "here").await;
    assert!(queued.await.result.is_ok());
}

#[tokio::test]
async fn many_watches_are_sent_again_in_parts() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.max_in_flight = 10_000;
    let (zk, mut events) = ZkClient::start(config);
    let (mut peer, _) = server.attach(7, 30_000).await;
    session(&mut events).await;
    let paths: Vec<String> = (0..3000).map(|n| format!("/{n:0>100}")).collect();
    let replies: Vec<_> = paths
        .iter()
        .map(|path| zk.submit(get(path, true)))
        .collect();
    for _ in &paths {
        let (xid, _) = peer.expect(OpCode::GetData).await;
        peer.data(xid, 5, "").await;
    }
    for reply in replies {
        reply.await.result.unwrap();
    }
    drop(peer);
    let (mut peer, _) = server.attach(7, 30_000).await;
    let mut seen = Vec::new();
    while seen.len() < paths.len() {
        let (xid, mut r) = peer.expect(OpCode::SetWatches).await;
        assert!(r.remaining() < 140 * 1024, "{}", r.remaining());
        seen.extend(SetWatchesRequest::read(&mut r).unwrap().data);
        peer.reply(xid, 5, 0, &[]).await;
    }
    assert_eq!(seen, paths);
}

#[tokio::test]
async fn persistent_watches_need_the_newer_request() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config("/c"));
    let (mut peer, _) = server.attach(7, 30_000).await;
    session(&mut events).await;
    let add = zk.submit(Op::AddWatch {
        path: "/p".into(),
        mode: gracchus_zk_client::AddWatchMode::PersistentRecursive,
    });
    let (xid, _) = peer.expect(OpCode::AddWatch).await;
    peer.reply(xid, 5, 0, &0i32.to_be_bytes()).await;
    add.await.result.unwrap();
    drop(peer);
    let (mut peer, _) = server.attach(7, 30_000).await;
    let (_, mut r) = peer.expect(OpCode::SetWatches2).await;
    assert_eq!(
        SetWatches2Request::read(&mut r)
            .unwrap()
            .persistent_recursive,
        ["/c/p"]
    );
}
