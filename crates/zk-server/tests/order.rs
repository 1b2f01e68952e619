//! What a client may rely on: order under pipelining, events before newer data, a multi as a whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_zk_proto::multi::{MultiOp, MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{Acl, Jute, OpCode, WatcherEvent};
use support::*;

fn watch(path: &str) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch: true,
    }
}

fn read(path: &str) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch: false,
    }
}

fn set(path: &str, data: &'static [u8]) -> SetDataRequest {
    SetDataRequest {
        path: path.into(),
        data: Some(Bytes::from_static(data)),
        version: -1,
    }
}

#[test]
fn answers_keep_the_order_of_deep_pipelines() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    assert_eq!(client.create("/n", b"", 0), 0);
    let mut expected = Vec::new();
    let rounds = 500;
    for i in 0..rounds {
        let value: &'static [u8] = Box::leak(format!("{i}").into_bytes().into_boxed_slice());
        expected.push((client.send(OpCode::GetData, &watch("/n")), None));
        expected.push((client.send(OpCode::SetData, &set("/n", value)), None));
        expected.push((client.send(OpCode::GetData, &read("/n")), Some(value)));
    }
    let mut last_zxid = 0;
    let mut events = 0;
    for (xid, value) in expected {
        loop {
            let (header, mut reader) = client.receive().unwrap();
            assert!(header.zxid >= last_zxid, "zxids only rise");
            last_zxid = header.zxid;
            if header.xid == -1 {
                events += 1;
                continue;
            }
            assert_eq!((header.xid, header.err), (xid, 0));
            if let Some(value) = value {
                assert_eq!(
                    reader.buffer().unwrap().unwrap(),
                    value,
                    "a read sees the write before it"
                );
            }
            break;
        }
    }
    assert_eq!(
        events, rounds,
        "each watch fires once, before the answer that knows its change"
    );
    server.stop();
}

#[test]
fn events_come_before_newer_data_of_other_sessions() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let (mut reader, mut writer) = (server.client(), server.client());
    assert_eq!(writer.create("/n", b"0", 0), 0);
    for i in 1..300u32 {
        let value: &'static [u8] = Box::leak(i.to_string().into_bytes().into_boxed_slice());
        let old = reader
            .call(OpCode::GetData, &watch("/n"))
            .1
            .buffer()
            .unwrap()
            .unwrap();
        writer.send(OpCode::SetData, &set("/n", value));
        // Reads race with the write; the first that sees it must come after the event.
        let mut told = false;
        loop {
            let xid = reader.send(OpCode::GetData, &read("/n"));
            let seen = loop {
                let (header, mut body) = reader.receive().unwrap();
                if header.xid == -1 {
                    told = true;
                    continue;
                }
                assert_eq!(header.xid, xid);
                break body.buffer().unwrap().unwrap();
            };
            if seen != old {
                assert!(told, "new data came before its event");
                break;
            }
        }
        assert_eq!(writer.receive().unwrap().0.err, 0);
    }
    server.stop();
}

#[test]
fn many_watches_and_many_watchers() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut writer = server.client();
    assert_eq!(writer.create("/hot", b"", 0), 0);
    // One session, many nodes.
    let mut one = server.client();
    let count = 10_000;
    for i in 0..count {
        one.send(OpCode::Exists, &watch(&format!("/n{i}")));
        if i % 500 == 499 {
            (0..500).for_each(|_| assert_eq!(one.receive().unwrap().0.err, -101));
        }
    }
    let ops = (0..1000).map(|i| {
        MultiOp::Create(CreateRequest {
            path: format!("/n{i}"),
            data: None,
            acl: Some(Acl::open()),
            flags: 0,
        })
    });
    let (err, mut body) = writer.call(OpCode::Multi, &MultiRequest { ops: ops.collect() });
    assert_eq!(err, 0);
    assert_eq!(MultiResponse::read(&mut body).unwrap().results.len(), 1000);
    for i in 0..1000 {
        let (header, mut body) = one.receive().unwrap();
        assert_eq!(header.xid, -1);
        assert_eq!(
            WatcherEvent::read(&mut body).unwrap().path,
            format!("/n{i}")
        );
    }
    // One node, many sessions.
    let mut many: Vec<Client> = (0..500).map(|_| server.client()).collect();
    for client in &mut many {
        client.send(OpCode::GetData, &watch("/hot"));
        assert_eq!(client.receive().unwrap().0.err, 0);
    }
    assert_eq!(writer.call(OpCode::SetData, &set("/hot", b"1")).0, 0);
    for client in &mut many {
        assert_eq!(client.receive().unwrap().0.xid, -1);
    }
    server.stop();
}

#[test]
fn a_failed_multi_changes_nothing_and_tells_where() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    let create = |path: &str, flags| {
        MultiOp::Create(CreateRequest {
            path: path.into(),
            data: None,
            acl: Some(Acl::open()),
            flags,
        })
    };
    let check = |path: &str| {
        MultiOp::Check(CheckVersionRequest {
            path: path.into(),
            version: 7,
        })
    };
    let ops = vec![
        create("/a", 0),
        create("/a/b", 0),
        check("/a"),
        create("/c", 0),
    ];
    let (err, mut body) = client.call(OpCode::Multi, &MultiRequest { ops });
    assert_eq!(err, 0);
    let expected = [0, 0, -103, -2].map(MultiResult::Error);
    assert_eq!(MultiResponse::read(&mut body).unwrap().results, expected);
    assert_eq!(client.get("/a"), Err(-101));
    // And the batch goes on as if it had not been: sequence numbers too.
    let (_, mut body) = client.call(
        OpCode::Multi,
        &MultiRequest {
            ops: vec![create("/s-", 2)],
        },
    );
    assert_eq!(
        MultiResponse::read(&mut body).unwrap().results,
        [MultiResult::Create("/s-0000000000".into())]
    );
    server.stop();
}

#[test]
fn writes_sent_before_the_socket_closes_are_done() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut watcher = server.client();
    watcher.call(OpCode::Exists, &watch("/last"));
    let mut client = server.client();
    let request = CreateRequest {
        path: "/last".into(),
        data: None,
        acl: Some(Acl::open()),
        flags: 0,
    };
    client.send(OpCode::Create, &request);
    drop(client);
    assert_eq!(watcher.receive().unwrap().0.xid, -1);
    server.stop();
}
