//! The partitions of one session.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::{INITIAL_EPOCH, SessionKey, Told, Wanted, next_epoch};

#[derive(Debug, Clone)]
pub(super) struct Cached {
    pub(super) key: SessionKey,
    pub(super) wanted: Wanted,
    /// -1: to be sent whatever the next answer is.
    pub(super) high_watermark: i64,
    pub(super) log_start_offset: i64,
}

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) uses_topic_ids: bool,
    pub(super) epoch: i32,
    /// In the order in which they are read: who got records goes to the end.
    pub(super) order: BTreeMap<u64, Cached>,
    places: HashMap<SessionKey, u64>,
    next_place: u64,
}

impl Session {
    pub(super) fn new(uses_topic_ids: bool) -> Self {
        Self {
            uses_topic_ids,
            epoch: next_epoch(INITIAL_EPOCH),
            order: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        }
    }

    pub(super) fn put(&mut self, cached: Cached) {
        self.places.insert(cached.key.clone(), self.next_place);
        self.order.insert(self.next_place, cached);
        self.next_place += 1;
    }

    /// Adds a partition or changes what is wanted of it; its place stays.
    pub(super) fn want(&mut self, key: SessionKey, wanted: Wanted) {
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

    pub(super) fn forget(&mut self, key: &SessionKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Notes what is about to be told; true if it has to be.
    pub(super) fn tell(&mut self, key: &SessionKey, told: &Told) -> bool {
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

    pub(super) fn wanted(&self) -> Vec<(SessionKey, Wanted)> {
        self.order
            .values()
            .map(|cached| (cached.key.clone(), cached.wanted))
            .collect()
    }
}
