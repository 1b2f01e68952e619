//! Who watches what. No I/O: a trigger says whom to tell.
//!
//! Two tables as in ZooKeeper: `data` (getData, exists, persistent, recursive) and `child` (getChildren, persistent).
//! A connection has at most one entry a table and path; its modes add up.

use gracchus_zk_proto::{AddWatchMode, WatcherType};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

/// A connection, by a number that is never reused.
pub type ConnId = u64;

const STANDARD: u8 = 1;
const PERSISTENT: u8 = 2;
const RECURSIVE: u8 = 4;

/// One of the two tables.
#[derive(Debug, Default)]
struct Table {
    by_path: HashMap<Arc<str>, Vec<(ConnId, u8)>>,
    by_conn: HashMap<ConnId, HashSet<Arc<str>>>,
    /// Entries with the recursive mode: none spares the walk up at each trigger.
    recursive: usize,
}

impl Table {
    fn add(&mut self, path: &str, conn: ConnId, mode: u8) {
        let paths = self.by_conn.entry(conn).or_default();
        let (key, watchers) = match self.by_path.get_key_value(path) {
            Some((key, _)) => {
                let key = key.clone();
                (key, self.by_path.get_mut(path))
            }
            None => {
                let key: Arc<str> = path.into();
                self.by_path.insert(key.clone(), Vec::new());
                (key, self.by_path.get_mut(path))
            }
        };
        let Some(watchers) = watchers else { return };
        let mut added = mode;
        if paths.insert(key) {
            watchers.push((conn, mode));
        } else if let Some((_, modes)) = watchers.iter_mut().find(|(id, _)| *id == conn) {
            added = mode & !*modes;
            *modes |= mode;
        }
        if added & RECURSIVE != 0 {
            self.recursive += 1;
        }
    }

    /// Takes `modes` away; true if one of them was there.
    fn remove(&mut self, path: &str, conn: ConnId, modes: u8) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let Some(at) = watchers.iter().position(|(id, _)| *id == conn) else {
            return false;
        };
        let Some((_, had)) = watchers.get_mut(at) else {
            return false;
        };
        let gone = *had & modes;
        *had &= !modes;
        if gone & RECURSIVE != 0 {
            self.recursive -= 1;
        }
        if *had == 0 {
            watchers.swap_remove(at);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            self.forget(conn, path);
        }
        gone != 0
    }

    fn forget(&mut self, conn: ConnId, path: &str) {
        if let Some(paths) = self.by_conn.get_mut(&conn) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
    }

    fn has(&self, path: &str, conn: ConnId, modes: u8) -> bool {
        self.by_conn
            .get(&conn)
            .is_some_and(|paths| paths.contains(path))
            && self
                .by_path
                .get(path)
                .and_then(|watchers| watchers.iter().find(|(id, _)| *id == conn))
                .is_some_and(|(_, had)| had & modes != 0)
    }

    fn remove_conn(&mut self, conn: ConnId) {
        for path in self.by_conn.remove(&conn).unwrap_or_default() {
            let Some(watchers) = self.by_path.get_mut(&path) else {
                continue;
            };
            if let Some(at) = watchers.iter().position(|(id, _)| *id == conn) {
                let (_, modes) = watchers.swap_remove(at);
                if modes & RECURSIVE != 0 {
                    self.recursive -= 1;
                }
            }
            if watchers.is_empty() {
                self.by_path.remove(&path);
            }
        }
    }

    /// Appends whom a change at `path` concerns, each once, and drops their standard watches.
    fn trigger(&mut self, path: &str, told: &mut Vec<ConnId>) {
        let from = told.len();
        if let Some(watchers) = self.by_path.get_mut(path) {
            told.extend(watchers.iter().map(|(conn, _)| *conn));
            let mut spent = Vec::new();
            watchers.retain_mut(|(conn, modes)| {
                *modes &= !STANDARD;
                if *modes == 0 {
                    spent.push(*conn);
                }
                *modes != 0
            });
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            for conn in spent {
                self.forget(conn, path);
            }
        }
        if self.recursive == 0 {
            return;
        }
        let mut rest = path;
        while let Some(at) = rest.rfind('/') {
            let above = if at == 0 {
                "/"
            } else {
                rest.get(..at).unwrap_or("/")
            };
            if above.len() == rest.len() {
                break;
            }
            if let Some(watchers) = self.by_path.get(above) {
                for (conn, modes) in watchers {
                    if modes & RECURSIVE != 0 && !told.iter().skip(from).any(|id| id == conn) {
                        told.push(*conn);
                    }
                }
            }
            rest = above;
        }
    }
}

/// All watches of the server.
#[derive(Debug, Default)]
pub struct Watches {
    data: Table,
    child: Table,
}

impl Watches {
    /// A one-shot watch of getData or exists.
    pub fn add_data(&mut self, path: &str, conn: ConnId) {
        self.data.add(path, conn, STANDARD);
    }

    /// A one-shot watch of getChildren.
    pub fn add_child(&mut self, path: &str, conn: ConnId) {
        self.child.add(path, conn, STANDARD);
    }

    pub fn add(&mut self, path: &str, conn: ConnId, mode: AddWatchMode) {
        match mode {
            AddWatchMode::Persistent => {
                self.data.add(path, conn, PERSISTENT);
                self.child.add(path, conn, PERSISTENT);
            }
            AddWatchMode::PersistentRecursive => self.data.add(path, conn, RECURSIVE),
        }
    }

