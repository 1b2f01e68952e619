//! The tree of znodes and the sessions that own its ephemerals: what transactions change and snapshots keep. No I/O.

mod acl_cache;
mod apply;
mod node;
mod quota;

pub use acl_cache::{AclCache, OPEN_KEY};
pub use apply::{Applied, Change};
pub use node::{CONTAINER_OWNER, Kind, MAX_TTL_MS, Node};
pub use quota::{Limits, Usage};

use crate::acl::AclList;
use crate::path;
use bytes::Bytes;
use gracchus_zk_proto::Acl;
use gracchus_zk_proto::data::StatPersisted;
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

/// All znodes by path (the root by the empty one), and what must be found quickly about them.
///
/// Invariants: every node but the root has its parent in the tree; `ephemerals`, `containers` and `ttls` name exactly the nodes of that kind.
#[derive(Debug)]
pub struct DataTree {
    pub(crate) nodes: HashMap<Arc<str>, Node>,
    acls: AclCache,
    /// Paths by owning session.
    ephemerals: HashMap<i64, HashSet<Arc<str>>>,
    containers: HashSet<Arc<str>>,
    ttls: HashSet<Arc<str>>,
    /// Paths that have a quota.
    quotas: HashSet<Arc<str>>,
    /// Live sessions and their timeouts, ms.
    sessions: HashMap<i64, i32>,
    last_zxid: i64,
    data_size: u64,
}

impl Default for DataTree {
    fn default() -> Self {
        Self::new()
    }
}

impl DataTree {
    /// A new server's tree: the root and ZooKeeper's own nodes.
    pub fn new() -> Self {
        let mut tree = Self::empty();
        let open = tree.acls.open();
        for key in ["", "/zookeeper", "/zookeeper/quota"] {
            tree.restore(
                key.into(),
                Some(Bytes::new()),
                open.clone(),
                StatPersisted::default(),
            );
        }
        tree.add_config_node();
        tree
    }

    /// A tree without a node, for loading.
    pub(crate) fn empty() -> Self {
        DataTree {
            nodes: HashMap::new(),
            acls: AclCache::default(),
            ephemerals: HashMap::new(),
            containers: HashSet::new(),
            ttls: HashSet::new(),
            quotas: HashSet::new(),
            sessions: HashMap::new(),
            last_zxid: 0,
            data_size: 0,
        }
    }

    /// `/zookeeper/config` as a standalone server shows it.
    fn add_config_node(&mut self) {
        let acl = self.acls.intern(Acl::read_only());
        let stat = StatPersisted {
            aversion: -1,
            ..StatPersisted::default()
        };
        self.restore("/zookeeper/config".into(), Some(Bytes::new()), acl, stat);
    }

    /// Adds ZooKeeper's own nodes where a loaded snapshot lacks them.
    pub(crate) fn ensure_built_in(&mut self) {
        let open = self.acls.open();
        for key in ["", "/zookeeper", "/zookeeper/quota"] {
            if !self.nodes.contains_key(key) {
                self.restore(
                    key.into(),
                    Some(Bytes::new()),
                    open.clone(),
                    StatPersisted::default(),
                );
            }
        }
        if !self.nodes.contains_key("/zookeeper/config") {
            self.add_config_node();
        }
    }

    /// Puts a node in place as a snapshot holds it; its parent's stat is not touched. False if the parent is missing.
    pub(crate) fn restore(
        &mut self,
        key: Arc<str>,
        data: Option<Bytes>,
        acl: Arc<AclList>,
        stat: StatPersisted,
    ) -> bool {
        if !key.is_empty() {
            let parent = path::parent(&key).and_then(|parent| self.nodes.get_mut(parent));
            let Some(parent) = parent else {
                return false;
            };
            parent.add_child(key.clone());
        }
        self.index(&key, Kind::from_owner(stat.ephemeral_owner));
        self.data_size += size_of(&key, &data);
        let children = self.nodes.remove(&key).and_then(|old| old.children);
        let node = Node {
            data,
            acl,
            stat,
            children,
        };
        self.nodes.insert(key, node);
        true
    }

