//! Dynamic configs: all are read at start, then `/config/changes` says what to read again.

use std::sync::Arc;
use std::time::Duration;

use gracchus_registry::entity::ConfigEntity;
use gracchus_registry::json::ConfigZnode;
use gracchus_registry::{Registry, RegistryError};

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::ConfigStore;
use crate::config::store::Props;

/// Notices older than this are deleted by whoever sees them.
const NOTICE_LIFE_MS: i64 = 15 * 60 * 1000;

/// The controller's request waits so long for the configs of its new topics.
const PATIENCE: Duration = Duration::from_secs(5);

fn props(znode: ConfigZnode) -> Props {
    znode.config.into_iter().collect()
}

/// Reads every config that concerns this broker.
pub async fn load(
    registry: &Registry,
    store: &ConfigStore,
    broker_id: i32,
) -> Result<(), RegistryError> {
    read_broker(registry, store, broker_id).await?;
    let topics: Vec<ConfigEntity> = registry.config_entities("topics").await?;
    let configs = registry.configs(&topics).await?;
    for (entity, znode) in topics.into_iter().zip(configs) {
        if let ConfigEntity::Topic(topic) = entity {
            set_topic(store, &topic, props(znode));
        }
    }
    Ok(())
}

fn set_topic(store: &ConfigStore, topic: &str, overrides: Props) {
    if let Err(error) = store.set_topic(topic, overrides) {
        tracing::error!(
            "/config/topics/{topic} holds what cannot be used ({error}); the topic keeps its present configuration. Correct it with \
             gracchus configs --alter"
        );
    }
}

async fn read_broker(
    registry: &Registry,
    store: &ConfigStore,
    broker_id: i32,
) -> Result<(), RegistryError> {
    let entities = [
        ConfigEntity::Broker(None),
        ConfigEntity::Broker(Some(broker_id)),
    ];
    let mut found = registry.configs(&entities).await?.into_iter();
    let default = found.next().map(props).unwrap_or_default();
    let own = found.next().map(props).unwrap_or_default();
    if default == store.dynamic(false) && own == store.dynamic(true) {
        return Ok(());
    }
    if let Err(error) = store.set_dynamic(default, own) {
        tracing::error!(
            "/config/brokers holds what cannot be used ({error}); the present configuration stays in effect. Correct it with gracchus \
             configs --alter"
        );
    }
    Ok(())
}

/// Reads the overrides of topics that are new to this broker, before their logs are made: a creation leaves no notice.
pub async fn learn_topics(broker: &Broker, topics: impl Iterator<Item = &str>) {
    let new: Vec<ConfigEntity> = topics
        .filter(|topic| !broker.config.knows_topic(topic))
        .map(|topic| ConfigEntity::Topic(topic.to_owned()))
        .collect();
    if new.is_empty() {
        return;
    }
    let read = tokio::time::timeout(PATIENCE, broker.registry.configs(&new)).await;
    let configs = match read {
        Ok(Ok(configs)) => configs,
        Ok(Err(error)) => {
            tracing::error!(
                "configs of {} new topics cannot be read ({error}); they have the broker's defaults for now",
                new.len()
            );
            return;
        }
        Err(_) => {
            tracing::error!(
                "configs of {} new topics could not be read in time; they have the broker's defaults for now",
                new.len()
            );
            return;
        }
    };
    for (entity, znode) in new.into_iter().zip(configs) {
        if let ConfigEntity::Topic(topic) = entity {
            set_topic(&broker.config, &topic, props(znode));
        }
    }
}

/// Partitions of a topic, None if it does not exist.
pub async fn partition_count(
    registry: &Registry,
    topic: &str,
) -> Result<Option<i32>, RegistryError> {
    let assignment = registry.assignment(topic).await?;
    Ok(assignment.and_then(|a| i32::try_from(a.partitions.len()).ok()))
}

/// Begins to follow `/config/changes`. Who gets the watch's event calls [`Broker::config_changes`]`.notify_one()`.
pub async fn start(broker: &Arc<Broker>) -> Result<(), RegistryError> {
    let mut seen = broker
        .registry
        .config_change_names(true)
        .await?
        .last()
        .map_or(-1, |(n, _)| *n);
    // what changed between the first reading and the watch
    load(&broker.registry, &broker.config, broker.identity.broker_id).await?;
    let follower = broker.clone();
    broker.tasks.spawn(async move {
        loop {
            tokio::select! {
                () = follower.shutdown.cancelled() => return,
                () = follower.config_changes.notified() => {}
            }
            // a lost session is followed by another notification
            if let Err(error) = follow(&follower, &mut seen).await {
                tracing::warn!("config changes cannot be read now: {error}");
            }
        }
    });
    let limits = broker.clone();
    let mut changes = broker.config.changes();
    broker.tasks.spawn(async move {
        loop {
            let changed = tokio::select! {
                () = limits.shutdown.cancelled() => return,
                changed = changes.recv() => changed,
            };
            if matches!(
                changed,
                Err(tokio::sync::broadcast::error::RecvError::Closed)
            ) {
                return;
            }
            limits
                .connections
                .set_limits(super::connection_limits(&limits.config.current()));
        }
    });
    Ok(())
}

async fn follow(broker: &Arc<Broker>, seen: &mut i32) -> Result<(), RegistryError> {
    let (registry, store) = (&broker.registry, &broker.config);
    let names = registry.config_change_names(true).await?;
    for (number, name) in &names {
        if *number <= *seen {
            continue;
        }
        if let Some((Some(entity), _)) = registry.config_change(name).await? {
            match entity {
                ConfigEntity::Topic(topic) => {
                    let overrides =
                        props(registry.config(&ConfigEntity::Topic(topic.clone())).await?);
                    tracing::info!("configuration of topic {topic} changed: {overrides:?}");
                    set_topic(store, &topic, overrides);
                }
                ConfigEntity::Broker(None) => {
                    read_broker(registry, store, broker.identity.broker_id).await?
                }
                ConfigEntity::Broker(Some(id)) if id == broker.identity.broker_id => {
                    read_broker(registry, store, id).await?;
                }
                _ => {}
            }
        }
        *seen = *number;
    }
    let old: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    registry
        .purge_config_changes(&old, now_ms().saturating_sub(NOTICE_LIFE_MS))
        .await
}
