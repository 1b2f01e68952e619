//! The log directories: locks, identity, online or offline.

use crate::error::StartError;
use std::path::PathBuf;

/// What the directories say about whom they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredIdentity {
    pub cluster_id: Option<String>,
    pub broker_id: Option<i32>,
}

/// `log.dirs`, locked for this process.
#[derive(Debug)]
pub struct LogDirs {
    _private: (),
}

#[allow(unused_variables, clippy::todo)]
impl LogDirs {
    /// Creates what is missing, locks each, reads meta.properties; changes nothing else. A directory that fails for an
    /// I/O error is offline; a lock held by another process fails all.
    pub fn open(dirs: &[PathBuf]) -> Result<Self, StartError> {
        todo!()
    }
    /// From meta.properties of all directories, which agree.
    pub fn identity(&self) -> &StoredIdentity {
        todo!()
    }
    /// Compares with ZooKeeper's cluster id and the configured broker id.
    pub fn check_identity(&self, cluster_id: &str, broker_id: i32) -> Result<(), StartError> {
        todo!()
    }
    /// Writes meta.properties where it is missing or incomplete; call when the start is sure to go on.
    pub fn write_identity(
        &self,
        cluster_id: &str,
        broker_id: i32,
        now_ms: i64,
    ) -> Result<(), StartError> {
        todo!()
    }
}