    /// removeWatches: false if there was none of that type.
    pub fn remove(&mut self, path: &str, conn: ConnId, kind: WatcherType) -> bool {
        let all = STANDARD | PERSISTENT | RECURSIVE;
        let (data, child) = match kind {
            WatcherType::Children => (0, STANDARD),
            WatcherType::Data => (STANDARD, 0),
            WatcherType::Any => (all, all),
            WatcherType::Persistent => (PERSISTENT, PERSISTENT),
            WatcherType::PersistentRecursive => (RECURSIVE, 0),
        };
        let in_data = data != 0 && self.data.remove(path, conn, data);
        let in_child = child != 0 && self.child.remove(path, conn, child);
        in_data || in_child
    }

    /// checkWatches.
    pub fn has(&self, path: &str, conn: ConnId, kind: WatcherType) -> bool {
        let all = STANDARD | PERSISTENT | RECURSIVE;
        match kind {
            WatcherType::Children => self.child.has(path, conn, STANDARD),
            WatcherType::Data => self.data.has(path, conn, STANDARD),
            WatcherType::Any => self.data.has(path, conn, all) || self.child.has(path, conn, all),
            WatcherType::Persistent => self.data.has(path, conn, PERSISTENT),
            WatcherType::PersistentRecursive => self.data.has(path, conn, RECURSIVE),
        }
    }

    pub fn remove_conn(&mut self, conn: ConnId) {
        self.data.remove_conn(conn);
        self.child.remove_conn(conn);
    }

    /// Appends whom a created, changed or deleted node concerns.
    pub fn trigger_data(&mut self, path: &str, told: &mut Vec<ConnId>) {
        self.data.trigger(path, told);
    }

    /// Appends whom a change of the list of children concerns.
    pub fn trigger_child(&mut self, path: &str, told: &mut Vec<ConnId>) {
        self.child.trigger(path, told);
    }

    pub fn is_empty(&self) -> bool {
        self.data.by_path.is_empty() && self.child.by_path.is_empty()
    }

    /// Watches in both tables.
    pub fn count(&self) -> usize {
        let of = |table: &Table| table.by_conn.values().map(HashSet::len).sum::<usize>();
        of(&self.data) + of(&self.child)
    }

    /// For wchs: connections that watch, watched paths and watches, of the data table alone as in ZooKeeper.
    pub fn summary(&self) -> (usize, usize, usize) {
        let total = self.data.by_conn.values().map(HashSet::len).sum();
        (self.data.by_conn.len(), self.data.by_path.len(), total)
    }

    /// For wchc: connections and their paths, of the data table.
    pub fn by_conn(&self) -> impl Iterator<Item = (ConnId, impl Iterator<Item = &Arc<str>>)> {
        self.data
            .by_conn
            .iter()
            .map(|(conn, paths)| (*conn, paths.iter()))
    }

    /// For wchp: paths and the connections that watch them, of the data table.
    pub fn by_path(&self) -> impl Iterator<Item = (&Arc<str>, impl Iterator<Item = ConnId>)> {
        self.data
            .by_path
            .iter()
            .map(|(path, watchers)| (path, watchers.iter().map(|(conn, _)| *conn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(watches: &mut Watches, path: &str) -> Vec<ConnId> {
        let mut told = Vec::new();
        watches.trigger_data(path, &mut told);
        told.sort();
        told
    }

    #[test]
    fn one_shot_watches_fire_once() {
        let mut w = Watches::default();
        w.add_data("/a", 1);
        w.add_data("/a", 1);
        w.add_data("/a", 2);
        assert_eq!(data(&mut w, "/a"), [1, 2]);
        assert!(data(&mut w, "/a").is_empty());
        assert!(w.is_empty());
    }

    #[test]
    fn persistent_ones_stay_beside_standard_ones() {
        let mut w = Watches::default();
        w.add("/a", 1, AddWatchMode::Persistent);
        w.add_data("/a", 1);
        assert_eq!(data(&mut w, "/a"), [1]);
        assert_eq!(data(&mut w, "/a"), [1]);
        assert!(!w.remove("/a", 1, WatcherType::Data));
        assert!(w.remove("/a", 1, WatcherType::Persistent));
        assert!(w.is_empty());
    }

    #[test]
    fn recursive_ones_hear_of_descendants_once() {
        let mut w = Watches::default();
        w.add("/", 3, AddWatchMode::PersistentRecursive);
        w.add("/a", 1, AddWatchMode::PersistentRecursive);
        w.add("/a", 1, AddWatchMode::PersistentRecursive);
        w.add_data("/a/b", 1);
        assert_eq!(data(&mut w, "/a/b"), [1, 3]);
        assert_eq!(data(&mut w, "/a/b/c"), [1, 3]);
        assert_eq!(data(&mut w, "/ab"), [3]);
        assert_eq!(data(&mut w, "/"), [3]);
        w.remove_conn(3);
        assert!(w.remove("/a", 1, WatcherType::PersistentRecursive));
        assert_eq!(w.data.recursive, 0);
        assert!(w.is_empty());
    }

    #[test]
    fn dropping_a_connection_drops_its_watches() {
        let mut w = Watches::default();
        for i in 0..100 {
            w.add_data(&format!("/n{i}"), 1);
            w.add_child(&format!("/n{i}"), 2);
        }
        w.remove_conn(1);
        assert_eq!(w.count(), 100);
        w.remove_conn(2);
        assert!(w.is_empty());
    }
}
