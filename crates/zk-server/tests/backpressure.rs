//! Clients that do not read what they asked for: bounded memory, nobody else waits, and whoever reads later gets everything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::{EventType, Jute, OpCode, WatcherEvent};
use std::sync::Mutex;
use support::*;

/// The resident memory of this process is looked at: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const BIG: usize = 900_000;

fn path(path: &str, watch: bool) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch,
    }
}

fn set(path: &str, data: Bytes) -> SetDataRequest {
    SetDataRequest {
        path: path.into(),
        data: Some(data),
        version: -1,
    }
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kb: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kb / 1024
}

/// Sends from a thread of its own, since the server stops reading at some point.
fn flood(
    client: &Client,
    requests: usize,
    request: impl Fn(usize) -> (OpCode, Box<dyn Fn() -> Vec<u8>>) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let mut stream = client.stream.try_clone().unwrap();
    std::thread::spawn(move || {
        for n in 0..requests {
            let (op, body) = request(n);
            let mut frame = Vec::new();
            frame.extend_from_slice(&(n as i32 + 1000).to_be_bytes());
            frame.extend_from_slice(&op.code().to_be_bytes());
            frame.extend_from_slice(&body());
            if send_frame(&mut stream, &frame).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_pipeline_that_wants_more_than_the_server_may_hold_gets_it_all() {
    let _alone = ALONE.lock();
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut good = server.client();
    assert_eq!(good.create("/big", &[b'x'; BIG], 0), 0);
    assert_eq!(good.create("/hot", b"", 0), 0);
    let before = resident_mb();
    // Reads alone, 360 MB.
    let mut reader = server.client();
    flood(&reader, 400, |_| {
        (
            OpCode::GetData,
            Box::new(|| path("/big", false).to_bytes().to_vec()),
        )
    });
    // Reads that wait behind writes, as much again; what they read is set anew all the time.
    let mut mixed = server.client();
    flood(&mixed, 400, |n| {
        if n % 40 == 0 {
            (
                OpCode::SetData,
                Box::new(move || {
                    set("/hot", Bytes::from(vec![n as u8; BIG]))
                        .to_bytes()
                        .to_vec()
                }),
            )
        } else {
            (
                OpCode::GetData,
                Box::new(|| path("/hot", false).to_bytes().to_vec()),
            )
        }
    });
    // Nobody reads yet. The server works for others, in bounded memory.
    for n in 0..50 {
        assert_eq!(good.create(&format!("/n{n}"), b"", 0), 0);
    }
    let held = resident_mb().saturating_sub(before);
    assert!(
        held < 150,
        "720 MB of answers are wanted, {held} MB are held"
    );
    for n in 0..400 {
        let (header, _) = reader.receive().expect("cut off");
        assert_eq!((header.xid, header.err), (n + 1000, 0));
    }
    for n in 0..400i32 {
        let (header, mut body) = mixed.receive().expect("cut off");
        assert_eq!((header.xid, header.err), (n + 1000, 0));
        if n % 40 != 0 {
            let data = body.buffer().unwrap().unwrap();
            assert_eq!(
                (data.len(), data[0]),
                (BIG, (n / 40 * 40) as u8),
                "a read sees the write before it"
            );
        }
    }
    server.stop();
}

#[test]
fn a_client_that_never_reads_expires() {
    let _alone = ALONE.lock();
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut good = server.client();
    assert_eq!(good.create("/big", &[b'x'; BIG], 0), 0);
    let mut lazy = Client::connect(server.address, 2000);
    assert_eq!(lazy.create("/lazy", b"", 1), 0);
    assert_eq!(good.call(OpCode::Exists, &path("/lazy", true)).0, 0);
    // Writes and reads by turns without end: its pings could not be heard either.
    flood(&lazy, usize::MAX, |n| {
        if n % 2 == 0 {
            (
                OpCode::SetData,
                Box::new(|| set("/lazy", Bytes::new()).to_bytes().to_vec()),
            )
        } else {
            (
                OpCode::GetData,
                Box::new(|| path("/big", false).to_bytes().to_vec()),
            )
        }
    });
    let mut seen = Vec::new();
    while seen.last() != Some(&EventType::Deleted) {
        // One-shot watches: armed again until the node goes.
        let (header, mut body) = good.receive().unwrap();
        if header.xid == -1 {
            seen.push(WatcherEvent::read(&mut body).unwrap().kind().unwrap());
            good.send(OpCode::Exists, &path("/lazy", true));
        }
    }
    server.stop();
}

#[test]
fn a_last_answer_that_nobody_takes_is_not_waited_for_without_end() {
    let _alone = ALONE.lock();
    let tmp = tempfile::tempdir().unwrap();
    let mut config = config(tmp.path());
    config.max_session_timeout_ms = Some(2000);
    let server = Server::start(config);
    let mut good = server.client();
    assert_eq!(good.create("/big", &[b'x'; 200_000], 0), 0);
    // Somewhere among these the kernel's buffers are full when the session is closed.
    let lazy: Vec<Client> = (0..60)
        .map(|answers| {
            let mut client = server.client();
            for _ in 0..answers * 3 {
                client.send(OpCode::GetData, &path("/big", false));
            }
            client.send(OpCode::CloseSession, &0i32);
            // Its own session lasts 2 s, too.
            assert!(good.get("/").is_ok());
            client
        })
        .collect();
    loop {
        assert!(good.get("/").is_ok());
        let metrics = server.handle().metrics_text();
        if metrics.contains("\nnum_alive_connections 1\n") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(lazy);
    server.stop();
}

#[test]
fn one_multi_read_answers_no_more_than_it_may() {
    let _alone = ALONE.lock();
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    assert_eq!(client.create("/big", &[b'x'; BIG], 0), 0);
    let reads = |count| {
        let get = || gracchus_zk_proto::multi::MultiOp::GetData(path("/big", false));
        gracchus_zk_proto::multi::MultiRequest {
            ops: (0..count).map(|_| get()).collect(),
        }
    };
    assert_eq!(client.call(OpCode::MultiRead, &reads(20)).0, 0);
    // 30 KB that ask for 900 MB.
    let before = resident_mb();
    assert_eq!(client.call(OpCode::MultiRead, &reads(1000)).0, -5);
    assert!(resident_mb() < before + 100);
    server.stop();
}

#[test]
fn a_connection_proves_a_bounded_number_of_ids() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let mut client = server.client();
    let auth = |n: usize| AuthRequest {
        auth_type: 0,
        scheme: Some("digest".into()),
        auth: Some(format!("user{n}:secret").into()),
    };
    for n in 0..gracchus_zk_server::acl::MAX_IDS {
        assert_eq!(client.call(OpCode::Auth, &auth(n)).0, 0);
    }
    assert_eq!(client.call(OpCode::Auth, &auth(0)).0, 0, "a known one");
    assert_eq!(client.call(OpCode::Auth, &auth(10_000)).0, -115);
    assert!(client.is_closed());
    server.stop();
}
