//! The four-letter words and who may ask them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gracchus_zk_proto::OpCode;
use gracchus_zk_proto::request::*;
use gracchus_zk_server::Whitelist;
use std::io::{Read, Write};
use support::*;

fn watch(path: &str) -> PathWatchRequest {
    PathWatchRequest {
        path: path.into(),
        watch: true,
    }
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
