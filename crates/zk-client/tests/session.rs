//! The client against a scripted server: every frame is read and answered by the test.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_client::{
    Acl, CreateMode, EventReceiver, EventType, Op, OpResult, SessionState, WatchEvent, ZkClient,
    ZkConfig, ZkError, ZkEvent,
};
use gracchus_zk_proto::multi::{MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::{
    CreateRequest, PathWatchRequest, SetWatches2Request, SetWatchesRequest,
};
use gracchus_zk_proto::response::{GetDataResponse, PathResponse};
use gracchus_zk_proto::{
    ConnectRequest, ConnectResponse, Jute, OpCode, Reader, ReplyHeader, RequestHeader, Stat,
    WatcherEvent, xid,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PASSWORD: &[u8] = b"0123456789abcdef";

struct Server(TcpListener);

/// One accepted connection.
struct Peer(TcpStream);

impl Server {
    async fn start() -> Server {
        Server(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn config(&self, chroot: &str) -> ZkConfig {
        let mut config = ZkConfig::new(
            format!("{}{chroot}", self.0.local_addr().unwrap())
                .parse()
                .unwrap(),
        );
        config.session_timeout = Duration::from_secs(30);
        config
    }

    async fn accept(&self) -> Peer {
        Peer(self.0.accept().await.unwrap().0)
    }

    /// Accepts and grants a session.
    async fn attach(&self, session_id: i64, timeout_ms: i32) -> (Peer, ConnectRequest) {
        let mut peer = self.accept().await;
        let asked = ConnectRequest::from_bytes(peer.frame().await.unwrap()).unwrap();
        peer.grant(session_id, timeout_ms).await;
        (peer, asked)
    }
}

impl Peer {
    /// The next frame's body; `None` when the client closed.
    async fn frame(&mut self) -> Option<Bytes> {
        let length = self.0.read_i32().await.ok()?;
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut body).await.ok()?;
        Some(body.into())
    }

    /// The next request that is no ping, which is answered.
    async fn request(&mut self) -> Option<(RequestHeader, Reader)> {
        loop {
            let mut r = Reader::new(self.frame().await?);
            let header = RequestHeader::read(&mut r).unwrap();
            if header.xid != xid::PING {
                return Some((header, r));
            }
            self.reply(xid::PING, 0, 0, &[]).await;
        }
    }

    async fn expect(&mut self, op: OpCode) -> (i32, Reader) {
        let (header, r) = self.request().await.expect("the client has closed");
        assert_eq!(OpCode::from_code(header.op), Some(op));
        (header.xid, r)
    }

    async fn send(&mut self, body: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_i32(body.len() as i32);
        frame.extend_from_slice(body);
        let _ = self.0.write_all(&frame).await;
    }

    async fn grant(&mut self, session_id: i64, timeout_ms: i32) {
        let password = Some(if session_id == 0 {
            Bytes::from_static(&[0; 16])
        } else {
            Bytes::from_static(PASSWORD)
        });
        let answer = ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id,
            password,
            read_only: Some(false),
        };
        self.send(&answer.to_bytes()).await;
    }

    async fn reply(&mut self, xid: i32, zxid: i64, err: i32, record: &[u8]) {
        let mut body = BytesMut::new();
        ReplyHeader { xid, zxid, err }.write(&mut body);
        body.extend_from_slice(record);
        self.send(&body).await;
    }

    async fn notify(&mut self, zxid: i64, kind: EventType, path: &str) {
        self.reply(
            xid::NOTIFICATION,
            zxid,
            0,
            &WatcherEvent::new(kind, path).to_bytes(),
        )
        .await;
    }

    /// Answers a getData with this text.
    async fn data(&mut self, xid: i32, zxid: i64, text: &'static str) {
        let record = GetDataResponse {
            data: Some(Bytes::from_static(text.as_bytes())),
            stat: Stat::default(),
        };
        self.reply(xid, zxid, 0, &record.to_bytes()).await;
    }
}

fn get(path: &str, watch: bool) -> Op {
    Op::GetData {
        path: path.into(),
        watch,
    }
}

async fn session(events: &mut EventReceiver) -> SessionState {
    match events.recv().await {
        Some(ZkEvent::Session(state)) => state,
        other => unreachable!("{other:?}"),
    }
}

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

#[tokio::test]
async fn an_expired_session_ends_everything_until_reopened() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config(""));
    let (mut peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let armed = zk.submit(get("/w", true));
    let (xid, _) = peer.expect(OpCode::GetData).await;
    peer.data(xid, 9, "").await;
    armed.await.result.unwrap();
    drop(peer);
    assert_eq!(session(&mut events).await, SessionState::Disconnected);
    let waiting = zk.submit(get("/waiting", false));
    let (_peer, asked) = server.attach(0, 0).await;
    assert_eq!(asked.session_id, 7);
    assert_eq!(session(&mut events).await, SessionState::Expired);
    assert_eq!(waiting.await.result, Err(ZkError::SessionExpired));
    assert_eq!(
        zk.submit(get("/later", false)).await.result,
        Err(ZkError::SessionExpired)
    );
    assert_eq!(zk.session(), None);
    zk.reopen().await;
    let (mut peer, asked) = server.attach(8, 9000).await;
    assert_eq!(asked.session_id, 0);
    assert_eq!(
        session(&mut events).await,
        SessionState::Connected {
            session_id: 8,
            new: true
        }
    );
    let fresh = zk.submit(get("/fresh", false));
    let (xid, _) = peer.expect(OpCode::GetData).await; // no setWatches: they ended with the session
    peer.data(xid, 10, "").await;
    fresh.await.result.unwrap();
}

#[tokio::test]
async fn a_kept_session_is_taken_over() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.session = Some((0x77, Bytes::from_static(PASSWORD)));
    let (zk, mut events) = ZkClient::start(config);
    let (mut peer, asked) = server.attach(0x77, 9000).await;
    assert_eq!(
        (asked.session_id, asked.password.as_deref()),
        (0x77, Some(PASSWORD))
    );
    assert_eq!(
        session(&mut events).await,
        SessionState::Connected {
            session_id: 0x77,
            new: false
        }
    );
    let closing = tokio::spawn(async move {
        zk.close().await;
        zk
    });
    let (xid, _) = peer.expect(OpCode::CloseSession).await;
    peer.reply(xid, 11, 0, &[]).await;
    drop(peer);
    let zk = closing.await.unwrap();
    assert_eq!(session(&mut events).await, SessionState::Closed);
    assert_eq!(
        zk.submit(get("/a", false)).await.result,
        Err(ZkError::ConnectionLoss)
    );
    assert!(zk.is_closed());
}