    pub(crate) fn restore_session(&mut self, session: i64, timeout_ms: i32) {
        self.sessions.insert(session, timeout_ms);
    }

    pub(crate) fn restore_acl(&mut self, key: i64, entries: Vec<Acl>) -> Arc<AclList> {
        self.acls.restore(key, entries)
    }

    pub(crate) fn set_last_zxid(&mut self, zxid: i64) {
        self.last_zxid = zxid;
    }

    fn index(&mut self, key: &Arc<str>, kind: Kind) {
        match kind {
            Kind::Persistent => {}
            Kind::Ephemeral(session) => {
                self.ephemerals
                    .entry(session)
                    .or_default()
                    .insert(key.clone());
            }
            Kind::Container => {
                self.containers.insert(key.clone());
            }
            Kind::Ttl(_) => {
                self.ttls.insert(key.clone());
            }
        }
    }

    fn unindex(&mut self, key: &str, kind: Kind) {
        match kind {
            Kind::Persistent => {}
            Kind::Ephemeral(session) => {
                if let Some(paths) = self.ephemerals.get_mut(&session) {
                    paths.remove(key);
                    if paths.is_empty() {
                        self.ephemerals.remove(&session);
                    }
                }
            }
            Kind::Container => {
                self.containers.remove(key);
            }
            Kind::Ttl(_) => {
                self.ttls.remove(key);
            }
        }
    }

    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path::key(path))
    }

    /// The zxid of the last transaction applied.
    pub fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// Real nodes, the root included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of paths and data.
    pub fn approximate_data_size(&self) -> u64 {
        self.data_size
    }

    pub fn sessions(&self) -> &HashMap<i64, i32> {
        &self.sessions
    }

    /// The lists in use, as snapshots number them.
    pub fn acls(&self) -> &AclCache {
        &self.acls
    }

    pub fn drop_unused_acls(&mut self) {
        self.acls.drop_unused();
    }

    /// The paths of a session's ephemerals.
    pub fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// All sessions that own ephemerals, with their paths.
    pub fn ephemerals(&self) -> impl Iterator<Item = (i64, impl Iterator<Item = &Arc<str>>)> {
        self.ephemerals
            .iter()
            .map(|(session, paths)| (*session, paths.iter()))
    }

    pub fn ephemeral_count(&self) -> usize {
        self.ephemerals.values().map(HashSet::len).sum()
    }

    /// Descendants of a node at all levels.
    pub fn descendants(&self, node: &Node) -> usize {
        let mut count = 0;
        let mut open: Vec<&Arc<str>> = node.child_paths().collect();
        while let Some(key) = open.pop() {
            count += 1;
            if let Some(node) = self.nodes.get(key) {
                open.extend(node.child_paths());
            }
        }
        count
    }

    /// Containers that have had a child and have none now, and TTL nodes whose time is up, at most `limit`.
    pub fn removable(&self, now_ms: i64, limit: usize) -> Vec<Arc<str>> {
        let containers = self.containers.iter().filter(|key| {
            self.nodes
                .get(*key)
                .is_some_and(|node| node.stat.cversion > 0 && node.child_count() == 0)
        });
        let expired = self.ttls.iter().filter(|key| {
            self.nodes.get(*key).is_some_and(|node| match node.kind() {
                Kind::Ttl(ttl) => {
                    node.child_count() == 0 && now_ms.saturating_sub(node.stat.mtime) > ttl
                }
                _ => false,
            })
        });
        containers.chain(expired).take(limit).cloned().collect()
    }
}

fn size_of(key: &str, data: &Option<Bytes>) -> u64 {
    (key.len() + data.as_ref().map_or(0, Bytes::len)) as u64
}
