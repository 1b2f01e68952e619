//! kill -9 at any moment: no acknowledged write is lost, nothing refused appears, and the directory loads again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_zk_proto::{OpCode, request::CreateRequest};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::*;

/// The example `serve`, which cargo builds with the tests.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/serve")
}

fn start(config: &std::path::Path) -> Child {
    Command::new(binary())
        .arg(config)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the server answers.
fn client(address: SocketAddr) -> Client {
    loop {
        if let Some(client) = Client::handshake_or_refused(address) {
            return client;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn acknowledged_writes_survive() {
    // More rounds with GRACCHUS_TEST_LONG=1.
    let rounds = if std::env::var_os("GRACCHUS_TEST_LONG").is_some() {
        40
    } else {
        6
    };
    let tmp = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    let file = tmp.path().join("zoo.cfg");
    // Small steps, so that files grow, roll and are snapshotted all the time.
    let text = format!(
        "dataDir={}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\nmaxClientCnxns=0\nsnapCount=300\npreAllocSize=64\nautopurge.purgeInterval=1\n",
        tmp.path().display()
    );
    std::fs::write(&file, text).unwrap();
    let mut acknowledged: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let mut server = start(&file);
        let mut reader = client(address);
        for (path, data) in &acknowledged {
            assert_eq!(reader.get(path).as_deref(), Ok(&data[..]), "{path} is lost");
        }
        // All are connected before the kill: nobody would answer one that comes later.
        let clients: Vec<Client> = (0..3).map(|_| client(address)).collect();
        let (stop, began) = (AtomicBool::new(false), AtomicBool::new(false));
        let done: Vec<(String, Vec<u8>)> = std::thread::scope(|scope| {
            let writers: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(writer, mut client)| {
                    let (stop, began) = (&stop, &began);
                    scope.spawn(move || {
                        let mut done = Vec::new();
                        let mut sent = 0;
                        'out: while !stop.load(Ordering::Relaxed) {
                            // A pipeline of a few writes, then their answers.
                            let mut open = Vec::new();
                            for _ in 0..8 {
                                let path = format!("/r{round}-{writer}-{sent}");
                                sent += 1;
                                let data = path.repeat(1 + sent % 40).into_bytes();
                                let request = CreateRequest {
                                    path: path.clone(),
                                    data: Some(data.clone().into()),
                                    acl: Some(gracchus_zk_proto::Acl::open()),
                                    flags: 0,
                                };
                                if client.try_send(OpCode::Create, &request).is_err() {
                                    break 'out;
                                }
                                open.push((path, data));
                            }
                            for entry in open {
                                match client.receive() {
                                    Some((header, _)) if header.err == 0 => {
                                        began.store(true, Ordering::Relaxed);
                                        done.push(entry);
                                    }
                                    Some((header, _)) => {
                                        panic!("{} is refused: {}", entry.0, header.err)
                                    }
                                    None => break 'out,
                                }
                            }
                        }
                        done
                    })
                })
                .collect();
            // Another moment each round, once something is acknowledged.
            while !began.load(Ordering::Relaxed) && !writers.iter().all(|w| w.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(40 + 37 * (round as u64 % 7)));
            server.kill().unwrap();
            server.wait().unwrap();
            stop.store(true, Ordering::Relaxed);
            writers
                .into_iter()
                .flat_map(|writer| writer.join().unwrap())
                .collect()
        });
        assert!(!done.is_empty(), "nothing was written in round {round}");
        acknowledged.extend(done);
    }
    let mut server = start(&file);
    let mut reader = client(address);
    for (path, data) in &acknowledged {
        assert_eq!(reader.get(path).as_deref(), Ok(&data[..]), "{path} is lost");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}
