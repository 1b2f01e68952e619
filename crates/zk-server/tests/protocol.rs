//! What a client may rely on: bad input harms nobody else, and limits hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_proto::multi::{MultiOp, MultiRequest};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{Acl, Jute, OpCode};
use proptest::prelude::*;
use std::io::{Read, Write};
use support::*;

fn watch(path: &str) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch: true,
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
