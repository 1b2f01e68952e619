//! `server.properties`, topic configs and their dynamic overlays.
//!
//! Precedence, highest first: `/config/topics/T` (topic keys) > `/config/brokers/N` > `/config/brokers/<default>` >
//! `server.properties` > Kafka's default. [`ConfigStore`] holds all layers and gives typed results:
//! [`ConfigStore::current`] for the broker, [`ConfigStore::topic`] for a topic. Who must act on a change subscribes with
//! [`ConfigStore::changes`].

/// The broker's typed values.
pub mod broker_config;
/// Kafka's definitions of all keys.
pub mod catalogue;
#[cfg(test)]
mod document;
/// Every key's value and where it comes from.
pub mod effective;
/// What can be wrong.
pub mod error;
/// `listeners` and its relatives.
pub mod listeners;
/// From files and the command line to checked values.
pub mod load;
/// `.properties` files by Java's rules.
pub mod properties;
/// What stops the start.
mod refusals;
/// The layers and what follows from them.
pub mod store;
/// A topic's typed values.
pub mod topic_config;
/// One value against its definition.
pub mod validate;
/// Texts to values.
pub mod value;
/// Protocol versions by name.
pub mod version;
/// What is warned about.
pub mod warnings;
/// SASL and TLS to ZooKeeper.
pub mod zookeeper_security;

/// What AlterConfigs may do.
pub mod alter;
/// What DescribeConfigs tells.
pub mod describe;

pub use broker_config::BrokerConfig;
pub use error::ConfigError;
pub use listeners::{Listener, Listeners, SecurityProtocol};
pub use load::{Loaded, Origin, Sources};
pub use store::{Change, ConfigStore};
pub use topic_config::TopicConfig;
pub use version::MetadataVersion;
