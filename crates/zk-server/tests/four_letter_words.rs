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

/// A line with its numbers, session ids, dates and directories made alike.
fn shape(line: &str) -> String {
    if line.starts_with("Zookeeper version: 3.9.5-") && line.contains(", built on ") {
        return "version".into();
    }
    if let Some((count, date)) = line.split_once(" expire at ") {
        // Mon Nov 30 22:32:16 UTC 2026:
        let year = date.rsplit(' ').next().and_then(|y| y.strip_suffix(':'));
        assert!(
            year.is_some_and(|y| y.len() == 4 && y.parse::<u16>().is_ok()),
            "{line}"
        );
        return format!("{} expire at DATE:", shape(count));
    }
    let line = match line.split_once("Dir=") {
        Some((key, _)) => format!("{key}Dir=PATH"),
        None => line.to_owned(),
    };
    let mut out = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(if c.is_ascii_digit() { 'N' } else { c });
        while c.is_ascii_digit()
            && rest
                .next_if(|c| c.is_ascii_hexdigit() || *c == 'x')
                .is_some()
        {}
    }
    out
}

/// The words' answers have the lines that Apache ZooKeeper's have, word by word.
#[test]
fn answers_have_zookeepers_shape() {
    let tmp = tempfile::tempdir().unwrap();
    let server = Server::start(config(tmp.path()));
    let ask = |question: &[u8]| {
        let mut stream = raw(server.address);
        stream.write_all(question).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    // What the recorded server held: ephemerals of two sessions, and their watches.
    let (mut a, mut b) = (server.client(), server.client());
    for (path, flags) in [
        ("/fl", 0),
        ("/fl/x", 0),
        ("/fl/e1", 1),
        ("/fl/e2", 1),
        ("/edge7", 0),
        ("/edge7/eph", 1),
    ] {
        assert_eq!(a.create(path, b"1", flags), 0);
    }
    assert_eq!(b.create("/fl/e3", b"", 1), 0);
    a.call(OpCode::GetData, &watch("/fl"));
    a.call(OpCode::GetChildren, &watch("/fl"));
    let add = AddWatchRequest {
        path: "/fl/x".into(),
        mode: 0,
    };
    a.call(OpCode::AddWatch, &add);
    b.call(OpCode::Exists, &watch("/fl/none"));
    let golden = |word: &str| {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/4lw");
        std::fs::read_to_string(dir.join(format!("{word}.txt"))).unwrap()
    };
    // To the byte.
    for word in ["ruok", "isro", "gtmk", "srst", "crst", "wchs"] {
        assert_eq!(ask(word.as_bytes()), golden(word), "{word}");
    }
    assert_eq!(ask(b"stmk\0\0\0\0\0\0\0\xff"), golden("stmk"));
    assert_eq!(ask(b"gtmk"), "255");
    // Line by line.
    for word in ["conf", "srvr", "dirs"] {
        let shapes = |text: String| text.lines().map(shape).collect::<Vec<_>>();
        assert_eq!(shapes(ask(word.as_bytes())), shapes(golden(word)), "{word}");
    }
    // As many sessions, connections and watches as there are: the kinds of lines.
    for word in ["cons", "stat", "dump", "wchc", "wchp"] {
        let shapes = |text: String| {
            let mut shapes: Vec<String> = text.lines().map(shape).collect();
            shapes.sort();
            shapes.dedup();
            shapes
        };
        let (ours, theirs) = (ask(word.as_bytes()), golden(word));
        assert_eq!(shapes(ours.clone()), shapes(theirs.clone()), "{word}");
        assert_eq!(ours.ends_with("\n\n"), theirs.ends_with("\n\n"), "{word}");
    }
    // No JVM is here, but what reads its keys finds them.
    let envi = ask(b"envi");
    let keys: Vec<&str> = envi
        .lines()
        .skip(1)
        .map(|line| line.split('=').next().unwrap())
        .collect();
    assert_eq!(
        keys.join(" "),
        "zookeeper.version host.name java.version java.vendor java.home java.class.path java.library.path java.io.tmpdir java.compiler os.name os.arch os.version user.name user.home user.dir os.memory.free os.memory.max os.memory.total"
    );
    assert_eq!(envi.lines().next(), Some("Environment:"));
    // Anything else is taken for a length.
    assert_eq!(ask(b"abcd"), "");
    server.stop();
}
