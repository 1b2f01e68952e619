//! Lists of nodes, each kept once.

use crate::acl::AclList;
use gracchus_zk_proto::Acl;
use hashbrown::HashMap;
use std::sync::Arc;

/// The number that snapshots use for the implicit open list.
pub const OPEN_KEY: i64 = -1;

/// Lists that may be kept before the unused among them are looked for.
const MIN_SWEEP: usize = 1024;

/// All lists in use, numbered for snapshots from 1 on.
#[derive(Debug)]
pub struct AclCache {
    open: Arc<AclList>,
    by_entries: HashMap<Vec<Acl>, Arc<AclList>>,
    /// The list asked for last: runs of equal lists are the rule.
    last: Arc<AclList>,
    next_key: i64,
    /// With as many lists unused ones are dropped, so that nodes whose lists change all the time don't fill the memory.
    sweep_at: usize,
}

impl Default for AclCache {
    fn default() -> Self {
        let open = Arc::new(AclList::new(OPEN_KEY, Acl::open()));
        AclCache {
            last: open.clone(),
            open,
            by_entries: HashMap::new(),
            next_key: 1,
            sweep_at: MIN_SWEEP,
        }
    }
}

impl AclCache {
    /// The list of the built-in nodes.
    pub fn open(&self) -> Arc<AclList> {
        self.open.clone()
    }

    pub fn intern(&mut self, entries: Vec<Acl>) -> Arc<AclList> {
        if self.last.key != OPEN_KEY && self.last.entries == entries {
            return self.last.clone();
        }
        let list = match self.by_entries.get(&entries) {
            Some(list) => list.clone(),
            None => {
                if self.by_entries.len() >= self.sweep_at {
                    self.drop_unused();
                    self.sweep_at = MIN_SWEEP.max(2 * self.by_entries.len());
                }
                let list = Arc::new(AclList::new(self.next_key, entries.clone()));
                self.next_key += 1;
                self.by_entries.insert(entries, list.clone());
                list
            }
        };
        self.last = list.clone();
        list
    }

    /// Takes over a list under the number that a snapshot gives it.
    pub fn restore(&mut self, key: i64, entries: Vec<Acl>) -> Arc<AclList> {
        self.next_key = self.next_key.max(key.saturating_add(1));
        if let Some(known) = self.by_entries.get(&entries) {
            return known.clone();
        }
        let list = Arc::new(AclList::new(key, entries.clone()));
        self.by_entries.insert(entries, list.clone());
        list
    }

    /// Forgets lists that no node uses any more.
    pub fn drop_unused(&mut self) {
        self.last = self.open.clone();
        self.by_entries
            .retain(|_, list| Arc::strong_count(list) > 1);
    }

    /// All numbered lists.
    pub fn lists(&self) -> Vec<Arc<AclList>> {
        let mut lists: Vec<_> = self.by_entries.values().cloned().collect();
        lists.sort_by_key(|list| list.key);
        lists
    }

    /// A number that no list has.
    pub fn free_key(&self) -> i64 {
        self.next_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_zk_proto::{Id, perms};

    #[test]
    fn lists_that_come_and_go_are_forgotten() {
        let mut cache = AclCache::default();
        let list = |n: usize| {
            let id = Id {
                scheme: "digest".into(),
                id: format!("u{n}:x"),
            };
            vec![Acl {
                perms: perms::ALL,
                id,
            }]
        };
        let kept: Vec<_> = (0..3000).map(|n| cache.intern(list(n))).collect();
        for n in 3000..20_000 {
            cache.intern(list(n));
        }
        assert!(cache.lists().len() < 3000 + 6000);
        for (n, kept) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(kept, &cache.intern(list(n))));
        }
    }
}
