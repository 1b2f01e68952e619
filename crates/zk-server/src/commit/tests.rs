//! The committer alone, batch by batch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::config::ZkConfig;
use crate::session::{Sessions, password};
use crate::store::data_dir::DataDir;
use bytes::Bytes;
use gracchus_zk_proto::request::CreateRequest;
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
        self.committer.work(&mut jobs);
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
    let write = crate::net::decode::decode_write(
        OpCode::Create,
        CreateRequest {
            path: path.into(),
            data: None,
            acl: Some(Acl::open()),
            flags: 0,
        }
        .to_bytes(),
    );
    job(conn, OpCode::Create, write)
}

/// The error of the answer that the connection has to send.
fn answer(conn: &Conn) -> Option<i32> {
    let mut out = conn.out.lock();
    let frame = out.buf.split().freeze();
    (!frame.is_empty()).then(|| ReplyHeader::from_bytes(frame.slice(4..)).unwrap().err)
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
    answer(&new);
    f.work(vec![wrong, create(&new, "/still-the-owner")]);
    assert!(f.has("/still-the-owner"));
}
