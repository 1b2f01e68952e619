//! Requests: pipelined in order, typed results, credentials.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::Bytes;
use gracchus_zk_client::{Acl, CreateMode, Op, OpResult, SessionState, ZkClient, ZkError};
use gracchus_zk_proto::multi::{MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::{CreateRequest, PathWatchRequest};
use gracchus_zk_proto::response::PathResponse;
use gracchus_zk_proto::{Jute, OpCode, xid};
use support::*;

#[tokio::test]
async fn requests_are_pipelined_in_call_order_and_bounded() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.max_in_flight = 3;
    let (zk, mut events) = ZkClient::start(config);
    let replies: Vec<_> = (0..5)
        .map(|n| zk.submit(get(&format!("/{n}"), false)))
        .collect();
    let (mut peer, asked) = server.attach(7, 9000).await;
    assert_eq!(
        (asked.session_id, asked.timeout_ms, asked.last_zxid_seen),
        (0, 30_000, 0)
    );
    assert_eq!(
        session(&mut events).await,
        SessionState::Connected {
            session_id: 7,
            new: true
        }
    );
    assert_eq!(zk.session(), Some((7, Bytes::from_static(PASSWORD))));
    assert_eq!(zk.negotiated_timeout_ms(), 9000);
    let mut xids = Vec::new();
    for n in 0..3 {
        let (xid, mut r) = peer.expect(OpCode::GetData).await;
        assert_eq!(
            PathWatchRequest::read(&mut r).unwrap().path,
            format!("/{n}")
        );
        xids.push(xid);
    }
    let mut byte = [0];
    assert!(
        peer.0.try_read(&mut byte).is_err(),
        "a fourth request while three are open"
    );
    for (n, xid) in xids.iter().enumerate() {
        peer.data(*xid, 100 + n as i64, "x").await;
    }
    for n in 3..5 {
        let (xid, mut r) = peer.expect(OpCode::GetData).await;
        assert_eq!(
            PathWatchRequest::read(&mut r).unwrap().path,
            format!("/{n}")
        );
        peer.reply(xid, 100 + n, ZkError::NoNode.code(), &[]).await;
    }
    for (n, reply) in replies.into_iter().enumerate() {
        let reply = reply.await;
        assert_eq!(reply.zxid, 100 + n as i64);
        if n < 3 {
            assert!(
                matches!(reply.result, Ok(OpResult::Data(Some(data), _)) if data.as_ref() == b"x")
            );
        } else {
            assert_eq!(reply.result, Err(ZkError::NoNode));
        }
    }
}

#[tokio::test]
async fn requests_submitted_together_are_answered_together_each_at_its_place() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config("/chroot"));
    let no_step = Op::Check {
        path: "/".into(),
        version: 1,
    };
    // the second can't be sent, and so is answered before the first
    let together = zk.submit_all(vec![get("/", false), no_step, get("/1", true)]);
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let (first, mut r) = peer.expect(OpCode::GetData).await;
    assert_eq!(PathWatchRequest::read(&mut r).unwrap().path, "/chroot");
    let (second, mut r) = peer.expect(OpCode::GetData).await;
    let asked = PathWatchRequest::read(&mut r).unwrap();
    assert_eq!((asked.path.as_str(), asked.watch), ("/chroot/1", true));
    peer.data(first, 100, "x").await;
    peer.reply(second, 101, ZkError::NoNode.code(), &[]).await;
    let replies = together.await;
    assert!(matches!(&replies[0].result, Ok(OpResult::Data(Some(data), _)) if data == "x"));
    assert_eq!(replies[1].result, Err(ZkError::BadArguments));
    assert_eq!(
        (replies[2].zxid, &replies[2].result),
        (101, &Err(ZkError::NoNode))
    );
    assert!(zk.submit_all(Vec::new()).await.is_empty());

    // what was answered before a cut stays answered
    let together = zk.submit_all(vec![get("/2", false), get("/3", false)]);
    let (xid, _) = peer.expect(OpCode::GetData).await;
    peer.expect(OpCode::GetData).await;
    peer.data(xid, 102, "y").await;
    drop(peer);
    let replies = together.await;
    assert!(matches!(&replies[0].result, Ok(OpResult::Data(Some(data), _)) if data == "y"));
    assert_eq!(replies[1].result, Err(ZkError::ConnectionLoss));

    // and a session's end is told to all
    let together = zk.submit_all(vec![get("/4", false), get("/5", false)]);
    server.attach(0, 0).await;
    let ended = |reply: &gracchus_zk_client::Reply| reply.result == Err(ZkError::SessionExpired);
    assert!(together.await.iter().all(ended));
    let together = zk.submit_all(vec![get("/6", false), get("/7", false)]);
    assert!(together.await.iter().all(ended));
}

