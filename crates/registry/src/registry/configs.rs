//! Dynamic configuration and its notices.

use super::{Registry, RegistryError, data_of, zk_error};
use crate::ANY_VERSION;
use crate::entity::ConfigEntity;
use crate::json::{ConfigChange, ConfigZnode, ControllerZnode};
use crate::op::{CreateMode, MultiStep, ZkOp, ZkReply};
use crate::paths;
use gracchus_zk_client::ZkError;

/// How often a write is tried again when the controller changes under it.
const FENCE_TRIES: usize = 10;

impl Registry {
    /// An entity's overrides; a missing node has none. Content that cannot be read also counts as none, as in Kafka, but
    /// the operator is told.
    pub async fn config(&self, entity: &ConfigEntity) -> Result<ConfigZnode, RegistryError> {
        let mut all = self.configs(std::slice::from_ref(entity)).await?;
        Ok(all.pop().unwrap_or_default())
    }

    /// The overrides of these entities, in their order.
    pub async fn configs(
        &self,
        entities: &[ConfigEntity],
    ) -> Result<Vec<ConfigZnode>, RegistryError> {
        let results = self
            .execute(
                entities
                    .iter()
                    .map(|entity| ZkOp::get(entity.path()))
                    .collect(),
            )
            .await;
        entities
            .iter()
            .zip(results)
            .map(|(entity, result)| {
                let path = entity.path();
                Ok(data_of(&path, result)?.map_or_else(ConfigZnode::default, |(data, _)| {
                    ConfigZnode::parse(&data).unwrap_or_else(|error| {
                        tracing::warn!("{path} cannot be read ({error}), so {entity} runs without overrides; set them again or repair the node");
                        ConfigZnode::default()
                    })
                }))
            })
            .collect()
    }

    /// The entities that have a node: all of `topics`, `brokers`, `users`, `clients`, `ips` (one kind, as `/config` names it).
    /// For `users` their clients too.
    pub async fn config_entities(&self, kind: &str) -> Result<Vec<ConfigEntity>, RegistryError> {
        let names = self
            .children(&format!("{}/{kind}", paths::CONFIG), false)
            .await?;
        let mut entities: Vec<ConfigEntity> = names
            .iter()
            .filter_map(|name| ConfigEntity::from_entity_path(&format!("{kind}/{name}")))
            .collect();
        if kind == "users" {
            for user in &names {
                let clients = self
                    .children(&format!("{}/users/{user}/clients", paths::CONFIG), false)
                    .await?;
                entities.extend(clients.iter().filter_map(|client| {
                    ConfigEntity::from_entity_path(&format!("users/{user}/clients/{client}"))
                }));
            }
        }
        Ok(entities)
    }

    /// Writes an entity's whole overrides and tells all brokers. Only while a ZooKeeper-mode controller is elected, as
    /// since Kafka 3.4. An emptied user, client or ip loses its node.
    pub async fn set_config(
        &self,
        entity: &ConfigEntity,
        config: &ConfigZnode,
    ) -> Result<(), RegistryError> {
        if config.config.is_empty() && entity.is_deleted_when_empty() {
            if !self.delete_config(entity).await? {
                self.write_config(entity, config).await?;
            }
        } else {
            self.write_config(entity, config).await?;
        }
        self.notify_config_change(entity).await
    }

    async fn write_config(
        &self,
        entity: &ConfigEntity,
        config: &ConfigZnode,
    ) -> Result<(), RegistryError> {
        let path = entity.path();
        let data = Some(config.to_bytes());
        for _ in 0..FENCE_TRIES {
            let version = self.controller_version().await?;
            let result = self
                .execute_one(ZkOp::Multi(vec![
                    MultiStep::Check {
                        path: paths::CONTROLLER.to_owned(),
                        version,
                    },
                    MultiStep::SetData {
                        path: path.clone(),
                        data: data.clone(),
                        version: ANY_VERSION,
                    },
                ]))
                .await;
            match result {
                Ok(_) => return Ok(()),
                Err(failure) if failure.step == 1 && failure.error == ZkError::NoNode => {
                    match self.create_recursive(&path, data.clone()).await {
                        Ok(_) => return Ok(()),
                        Err(failure) if failure.error == ZkError::NodeExists => {} // another writer: set it
                        Err(failure) => return Err(zk_error(&path, failure)),
                    }
                }
                Err(failure)
                    if failure.step == 0
                        && matches!(failure.error, ZkError::NoNode | ZkError::BadVersion) => {} // the controller changed
                Err(failure) => return Err(zk_error(&path, failure)),
            }
        }
        Err(RegistryError::NoController)
    }

    /// The data version of `/controller`, if a broker of ZooKeeper mode holds it.
    async fn controller_version(&self) -> Result<i32, RegistryError> {
        let result = self.execute_one(ZkOp::get(paths::CONTROLLER)).await;
        let (data, stat) =
            data_of(paths::CONTROLLER, result)?.ok_or(RegistryError::NoController)?;
        match ControllerZnode::parse(&data) {
            Ok(controller) if controller.kraft_controller_epoch > 0 => {
                Err(RegistryError::KraftController)
            }
            Ok(_) => Ok(stat.version),
            Err(_) => Err(RegistryError::NoController),
        }
    }

