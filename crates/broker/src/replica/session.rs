//! Fetch sessions (KIP-227): a client names its partitions once, then only what changed, and is told only what changed.
//! Plain rules; the time is passed in.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::Uuid;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// No session.
pub const NO_SESSION: i32 = 0;
/// Epoch of a request that asks for a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that wants no session, or closes one.
pub const FINAL_EPOCH: i32 = -1;
/// A session unused for so long may be evicted, and one that has existed so long may be by a larger one, in ms.
const EVICTION_MS: i64 = 120_000;

/// The epoch after this one.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        ..0 => FINAL_EPOCH,
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

/// A partition as requests name it: by topic id since version 13, else by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// ZERO when named by topic.
    pub topic_id: Uuid,
    /// Empty when named by id.
    pub topic: Arc<str>,
    /// Its index.
    pub partition: i32,
}

/// What a request wants of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// First offset.
    pub offset: i64,
    /// Most bytes.
    pub max_bytes: i32,
    /// Leader epoch the client believes in, -1 unknown.
    pub current_leader_epoch: i32,
    /// Epoch of the last record the client has, -1 unknown.
    pub last_fetched_epoch: i32,
    /// A follower's log start.
    pub log_start_offset: i64,
}

/// What an answer says of a partition, as far as it decides whether it need be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// High watermark.
    pub high_watermark: i64,
    /// Log start.
    pub log_start_offset: i64,
    /// Records are with it.
    pub has_records: bool,
    /// It is an error, a divergence or a preferred replica: always sent.
    pub special: bool,
    /// It is an error: sent again as soon as it works.
    pub error: bool,
}

#[derive(Debug, Clone)]
struct Cached {
    key: SessionKey,
    wanted: Wanted,
    /// -1: to be sent whatever the next answer is.
    high_watermark: i64,
    log_start_offset: i64,
}

/// One client's session.
#[derive(Debug)]
struct Session {
    uses_topic_ids: bool,
    epoch: i32,
    /// In the order in which they are read: who got records goes to the end.
    order: BTreeMap<u64, Cached>,
    places: HashMap<SessionKey, u64>,
    next_place: u64,
}

impl Session {
    fn new(uses_topic_ids: bool) -> Self {
        Self {
            uses_topic_ids,
            epoch: next_epoch(INITIAL_EPOCH),
            order: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        }
    }

    fn put(&mut self, cached: Cached) {
        self.places.insert(cached.key.clone(), self.next_place);
        self.order.insert(self.next_place, cached);
        self.next_place += 1;
    }

    /// Adds a partition or changes what is wanted of it; its place stays.
    fn want(&mut self, key: SessionKey, wanted: Wanted) {
        let known = self
            .places
            .get(&key)
            .and_then(|place| self.order.get_mut(place));
        match known {
            Some(cached) => cached.wanted = wanted,
            None => self.put(Cached {
                key,
                wanted,
                high_watermark: -1,
                log_start_offset: -1,
            }),
        }
    }

