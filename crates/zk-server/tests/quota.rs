//! Quotas: what a subtree holds is counted, and hard limits bind where the configuration says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{Acl, OpCode};
use support::*;

const QUOTA_EXCEEDED: i32 = -125;

/// Sets a quota as zkCli's setquota does.
fn limit(client: &mut Client, path: &str, limits: &str) {
    let mut at = String::from("/zookeeper/quota");
    for part in path.split('/').skip(1) {
        at = format!("{at}/{part}");
        client.create(&at, b"", 0);
    }
    for (name, data) in [
        ("zookeeper_limits", limits),
        ("zookeeper_stats", "count=0,bytes=0"),
    ] {
        assert_eq!(
            client.create(&format!("{at}/{name}"), data.as_bytes(), 0),
            0
        );
    }
}

fn usage(client: &mut Client, path: &str) -> Bytes {
    client
        .get(&format!("/zookeeper/quota{path}/zookeeper_stats"))
        .unwrap()
}

#[test]
fn usage_follows_every_change_and_is_counted_anew_at_a_start() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.create("/q", b"123", 0), 0);
    assert_eq!(client.create("/q/before", b"45", 0), 0);
    limit(
        &mut client,
        "/q",
        "count=-1,bytes=-1=;byteHardLimit=100;countHardLimit=5",
    );
    assert_eq!(usage(&mut client, "/q"), "count=2,bytes=5");
    // Ephemerals count, and go with their session.
    assert_eq!(other.create("/q/e", b"6789", 1), 0);
    assert_eq!(usage(&mut client, "/q"), "count=3,bytes=9");
    assert_eq!(other.call(OpCode::CloseSession, &0i32).0, 0);
    assert_eq!(usage(&mut client, "/q"), "count=2,bytes=5");
    // A sibling whose name starts alike is none of it.
    assert_eq!(client.create("/quite", b"x", 0), 0);
    assert_eq!(usage(&mut client, "/q"), "count=2,bytes=5");
    server.stop();

    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    assert_eq!(usage(&mut client, "/q"), "count=2,bytes=5");
    assert_eq!(
        client.create("/q/large", &[b'x'; 96], 0),
        QUOTA_EXCEEDED,
        "101 bytes"
    );
    assert_eq!(client.create("/q/large", &[b'x'; 95], 0), 0);
    // Without its limits a path has no quota any more.
    let delete = DeleteRequest {
        path: "/zookeeper/quota/q/zookeeper_limits".into(),
        version: -1,
    };
    assert_eq!(client.call(OpCode::Delete, &delete).0, 0);
    assert_eq!(client.create("/q/more", &[b'x'; 95], 0), 0);
    server.stop();
}

#[test]
fn the_nearest_quota_counts() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    client.create("/a", b"", 0);
    client.create("/a/b", b"", 0);
    limit(&mut client, "/a", "count=100,bytes=100");
    limit(&mut client, "/a/b", "count=100,bytes=100");
    client.create("/a/b/c", b"12", 0);
    assert_eq!(usage(&mut client, "/a"), "count=2,bytes=0");
    assert_eq!(usage(&mut client, "/a/b"), "count=2,bytes=2");
    server.stop();
}

#[test]
fn a_pipeline_does_not_go_beyond_a_hard_limit() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    client.create("/q", b"", 0);
    limit(&mut client, "/q", "count=-1,bytes=-1=;countHardLimit=10");
    for n in 0..50 {
        let request = CreateRequest {
            path: format!("/q/{n}"),
            data: None,
            acl: Some(Acl::open()),
            flags: 0,
        };
        client.send(OpCode::Create, &request);
    }
    let errors: Vec<i32> = (0..50).map(|_| client.receive().unwrap().0.err).collect();
    assert_eq!(errors.iter().filter(|err| **err == 0).count(), 9);
    assert!(errors[9..].iter().all(|err| *err == QUOTA_EXCEEDED));
    server.stop();
}

#[test]
fn limits_bind_only_where_they_are_enforced_and_soft_ones_never() {
    for enforced in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        let mut config = config(tmp.path());
        config.enforce_quota = enforced;
        let server = Server::start(config);
        let mut client = server.client();
        client.create("/soft", b"", 0);
        client.create("/hard", b"", 0);
        limit(&mut client, "/soft", "count=1,bytes=1");
        limit(
            &mut client,
            "/hard",
            "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1",
        );
        assert_eq!(client.create("/soft/x", b"12", 0), 0);
        let expected = if enforced { QUOTA_EXCEEDED } else { 0 };
        assert_eq!(client.create("/hard/x", b"", 0), expected);
        let set = SetDataRequest {
            path: "/hard".into(),
            data: Some(Bytes::from_static(b"12")),
            // The quota is looked at before the version.
            version: if enforced { 7 } else { -1 },
        };
        assert_eq!(client.call(OpCode::SetData, &set).0, expected);
        server.stop();
    }
}
