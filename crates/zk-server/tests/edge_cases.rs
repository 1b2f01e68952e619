//! The edge cases of Apache ZooKeeper 3.9.5 that need a configuration of their own or time; the others are in the transcript
//! `30-edges`, which `replay.rs` plays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_zk_proto::multi::{MultiOp, MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{Acl, Jute, OpCode, WatcherEvent};
use std::io::{Read, Write};
use support::*;

const UNIMPLEMENTED: i32 = -6;
const BAD_ARGUMENTS: i32 = -8;
const NO_NODE: i32 = -101;
const RECONFIG_DISABLED: i32 = -123;

fn create(path: &str, flags: i32) -> CreateRequest {
    CreateRequest {
        path: path.into(),
        data: None,
        acl: Some(Acl::open()),
        flags,
    }
}

fn create_ttl(path: &str, flags: i32, ttl_ms: i64) -> CreateTtlRequest {
    CreateTtlRequest {
        path: path.into(),
        data: None,
        acl: Some(Acl::open()),
        flags,
        ttl_ms,
    }
}

fn exists(path: &str) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch: true,
    }
}

fn zxid(client: &mut Client) -> i64 {
    client.send(OpCode::Exists, &exists("/"));
    client.receive().unwrap().0.zxid
}

#[test]
fn a_ttl_where_the_mode_has_none() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    // ZooKeeper makes such a node; its log can't be read by another tool then.
    for flags in [0, 1, 2, 3] {
        assert_eq!(
            client
                .call(OpCode::CreateTtl, &create_ttl("/t", flags, -1))
                .0,
            BAD_ARGUMENTS
        );
        assert_eq!(
            client
                .call(OpCode::CreateTtl, &create_ttl("/t", flags, 5))
                .0,
            BAD_ARGUMENTS
        );
    }
    assert_eq!(client.get("/t"), Err(NO_NODE));
    server.stop();
}

#[test]
fn ttl_nodes_are_off_by_default_and_containers_on() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.extended_types = false;
    let server = Server::start(config);
    let mut client = server.client();
    let ttl = create_ttl("/t", 5, 1000);
    assert_eq!(client.call(OpCode::CreateTtl, &ttl).0, UNIMPLEMENTED);
    let (err, _) = client.call(OpCode::Create, &create("/t", 5));
    assert_eq!(err, UNIMPLEMENTED);
    let request = MultiRequest {
        ops: vec![MultiOp::CreateTtl(ttl)],
    };
    let (err, mut body) = client.call(OpCode::Multi, &request);
    assert_eq!(err, 0);
    assert_eq!(
        MultiResponse::read(&mut body).unwrap().results,
        [MultiResult::Error(UNIMPLEMENTED)]
    );
    let (err, _) = client.call(OpCode::CreateContainer, &create("/c", 4));
    assert_eq!(err, 0);
    server.stop();
}

#[test]
fn clients_remove_no_plain_nodes_as_containers() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    let delete = |path: &str| DeleteContainerRequest { path: path.into() };
    assert_eq!(client.create("/plain", b"", 0), 0);
    let (err, _) = client.call(OpCode::DeleteContainer, &delete("/plain"));
    assert_eq!(err, BAD_ARGUMENTS);
    assert!(client.get("/plain").is_ok());
    client.call(OpCode::CreateContainer, &create("/c", 4));
    assert_eq!(client.call(OpCode::DeleteContainer, &delete("/c")).0, 0);
    server.stop();
}

#[test]
fn reconfig_is_refused_and_takes_a_zxid() {
    for (enabled, refusal) in [(false, RECONFIG_DISABLED), (true, UNIMPLEMENTED)] {
        let tmp = tempfile::tempdir().unwrap();
        let mut config = config(tmp.path());
        config.reconfig_enabled = enabled;
        let server = Server::start(config);
        let mut client = server.client();
        let before = zxid(&mut client);
        let request = ReconfigRequest {
            joining: Some("server.1=a:1:2".into()),
            leaving: None,
            new_members: None,
            config_id: -1,
        };
        assert_eq!(client.call(OpCode::Reconfig, &request).0, refusal);
        assert_eq!(zxid(&mut client), before + 1);
        server.stop();
    }
}

#[test]
fn a_silent_client_is_closed_without_a_word() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut watcher = server.client();
    let mut silent = Client::connect(server.address, 2000);
    assert_eq!(silent.create("/e", b"", 1), 0);
    assert_eq!(watcher.call(OpCode::Exists, &exists("/e")).0, 0);
    let mut rest = Vec::new();
    silent.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    let (header, mut body) = watcher.receive().unwrap();
    assert_eq!(header.xid, -1);
    assert_eq!(WatcherEvent::read(&mut body).unwrap().path, "/e");
    server.stop();
}

#[test]
fn schemes_of_other_listeners_are_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    for scheme in ["x509", "sasl", "world", ""] {
        let mut client = server.client();
        let request = AuthRequest {
            auth_type: 0,
            scheme: Some(scheme.into()),
            auth: Some(Bytes::new()),
        };
        assert_eq!(client.call(OpCode::Auth, &request).0, -115, "{scheme}");
        assert!(client.is_closed());
    }
    server.stop();
}

#[test]
fn one_connection_too_many_is_reset_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.max_client_connections = 5;
    let server = Server::start(config);
    let _held: Vec<Client> = (0..5).map(|_| server.client()).collect();
    let mut sixth = raw(server.address);
    let error = sixth.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    server.stop();
}

#[test]
fn a_request_above_the_limit_ends_its_connection_without_an_answer() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    let request = CreateRequest {
        data: Some(vec![b'x'; 1_100_000].into()),
        ..create("/large", 0)
    };
    let _ = client.try_send(OpCode::Create, &request);
    assert!(client.is_closed());
    assert_eq!(server.client().get("/large"), Err(NO_NODE));
    server.stop();
}

#[test]
fn a_request_behind_the_close_of_its_session_is_not_done() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    let mut frames = Vec::new();
    let mut frame = |op: OpCode, body: &[u8]| {
        frames.extend_from_slice(&(8 + body.len() as i32).to_be_bytes());
        frames.extend_from_slice(&7i32.to_be_bytes());
        frames.extend_from_slice(&op.code().to_be_bytes());
        frames.extend_from_slice(body);
    };
    frame(OpCode::CloseSession, &[]);
    frame(OpCode::Create, &create("/behind", 0).to_bytes());
    client.stream.write_all(&frames).unwrap();
    assert_eq!(client.receive().unwrap().0.err, 0);
    assert!(client.is_closed());
    assert_eq!(server.client().get("/behind"), Err(NO_NODE));
    server.stop();
}
