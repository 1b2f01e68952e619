//! What waits is bounded: requests by number, bytes and time, events by number; and nobody waits for the other side in a circle.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use bytes::{Bytes, BytesMut};
use gracchus_zk_client::client::{MAX_OPEN_BYTES, MAX_OPEN_REQUESTS};
use gracchus_zk_client::core::{Output, SessionCore};
use gracchus_zk_client::{
    EventType, Op, Reply, SessionState, ZkClient, ZkConfig, ZkError, ZkEvent,
};
use gracchus_zk_proto::response::{GetDataResponse, StatResponse};
use gracchus_zk_proto::{ConnectResponse, Jute, OpCode, Stat};
use std::time::Duration;
use support::*;

fn set(bytes: usize) -> Op {
    Op::SetData {
        path: "/a".into(),
        data: Some(vec![b'x'; bytes].into()),
        version: -1,
    }
}

#[tokio::test]
async fn requests_beyond_the_bounds_are_refused_at_once() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config(""));
    // Not connected yet: they wait.
    let waiting: Vec<_> = (0..MAX_OPEN_REQUESTS - 10)
        .map(|_| zk.submit(get("/a", false)))
        .collect();
    let several = |count| zk.submit_all(vec![get("/a", false); count]);
    let refused = several(11).await;
    assert_eq!(refused.len(), 11);
    let is_refused = |reply: &Reply| reply.result == Err(ZkError::ThrottledOp);
    assert!(refused.iter().all(is_refused));
    let together = several(10);
    let refused = zk.submit(get("/a", false)).await;
    assert_eq!(refused.result, Err(ZkError::ThrottledOp));
    // The server ends the session: all of them are answered, and there is room again.
    let (_peer, _) = server.attach(0, 0).await;
    assert_eq!(session(&mut events).await, SessionState::Expired);
    for reply in waiting {
        assert_eq!(reply.await.result, Err(ZkError::SessionExpired));
    }
    assert_eq!(together.await.len(), 10);
    let refused = zk.submit(get("/a", false)).await;
    assert_eq!(refused.result, Err(ZkError::SessionExpired));
    zk.reopen().await;
    // By bytes; the first passes whatever its size.
    let large = zk.submit(set(MAX_OPEN_BYTES + 1));
    let refused = zk.submit(get("/a", false)).await;
    assert_eq!(refused.result, Err(ZkError::ThrottledOp));
    drop((large, zk));
}

/// The requests that a step answers, by their marks.
fn failed(outputs: Vec<Output<u32>>) -> Vec<(u32, ZkError)> {
    let answer = |output| match output {
        Output::Answer(mark, Reply { result, .. }) => Some((mark, result.unwrap_err())),
        _ => None,
    };
    outputs.into_iter().filter_map(answer).collect()
}

#[test]
fn each_request_waits_a_session_timeout_for_a_connection() {
    let at = Duration::from_secs;
    let patience = at(10);
    let mut core = SessionCore::new(&ZkConfig::new("a".parse().unwrap()));
    let lost = |mark| (mark, ZkError::ConnectionLoss);
    let time_out = |core: &mut SessionCore<u32>, now| {
        let mut outputs = Vec::new();
        core.time_out(at(now), patience, &mut outputs);
        failed(outputs)
    };
    core.request(get("/1", false), 1, at(0));
    core.request(get("/2", false), 2, at(4));
    assert_eq!(core.next_time_out(patience), Some(at(10)));
    assert_eq!(time_out(&mut core, 9), []);
    assert_eq!(time_out(&mut core, 10), [lost(1)]);
    // The outage goes on, and every later one fails in its turn.
    core.request(get("/3", false), 3, at(12));
    assert_eq!(time_out(&mut core, 14), [lost(2)]);
    assert_eq!(time_out(&mut core, 100), [lost(3)]);
    // With a connection it is for the connection to fail them.
    let grant = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 10_000,
        session_id: 7,
        password: None,
        read_only: None,
    };
    core.request(get("/4", false), 4, at(100));
    let mut outputs = Vec::new();
    core.frame(grant.to_bytes(), &mut BytesMut::new(), &mut outputs)
        .unwrap();
    assert_eq!(core.next_time_out(patience), None);
    assert_eq!(time_out(&mut core, 200), []);
    // Once it is cut, waiting for the next one begins.
    core.disconnected(at(200), &mut Vec::new());
    assert_eq!(core.next_time_out(patience), Some(at(210)));
    assert_eq!(time_out(&mut core, 210), [lost(4)]);
}

