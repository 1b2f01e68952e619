//! Requests of clients that do not read their answers wait here, so that the answers don't pile up.
//!
//! A read is weighed before it is planned: what it may answer at most, the writes of its batch included. Once the answers to
//! a connection would be more than [`MAX_BACKLOG`](crate::net::conn::MAX_BACKLOG), the rest of its requests is set aside, in order.

use crate::net::conn::MAX_BACKLOG;
use crate::prep::Write;
use crate::state::{Job, Shared, Task};
use crate::tree::DataTree;
use crate::watch::ConnId;
use gracchus_zk_proto::OpCode;
use hashbrown::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Of an answer beside its data: headers, a stat.
const ANSWER_OVERHEAD: usize = 128;

#[derive(Default)]
pub(super) struct Parked {
    by_conn: HashMap<ConnId, Vec<Job>>,
}

impl Parked {
    /// One of the connections has read enough, or is gone.
    pub fn is_ready(&self) -> bool {
        self.by_conn.values().any(|jobs| may_go_on(jobs))
    }

    /// Puts what may go on in front of the jobs that arrived.
    pub fn release(&mut self, shared: &Shared, jobs: &mut Vec<Job>) {
        if self.by_conn.is_empty() {
            return;
        }
        let mut released: Vec<Job> = Vec::new();
        for (_, parked) in self.by_conn.extract_if(|_, jobs| may_go_on(jobs)) {
            if let Some(conn) = parked.first().and_then(|job| job.conn.as_ref()) {
                conn.parked.store(false, SeqCst);
            }
            released.extend(parked);
        }
        let bytes = released.iter().map(|job| job.size).sum();
        shared.queue.outstanding.fetch_add(released.len(), Relaxed);
        shared.queue.outstanding_bytes.fetch_add(bytes, Relaxed);
        released.append(jobs);
        *jobs = released;
    }

    /// Takes out of a batch what would make its connection hold more answers than it may.
    pub fn sift(&mut self, shared: &Shared, jobs: &mut Vec<Job>) {
        // Answers to writes are small, and a connection that is behind is not read.
        let reads = jobs.iter().any(|job| matches!(job.task, Task::Read(..)));
        if self.by_conn.is_empty() && !reads {
            return;
        }
        let growth = Growth::of(jobs);
        let tree = shared.tree.read();
        let mut room: HashMap<ConnId, usize> = HashMap::new();
        for job in std::mem::take(jobs) {
            let Some(conn) = job.conn.as_ref() else {
                jobs.push(job);
                continue;
            };
            let id = conn.id;
            if !self.by_conn.contains_key(&id) {
                let room = room
                    .entry(id)
                    // A connection that is gone gets no answers.
                    .or_insert_with(|| conn.room().unwrap_or(usize::MAX));
                if *room > 0 {
                    if let Task::Read(op, body) = &job.task {
                        *room = room.saturating_sub(growth.answer(&tree, *op, body));
                    }
                    jobs.push(job);
                    continue;
                }
                conn.parked.store(true, SeqCst);
            }
            shared.queue.outstanding.fetch_sub(1, Relaxed);
            shared.queue.outstanding_bytes.fetch_sub(job.size, Relaxed);
            self.by_conn.entry(id).or_default().push(job);
        }
    }
}

fn may_go_on(jobs: &[Job]) -> bool {
    let conn = jobs.first().and_then(|job| job.conn.as_ref());
    conn.is_none_or(|conn| conn.room().is_none_or(|room| room > 0))
}

/// By how much the writes of a batch may make an answer larger than the tree says now.
struct Growth {
    /// The largest data that any of them sets.
    data: usize,
    /// All the names that they create.
    names: usize,
}

impl Growth {
    fn of(jobs: &[Job]) -> Growth {
        let mut growth = Growth { data: 0, names: 0 };
        for job in jobs {
            let Task::Write(write) = &job.task else {
                continue;
            };
            growth.data = growth.data.max(job.size);
            growth.names += match write {
                Write::Create(_, request) => request.path.len() + ANSWER_OVERHEAD,
                Write::Multi(_) => job.size,
                _ => 0,
            };
        }
        growth
    }

    /// What a read may answer at most.
    fn answer(&self, tree: &DataTree, op: OpCode, body: &[u8]) -> usize {
        let node = || {
            let length = body.first_chunk().map(|length| i32::from_be_bytes(*length));
            let length = usize::try_from(length.unwrap_or(-1)).ok()?;
            let path = body.get(4..length.checked_add(4)?)?;
            tree.get(std::str::from_utf8(path).ok()?)
        };
        let size = match op {
            OpCode::Exists
            | OpCode::Ping
            | OpCode::Sync
            | OpCode::AddWatch
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::GetAllChildrenNumber => body.len(),
            OpCode::GetData => {
                let now = node()
                    .and_then(|node| node.data.as_ref())
                    .map_or(0, |data| data.len());
                now.max(self.data)
            }
            OpCode::GetChildren | OpCode::GetChildren2 => {
                let now: usize = node().map_or(0, |node| {
                    node.child_names().map(|name| name.len() + 4).sum()
                });
                now + self.names
            }
            // Seldom asked, and not weighed: one at a time.
            _ => MAX_BACKLOG,
        };
        size + ANSWER_OVERHEAD
    }
}
