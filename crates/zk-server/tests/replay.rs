//! Replays what real clients said to Apache ZooKeeper and compares every frame of the answers.
//!
//! Session ids, passwords and times differ from run to run; zxids must map to each other in order; children, ids and
//! the ephemerals of a closed session come in any order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use gracchus_zk_proto::multi::{MultiResponse, MultiResult};
use gracchus_zk_proto::request::SetDataRequest;
use gracchus_zk_proto::response::*;
use gracchus_zk_proto::{
    ConnectRequest, ConnectResponse, Jute, OpCode, Reader, ReplyHeader, Stat, WatcherEvent, ZkError,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use support::*;

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .bytes()
        .map(|b| (b as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[derive(Default)]
struct Peer {
    stream: Option<TcpStream>,
    /// Operations not answered yet.
    open: VecDeque<i32>,
    session_recorded: i64,
}

#[derive(Default)]
struct Replay {
    peers: HashMap<u64, Peer>,
    sessions: HashMap<i64, (i64, Bytes)>,
    /// Recorded zxids and ours.
    zxids: BTreeMap<i64, i64>,
}

impl Replay {
    fn zxid(&mut self, recorded: i64, ours: i64) -> Result<(), String> {
        if recorded <= 0 {
            return (recorded == ours)
                .then_some(())
                .ok_or(format!("zxid {ours}, recorded {recorded}"));
        }
        if let Some(known) = self.zxids.get(&recorded) {
            return (*known == ours)
                .then_some(())
                .ok_or(format!("zxid {ours} for 0x{recorded:x}, before {known}"));
        }
        let below = self
            .zxids
            .range(..recorded)
            .next_back()
            .map_or(0, |(_, ours)| *ours);
        let above = self
            .zxids
            .range(recorded..)
            .next()
            .map_or(i64::MAX, |(_, ours)| *ours);
        if ours <= below || ours >= above {
            return Err(format!(
                "zxid {ours} for 0x{recorded:x} is not between {below} and {above}"
            ));
        }
        self.zxids.insert(recorded, ours);
        Ok(())
    }

    /// The zxid that a recorded one stands for.
    fn ours(&self, recorded: i64) -> i64 {
        match self.zxids.range(..=recorded).next_back() {
            Some((known, ours)) => ours + (recorded - known),
            None => recorded,
        }
    }

    fn stat(&mut self, recorded: &Stat, ours: &Stat) -> Result<(), String> {
        for (a, b) in [
            (recorded.czxid, ours.czxid),
            (recorded.mzxid, ours.mzxid),
            (recorded.pzxid, ours.pzxid),
        ] {
            self.zxid(a, b)?;
        }
        let plain = |stat: &Stat| Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            ephemeral_owner: 0,
            ..*stat
        };
        let owner = self
            .sessions
            .get(&recorded.ephemeral_owner)
            .map_or(0, |(ours, _)| *ours);
        if plain(recorded) != plain(ours)
            || (recorded.ephemeral_owner != 0) != (ours.ephemeral_owner != 0)
            || (owner != 0 && owner != ours.ephemeral_owner)
        {
            return Err(format!("{ours:?}\n recorded {recorded:?}"));
        }
        Ok(())
    }

    fn send(&mut self, conn: u64, op: &Value, frame: Bytes) {
        let mut out = frame.clone();
        let body = frame.slice(4.min(frame.len())..);
        if op == "connect" {
            let mut request = ConnectRequest::from_bytes(body).unwrap();
            if let Some((session, password)) = self.sessions.get(&request.session_id) {
                let recorded = gracchus_zk_server::session::password(request.session_id);
                if request.password.as_deref() == Some(&recorded[..]) {
                    request.password = Some(password.clone());
                }
                request.session_id = *session;
            }
            if request.last_zxid_seen < 1 << 40 {
                request.last_zxid_seen = self.ours(request.last_zxid_seen);
            }
            out = framed(&request.to_bytes());
        } else if body.len() >= 8 && !matches!(op.as_str(), Some("raw" | "partial")) {
            let mut reader = Reader::new(body.clone());
            let (_, code) = (reader.i32().unwrap(), reader.i32().unwrap());
            self.peers.get_mut(&conn).unwrap().open.push_back(code);
            if matches!(
                OpCode::from_code(code),
                Some(OpCode::SetWatches | OpCode::SetWatches2)
            ) {
                let mut changed = BytesMut::from(&body[..8]);
                changed.put_i64(self.ours(reader.i64().unwrap()));
                changed.put_slice(reader.rest());
                out = framed(&changed);
            }
        }
        let peer = self.peers.get_mut(&conn).unwrap();
        if let Some(stream) = &mut peer.stream {
            // The server may have closed already, as the recorded one did.
            let _ = stream.write_all(&out);
        }
    }

    fn receive(&mut self, conn: u64, op: &Value, recorded: Bytes) -> Result<(), String> {
        let peer = self.peers.get_mut(&conn).unwrap();
        if op == "4lw" {
            let mut text = String::new();
            peer.stream
                .as_mut()
                .unwrap()
                .read_to_string(&mut text)
                .map_err(|e| e.to_string())?;
            let word = |text: &str| text.split(['\n', '=']).next().map(str::to_owned);
            let recorded = word(&String::from_utf8_lossy(&recorded));
            return (word(&text) == recorded)
                .then_some(())
                .ok_or(format!("{text:?}, recorded {recorded:?}"));
        }
        let recorded = recorded.slice(4..);
        let ours = peer
            .stream
            .as_mut()
            .and_then(read_frame)
            .ok_or("the connection ended")?;
        if op == "connect" {
            let (a, b) = (
                ConnectResponse::from_bytes(recorded.clone()).unwrap(),
                ConnectResponse::from_bytes(ours.clone()).unwrap(),
            );
            if a.session_id != 0 {
                self.sessions
                    .insert(a.session_id, (b.session_id, b.password.clone().unwrap()));
                peer.session_recorded = a.session_id;
            }
            let same = (a.timeout_ms, a.read_only, a.session_id != 0)
                == (b.timeout_ms, b.read_only, b.session_id != 0);
            return (same && recorded.len() == ours.len())
                .then_some(())
                .ok_or(format!("{b:?}\n recorded {a:?}"));
        }
        let (mut a, mut b) = (Reader::new(recorded), Reader::new(ours));
        let (ha, hb) = (
            ReplyHeader::read(&mut a).unwrap(),
            ReplyHeader::read(&mut b).unwrap(),
        );
        let code = if ha.xid == -1 {
            0
        } else {
            self.peers.get_mut(&conn).unwrap().open.pop_front().unwrap()
        };
        let malformed = ha.err == ZkError::MarshallingError.code();
        if (ha.xid, ha.err) != (hb.xid, hb.err) {
            return Err(format!("{hb:?} {:?}\n recorded {ha:?}", b.rest()));
        }
        // ZooKeeper takes a zxid for some writes that it can't read, and none for others.
        if !malformed {
            self.zxid(ha.zxid, hb.zxid)?;
        }
        if ha.xid == -1 {
            let (ea, eb) = (
                WatcherEvent::read(&mut a).unwrap(),
                WatcherEvent::read(&mut b).unwrap(),
            );
            return (ea == eb)
                .then_some(())
                .ok_or(format!("{eb:?}\n recorded {ea:?}"));
        }
        if ha.err != 0 {
            // A multiRead that it can't read gets an empty body behind its error; no client looks there.
            return (malformed || a.rest() == b.rest())
                .then_some(())
                .ok_or("an error with a body".into());
        }
        self.body(code, a, b)
    }

    fn body(&mut self, code: i32, mut a: Reader, mut b: Reader) -> Result<(), String> {
        fn both<T: Jute>(a: &mut Reader, b: &mut Reader) -> Result<(T, T), String> {
            Ok((
                T::read(a).map_err(|e| format!("recorded: {e}"))?,
                T::read(b).map_err(|e| format!("ours: {e}"))?,
            ))
        }
        fn same<T: PartialEq + std::fmt::Debug>(a: T, b: T) -> Result<(), String> {
            (a == b)
                .then_some(())
                .ok_or_else(|| format!("{b:?}\n recorded {a:?}"))
        }
        fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
            items.sort();
            items
        }
        match OpCode::from_code(code) {
            Some(OpCode::Exists | OpCode::SetData | OpCode::SetAcl) => {
                let (x, y): (StatResponse, StatResponse) = both(&mut a, &mut b)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => {
                let (x, y): (Create2Response, Create2Response) = both(&mut a, &mut b)?;
                same(x.path, y.path)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetData) => {
                let (x, y): (GetDataResponse, GetDataResponse) = both(&mut a, &mut b)?;
                same(x.data, y.data)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetChildren) => {
                let (x, y): (GetChildrenResponse, GetChildrenResponse) = both(&mut a, &mut b)?;
                same(sorted(x.children), sorted(y.children))?;
            }
            Some(OpCode::GetChildren2) => {
                let (x, y): (GetChildren2Response, GetChildren2Response) = both(&mut a, &mut b)?;
                same(sorted(x.children), sorted(y.children))?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetAcl) => {
                let (x, y): (GetAclResponse, GetAclResponse) = both(&mut a, &mut b)?;
                same(x.acl, y.acl)?;
                self.stat(&x.stat, &y.stat)?;
            }
            Some(OpCode::GetEphemerals) => {
                let (x, y): (GetEphemeralsResponse, GetEphemeralsResponse) = both(&mut a, &mut b)?;
                same(sorted(x.paths), sorted(y.paths))?;
            }
            Some(OpCode::WhoAmI) => {
                let (x, y): (WhoAmIResponse, WhoAmIResponse) = both(&mut a, &mut b)?;
                let plain = |r: WhoAmIResponse| {
                    sorted(r.clients.into_iter().map(|c| (c.scheme, c.user)).collect())
                };
                same(plain(x), plain(y))?;
            }
            Some(OpCode::Multi | OpCode::MultiRead) => {
                let (x, y): (MultiResponse, MultiResponse) = both(&mut a, &mut b)?;
                same(x.results.len(), y.results.len())?;
                for (x, y) in x.results.into_iter().zip(y.results) {
                    match (x, y) {
                        (MultiResult::Create2(x), MultiResult::Create2(y)) => {
                            same(x.path, y.path)?;
                            self.stat(&x.stat, &y.stat)?;
                        }
                        (MultiResult::SetData(x), MultiResult::SetData(y)) => self.stat(&x, &y)?,
                        (MultiResult::GetData(x), MultiResult::GetData(y)) => {
                            same(x.data, y.data)?;
                            self.stat(&x.stat, &y.stat)?;
                        }
                        (MultiResult::GetChildren(x), MultiResult::GetChildren(y)) => {
                            same(sorted(x.children), sorted(y.children))?
                        }
                        (x, y) => same(x, y)?,
                    }
                }
            }
            _ => {}
        }
        same(a.rest(), b.rest())
    }

    fn ends(&mut self, conn: u64) -> Result<(), String> {
        let peer = self.peers.get_mut(&conn).unwrap();
        match peer.stream.take().as_mut().and_then(read_frame) {
            None => Ok(()),
            Some(frame) => Err(format!("a frame instead of the end: {frame:?}")),
        }
    }
}

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

fn framed(body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i32(body.len() as i32);
    out.put_slice(body);
    out.freeze()
}

/// Deletions of one closed session are told in any order by ZooKeeper, by path here.
fn sort_events(entries: &mut [Value]) {
    let key = |entry: &Value| {
        let bytes = entry["hex"].as_str().map(hex)?;
        let deleted = entry["op"] == "notification" && bytes.get(20..24) == Some(&[0, 0, 0, 2]);
        deleted.then(|| (entry["conn"].as_u64(), bytes.slice(8..16)))
    };
    let mut at = 0;
    while at < entries.len() {
        let Some(first) = key(&entries[at]) else {
            at += 1;
            continue;
        };
        let run = entries[at..]
            .iter()
            .take_while(|entry| key(entry).as_ref() == Some(&first))
            .count();
        entries[at..at + run].sort_by_key(|entry| entry["hex"].as_str().unwrap().to_owned());
        at += run;
    }
}

/// What another client did meanwhile: before the entry, the call.
type Meanwhile<'a> = &'a mut dyn FnMut(usize);

fn replay(
    file: &Path,
    address: SocketAddr,
    paced: bool,
    failures: &mut Vec<String>,
    meanwhile: Meanwhile<'_>,
) -> usize {
    let mut replay = Replay::default();
    let mut entries = lines(file);
    sort_events(&mut entries);
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut compared = 0;
    for (number, entry) in entries.iter().enumerate() {
        meanwhile(number);
        if paced {
            // Where time is the subject: not before its moment.
            let due = Duration::from_secs_f64(entry["t"].as_f64().unwrap_or(0.0) / 1000.0);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
        let conn = entry["conn"].as_u64().unwrap();
        let bytes = || hex(entry["hex"].as_str().unwrap());
        let result = match (entry["dir"].as_str().unwrap(), entry["by"].as_str()) {
            ("open", _) => {
                let peer = Peer {
                    stream: Some(raw(address)),
                    ..Peer::default()
                };
                replay.peers.insert(conn, peer);
                Ok(())
            }
            ("c>s", _) => {
                replay.send(conn, &entry["op"], bytes());
                Ok(())
            }
            ("s>c", _) => {
                compared += 1;
                replay.receive(conn, &entry["op"], bytes())
            }
            ("close", Some("server")) => replay.ends(conn),
            ("close", _) => {
                replay.peers.get_mut(&conn).unwrap().stream = None;
                Ok(())
            }
            other => panic!("{other:?}"),
        };
        if let Err(error) = result
            && !EXCEPTIONS
                .iter()
                .any(|(file, at, _)| name.starts_with(file) && *at == number)
        {
            failures.push(format!(
                "{name} entry {number} conn {conn} {}: {error}",
                entry["op"]
            ));
            if failures.len() > 20 {
                return compared;
            }
        }
    }
    compared
}

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/transcripts")
        .join(name)
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
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn table_of_edge_cases() {
    check(&["30-edges.jsonl.gz"], false, 400);
}

#[test]
fn kafka_broker() {
    check(&["40-kafka.jsonl.gz"], false, 1000);
}
