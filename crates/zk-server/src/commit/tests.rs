//! The committer alone, batch by batch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::config::ZkConfig;
use crate::session::{Sessions, password};
use crate::store::data_dir::DataDir;
use bytes::{Buf, Bytes};
use gracchus_zk_proto::request::{CreateRequest, PathWatchRequest};
use gracchus_zk_proto::{Acl, ConnectRequest, Jute, ReplyHeader};

struct Fixture {
    committer: Committer,
    _tmp: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let tmp = tempfile::tempdir().unwrap();
        let config = ZkConfig::new(tmp.path());
        let dir = Arc::new(DataDir::open(&config).unwrap());
        let log = TxnLog::new(&dir.log_dir, 1 << 16, true);
        let snapshots = Snapshots::new(&config, dir);
        let sessions = Sessions::new(1000, 1);
        let shared = Shared::new(config, DataTree::new(), sessions, Clock::new());
        Fixture {
            committer: Committer::new(Arc::new(shared), log, snapshots),
            _tmp: tmp,
        }
    }

    fn conn(&self) -> Arc<Conn> {
        let shared = &self.committer.shared;
        let peer = "127.0.0.1:1".parse().unwrap();
        let conn = Arc::new(Conn::new(shared.next_conn_id(), peer, 0));
        shared.conns.lock().insert(conn.id, conn.clone());
        conn
    }

    fn work(&mut self, mut jobs: Vec<Job>) {
        for job in &jobs {
            job.conn.as_ref().unwrap().note_queued(job.size);
        }
        let queue = &self.committer.shared.queue;
        let size = jobs.iter().map(|job| job.size).sum();
        queue.outstanding.fetch_add(jobs.len(), Relaxed);
        queue.outstanding_bytes.fetch_add(size, Relaxed);
        self.committer.step(&mut jobs);
        assert_eq!(self.committer.shared.queue.outstanding.load(Relaxed), 0);
    }

    fn has(&self, path: &str) -> bool {
        self.committer.shared.tree.read().get(path).is_some()
    }
}

fn job(conn: &Arc<Conn>, op: OpCode, task: Task) -> Job {
    Job {
        conn: Some(conn.clone()),
        session: conn.session(),
        xid: 1,
        op: op.code(),
        task,
        arrived_us: 0,
        size: 0,
    }
}

fn connect(conn: &Arc<Conn>, session: i64) -> Job {
    let request = ConnectRequest {
        session_id: session,
        password: Some(Bytes::copy_from_slice(&password(session))),
        timeout_ms: 10_000,
        ..ConnectRequest::default()
    };
    job(conn, OpCode::Notification, Task::Connect(request))
}

fn create(conn: &Arc<Conn>, path: &str) -> Job {
    create_with(conn, path, b"")
}

fn create_with(conn: &Arc<Conn>, path: &str, data: &[u8]) -> Job {
    let write = crate::net::decode::decode_write(
        OpCode::Create,
        CreateRequest {
            path: path.into(),
            data: Some(Bytes::copy_from_slice(data)),
            acl: Some(Acl::open()),
            flags: 0,
        }
        .to_bytes(),
    );
    Job {
        size: data.len(),
        ..job(conn, OpCode::Create, write)
    }
}

fn get(conn: &Arc<Conn>, path: &str) -> Job {
    let request = PathWatchRequest {
        path: path.into(),
        watch: false,
    };
    let op = OpCode::GetData;
    job(conn, op, Task::Read(op, request.to_bytes()))
}

/// The operations that the connection has answers for, by their xids and errors; they count as sent.
fn answers(conn: &Conn) -> Vec<(i32, i32)> {
    let mut rest = conn.out.lock().buf.split().freeze();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = rest.get_i32() as usize;
        let header = ReplyHeader::from_bytes(rest.split_to(length)).unwrap();
        found.push((header.xid, header.err));
    }
    found
}

