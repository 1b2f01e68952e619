//! Sessions: their ids and passwords, and when they expire. No I/O; time is passed in.

use crate::watch::ConnId;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// ZooKeeper's constant; a client that re-attaches after a takeover of a data directory must be let in.
const PASSWORD_SECRET: i64 = 0xB341_5C00;

/// The 16 bytes by which a client proves that a session is its own: Java's `Random` seeded from the id.
pub fn password(session: i64) -> [u8; 16] {
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ PASSWORD_SECRET) as u64 ^ 0x5_DEEC_E66D) & MASK;
    let mut out = [0; 16];
    for word in out.chunks_exact_mut(4) {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        word.copy_from_slice(&((seed >> 16) as u32).to_le_bytes());
    }
    out
}

/// The first session id of a server that starts now: its id on top, then the clock, then room to count.
pub fn first_id(server_id: u8, now_ms: i64) -> i64 {
    let clock = ((now_ms as u64) << 24) >> 8;
    (clock | (u64::from(server_id) << 56)) as i64
}

/// When a session was last heard of, ms on the server's clock. Connections write it without a lock.
pub type LastHeard = Arc<AtomicI64>;

#[derive(Debug)]
struct Session {
    timeout_ms: i32,
    last_heard: LastHeard,
    /// The end of the tick in which it is looked at next.
    due_ms: i64,
    conn: Option<ConnId>,
    /// The connection that attached last, also when it is gone.
    owner: Option<ConnId>,
}

/// The live sessions, ordered by the tick in which they may expire.
#[derive(Debug)]
pub struct Sessions {
    tick_ms: i64,
    next_id: i64,
    all: HashMap<i64, Session>,
    due: BTreeMap<i64, Vec<i64>>,
}

impl Sessions {
    pub fn new(tick_ms: i64, first_id: i64) -> Self {
        Sessions {
            tick_ms: tick_ms.max(1),
            next_id: first_id,
            all: HashMap::new(),
            due: BTreeMap::new(),
        }
    }

    pub fn next_id(&mut self) -> i64 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    fn due_after(&self, from_ms: i64, timeout_ms: i32) -> i64 {
        ((from_ms + i64::from(timeout_ms)) / self.tick_ms + 1) * self.tick_ms
    }

    /// Starts to track a session, with a full timeout from now on.
    pub fn add(
        &mut self,
        id: i64,
        timeout_ms: i32,
        conn: Option<ConnId>,
        now_ms: i64,
    ) -> LastHeard {
        let last_heard = Arc::new(AtomicI64::new(now_ms));
        let due_ms = self.due_after(now_ms, timeout_ms);
        self.due.entry(due_ms).or_default().push(id);
        self.all.insert(
            id,
            Session {
                timeout_ms,
                last_heard: last_heard.clone(),
                due_ms,
                conn,
                owner: conn,
            },
        );
        // Ids of a recovered server must not come again.
        if self.next_id <= id && self.next_id >> 56 == id >> 56 {
            self.next_id = id.wrapping_add(1);
        }
        last_heard
    }

    pub fn contains(&self, id: i64) -> bool {
        self.all.contains_key(&id)
    }

    pub fn conn(&self, id: i64) -> Option<ConnId> {
        self.all.get(&id).and_then(|session| session.conn)
    }

    /// Another connection than this one has attached to the session last.
    pub fn moved_from(&self, id: i64, conn: ConnId) -> bool {
        let owner = self.all.get(&id).and_then(|session| session.owner);
        owner.is_some_and(|owner| owner != conn)
    }

    /// A connection takes the session over, with a new timeout.
    pub fn attach(
        &mut self,
        id: i64,
        timeout_ms: i32,
        conn: ConnId,
        now_ms: i64,
    ) -> Option<LastHeard> {
        let due_ms = self.due_after(now_ms, timeout_ms);
        let session = self.all.get_mut(&id)?;
        session.timeout_ms = timeout_ms;
        session.conn = Some(conn);
        session.owner = Some(conn);
        session.last_heard.store(now_ms, Ordering::Relaxed);
        if due_ms < session.due_ms {
            session.due_ms = due_ms;
            self.due.entry(due_ms).or_default().push(id);
        }
        self.all.get(&id).map(|session| session.last_heard.clone())
    }

