//! What a znode carries beside its data: stat, ACL, creation mode.

use crate::jute::record;

/// Permission bits of an ACL entry.
pub mod perms {
    pub const READ: i32 = 1;
    pub const WRITE: i32 = 2;
    pub const CREATE: i32 = 4;
    pub const DELETE: i32 = 8;
    pub const ADMIN: i32 = 16;
    pub const ALL: i32 = 31;
}

record! {
    /// Who: a scheme (`world`, `digest`, `ip`, `sasl`, ...) and an id in it.
    #[derive(Hash)]
    pub struct Id { pub scheme: String, pub id: String }
}

record! {
    /// One entry of an access control list.
    #[derive(Hash)]
    pub struct Acl { pub perms: i32, pub id: Id }
}

impl Acl {
    pub fn new(perms: i32, scheme: &str, id: &str) -> Self {
        Acl {
            perms,
            id: Id {
                scheme: scheme.into(),
                id: id.into(),
            },
        }
    }

    /// `world:anyone` with all permissions.
    pub fn open() -> Vec<Acl> {
        vec![Acl::new(perms::ALL, "world", "anyone")]
    }

    /// `world:anyone` with read permission only.
    pub fn read_only() -> Vec<Acl> {
        vec![Acl::new(perms::READ, "world", "anyone")]
    }
}

record! {
    /// A znode's stat as clients see it. Times in ms since the epoch; `cversion` counts creates and deletes of children.
    #[derive(Copy)]
    pub struct Stat {
        pub czxid: i64,
        pub mzxid: i64,
        pub ctime: i64,
        pub mtime: i64,
        pub version: i32,
        pub cversion: i32,
        pub aversion: i32,
        pub ephemeral_owner: i64,
        pub data_length: i32,
        pub num_children: i32,
        pub pzxid: i64,
    }
}

record! {
    /// A znode's stat as snapshots keep it; `cversion` counts creates only, `ephemeral_owner` is the raw marker.
    #[derive(Copy)]
    pub struct StatPersisted {
        pub czxid: i64,
        pub mzxid: i64,
        pub ctime: i64,
        pub mtime: i64,
        pub version: i32,
        pub cversion: i32,
        pub aversion: i32,
        pub ephemeral_owner: i64,
        pub pzxid: i64,
    }
}

/// What kind of znode a create makes; the number is the request's `flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum CreateMode {
    Persistent = 0,
    Ephemeral = 1,
    PersistentSequential = 2,
    EphemeralSequential = 3,
    Container = 4,
    PersistentWithTtl = 5,
    PersistentSequentialWithTtl = 6,
}

impl CreateMode {
    pub fn from_flags(flags: i32) -> Option<Self> {
        Some(match flags {
            0 => Self::Persistent,
            1 => Self::Ephemeral,
            2 => Self::PersistentSequential,
            3 => Self::EphemeralSequential,
            4 => Self::Container,
            5 => Self::PersistentWithTtl,
            6 => Self::PersistentSequentialWithTtl,
            _ => return None,
        })
    }

    pub fn flags(self) -> i32 {
        self as i32
    }

    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialWithTtl
        )
    }

    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    pub fn has_ttl(self) -> bool {
        matches!(
            self,
            Self::PersistentWithTtl | Self::PersistentSequentialWithTtl
        )
    }
}
