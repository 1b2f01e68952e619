//! What a client may rely on: bad input harms nobody else, order holds under pipelining, limits, four-letter words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_proto::multi::{MultiOp, MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{Acl, Jute, OpCode, WatcherEvent};
use gracchus_zk_server::Whitelist;
use proptest::prelude::*;
use std::io::{Read, Write};
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
fn bad_input_closes_its_connection_and_no_other() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut good = server.client();
    let handshake = || {
        let mut frame = BytesMut::new();
        let body = connect_request(5000).to_bytes();
        frame.put_i32(body.len() as i32);
        frame.put_slice(&body);
        frame.to_vec()
    };
    let behind = |bytes: &[u8]| [handshake(), bytes.to_vec()].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a negative length first", (-5i32).to_be_bytes().to_vec()),
        (
            "a large length first",
            0x7fff_ffffi32.to_be_bytes().to_vec(),
        ),
        (
            "just over jute.maxbuffer",
            0x10_0000i32.to_be_bytes().to_vec(),
        ),
        ("an empty handshake", 0i32.to_be_bytes().to_vec()),
        (
            "an HTTP request",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ),
        ("a TLS hello", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("a negative length later", behind(&(-1i32).to_be_bytes())),
        (
            "a large length later",
            behind(&0x4000_0000i32.to_be_bytes()),
        ),
        ("an empty frame", behind(&0i32.to_be_bytes())),
        (
            "a frame without a whole header",
            behind(&[0, 0, 0, 3, 1, 2, 3]),
        ),
        (
            "createSession from a client",
            behind(
                &[
                    &[0, 0, 0, 12, 0, 0, 0, 1][..],
                    &(-10i32).to_be_bytes(),
                    &[0; 4],
                ]
                .concat(),
            ),
        ),
    ];
    for (what, bytes) in cases {
        let mut stream = raw(server.address);
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // Ends, by a close or a reset.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 41, "{what}: {answer:?}");
        assert!(good.get("/").is_ok(), "{what}");
    }
    // A truncated request waits for its rest, and bothers nobody.
    let mut stream = raw(server.address);
    stream.write_all(&behind(&[0, 0, 0, 50, 1, 2])).unwrap();
    assert!(good.get("/").is_ok());
    drop(stream);
    server.stop();
}

#[test]
fn unreadable_bodies_are_refused_and_the_connection_stays() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    for op in [
        OpCode::Create,
        OpCode::Create2,
        OpCode::CreateTtl,
        OpCode::CreateContainer,
        OpCode::Delete,
        OpCode::SetData,
        OpCode::SetAcl,
        OpCode::GetAcl,
        OpCode::Exists,
        OpCode::GetData,
        OpCode::GetChildren,
        OpCode::GetChildren2,
        OpCode::Multi,
        OpCode::MultiRead,
        OpCode::SetWatches,
        OpCode::SetWatches2,
        OpCode::AddWatch,
        OpCode::RemoveWatches,
        OpCode::CheckWatches,
        OpCode::Sync,
        OpCode::GetEphemerals,
        OpCode::GetAllChildrenNumber,
        OpCode::Auth,
        OpCode::Reconfig,
    ] {
        // One byte is no record.
        assert_eq!(client.call(op, &false).0, -5, "{op:?}");
    }
    server.stop();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Mutated real requests: whatever comes of them, the next client is served.
    #[test]
    fn mutated_requests_harm_nobody(seed in any::<[u8; 8]>(), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        static SERVER: std::sync::OnceLock<(tempfile::TempDir, Server)> = std::sync::OnceLock::new();
        let (_, server) = SERVER.get_or_init(|| {
            let tmp = tempfile::tempdir().unwrap();
            let server = Server::start(config(tmp.path()));
            (tmp, server)
        });
        let mut bytes = BytesMut::new();
        let mut frame = |body: &[u8]| {
            bytes.put_i32(body.len() as i32);
            bytes.put_slice(body);
        };
        frame(&connect_request(4000).to_bytes());
        let mut request = |op: OpCode, record: &dyn Fn(&mut BytesMut)| {
            let mut body = BytesMut::new();
            body.put_i32(1);
            body.put_i32(op.code());
            record(&mut body);
            frame(&body);
        };
        request(OpCode::Create, &|out| CreateRequest { path: "/m".into(), data: Some(Bytes::copy_from_slice(&seed)), acl: Some(Acl::open()), flags: 2 }.write(out));
        request(OpCode::GetChildren2, &|out| watch("/").write(out));
        request(OpCode::Multi, &|out| MultiRequest { ops: vec![MultiOp::SetData(set("/m", b"x")), MultiOp::Delete(DeleteRequest { path: "/m".into(), version: 3 })] }.write(out));
        request(OpCode::SetWatches2, &|out| SetWatches2Request { data: vec!["/".into()], ..SetWatches2Request::default() }.write(out));
        request(OpCode::CloseSession, &|_| {});
        for (at, value) in cuts {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut stream = raw(server.address);
        stream.set_read_timeout(Some(std::time::Duration::from_millis(30))).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 4096]);
        drop(stream);
        let mut good = server.client();
        prop_assert!(good.get("/").is_ok());
        good.call(OpCode::CloseSession, &0i32);
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