    fn forget(&mut self, key: &SessionKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Notes what is about to be told; true if it has to be.
    fn tell(&mut self, key: &SessionKey, told: &Told) -> bool {
        let Some(place) = self.places.get(key).copied() else {
            return true;
        };
        let Some(cached) = self.order.get_mut(&place) else {
            return true;
        };
        let changed = cached.high_watermark != told.high_watermark
            || cached.log_start_offset != told.log_start_offset;
        cached.high_watermark = if told.error { -1 } else { told.high_watermark };
        cached.log_start_offset = told.log_start_offset;
        if told.has_records
            && let Some(cached) = self.order.remove(&place)
        {
            self.put(cached);
        }
        told.has_records || changed || told.special
    }

    fn wanted(&self) -> Vec<(SessionKey, Wanted)> {
        self.order
            .values()
            .map(|cached| (cached.key.clone(), cached.wanted))
            .collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: i32) -> SessionKey {
        SessionKey {
            topic_id: Uuid::ZERO,
            topic: "t".into(),
            partition,
        }
    }

    fn wanted(offset: i64) -> Wanted {
        Wanted {
            offset,
            max_bytes: 100,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            log_start_offset: -1,
        }
    }

    fn told(high_watermark: i64, has_records: bool) -> Told {
        Told {
            high_watermark,
            log_start_offset: 0,
            has_records,
            special: false,
            error: false,
        }
    }

    fn request(session_id: i32, epoch: i32, partitions: &[(i32, i64)]) -> SessionRequest {
        SessionRequest {
            session_id,
            epoch,
            uses_topic_ids: false,
            wanted: partitions
                .iter()
                .map(|&(p, offset)| (key(p), wanted(offset)))
                .collect(),
            forgotten: Vec::new(),
        }
    }

    fn create(
        sessions: &FetchSessions,
        id: i32,
        partitions: i32,
        privileged: bool,
        now: i64,
    ) -> i32 {
        let parts: Vec<_> = (0..partitions)
            .map(|p| (key(p), wanted(0), told(5, false)))
            .collect();
        sessions.create(false, parts.into_iter(), privileged, now, || id)
    }

    fn partitions(context: &Context) -> Vec<(i32, i64)> {
        context
            .wanted()
            .iter()
            .map(|(key, wanted)| (key.partition, wanted.offset))
            .collect()
    }

    #[test]
    fn an_incremental_session() {
        let sessions = FetchSessions::new(10);
        let context = sessions
            .begin(request(0, 0, &[(0, 0), (1, 0), (2, 0)]), 0)
            .unwrap();
        assert!(matches!(context, Context::Full { .. }));
        assert_eq!(create(&sessions, 7, 3, false, 0), 7);

        // Epoch 1, only partition 1 moved: all three are read, in order.
        let context = sessions.begin(request(7, 1, &[(1, 5)]), 1).unwrap();
        assert_eq!(partitions(&context), [(0, 0), (1, 5), (2, 0)]);
        let Context::Incremental {
            session_id: 7,
            epoch: 2,
            ..
        } = context
        else {
            panic!("{context:?}")
        };

        // Unchanged ones are left out; who has records goes to the end.
        let answer = [
            (key(0), told(6, true)),
            (key(1), told(5, false)),
            (key(2), told(6, false)),
        ];
        assert_eq!(
            sessions.changed(7, 2, &answer).unwrap(),
            [true, false, true]
        );
        let mut next = request(7, 2, &[]);
        next.forgotten.push(key(2));
        let context = sessions.begin(next, 2).unwrap();
        assert_eq!(partitions(&context), [(1, 5), (0, 0)]);
    }

    /// An error is told each time, and what comes after it too, though nothing else changed.
    #[test]
    fn errors_are_told_until_they_are_over() {
        let sessions = FetchSessions::new(10);
        create(&sessions, 7, 1, false, 0);
        let failed = Told {
            special: true,
            error: true,
            ..told(-1, false)
        };
        for (epoch, told, expected) in [
            (1, failed, true),
            (2, failed, true),
            (3, told(5, false), true),
            (4, told(5, false), false),
        ] {
            sessions.begin(request(7, epoch, &[]), 0).unwrap();
            assert_eq!(
                sessions.changed(7, epoch + 1, &[(key(0), told)]).unwrap(),
                [expected],
                "{epoch}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_session() {
        let sessions = FetchSessions::new(10);
        assert_eq!(
            sessions.begin(request(7, 1, &[]), 0).unwrap_err(),
            SessionError::NotFound
        );
        create(&sessions, 7, 1, false, 0);
        assert_eq!(
            sessions.begin(request(7, 2, &[]), 0).unwrap_err(),
            SessionError::WrongEpoch
        );
        let by_id = SessionRequest {
            uses_topic_ids: true,
            ..request(7, 1, &[])
        };
        assert_eq!(
            sessions.begin(by_id, 0).unwrap_err(),
            SessionError::TopicIds
        );
        // The same session used by another connection while this one was parked.
        sessions.begin(request(7, 1, &[]), 0).unwrap();
        sessions.begin(request(7, 2, &[]), 0).unwrap();
        assert_eq!(
            sessions.changed(7, 2, &[]).unwrap_err(),
            SessionError::WrongEpoch
        );
    }

    #[test]
    fn closing() {
        let sessions = FetchSessions::new(10);
        create(&sessions, 7, 1, false, 0);
        let context = sessions.begin(request(7, FINAL_EPOCH, &[]), 0).unwrap();
        assert!(matches!(context, Context::Sessionless(_)));
        assert!(sessions.is_empty());
        // All partitions forgotten closes it too.
        create(&sessions, 8, 1, false, 0);
        let mut all = request(8, 1, &[]);
        all.forgotten.push(key(0));
        assert!(matches!(
            sessions.begin(all, 0).unwrap(),
            Context::Sessionless(_)
        ));
        assert!(sessions.is_empty());
        // A new full request with the old id replaces it.
        create(&sessions, 9, 1, false, 0);
        sessions
            .begin(request(9, INITIAL_EPOCH, &[(0, 0)]), 0)
            .unwrap();
        assert!(sessions.is_empty());
    }

    #[test]
    fn room_is_made_by_age_then_by_size() {
        let sessions = FetchSessions::new(2);
        assert_eq!(create(&sessions, 1, 3, false, 0), 1);
        assert_eq!(create(&sessions, 2, 5, false, 0), 2);
        // Nobody has existed for two minutes.
        assert_eq!(create(&sessions, 3, 9, false, 60_000), NO_SESSION);
        // A follower takes a consumer's, the smallest.
        assert_eq!(create(&sessions, 3, 9, true, 60_000), 3);
        // The other is used, but old: a larger one takes it, a smaller one does not.
        sessions.begin(request(2, 1, &[]), 100_000).unwrap();
        assert_eq!(create(&sessions, 4, 4, false, 121_000), NO_SESSION);
        assert_eq!(create(&sessions, 4, 6, false, 121_000), 4);
        // The follower's has not been used for two minutes.
        assert_eq!(create(&sessions, 5, 1, false, 181_000), 5);
        assert_eq!(sessions.len(), 2);
    }

    #[test]
    fn epochs_wrap_without_the_special_ones() {
        assert_eq!(next_epoch(i32::MAX), 1);
        assert_eq!(next_epoch(0), 1);
        assert_eq!(next_epoch(-1), -1);
    }
}
