//! Replays what real clients said to Apache ZooKeeper and compares every frame of the answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;
mod transcript;

use bytes::Bytes;
use gracchus_zk_proto::OpCode;
use gracchus_zk_proto::request::SetDataRequest;
use std::path::Path;
use support::*;
use transcript::{Failure, replay};

/// Where the answers differ on purpose: file, entry, reason.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    (
        "03-",
        138,
        "deleteContainer from a client is refused for plain nodes",
    ),
    (
        "03-",
        140,
        "deleteContainer from a client is refused for plain nodes",
    ),
    ("03-", 182, "the recorded server had SASL configured"),
    (
        "13-",
        77,
        "the recorded server had SASL configured, so sasl lists were valid",
    ),
    ("13-", 79, "the node of entry 77"),
    (
        "05-",
        28,
        "deletions of a closed session in ZooKeeper's order, with those of the parent between",
    ),
    (
        "05-",
        30,
        "deletions of a closed session in ZooKeeper's order, with those of the parent between",
    ),
    (
        "15-",
        11,
        "the recorded tree held what other scenarios left",
    ),
    ("20-", 12, "the recorded root had been written before"),
    ("20-", 215, "the recorded server had SASL configured"),
    ("20-", 217, "the recorded server had SASL configured"),
    ("20-", 219, "a node with a sasl list"),
    ("20-", 221, "a node with a sasl list"),
    ("20-", 223, "a node with a sasl list"),
    (
        "18-",
        92,
        "a request behind closeSession: ZooKeeper may answer it or not",
    ),
];

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/transcripts")
        .join(name)
}

/// Fails for whatever differs not on purpose.
fn assert_none(failures: &[Failure]) {
    let is_meant = |failure: &&Failure| {
        EXCEPTIONS
            .iter()
            .any(|(file, at, _)| failure.file.starts_with(file) && *at == failure.entry)
    };
    let lines: Vec<String> = failures
        .iter()
        .filter(|failure| !is_meant(failure))
        .map(|failure| format!("{} entry {} {}", failure.file, failure.entry, failure.what))
        .collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

fn check(names: &[&str], paced: bool, at_least: usize) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(config(dir.path()));
    let mut failures = Vec::new();
    let mut compared = 0;
    for name in names {
        compared += replay(
            &golden(name),
            server.address,
            paced,
            &mut failures,
            &mut |_| {},
        );
    }
    server.stop();
    assert_none(&failures);
    assert!(compared >= at_least, "only {compared} frames compared");
}

#[test]
fn raw_scenarios() {
    let names = [
        "01-connect.jsonl.gz",
        "02-every-op.jsonl.gz",
        "03-errors.jsonl.gz",
        "04-sequential.jsonl.gz",
        "05-ephemerals.jsonl.gz",
        "06-watch-oneshot.jsonl.gz",
        "07-watch-persistent.jsonl.gz",
        "08-remove-watches.jsonl.gz",
        "09-setwatches-reconnect.jsonl.gz",
        "10-multi-ok.jsonl.gz",
        "11-multi-fail.jsonl.gz",
        "13-auth-acl.jsonl.gz",
        "17-quota.jsonl.gz",
        "18-pipelining.jsonl.gz",
    ];
    check(&names, false, 400);
}

#[test]
fn expiry_and_containers() {
    check(
        &["15-expiry.jsonl.gz", "16-container-ttl.jsonl.gz"],
        true,
        30,
    );
}

#[test]
fn kazoo() {
    check(&["20-kazoo.jsonl.gz"], false, 100);
}

#[test]
fn java_client_reconnects() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(config(dir.path()));
    let mut other = Client::connect(server.address, 20_000);
    assert_eq!(other.create("/jr", b"1", 0), 0);
    let mut set = |data: &'static [u8]| {
        let request = SetDataRequest {
            path: "/jr".into(),
            data: Some(Bytes::from_static(data)),
            version: -1,
        };
        assert_eq!(other.call(OpCode::SetData, &request).0, 0);
    };
    let mut meanwhile = |entry| match entry {
        22 => set(b"2"),
        30 => set(b"3"),
        _ => {}
    };
    let mut failures = Vec::new();
    replay(
        &golden("21-java-reconnect.jsonl.gz"),
        server.address,
        false,
        &mut failures,
        &mut meanwhile,
    );
    server.stop();
    assert_none(&failures);
}

#[test]
fn table_of_edge_cases() {
    check(&["30-edges.jsonl.gz"], false, 400);
}

#[test]
fn kafka_broker() {
    check(&["40-kafka.jsonl.gz"], false, 1000);
}
