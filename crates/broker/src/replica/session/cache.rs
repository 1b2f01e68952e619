//! All sessions of a broker: what a request goes on with, and who has to go for a new one.

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::partitions::{Cached, Session};
use super::{FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionKey, Told, Wanted, next_epoch};

/// A session unused for so long may be evicted, and one that has existed so long may be by a larger one, in ms.
const EVICTION_MS: i64 = 120_000;

/// What a request is to the sessions.
#[derive(Debug)]
pub enum Context {
    /// No session: read what the request names.
    Sessionless(Vec<(SessionKey, Wanted)>),
    /// As sessionless, and a session is made for the answer if there is room.
    Full {
        /// All partitions.
        wanted: Vec<(SessionKey, Wanted)>,
        /// By id or by name.
        uses_topic_ids: bool,
    },
    /// Goes on in a session.
    Incremental {
        /// Its id.
        session_id: i32,
        /// Epoch that the session has after this request.
        epoch: i32,
        /// All of the session's partitions.
        wanted: Vec<(SessionKey, Wanted)>,
    },
}

impl Context {
    /// What is to be read.
    pub fn wanted(&self) -> &[(SessionKey, Wanted)] {
        match self {
            Self::Sessionless(wanted)
            | Self::Full { wanted, .. }
            | Self::Incremental { wanted, .. } => wanted,
        }
    }
}

/// Why a session cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionError {
    /// FETCH_SESSION_ID_NOT_FOUND
    NotFound,
    /// INVALID_FETCH_SESSION_EPOCH
    WrongEpoch,
    /// FETCH_SESSION_TOPIC_ID_ERROR: names and ids mixed in one session
    TopicIds,
}

/// A request's part that concerns sessions.
#[derive(Debug)]
pub struct SessionRequest {
    /// 0 = none.
    pub session_id: i32,
    /// Counts the requests of the session.
    pub epoch: i32,
    /// Version 13 and later.
    pub uses_topic_ids: bool,
    /// Partitions new or changed (all, in a full request).
    pub wanted: Vec<(SessionKey, Wanted)>,
    /// Partitions to be dropped from the session.
    pub forgotten: Vec<SessionKey>,
}

struct Entry {
    session: Session,
    /// A follower's: others do not evict it.
    privileged: bool,
    created_ms: i64,
    used_ms: i64,
}

/// All sessions of a broker, at most `max.incremental.fetch.session.cache.slots`.
pub struct FetchSessions {
    slots: usize,
    sessions: Mutex<HashMap<i32, Entry>>,
}

impl FetchSessions {
    /// Room for so many.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            sessions: Mutex::new(HashMap::new()),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a request's session part in.
    pub fn begin(&self, request: SessionRequest, now_ms: i64) -> Result<Context, SessionError> {
        let SessionRequest {
            session_id,
            epoch,
            uses_topic_ids,
            wanted,
            forgotten,
        } = request;
        let mut sessions = self.sessions.lock();
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            if session_id != NO_SESSION {
                sessions.remove(&session_id);
            }
            return Ok(if epoch == FINAL_EPOCH {
                Context::Sessionless(wanted)
            } else {
                Context::Full {
                    wanted,
                    uses_topic_ids,
                }
            });
        }
        let entry = sessions
            .get_mut(&session_id)
            .ok_or(SessionError::NotFound)?;
        let session = &mut entry.session;
        if session.epoch != epoch {
            return Err(SessionError::WrongEpoch);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return Err(SessionError::TopicIds);
        }
        for (key, wanted) in wanted {
            session.want(key, wanted);
        }
        for key in &forgotten {
            session.forget(key);
        }
        if session.order.is_empty() {
            sessions.remove(&session_id);
            return Ok(Context::Sessionless(Vec::new()));
        }
        session.epoch = next_epoch(session.epoch);
        let (epoch, wanted) = (session.epoch, session.wanted());
        entry.used_ms = now_ms;
        Ok(Context::Incremental {
            session_id,
            epoch,
            wanted,
        })
    }

    /// Makes a session of a full request's answer; its id, or 0 when there is no room.
    pub fn create(
        &self,
        uses_topic_ids: bool,
        partitions: impl ExactSizeIterator<Item = (SessionKey, Wanted, Told)>,
        privileged: bool,
        now_ms: i64,
        mut draw: impl FnMut() -> i32,
    ) -> i32 {
        let mut sessions = self.sessions.lock();
        let full = sessions.len() >= self.slots;
        if full && !make_room(&mut sessions, privileged, partitions.len(), now_ms) {
            return NO_SESSION;
        }
        let id = loop {
            let id = draw();
            if id > 0 && !sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session::new(uses_topic_ids);
        for (key, wanted, told) in partitions {
            session.put(Cached {
                key,
                wanted,
                high_watermark: if told.error { -1 } else { told.high_watermark },
                log_start_offset: told.log_start_offset,
            });
        }
        sessions.insert(
            id,
            Entry {
                session,
                privileged,
                created_ms: now_ms,
                used_ms: now_ms,
            },
        );
        id
    }

    /// Which parts of an incremental answer have to be sent. INVALID_FETCH_SESSION_EPOCH if the client used the
    /// session elsewhere meanwhile; a session evicted meanwhile sends all.
    pub fn changed(
        &self,
        session_id: i32,
        epoch: i32,
        told: &[(SessionKey, Told)],
    ) -> Result<Vec<bool>, SessionError> {
        let mut sessions = self.sessions.lock();
        let Some(entry) = sessions.get_mut(&session_id) else {
            return Ok(vec![true; told.len()]);
        };
        if entry.session.epoch != epoch {
            return Err(SessionError::WrongEpoch);
        }
        Ok(told
            .iter()
            .map(|(key, told)| entry.session.tell(key, told))
            .collect())
    }
}

/// Evicts a session for one of `size` partitions: the one longest unused if that is long enough, else the smallest that
/// has existed long enough (or, for a follower, any consumer's), if it is smaller.
fn make_room(
    sessions: &mut HashMap<i32, Entry>,
    privileged: bool,
    size: usize,
    now_ms: i64,
) -> bool {
    let oldest = sessions.iter().min_by_key(|(_, entry)| entry.used_ms);
    if let Some((&id, entry)) = oldest
        && now_ms - entry.used_ms > EVICTION_MS
    {
        sessions.remove(&id);
        return true;
    }
    let rank = |privileged: bool, size: usize, id: i32| (privileged, size, id);
    let victim = sessions
        .iter()
        .filter(|(_, entry)| {
            now_ms - entry.created_ms > EVICTION_MS || (privileged && !entry.privileged)
        })
        .map(|(&id, entry)| rank(entry.privileged, entry.session.order.len(), id))
        .min();
    match victim {
        Some(victim) if rank(privileged, size, 0) >= victim => {
            sessions.remove(&victim.2);
            true
        }
        _ => false,
    }
}