#[tokio::test]
async fn refused_credentials_are_not_sent_again() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config(""));
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let good = zk.submit(Op::AddAuth {
        scheme: "digest".into(),
        auth: Bytes::from_static(b"a:b"),
    });
    assert_eq!(peer.expect(OpCode::Auth).await.0, xid::AUTH);
    peer.reply(xid::AUTH, 0, 0, &[]).await;
    good.await.result.unwrap();
    let bad = zk.submit(Op::AddAuth {
        scheme: "foo".into(),
        auth: Bytes::new(),
    });
    peer.expect(OpCode::Auth).await;
    peer.reply(xid::AUTH, 0, ZkError::AuthFailed.code(), &[])
        .await;
    assert_eq!(bad.await.result, Err(ZkError::AuthFailed));
    drop(peer);
    let (mut peer, _) = server.attach(7, 9000).await;
    let (_, mut r) = peer.expect(OpCode::Auth).await;
    assert_eq!(
        gracchus_zk_proto::request::AuthRequest::read(&mut r)
            .unwrap()
            .scheme
            .as_deref(),
        Some("digest")
    );
    peer.reply(xid::AUTH, 0, 0, &[]).await;
    let next = zk.submit(get("/a", false));
    let (xid, _) = peer.expect(OpCode::GetData).await;
    peer.data(xid, 1, "").await;
    next.await.result.unwrap();
}

#[tokio::test]
async fn a_failed_multi_names_its_step() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config("/c"));
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let create = |path: &str| Op::Create {
        path: path.into(),
        data: None,
        acl: Acl::open(),
        mode: CreateMode::Ephemeral,
    };
    let ops = vec![
        Op::Check {
            path: "/e".into(),
            version: 4,
        },
        create("/x"),
        create("/y"),
    ];
    for failing in [None, Some(1)] {
        let asked = zk.submit(Op::Multi(ops.clone()));
        let (xid, mut r) = peer.expect(OpCode::Multi).await;
        let request = MultiRequest::read(&mut r).unwrap();
        assert_eq!(
            request.ops.iter().map(|op| op.path()).collect::<Vec<_>>(),
            ["/c/e", "/c/x", "/c/y"]
        );
        let results = match failing {
            None => vec![
                MultiResult::Check,
                MultiResult::Create("/c/x".into()),
                MultiResult::Create("/c/y".into()),
            ],
            Some(_) => vec![
                MultiResult::Error(0),
                MultiResult::Error(ZkError::NodeExists.code()),
                MultiResult::Error(-2),
            ],
        };
        peer.reply(xid, 9, 0, &MultiResponse { results }.to_bytes())
            .await;
        match asked.await.result.unwrap() {
            OpResult::Multi(Ok(results)) => {
                assert_eq!(failing, None);
                assert_eq!(
                    results,
                    [
                        OpResult::Done,
                        OpResult::Created("/x".into()),
                        OpResult::Created("/y".into())
                    ]
                );
            }
            OpResult::Multi(Err(failure)) => assert_eq!(
                (Some(failure.index), failure.error),
                (failing, ZkError::NodeExists)
            ),
            other => unreachable!("{other:?}"),
        }
    }
    // what may not stand in a multi is refused here; the session goes on
    assert_eq!(
        zk.submit(Op::Multi(vec![Op::WhoAmI])).await.result,
        Err(ZkError::BadArguments)
    );
    let made = zk.submit(create("/z"));
    let (xid, mut r) = peer.expect(OpCode::Create).await;
    assert_eq!(
        CreateRequest::read(&mut r).unwrap().flags,
        CreateMode::Ephemeral.flags()
    );
    peer.reply(
        xid,
        10,
        0,
        &PathResponse {
            path: Some("/c/z".into()),
        }
        .to_bytes(),
    )
    .await;
    assert_eq!(made.await.result, Ok(OpResult::Created("/z".into())));
}