#[test]
fn nothing_is_done_for_a_connection_that_lost_its_session_to_another() {
    let mut f = Fixture::new();
    let (old, new) = (f.conn(), f.conn());
    f.work(vec![connect(&old, 0)]);
    let session = old.session();
    assert_ne!(session, 0);
    // Before, between and behind the handshake of the new connection in one batch.
    f.work(vec![
        create(&old, "/before"),
        connect(&new, session),
        create(&old, "/between"),
    ]);
    assert_eq!(new.session(), session);
    assert!(f.has("/before") && !f.has("/between"));
    // And in a later one, also when the new connection has gone by then.
    f.work(vec![create(&old, "/later"), create(&new, "/of-the-new")]);
    assert!(!f.has("/later") && f.has("/of-the-new"));
    f.committer.shared.sessions.lock().detach(session, new.id);
    let close = Task::Write(Write::CloseSession);
    f.work(vec![job(&old, OpCode::CloseSession, close)]);
    assert!(f.committer.shared.sessions.lock().contains(session));
    // A wrong password takes nothing over.
    let stranger = f.conn();
    let mut wrong = connect(&stranger, session);
    if let Task::Connect(request) = &mut wrong.task {
        request.password = None;
    }
    f.work(vec![wrong, create(&new, "/still-the-owner")]);
    assert!(f.has("/still-the-owner"));
}

#[test]
fn requests_wait_in_order_while_their_answers_have_no_room() {
    let mut f = Fixture::new();
    let (slow, other) = (f.conn(), f.conn());
    f.work(vec![connect(&slow, 0), connect(&other, 0)]);
    let big = vec![b'x'; 700_000];
    f.work(vec![create_with(&other, "/big", &big)]);
    slow.out.lock().buf.clear();
    let numbered = |xid, job: Job| Job { xid, ..job };
    f.work(vec![
        numbered(1, get(&slow, "/big")),
        numbered(2, get(&slow, "/big")),
        numbered(3, get(&slow, "/big")),
        numbered(4, create(&slow, "/a")),
        create(&other, "/b"),
    ]);
    // Two answers fill the room; what is behind waits, the write too, and others don't.
    assert!(f.has("/b") && !f.has("/a"));
    assert!(slow.is_full() && !f.committer.parked.is_ready());
    f.work(vec![numbered(5, get(&slow, "/a"))]);
    assert_eq!(answers(&slow), [(1, 0), (2, 0)]);
    assert!(f.committer.parked.is_ready());
    f.work(Vec::new());
    assert_eq!(answers(&slow), [(3, 0), (4, 0), (5, 0)]);
    assert!(!slow.is_full());
}

#[test]
fn reads_are_weighed_with_the_writes_before_them() {
    let mut f = Fixture::new();
    let conn = f.conn();
    f.work(vec![connect(&conn, 0)]);
    conn.out.lock().buf.clear();
    // Nothing is there yet, so that the tree alone would let all of them pass.
    let mut jobs = vec![create_with(&conn, "/big", &[b'x'; 900_000])];
    jobs.extend((0..100).map(|_| get(&conn, "/big")));
    f.work(jobs);
    let mut done = answers(&conn).len();
    while done < 101 {
        assert!(f.committer.parked.is_ready());
        f.work(Vec::new());
        let more = answers(&conn);
        assert!((1..=3).contains(&more.len()) && more.iter().all(|(_, err)| *err == 0));
        done += more.len();
    }
}

#[test]
fn what_waits_is_done_when_its_connection_ends() {
    let mut f = Fixture::new();
    let conn = f.conn();
    f.work(vec![connect(&conn, 0)]);
    conn.out.lock().buf.extend_from_slice(&[0; 2 << 20]);
    f.work(vec![get(&conn, "/"), create(&conn, "/last")]);
    assert!(!f.has("/last"));
    conn.close(false);
    assert!(f.committer.parked.is_ready());
    f.work(Vec::new());
    assert!(f.has("/last"));
}
