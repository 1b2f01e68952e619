//! Configurations of topics and brokers.

use super::{Admin, Each};
use crate::ClientError;
use gracchus_kafka_proto::messages::describe_configs_request::DescribeConfigsResource;
use gracchus_kafka_proto::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use gracchus_kafka_proto::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

/// Numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i8)]
pub enum ResourceType {
    Topic = 2,
    Broker = 4,
    BrokerLogger = 8,
}

/// A topic by name; a broker by its id as text, or "" for the cluster-wide default.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigResource {
    pub kind: ResourceType,
    pub name: String,
}

impl ConfigResource {
    pub fn topic(name: &str) -> Self {
        ConfigResource {
            kind: ResourceType::Topic,
            name: name.to_owned(),
        }
    }

    pub fn broker(name: &str) -> Self {
        ConfigResource {
            kind: ResourceType::Broker,
            name: name.to_owned(),
        }
    }

    /// Only a broker itself knows its own configuration; the rest any broker knows.
    fn home(&self) -> Option<i32> {
        match self.kind {
            ResourceType::Topic => None,
            ResourceType::Broker | ResourceType::BrokerLogger => self.name.parse().ok(),
        }
    }
}

/// Where a value comes from, the strongest last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    Unknown,
    DynamicTopicConfig,
    DynamicBrokerConfig,
    DynamicDefaultBrokerConfig,
    StaticBrokerConfig,
    DefaultConfig,
    DynamicBrokerLoggerConfig,
}

impl ConfigSource {
    fn from_id(id: i8) -> Self {
        match id {
            1 => ConfigSource::DynamicTopicConfig,
            2 => ConfigSource::DynamicBrokerConfig,
            3 => ConfigSource::DynamicDefaultBrokerConfig,
            4 => ConfigSource::StaticBrokerConfig,
            5 => ConfigSource::DefaultConfig,
            6 => ConfigSource::DynamicBrokerLoggerConfig,
            _ => ConfigSource::Unknown,
        }
    }

    /// As Kafka's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            ConfigSource::Unknown => "UNKNOWN",
            ConfigSource::DynamicTopicConfig => "DYNAMIC_TOPIC_CONFIG",
            ConfigSource::DynamicBrokerConfig => "DYNAMIC_BROKER_CONFIG",
            ConfigSource::DynamicDefaultBrokerConfig => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            ConfigSource::StaticBrokerConfig => "STATIC_BROKER_CONFIG",
            ConfigSource::DefaultConfig => "DEFAULT_CONFIG",
            ConfigSource::DynamicBrokerLoggerConfig => "DYNAMIC_BROKER_LOGGER_CONFIG",
        }
    }
}

#[derive(Debug, Clone)]
pub struct ConfigEntry {
    pub name: String,
    /// Null for what is sensitive or has no value.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub read_only: bool,
    pub sensitive: bool,
    /// All places that give it a value, the one that counts first.
    pub synonyms: Vec<ConfigSynonym>,
}

impl ConfigEntry {
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::DefaultConfig
    }
}

#[derive(Debug, Clone)]
pub struct ConfigSynonym {
    pub name: String,
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// Entries in the broker's order.
pub type ResourceConfig = Vec<ConfigEntry>;

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOp {
    Set(String),
    Delete,
    Append(String),
    Subtract(String),
}

impl Admin {
    pub async fn describe_configs(
        &self,
        resources: &[ConfigResource],
        synonyms: bool,
    ) -> Result<Each<ConfigResource, ResourceConfig>, ClientError> {
        let mut out = Vec::new();
        for (home, resources) in by_home(resources, |r| r) {
            let request = DescribeConfigsRequest {
                resources: resources
                    .iter()
                    .map(|r| DescribeConfigsResource {
                        resource_type: r.kind as i8,
                        resource_name: r.name.clone(),
                        configuration_keys: None,
                        ..Default::default()
                    })
                    .collect(),
                include_synonyms: synonyms,
                ..Default::default()
            };
            let answer = match home {
                None => self.on_any(&request, i16::MAX).await?,
                Some(id) => {
                    self.cluster
                        .retry(|| async { self.cluster.broker(id).await?.send(&request).await })
                        .await?
                }
            };
            for r in answer.results {
                let Some(resource) = resources
                    .iter()
                    .find(|x| x.kind as i8 == r.resource_type && x.name == r.resource_name)
                else {
                    continue;
                };
                let result = ClientError::check(r.error_code, r.error_message.as_deref());
                let entries = r.configs.into_iter().map(|c| ConfigEntry {
                    name: c.name,
                    value: c.value,
                    source: ConfigSource::from_id(c.config_source),
                    read_only: c.read_only,
                    sensitive: c.is_sensitive,
                    synonyms: c
                        .synonyms
                        .into_iter()
                        .map(|s| ConfigSynonym {
                            name: s.name,
                            value: s.value,
                            source: ConfigSource::from_id(s.source),
                        })
                        .collect(),
                });
                out.push(((*resource).clone(), result.map(|()| entries.collect())));
            }
        }
        Ok(out)
    }

    /// Changes single keys and leaves the others (KIP-339).
    pub async fn alter_configs(
        &self,
        changes: &[(ConfigResource, Vec<(String, ConfigOp)>)],
        validate_only: bool,
    ) -> Result<Each<ConfigResource, ()>, ClientError> {
        let mut out = Vec::new();
        for (home, changes) in by_home(changes, |c| &c.0) {
            let request = IncrementalAlterConfigsRequest {
                resources: changes.iter().map(|(r, ops)| alteration(r, ops)).collect(),
                validate_only,
                ..Default::default()
            };
            let answer = match home {
                None => self.on_any(&request, i16::MAX).await?,
                Some(id) => {
                    self.cluster
                        .retry(|| async { self.cluster.broker(id).await?.send(&request).await })
                        .await?
                }
            };
            for r in answer.responses {
                let result = ClientError::check(r.error_code, r.error_message.as_deref());
                if let Some((resource, _)) = changes
                    .iter()
                    .find(|(x, _)| x.kind as i8 == r.resource_type && x.name == r.resource_name)
                {
                    out.push((resource.clone(), result));
                }
            }
        }
        Ok(out)
    }
}

fn alteration(resource: &ConfigResource, ops: &[(String, ConfigOp)]) -> AlterConfigsResource {
    AlterConfigsResource {
        resource_type: resource.kind as i8,
        resource_name: resource.name.clone(),
        configs: ops
            .iter()
            .map(|(name, op)| {
                let (operation, value) = match op {
                    ConfigOp::Set(v) => (0, Some(v.clone())),
                    ConfigOp::Delete => (1, None),
                    ConfigOp::Append(v) => (2, Some(v.clone())),
                    ConfigOp::Subtract(v) => (3, Some(v.clone())),
                };
                AlterableConfig {
                    name: name.clone(),
                    config_operation: operation,
                    value,
                    ..Default::default()
                }
            })
            .collect(),
        ..Default::default()
    }
}

/// Groups by the broker that must be asked.
fn by_home<'a, T>(
    items: &'a [T],
    resource: impl Fn(&T) -> &ConfigResource,
) -> Vec<(Option<i32>, Vec<&'a T>)> {
    let mut out: Vec<(Option<i32>, Vec<&'a T>)> = Vec::new();
    for item in items {
        let home = resource(item).home();
        match out.iter_mut().find(|(h, _)| *h == home) {
            Some((_, list)) => list.push(item),
            None => out.push((home, vec![item])),
        }
    }
    out
}
