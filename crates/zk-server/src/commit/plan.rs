//! What each job of a batch becomes, in their order.

use super::Committer;
use crate::acl::Identity;
use crate::prep::{Prep, Write};
use crate::session::{Sessions, password};
use crate::state::{Clock, Job, Task};
use crate::watch::ConnId;
use bytes::Bytes;
use gracchus_zk_proto::txn::{CreateSessionTxn, Txn, TxnHeader};
use gracchus_zk_proto::{ConnectRequest, OpCode, ZkError};
use hashbrown::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

pub(super) enum Planned {
    Txn(TxnHeader, Txn),
    /// A session to create, with the handshake that asked for it.
    NewSession(TxnHeader, CreateSessionTxn, ConnectRequest),
    Read(OpCode, Bytes),
    Attach(ConnectRequest),
    Refuse(ZkError),
    Unimplemented,
}

pub(super) struct Plan {
    pub plans: Vec<Planned>,
    pub last_zxid: i64,
    pub txns: u64,
}

/// Who may act in which session as the batch goes on.
struct Owners<'a> {
    sessions: &'a mut Sessions,
    /// Sessions that end in this batch.
    closing: HashSet<i64>,
    /// Sessions that another connection takes over in this batch.
    moved: HashMap<i64, ConnId>,
}

impl Owners<'_> {
    fn is_over(&self, session: i64) -> bool {
        self.closing.contains(&session) || !self.sessions.contains(session)
    }

    /// Why a request of a session can't be served any more.
    fn refusal(&self, job: &Job) -> Option<ZkError> {
        if job.session == 0 {
            return None;
        }
        if self.is_over(job.session) {
            return Some(ZkError::SessionExpired);
        }
        // ZooKeeper no longer reads a connection that lost its session to another one: what was taken in all the same is not done
        // either, since the client, attached anew, relies on it that nothing it sent there happens from now on.
        let conn = job.conn.as_ref()?.id;
        let moved = match self.moved.get(&job.session) {
            Some(owner) => *owner != conn,
            None => self.sessions.moved_from(job.session, conn),
        };
        moved.then_some(ZkError::SessionMoved)
    }

    fn note_attach(&mut self, job: &Job, request: &ConnectRequest) {
        let session = request.session_id;
        if let Some(conn) = &job.conn
            && !self.is_over(session)
            && request.password.as_deref() == Some(&password(session)[..])
        {
            self.moved.insert(session, conn.id);
        }
    }
}

impl Committer {
    /// Turns the jobs into transactions, which are appended to the log's batch, and answers.
    pub(super) fn plan(&mut self, jobs: &mut [Job]) -> Plan {
        let shared = self.shared.clone();
        let tree = shared.tree.read();
        let mut prep = Prep::new(&tree, shared.rules);
        let time = Clock::wall_ms();
        let mut zxid = self.last_zxid;
        let mut txns = 0;
        for (id, timeout_ms) in &self.unlogged_sessions {
            zxid += 1;
            txns += 1;
            let header = TxnHeader {
                client_id: *id,
                cxid: 0,
                zxid,
                time,
                op: OpCode::CreateSession.code(),
            };
            self.log.append(
                &header,
                &Txn::CreateSession(CreateSessionTxn {
                    timeout_ms: *timeout_ms,
                }),
            );
        }
        let nobody = Identity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut plans = Vec::with_capacity(jobs.len());
        let mut sessions = shared.sessions.lock();
        let mut owners = Owners {
            sessions: &mut sessions,
            closing: HashSet::new(),
            moved: HashMap::new(),
        };
        for job in jobs.iter_mut() {
            let task = std::mem::replace(&mut job.task, Task::Unimplemented);
            let (session, write, connect) = match task {
                Task::Write(write) => match owners.refusal(job) {
                    Some(error) => {
                        plans.push(Planned::Refuse(error));
                        continue;
                    }
                    None => (job.session, write, None),
                },
                Task::Connect(request) if request.session_id == 0 => {
                    let id = owners.sessions.next_id();
                    let timeout_ms = shared.clamp_timeout(request.timeout_ms);
                    (id, Write::CreateSession { timeout_ms }, Some(request))
                }
                other => {
                    plans.push(match other {
                        Task::Read(op, body) => match owners.refusal(job) {
                            Some(error) => Planned::Refuse(error),
                            None => Planned::Read(op, body),
                        },
                        Task::Connect(request) => {
                            owners.note_attach(job, &request);
                            Planned::Attach(request)
                        }
                        Task::Refuse(error) => Planned::Refuse(error),
                        _ => Planned::Unimplemented,
                    });
                    continue;
                }
            };
            if write == Write::CloseSession {
                owners.closing.insert(session);
            }
            zxid += 1;
            txns += 1;
            let identity = job.conn.as_ref().map(|conn| conn.identity());
            let txn = prep.prepare(session, identity.as_deref().unwrap_or(&nobody), write);
            let header = TxnHeader {
                client_id: session,
                cxid: job.xid,
                zxid,
                time,
                op: txn.opcode().code(),
            };
            self.log.append(&header, &txn);
            plans.push(match (txn, connect) {
                (Txn::CreateSession(txn), Some(request)) => {
                    Planned::NewSession(header, txn, request)
                }
                (txn, _) => Planned::Txn(header, txn),
            });
        }
        Plan {
            plans,
            last_zxid: zxid,
            txns,
        }
    }
}
