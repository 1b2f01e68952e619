//! Which cluster this is and which broker we are: ZooKeeper, `meta.properties` and the configuration must agree.

use gracchus_log::dirs::LogDirs;
use gracchus_registry::Registry;
use gracchus_registry::json::ClusterId;

use super::error::LifecycleError;
use super::{StartOptions, adopt};
use crate::config::BrokerConfig;

/// Cluster id and broker id. Nothing is written to ZooKeeper before the directories are known to fit.
pub async fn settle(
    registry: &Registry,
    config: &BrokerConfig,
    dirs: &LogDirs,
    options: &StartOptions,
    connect: &str,
    shown_dirs: &str,
) -> Result<(String, i32), LifecycleError> {
    let stored = dirs.identity().clone();
    let cluster_id = match (registry.cluster_id().await?, stored.cluster_id) {
        (Some(found), Some(stored)) if found != stored => {
            let adopt = options.adopt_cluster_id;
            adopt::over_another(registry, found, &stored, adopt, (connect, shown_dirs)).await?
        }
        (Some(cluster), _) => cluster,
        (None, Some(stored)) if !options.adopt_cluster_id => {
            return Err(LifecycleError::NewZooKeeper {
                connect: connect.to_owned(),
                stored,
                dirs: shown_dirs.to_owned(),
            });
        }
        (None, Some(stored)) => {
            registry.create_paths_at_start().await?;
            registry
                .get_or_create_cluster_id(&ClusterId(stored))
                .await?
        }
        (None, None) => {
            registry.create_paths_at_start().await?;
            registry
                .get_or_create_cluster_id(&ClusterId::from_random(rand::random()))
                .await?
        }
    };
    if let (configured @ 0.., Some(stored)) = (config.broker_id, stored.broker_id)
        && configured != stored
    {
        let live = registry.broker_ids(false).await?;
        let live = if live.is_empty() {
            "none".to_owned()
        } else {
            live.iter()
                .map(i32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        return Err(LifecycleError::BrokerId {
            configured,
            stored,
            path: shown_dirs.to_owned(),
            live,
        });
    }
    let known_id = if config.broker_id >= 0 {
        Some(config.broker_id)
    } else {
        stored.broker_id
    };
    if let Some(id) = known_id {
        dirs.check_identity(&cluster_id, id)?;
    }
    registry.create_paths_at_start().await?;
    let broker_id = match known_id {
        Some(id) => id,
        None if config.broker_id_generation_enable => {
            registry
                .next_broker_id(config.reserved_broker_max_id)
                .await?
        }
        None => {
            return Err(LifecycleError::NoBrokerId {
                path: shown_dirs.to_owned(),
            });
        }
    };
    dirs.check_identity(&cluster_id, broker_id)?;
    Ok((cluster_id, broker_id))
}
