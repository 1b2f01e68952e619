//! One znode.

use crate::acl::AclList;
use crate::path;
use bytes::Bytes;
use gracchus_zk_proto::Stat;
use gracchus_zk_proto::data::StatPersisted;
use hashbrown::DefaultHashBuilder;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Owner of a container.
pub const CONTAINER_OWNER: i64 = i64::MIN;
/// Longest time to live, ms: 40 bits.
pub const MAX_TTL_MS: i64 = (1 << 40) - 1;
const TTL_MARK: i64 = 0xff << 56;

/// What kind of node an owner field stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Persistent,
    /// Goes with this session.
    Ephemeral(i64),
    Container,
    /// Goes when it has had no child and no change for this long, ms.
    Ttl(i64),
}

impl Kind {
    pub fn from_owner(owner: i64) -> Self {
        match owner {
            0 => Kind::Persistent,
            CONTAINER_OWNER => Kind::Container,
            owner if owner & TTL_MARK == TTL_MARK => Kind::Ttl(owner & MAX_TTL_MS),
            session => Kind::Ephemeral(session),
        }
    }

    pub fn owner(self) -> i64 {
        match self {
            Kind::Persistent => 0,
            Kind::Ephemeral(session) => session,
            Kind::Container => CONTAINER_OWNER,
            Kind::Ttl(ttl) => TTL_MARK | ttl,
        }
    }
}

/// A znode. `stat.cversion` counts the creates of children, as on disk.
#[derive(Debug)]
pub struct Node {
    /// Null and empty differ.
    pub data: Option<Bytes>,
    pub acl: Arc<AclList>,
    pub stat: StatPersisted,
    pub(super) children: Option<Box<Children>>,
}

impl Node {
    pub fn kind(&self) -> Kind {
        Kind::from_owner(self.stat.ephemeral_owner)
    }

    pub fn child_count(&self) -> i32 {
        self.children.as_ref().map_or(0, |children| {
            i32::try_from(children.table.len()).unwrap_or(i32::MAX)
        })
    }

    /// The names of the children, in no order.
    pub fn child_names(&self) -> impl Iterator<Item = &str> {
        self.child_paths().map(|child| path::name(child))
    }

    /// The full paths of the children.
    pub fn child_paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.children
            .iter()
            .flat_map(|children| children.table.iter())
    }

    /// The stat that clients see: cversion counts creates and deletes, marks of containers and TTL nodes are hidden.
    pub fn wire_stat(&self) -> Stat {
        let s = &self.stat;
        let num_children = self.child_count();
        Stat {
            czxid: s.czxid,
            mzxid: s.mzxid,
            ctime: s.ctime,
            mtime: s.mtime,
            version: s.version,
            cversion: s.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: s.aversion,
            ephemeral_owner: match self.kind() {
                Kind::Ephemeral(session) => session,
                _ => 0,
            },
            data_length: self
                .data
                .as_ref()
                .map_or(0, |data| i32::try_from(data.len()).unwrap_or(i32::MAX)),
            num_children,
            pzxid: s.pzxid,
        }
    }

    pub(super) fn add_child(&mut self, child: Arc<str>) {
        self.children.get_or_insert_default().insert(child);
    }

    pub(super) fn remove_child(&mut self, child: &str) {
        if let Some(children) = &mut self.children {
            children.remove(child);
            if children.table.is_empty() {
                self.children = None;
            }
        }
    }
}

/// Children by full path; the paths are the very allocations that key the tree.
#[derive(Debug, Default)]
pub(super) struct Children {
    table: HashTable<Arc<str>>,
    hasher: DefaultHashBuilder,
}

impl Children {
    fn insert(&mut self, child: Arc<str>) {
        let Children { table, hasher } = self;
        let hash = hasher.hash_one(&*child);
        table
            .entry(
                hash,
                |known| **known == *child,
                |known| hasher.hash_one(&**known),
            )
            .or_insert(child);
    }

    fn remove(&mut self, child: &str) {
        let hash = self.hasher.hash_one(child);
        if let Ok(entry) = self.table.find_entry(hash, |known| **known == *child) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_on_disk() {
        assert_eq!(CONTAINER_OWNER as u64, 0x8000_0000_0000_0000);
        assert_eq!(Kind::Ttl(5).owner() as u64, 0xff00_0000_0000_0005);
        for kind in [
            Kind::Persistent,
            Kind::Ephemeral(0x1_0000),
            Kind::Container,
            Kind::Ttl(MAX_TTL_MS),
        ] {
            assert_eq!(Kind::from_owner(kind.owner()), kind);
        }
    }
}
