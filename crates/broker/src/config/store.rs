//! The layers of configuration and what follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::{HashMap, HashSet};
use parking_lot::RwLock;
use tokio::sync::broadcast;

use super::describe::{Layer, Source};
use super::{BrokerConfig, ConfigError, TopicConfig};

/// Texts by key.
pub type Props = BTreeMap<String, String>;

/// What changed; sent after the change is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The broker's own values (and with them possibly every topic's).
    Broker,
    /// This topic's overrides.
    Topic(Arc<str>),
}

struct Layers {
    fixed: Props,
    dynamic_default: Props,
    dynamic_broker: Props,
    topics: HashMap<Arc<str>, Arc<Props>>,
    /// Topics whose overrides have been read, if only to find none.
    known: HashSet<Arc<str>>,
}

/// All layers.
pub struct ConfigStore {
    layers: RwLock<Layers>,
    current: ArcSwap<BrokerConfig>,
    resolved: RwLock<HashMap<Arc<str>, Arc<TopicConfig>>>,
    default_topic: ArcSwap<TopicConfig>,
    changes: broadcast::Sender<Change>,
}

fn fold(layers: &Layers) -> Props {
    let mut values = layers.fixed.clone();
    values.extend(
        layers
            .dynamic_default
            .iter()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    values.extend(
        layers
            .dynamic_broker
            .iter()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    values
}

impl ConfigStore {
    /// A store over the static values.
    pub fn new(fixed: Props) -> Result<Self, ConfigError> {
        let current = BrokerConfig::from_values(&fixed)?;
        let default_topic = TopicConfig::resolve(&current, &Props::new())?;
        let layers = Layers {
            fixed,
            dynamic_default: Props::new(),
            dynamic_broker: Props::new(),
            topics: HashMap::new(),
            known: HashSet::new(),
        };
        Ok(Self {
            layers: RwLock::new(layers),
            current: ArcSwap::from_pointee(current),
            resolved: RwLock::new(HashMap::new()),
            default_topic: ArcSwap::from_pointee(default_topic),
            changes: broadcast::channel(1024).0,
        })
    }

    /// The broker's effective values.
    pub fn current(&self) -> Arc<BrokerConfig> {
        self.current.load_full()
    }

    /// A topic's effective values; the broker's defaults when the topic has no overrides.
    pub fn topic(&self, topic: &str) -> Arc<TopicConfig> {
        match self.resolved.read().get(topic) {
            Some(config) => config.clone(),
            None => self.default_topic.load_full(),
        }
    }

    /// A topic's own overrides, as in `/config/topics/T`.
    pub fn topic_overrides(&self, topic: &str) -> Arc<Props> {
        self.layers
            .read()
            .topics
            .get(topic)
            .cloned()
            .unwrap_or_default()
    }

    /// Effective texts of the broker's keys: all layers folded, defaults left out.
    pub fn effective(&self) -> Props {
        fold(&self.layers.read())
    }

    /// This broker's own dynamic texts, or the cluster-wide ones.
    pub fn dynamic(&self, per_broker: bool) -> Props {
        let layers = self.layers.read();
        if per_broker {
            layers.dynamic_broker.clone()
        } else {
            layers.dynamic_default.clone()
        }
    }

    pub(super) fn with_layers<T>(&self, read: impl FnOnce(&[Layer<'_>], &Props) -> T) -> T {
        let layers = self.layers.read();
        let in_order = [
            Layer {
                values: &layers.dynamic_broker,
                source: Source::Broker,
            },
            Layer {
                values: &layers.dynamic_default,
                source: Source::BrokerDefault,
            },
            Layer {
                values: &layers.fixed,
                source: Source::Static,
            },
        ];
        read(&in_order, &fold(&layers))
    }

    /// Changes from now on. A receiver that lags must re-read all.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Replaces a topic's overrides (empty = none left). Values that cannot be read leave the broker's defaults in
    /// effect for that key's topic and are reported to the caller.
    pub fn set_topic(&self, topic: &str, overrides: Props) -> Result<(), ConfigError> {
        let name: Arc<str> = topic.into();
        let resolved = TopicConfig::resolve(&self.current.load(), &overrides)?;
        {
            let mut layers = self.layers.write();
            let mut cache = self.resolved.write();
            layers.known.insert(name.clone());
            if overrides.is_empty() {
                layers.topics.remove(topic);
                cache.remove(topic);
            } else {
                layers.topics.insert(name.clone(), Arc::new(overrides));
                cache.insert(name.clone(), Arc::new(resolved));
            }
        }
        let _ = self.changes.send(Change::Topic(name));
        Ok(())
    }

    /// True if the topic's overrides have been read since it exists.
    pub fn knows_topic(&self, topic: &str) -> bool {
        self.layers.read().known.contains(topic)
    }

    /// The topic is gone; another of the same name starts without its overrides.
    pub fn forget_topic(&self, topic: &str) {
        let mut layers = self.layers.write();
        layers.known.remove(topic);
        layers.topics.remove(topic);
        self.resolved.write().remove(topic);
    }

    /// Replaces both dynamic layers of the broker. Nothing changes if a value cannot be read.
    pub fn set_dynamic(&self, default: Props, broker: Props) -> Result<(), ConfigError> {
        {
            let mut layers = self.layers.write();
            let (old_default, old_broker) = (
                std::mem::replace(&mut layers.dynamic_default, default),
                std::mem::replace(&mut layers.dynamic_broker, broker),
            );
            let folded = fold(&layers);
            let outcome = BrokerConfig::from_values(&folded).and_then(|current| {
                let default_topic = TopicConfig::resolve(&current, &Props::new())?;
                let mut resolved = HashMap::with_capacity(layers.topics.len());
                for (name, overrides) in &layers.topics {
                    resolved.insert(
                        name.clone(),
                        Arc::new(TopicConfig::resolve(&current, overrides)?),
                    );
                }
                Ok((current, default_topic, resolved))
            });
            match outcome {
                Ok((current, default_topic, resolved)) => {
                    self.current.store(Arc::new(current));
                    self.default_topic.store(Arc::new(default_topic));
                    *self.resolved.write() = resolved;
                }
                Err(error) => {
                    layers.dynamic_default = old_default;
                    layers.dynamic_broker = old_broker;
                    return Err(error);
                }
            }
        }
        let _ = self.changes.send(Change::Broker);
        Ok(())
    }
}
