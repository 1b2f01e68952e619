//! Typed reads and writes of Kafka's znodes over one ZooKeeper session.
//!
//! [`batch`] runs plain operations pipelined and sends them again after a lost connection; the others say them in Kafka's
//! terms: [`tree`] (paths made at start), [`brokers`], [`topics`], [`configs`], [`election`], [`notices`],
//! [`producer_ids`].

mod batch;
mod brokers;
mod configs;
mod election;
mod notices;
mod producer_ids;
mod topics;
mod tree;

pub use brokers::{LiveBroker, RegisterOutcome, end_session};
pub use election::{ControllerOf, Election};
pub use topics::{NewTopic, StoredTopic};
pub use tree::create_chroot;

use crate::json::ZnodeError;
use crate::op::{ZkFailure, ZkReply};
use bytes::Bytes;
use gracchus_zk_client::{Acl, Stat, ZkClient, ZkError, perms};

/// Kafka's znodes, read and written through one session. Clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    zk: ZkClient,
    secure: bool,
}

/// Why a registry call failed; names the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("ZooKeeper answered {error} for {path}")]
    Zk { path: String, error: ZkError },
    #[error(
        "{path} cannot be read: {source}. Repair the node's content (gracchus zk set {path} ...)"
    )]
    Content { path: String, source: ZnodeError },
    #[error("{0}")]
    Login(String),
    /// Retriable: configs are written only while a ZooKeeper-mode controller is elected.
    #[error("no controller is elected at present; try again")]
    NoController,
    /// Retriable once the migration has ended.
    #[error(
        "the cluster is controlled by a KRaft controller (migration); its configs cannot be written through ZooKeeper"
    )]
    KraftController,
    #[error("topic {0} is marked for deletion; wait until it is gone")]
    MarkedForDeletion(String),
    #[error("the producer ids of this cluster have run out")]
    OutOfProducerIds,
}

impl RegistryError {
    /// ZooKeeper's error, if it is one.
    pub fn zk(&self) -> Option<ZkError> {
        match self {
            Self::Zk { error, .. } => Some(*error),
            _ => None,
        }
    }
}

fn zk_error(path: &str, failure: impl Into<ZkFailure>) -> RegistryError {
    RegistryError::Zk {
        path: path.to_owned(),
        error: failure.into().error,
    }
}

fn content<T>(path: &str, parsed: Result<T, ZnodeError>) -> Result<T, RegistryError> {
    parsed.map_err(|source| RegistryError::Content {
        path: path.to_owned(),
        source,
    })
}

/// A read node: its data and stat.
fn data_of(
    path: &str,
    result: crate::op::ZkResult,
) -> Result<Option<(Bytes, Stat)>, RegistryError> {
    match result {
        Ok(ZkReply::Data { data, stat }) => Ok(Some((data.unwrap_or_default(), stat))),
        Ok(_) => Err(zk_error(path, ZkError::SystemError)),
        Err(failure) if failure.error == ZkError::NoNode => Ok(None),
        Err(failure) => Err(zk_error(path, failure)),
    }
}

impl Registry {
    /// `secure` is `zookeeper.set.acl`.
    pub fn new(zk: ZkClient, secure: bool) -> Self {
        Registry { zk, secure }
    }

    pub fn zk(&self) -> &ZkClient {
        &self.zk
    }

    /// The ACL of a node that is made now.
    pub fn acl_for(&self, path: &str) -> Vec<Acl> {
        if !self.secure || path == crate::paths::CONSUMERS {
            return Acl::open();
        }
        let mut acl = vec![Acl::new(perms::ALL, "auth", "")];
        if !crate::paths::is_sensitive(path) {
            acl.extend(Acl::read_only());
        }
        acl
    }
}
