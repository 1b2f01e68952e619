//! Plays a recorded transcript's requests to a server and compares what it answers.

mod compare;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use gracchus_zk_proto::{
    ConnectRequest, ConnectResponse, Jute, OpCode, Reader, ReplyHeader, WatcherEvent, ZkError,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::*;

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

    fn ends(&mut self, conn: u64) -> Result<(), String> {
        let peer = self.peers.get_mut(&conn).unwrap();
        match peer.stream.take().as_mut().and_then(read_frame) {
            None => Ok(()),
            Some(frame) => Err(format!("a frame instead of the end: {frame:?}")),
        }
    }
}

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

/// Where an answer differs.
pub struct Failure {
    pub file: String,
    pub entry: usize,
    pub what: String,
}

/// What another client did meanwhile: before the entry, the call.
pub type Meanwhile<'a> = &'a mut dyn FnMut(usize);

pub fn replay(
    file: &Path,
    address: SocketAddr,
    paced: bool,
    failures: &mut Vec<Failure>,
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
        if let Err(error) = result {
            failures.push(Failure {
                file: name.clone(),
                entry: number,
                what: format!("conn {conn} {}: {error}", entry["op"]),
            });
            if failures.len() > 60 {
                return compared;
            }
        }
    }
    compared
}