    /// False when the node has children and so must stay, with an empty map.
    async fn delete_config(&self, entity: &ConfigEntity) -> Result<bool, RegistryError> {
        self.controller_version().await?;
        let path = entity.path();
        match self
            .execute_one(ZkOp::Delete {
                path: path.clone(),
                version: ANY_VERSION,
            })
            .await
        {
            Ok(_) => {}
            Err(failure) if failure.error == ZkError::NoNode => {}
            Err(failure) if failure.error == ZkError::NotEmpty => return Ok(false),
            Err(failure) => return Err(zk_error(&path, failure)),
        }
        if let ConfigEntity::UserClient { user, .. } = entity {
            self.delete_if_bare(&format!(
                "{}/clients",
                ConfigEntity::User(user.clone()).path()
            ))
            .await;
            self.delete_if_bare(&ConfigEntity::User(user.clone()).path())
                .await;
        }
        Ok(true)
    }

    /// Deletes a node without children and overrides; what stands in the way of that is no error.
    async fn delete_if_bare(&self, path: &str) {
        if let Ok(Some((data, stat))) = data_of(path, self.execute_one(ZkOp::get(path)).await) {
            let bare = ConfigZnode::parse(&data).is_ok_and(|config| config.config.is_empty());
            if bare && stat.num_children == 0 {
                let _ = self
                    .execute_one(ZkOp::Delete {
                        path: path.to_owned(),
                        version: stat.version,
                    })
                    .await;
            }
        }
    }

    /// Leaves a notice that makes every broker reread the entity.
    pub async fn notify_config_change(&self, entity: &ConfigEntity) -> Result<(), RegistryError> {
        let path = paths::CONFIG_CHANGE_PREFIX;
        let create = ZkOp::Create {
            path: path.to_owned(),
            data: Some(ConfigChange::new(entity).to_bytes()),
            mode: CreateMode::PersistentSequential,
        };
        match self.execute_one(create.clone()).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.error == ZkError::NoNode => {
                self.ensure_paths(&[paths::CONFIG_CHANGES]).await?;
                self.execute_one(create)
                    .await
                    .map(|_| ())
                    .map_err(|failure| zk_error(path, failure))
            }
            Err(failure) => Err(zk_error(path, failure)),
        }
    }

    /// The numbers of all notices, ascending, with their nodes' names; names without a number are left out.
    /// `watch`: the next one is told by an event on `/config/changes`.
    pub async fn config_change_names(
        &self,
        watch: bool,
    ) -> Result<Vec<(i32, String)>, RegistryError> {
        let children = self.children(paths::CONFIG_CHANGES, watch).await?;
        let mut notices: Vec<(i32, String)> = children
            .into_iter()
            .filter_map(|name| Some((paths::sequence_of(&name)?, name)))
            .collect();
        notices.sort();
        Ok(notices)
    }

    /// What a notice says, and when it was made (ms): `None` when another broker has purged it. An inner `None` is content
    /// that nobody can act on; it is told here.
    pub async fn config_change(
        &self,
        name: &str,
    ) -> Result<Option<(Option<ConfigEntity>, i64)>, RegistryError> {
        let path = paths::config_change(name);
        let Some((data, stat)) = data_of(&path, self.execute_one(ZkOp::get(&path)).await)? else {
            return Ok(None);
        };
        let entity = match ConfigChange::parse(&data) {
            Ok(change) => {
                if change.entity().is_none() {
                    tracing::warn!(
                        "{path} names {:?}, which is no kind of config entity known here; skipped",
                        change.entity_path
                    );
                }
                change.entity()
            }
            Err(error) => {
                tracing::warn!("{path} cannot be read ({error}); skipped");
                None
            }
        };
        Ok(Some((entity, stat.ctime)))
    }

    /// Deletes notices made before `before_ms`; any broker may, so those gone already are fine.
    pub async fn purge_config_changes(
        &self,
        names: &[String],
        before_ms: i64,
    ) -> Result<(), RegistryError> {
        let exists = names
            .iter()
            .map(|name| ZkOp::Exists {
                path: paths::config_change(name),
                watch: false,
            })
            .collect();
        let mut old = Vec::new();
        for (name, result) in names.iter().zip(self.execute(exists).await) {
            if let Ok(ZkReply::Exists(stat)) = result
                && stat.ctime < before_ms
            {
                old.push(ZkOp::Delete {
                    path: paths::config_change(name),
                    version: ANY_VERSION,
                });
            }
        }
        for result in self.execute(old).await {
            match result {
                Ok(_) => {}
                Err(failure) if failure.error == ZkError::NoNode => {}
                Err(failure) => return Err(zk_error(paths::CONFIG_CHANGES, failure)),
            }
        }
        Ok(())
    }
}