    /// The connection is gone; the session stays.
    pub fn detach(&mut self, id: i64, conn: ConnId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.conn == Some(conn)
        {
            session.conn = None;
        }
    }

    pub fn remove(&mut self, id: i64) {
        self.all.remove(&id);
    }

    /// The sessions whose time is up. They stay until removed, and are named again a tick later.
    pub fn expire(&mut self, now_ms: i64) -> Vec<i64> {
        let mut expired = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if *entry.key() > now_ms {
                break;
            }
            let (due_ms, ids) = entry.remove_entry();
            for id in ids {
                let tick_ms = self.tick_ms;
                let Some(session) = self.all.get_mut(&id) else {
                    continue;
                };
                if session.due_ms != due_ms {
                    continue;
                }
                let heard = session.last_heard.load(Ordering::Relaxed);
                let due = ((heard + i64::from(session.timeout_ms)) / tick_ms + 1) * tick_ms;
                session.due_ms = if due <= now_ms {
                    expired.push(id);
                    (now_ms / tick_ms + 1) * tick_ms
                } else {
                    due
                };
                self.due.entry(session.due_ms).or_default().push(id);
            }
        }
        expired
    }

    /// When [`expire`](Self::expire) has something to do next.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.due.keys().next().copied()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// For dump: session ids by the tick in which each would expire if it stayed silent.
    pub fn by_deadline(&self) -> BTreeMap<i64, Vec<i64>> {
        let mut out: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (id, session) in &self.all {
            let heard = session.last_heard.load(Ordering::Relaxed);
            out.entry(self.due_after(heard, session.timeout_ms))
                .or_default()
                .push(*id);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_as_zookeeper_makes_them() {
        // Captured from Apache ZooKeeper 3.9.5.
        let captured: [(i64, u128); 2] = [
            (0x100001560170000, 0x7bfe1aadec0d1a0551c12aba155e31b8),
            (0x100001560170001, 0x8e1f15ad8c59f949460492e5e9e64585),
        ];
        for (session, expected) in captured {
            assert_eq!(u128::from_be_bytes(password(session)), expected);
        }
    }

    #[test]
    fn a_session_lives_its_timeout_and_up_to_a_tick_more() {
        let mut s = Sessions::new(1000, 1);
        let heard = s.add(7, 2000, None, 500);
        assert_eq!(s.next_due_ms(), Some(3000));
        assert!(s.expire(2999).is_empty());
        heard.store(1200, Ordering::Relaxed);
        assert!(s.expire(3000).is_empty());
        assert_eq!(s.next_due_ms(), Some(4000));
        assert_eq!(s.expire(4000), [7]);
        // Its close could not be logged: it is named again.
        assert!(s.expire(4100).is_empty());
        assert_eq!(s.expire(5000), [7]);
        s.remove(7);
        assert!(s.expire(9000).is_empty());
        assert_eq!(s.next_due_ms(), None);
    }

    #[test]
    fn attaching_may_shorten_the_time() {
        let mut s = Sessions::new(1000, 1);
        s.add(7, 20_000, Some(1), 0);
        s.attach(7, 2000, 2, 0);
        s.detach(7, 1);
        assert_eq!(s.conn(7), Some(2));
        assert!(s.moved_from(7, 1) && !s.moved_from(7, 2));
        assert_eq!(s.expire(3000), [7]);
    }

    #[test]
    fn recovered_ids_do_not_come_again() {
        let mut s = Sessions::new(1000, first_id(1, 1000));
        let id = s.next_id() + 10;
        s.add(id, 1000, None, 0);
        assert!(s.next_id() > id);
    }
}
