//! Key -> newest offset, in a fixed amount of memory: 24 bytes a slot.
//!
//! Keys are kept as 128-bit hashes keyed at random: two keys of one log meet with a chance that a disk error beats.

use std::hash::{BuildHasher, RandomState};

/// Open addressing; a slot of offset -1 is free.
#[derive(Debug)]
pub struct OffsetMap {
    slots: Vec<(u64, u64, i64)>,
    hashers: (RandomState, RandomState),
    used: usize,
    most: usize,
    latest: i64,
}

const SLOT: usize = size_of::<(u64, u64, i64)>();

impl OffsetMap {
    /// For up to `expected` keys, within `bytes`, filled to `load_factor` at most.
    pub fn new(bytes: usize, load_factor: f64, expected: u64) -> Self {
        let load = load_factor.clamp(0.1, 0.95);
        let wanted = (expected as f64 / load) as usize + 16;
        let slots = wanted.min(bytes / SLOT).max(2);
        Self {
            slots: vec![(0, 0, -1); slots],
            hashers: (RandomState::new(), RandomState::new()),
            used: 0,
            most: ((slots as f64 * load) as usize).clamp(1, slots - 1),
            latest: -1,
        }
    }

    fn place(&self, key: &[u8]) -> (u64, u64, usize) {
        let (a, b) = (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key));
        let mut at = (a % self.slots.len() as u64) as usize;
        while let Some((x, y, offset)) = self.slots.get(at)
            && *offset >= 0
            && (*x, *y) != (a, b)
        {
            at = (at + 1) % self.slots.len();
        }
        (a, b, at)
    }

    /// Notes a key's offset, which is the newest so far. False if the map is full.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let (a, b, at) = self.place(key);
        let full = self.used >= self.most;
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        if slot.2 < 0 {
            if full {
                return false;
            }
            self.used += 1;
        }
        *slot = (a, b, offset);
        self.latest = self.latest.max(offset);
        true
    }

    /// The newest offset of a key; -1 if it is not in the map.
    pub fn get(&self, key: &[u8]) -> i64 {
        let (_, _, at) = self.place(key);
        self.slots.get(at).map_or(-1, |s| s.2)
    }

    /// The last offset that was looked at.
    pub fn latest(&self) -> i64 {
        self.latest
    }

    pub fn note_latest(&mut self, offset: i64) {
        self.latest = self.latest.max(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn as_a_map_until_full() {
        let mut map = OffsetMap::new(100 * SLOT, 0.9, 1 << 30);
        let mut model = HashMap::new();
        let mut refused = 0;
        for offset in 0..400i64 {
            let key = (offset * 7 % 110).to_string();
            if map.put(key.as_bytes(), offset) {
                model.insert(key, offset);
            } else {
                refused += 1;
            }
        }
        assert!(refused > 0 && map.used == 90 && model.len() == 90);
        for (key, offset) in &model {
            assert_eq!(map.get(key.as_bytes()), *offset);
        }
        assert_eq!(map.get(b"never"), -1);
    }
}
