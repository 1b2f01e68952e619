//! Why a broker does not start; each text is one paragraph that ends in what to do.

use thiserror::Error;

use crate::config::ConfigError;
use crate::net::server::BindError;

/// A start that failed.
#[derive(Debug, Error)]
pub enum LifecycleError {
    /// The configuration.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A port.
    #[error("{0}")]
    Bind(#[from] BindError),
    /// A log directory, or what it says about whose it is.
    #[error("{0}")]
    Logs(#[from] gracchus_log::StartError),
    /// ZooKeeper's content or answer.
    #[error("{0}. Is zookeeper.connect right, and may this broker write there?")]
    Registry(#[from] gracchus_registry::RegistryError),
    /// ZooKeeper does not believe who we are.
    #[error("{0}. Correct the login configuration, on whichever side it is wrong.")]
    ZooKeeperLogin(String),
    /// `zookeeper.connect` cannot be read.
    #[error("zookeeper.connect: {0}")]
    ConnectString(String),
    /// `zookeeper.connection.timeout.ms` was set, and has passed.
    #[error(
        "ZooKeeper at {connect} did not answer within zookeeper.connection.timeout.ms={timeout_ms} ({state}). Start it, correct \
         zookeeper.connect, or leave the timeout out: then this broker waits for as long as it takes."
    )]
    NoZooKeeper {
        /// As configured.
        connect: String,
        /// As configured.
        timeout_ms: i32,
        /// What each server says.
        state: String,
    },
    /// The log directories have a cluster, ZooKeeper has none.
    #[error(
        "this ZooKeeper ({connect}) is new: it knows no cluster, while {dirs} belongs to cluster {stored}. {}",
        adopt(.stored)
    )]
    NewZooKeeper {
        /// As configured.
        connect: String,
        /// From meta.properties.
        stored: String,
        /// log.dirs.
        dirs: String,
    },
    /// The log directories have a cluster, ZooKeeper another one, which has only just begun.
    #[error(
        "this ZooKeeper ({connect}) is new: its cluster {found} was made {age_s} s ago and has no topics and {brokers} live brokers, \
         while {dirs} belongs to cluster {stored}. {} Brokers that are registered there must be stopped first.",
        adopt(.stored)
    )]
    NewerZooKeeper {
        /// As configured.
        connect: String,
        /// `/cluster/id`.
        found: String,
        /// Of `/cluster/id`.
        age_s: i64,
        /// From meta.properties.
        stored: String,
        /// log.dirs.
        dirs: String,
        /// In `/brokers/ids`.
        brokers: usize,
    },
    /// Configured and stored id differ.
    #[error(
        "broker.id={configured} is configured, but meta.properties in {path} says broker.id={stored}. Set broker.id={stored} (or remove \
         the key, then the stored one is taken), or point log.dirs at the directories of broker {configured}. Brokers that are live \
         now: {live}."
    )]
    BrokerId {
        /// In server.properties.
        configured: i32,
        /// In meta.properties.
        stored: i32,
        /// log.dirs.
        path: String,
        /// `/brokers/ids`.
        live: String,
    },
    /// The id is in use.
    #[error(
        "broker {id} is alive at {address}: another process serves under this broker.id. Stop it, or give this one another broker.id \
         and its own log.dirs."
    )]
    Alive {
        /// The id.
        id: i32,
        /// Where it answers.
        address: String,
    },
    /// `/brokers/ids/N` is no ephemeral node.
    #[error(
        "/brokers/ids/{id} is not an ephemeral node, so no session's end removes it. No Kafka broker makes it so: delete it \
         (gracchus zk delete /brokers/ids/{id}) and start again."
    )]
    PersistentRegistration {
        /// The id.
        id: i32,
    },
    /// No id can be had.
    #[error(
        "no broker.id: none is configured, none is stored in {path}, and broker.id.generation.enable=false. Set broker.id."
    )]
    NoBrokerId {
        /// log.dirs.
        path: String,
    },
    /// Anything of the system's.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Stopped by a signal before it was up.
    #[error("stopped before it was up")]
    Stopped,
}

/// The two ways on, when the log directories are older than ZooKeeper.
fn adopt(stored: &str) -> String {
    format!(
        "Point zookeeper.connect at the ZooKeeper of cluster {stored} (check the chroot too). If that ZooKeeper is lost for good, start \
         once with --adopt-cluster-id, which writes {stored} to this one; in a cluster of one broker add --adopt-topics, which restores \
         the topics from the log directories. Nothing has to be deleted."
    )
}