#[test]
fn connections_from_one_address_are_limited() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.max_client_connections = 3;
    let server = Server::start(config);
    let mut held: Vec<Client> = (0..3).map(|_| server.client()).collect();
    assert!(Client::handshake_or_refused(server.address).is_none());
    assert!(held[0].get("/").is_ok());
    held.pop();
    // The place is free as soon as the server has seen the end.
    while Client::handshake_or_refused(server.address).is_none() {}
    server.stop();
}

#[test]
fn requests_of_the_configured_size_pass_and_larger_ones_do_not() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.max_buffer = 4096;
    let server = Server::start(config);
    let mut client = server.client();
    assert_eq!(client.create("/a", &[b'x'; 4000], 0), 0);
    let request = CreateRequest {
        path: "/b".into(),
        data: Some(Bytes::from(vec![b'x'; 4096])),
        acl: Some(Acl::open()),
        flags: 0,
    };
    client.send(OpCode::Create, &request);
    assert!(client.is_closed());
    server.stop();
}

#[test]
fn four_letter_words() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.whitelist = Whitelist::Words(vec![
        "ruok".into(),
        "mntr".into(),
        "srvr".into(),
        "stat".into(),
        "cons".into(),
        "wchp".into(),
        "dump".into(),
        "conf".into(),
        "wchs".into(),
    ]);
    let server = Server::start(config);
    let ask = |word: &str| {
        let mut stream = raw(server.address);
        // Tools often send a line end behind the word.
        stream.write_all(format!("{word}\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let mut client = server.client();
    client.create("/e", b"", 1);
    client.call(OpCode::GetData, &watch("/e"));
    assert_eq!(ask("ruok"), "imok");
    assert_eq!(
        ask("envi"),
        "envi is not executed because it is not in the whitelist.\n"
    );
    let srvr = ask("srvr");
    let names: Vec<&str> = srvr
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Zookeeper version",
            "Latency min/avg/max",
            "Received",
            "Sent",
            "Connections",
            "Outstanding",
            "Zxid",
            "Mode",
            "Node count"
        ]
    );
    assert!(
        srvr.contains("Zxid: 0x2\nMode: standalone\nNode count: 6\n"),
        "{srvr}"
    );
    assert!(ask("stat").contains("Clients:\n /127.0.0.1:"));
    assert!(ask("cons").contains(&format!("sid=0x{:x},lop=GETD,", client.session.session_id)));
    assert_eq!(
        ask("wchs"),
        "1 connections watching 1 paths\nTotal watches:1\n"
    );
    assert_eq!(
        ask("wchp"),
        format!("/e\n\t0x{:x}\n\n", client.session.session_id)
    );
    assert!(ask("dump").contains(&format!(
        "Sessions with Ephemerals (1):\n0x{:x}:\n\t/e\n",
        client.session.session_id
    )));
    assert!(ask("conf").contains("tickTime=1000\n"));
    let mntr = ask("mntr");
    for name in [
        "zk_version",
        "zk_server_state\tstandalone",
        "zk_znode_count\t6",
        "zk_watch_count\t1",
        "zk_ephemerals_count\t1",
        "zk_avg_latency",
        "zk_uptime",
        "zk_cnt_fsynctime",
    ] {
        assert!(
            mntr.lines().any(|line| line.starts_with(name)),
            "{name} in {mntr}"
        );
    }
    let metrics = server.handle().metrics_text();
    assert!(metrics.contains("\nznode_count 6\n"), "{metrics}");
    server.stop();
}