#[tokio::test]
async fn an_idle_session_pings() {
    let server = Server::start().await;
    let (_zk, mut events) = ZkClient::start(server.config(""));
    let (mut peer, _) = server.attach(7, 300).await;
    session(&mut events).await;
    for _ in 0..3 {
        let mut r = Reader::new(peer.frame().await.unwrap());
        assert_eq!(
            RequestHeader::read(&mut r).unwrap(),
            RequestHeader {
                xid: xid::PING,
                op: OpCode::Ping.code()
            }
        );
        peer.reply(xid::PING, 0, 0, &[]).await;
    }
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn a_server_that_freezes_is_left_and_the_session_is_told_overdue() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config(""));
    let (peer, _) = server.attach(7, 300).await;
    session(&mut events).await;
    // connections are still accepted (by the kernel), nothing is answered any more
    assert_eq!(session(&mut events).await, SessionState::Disconnected);
    let waiting = zk.submit(get("/a", false));
    assert_eq!(session(&mut events).await, SessionState::Overdue);
    assert_eq!(waiting.await.result, Err(ZkError::ConnectionLoss));
    drop(peer);
    // it wakes up: whatever connection comes through is attached again
    loop {
        let mut peer = server.accept().await;
        let Some(frame) = peer.frame().await else {
            continue;
        };
        assert_eq!(ConnectRequest::from_bytes(frame).unwrap().session_id, 7);
        peer.grant(7, 10_000).await;
        if let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_millis(200), events.recv()).await
        {
            assert_eq!(
                event,
                ZkEvent::Session(SessionState::Connected {
                    session_id: 7,
                    new: false
                })
            );
            break;
        }
    }
}

#[tokio::test]
async fn frames_of_no_sane_server_cut_the_connection_only() {
    let server = Server::start().await;
    let (_zk, mut events) = ZkClient::start(server.config(""));
    let (peer, _) = server.attach(7, 9000).await;
    session(&mut events).await;
    let mut peer = peer;
    let bad: [&[u8]; 5] = [
        &(-1i32).to_be_bytes(),
        &i32::MAX.to_be_bytes(),
        &[0, 0, 0, 3, 1, 2, 3],
        &[0, 0, 0, 16, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], // an answer to nothing
        &[
            0, 0, 0, 20, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9, 9, 9, 9,
        ], // half an event
    ];
    for bytes in bad {
        peer.0.write_all(bytes).await.unwrap();
        assert_eq!(session(&mut events).await, SessionState::Disconnected);
        let (next, asked) = server.attach(7, 9000).await;
        assert_eq!(asked.session_id, 7);
        assert_eq!(
            session(&mut events).await,
            SessionState::Connected {
                session_id: 7,
                new: false
            }
        );
        peer = next;
    }
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
async fn a_host_without_address_is_skipped() {
    let server = Server::start().await;
    let mut config = server.config("");
    config
        .connect
        .servers
        .insert(0, ("no-such-host.invalid".into(), 2181));
    let (_zk, mut events) = ZkClient::start(config);
    let _peer = server.attach(7, 9000).await;
    assert!(matches!(
        session(&mut events).await,
        SessionState::Connected { .. }
    ));
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
