//! The life of a session: expiry, takeover, pings, silence, nonsense from the server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::Bytes;
use gracchus_zk_client::{SessionState, ZkClient, ZkError, ZkEvent};
use gracchus_zk_proto::{ConnectRequest, Jute, OpCode, Reader, RequestHeader, xid};
use support::*;
use tokio::io::AsyncWriteExt;

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
    // a loaded machine must not look like a silent server
    let (mut peer, _) = server.attach(7, 3000).await;
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
    // it wakes up: the connections that the client gave up meanwhile are there too, and the first live one is attached again
    loop {
        let mut peer = server.accept().await;
        let Some(frame) = peer.frame().await else {
            continue;
        };
        assert_eq!(ConnectRequest::from_bytes(frame).unwrap().session_id, 7);
        peer.grant(7, 10_000).await;
        tokio::select! {
            event = events.recv() => {
                let again = SessionState::Connected {
                    session_id: 7,
                    new: false,
                };
                assert_eq!(event, Some(ZkEvent::Session(again)));
                break;
            }
            () = peer.closed() => {}
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