#[tokio::test]
async fn requests_fail_one_after_the_other_in_a_long_outage() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.session_timeout = Duration::from_millis(200);
    // Connections are accepted by the kernel and never answered.
    let (zk, _events) = ZkClient::start(config);
    for _ in 0..3 {
        let reply = zk.submit(get("/a", false)).await;
        assert_eq!(reply.result, Err(ZkError::ConnectionLoss));
    }
}

#[tokio::test]
async fn answers_are_read_while_requests_are_written() {
    let server = Server::start().await;
    let (zk, mut events) = ZkClient::start(server.config(""));
    let (mut peer, _) = server.attach(7, 30_000).await;
    session(&mut events).await;
    let reads: Vec<_> = (0..60).map(|_| zk.submit(get("/a", false))).collect();
    let writes: Vec<_> = (0..60).map(|_| zk.submit(set(1_000_000))).collect();
    // A server that takes nothing more before its answers are read; both directions are more than the kernel holds.
    let big = GetDataResponse {
        data: Some(Bytes::from(vec![b'y'; 1_000_000])),
        stat: Stat::default(),
    };
    for _ in &reads {
        let (xid, _) = peer.expect(OpCode::GetData).await;
        peer.reply(xid, 1, 0, &big.to_bytes()).await;
    }
    for _ in &writes {
        let (xid, _) = peer.expect(OpCode::SetData).await;
        let stat = StatResponse {
            stat: Stat::default(),
        };
        peer.reply(xid, 2, 0, &stat.to_bytes()).await;
    }
    for reply in reads.into_iter().chain(writes) {
        reply.await.result.unwrap();
    }
}

#[tokio::test]
async fn an_owner_that_takes_no_events_stops_them() {
    let server = Server::start().await;
    let (_zk, mut events) = ZkClient::start(server.config(""));
    let (mut peer, _) = server.attach(7, 30_000).await;
    session(&mut events).await;
    // A persistent watch on a busy node, say.
    let mut sent = 0;
    let closed = loop {
        for _ in 0..1000 {
            peer.notify(5, EventType::DataChanged, "/busy").await;
        }
        sent += 1000;
        let closed = tokio::time::timeout(Duration::from_millis(1), peer.closed()).await;
        if closed.is_ok() {
            break closed;
        }
        assert!(sent < 1_000_000, "{sent} events are held");
    };
    closed.unwrap();
    // Once they are taken, the session goes on.
    let again = tokio::spawn(async move { server.attach(7, 30_000).await });
    loop {
        match events.recv().await {
            Some(ZkEvent::Watch(_)) => {}
            Some(ZkEvent::Session(SessionState::Disconnected)) => {}
            other => {
                let connected = SessionState::Connected {
                    session_id: 7,
                    new: false,
                };
                assert_eq!(other, Some(ZkEvent::Session(connected)));
                break;
            }
        }
    }
    again.await.unwrap();
}

#[tokio::test]
async fn an_answer_larger_than_allowed_fails_its_request_alone() {
    let server = Server::start().await;
    let mut config = server.config("");
    config.max_frame = 100_000;
    let (zk, mut events) = ZkClient::start(config);
    let (mut peer, _) = server.attach(7, 30_000).await;
    session(&mut events).await;
    let asked: Vec<_> = (0..3).map(|_| zk.submit(get("/a", false))).collect();
    for size in [10, 3_000_000, 99_000] {
        let (xid, _) = peer.expect(OpCode::GetData).await;
        let record = GetDataResponse {
            data: Some(Bytes::from(vec![b'y'; size])),
            stat: Stat::default(),
        };
        peer.reply(xid, 1, 0, &record.to_bytes()).await;
    }
    let mut results = Vec::new();
    for reply in asked {
        results.push(reply.await.result.map(|_| ()));
    }
    assert_eq!(results, [Ok(()), Err(ZkError::MarshallingError), Ok(())]);
    assert!(events.try_recv().is_err(), "the connection stays");
}
