//! Nodes that must be there before anything else.

use super::{Registry, RegistryError, zk_error};
use crate::json::ClusterId;
use crate::op::{ZkOp, ZkResult};
use crate::paths;
use bytes::Bytes;
use gracchus_zk_client::{CreateMode, SessionState, ZkClient, ZkConfig, ZkError, ZkEvent};

impl Registry {
    /// Makes the nodes that every broker makes at its start, in Kafka's order, with null data. Existing ones stay.
    pub async fn create_paths_at_start(&self) -> Result<(), RegistryError> {
        self.ensure_paths(paths::AT_START).await
    }

    /// Makes persistent nodes and their parents with null data, pipelined.
    pub async fn ensure_paths(&self, wanted: &[&str]) -> Result<(), RegistryError> {
        let mut all: Vec<&str> = Vec::new();
        for path in wanted {
            for end in path
                .match_indices('/')
                .skip(1)
                .map(|(at, _)| at)
                .chain([path.len()])
            {
                let part = path.get(..end).unwrap_or(path);
                if !all.contains(&part) {
                    all.push(part);
                }
            }
        }
        let results = self
            .execute(all.iter().map(|path| ZkOp::create(*path, None)).collect())
            .await;
        for (path, result) in all.iter().zip(results) {
            match result {
                Ok(_) => {}
                Err(failure) if failure.error == ZkError::NodeExists => {}
                Err(failure) => return Err(zk_error(path, failure)),
            }
        }
        Ok(())
    }

    /// Creates a persistent node; if its parent is missing, makes the parents (null data) and tries again.
    pub async fn create_recursive(&self, path: &str, data: Option<Bytes>) -> ZkResult {
        let op = ZkOp::Create {
            path: path.to_owned(),
            data,
            mode: CreateMode::Persistent,
        };
        let first = self.execute_one(op.clone()).await;
        match (first, paths::parent(path)) {
            (Err(failure), Some(parent)) if failure.error == ZkError::NoNode && parent != "/" => {
                if let Err(RegistryError::Zk { error, .. }) = self.ensure_paths(&[parent]).await {
                    return Err(error.into());
                }
                self.execute_one(op).await
            }
            (first, _) => first,
        }
    }

    /// Deletes a node and everything below it, children first. A node that is not there is fine.
    pub async fn delete_recursive(&self, path: &str) -> Result<(), RegistryError> {
        let mut found = vec![path.to_owned()];
        let mut level = vec![path.to_owned()];
        while !level.is_empty() {
            let results = self
                .execute(level.iter().map(ZkOp::children).collect())
                .await;
            let mut next = Vec::new();
            for (parent, result) in level.iter().zip(results) {
                match result {
                    Ok(crate::op::ZkReply::Children { children, .. }) => {
                        next.extend(children.iter().map(|child| format!("{parent}/{child}")))
                    }
                    Ok(_) => {}
                    Err(failure) if failure.error == ZkError::NoNode => {}
                    Err(failure) => return Err(zk_error(parent, failure)),
                }
            }
            found.extend(next.iter().cloned());
            level = next;
        }
        found.reverse();
        let ops = found
            .iter()
            .map(|path| ZkOp::Delete {
                path: path.clone(),
                version: crate::ANY_VERSION,
            })
            .collect();
        for (path, result) in found.iter().zip(self.execute(ops).await) {
            match result {
                Ok(_) => {}
                Err(failure) if failure.error == ZkError::NoNode => {}
                Err(failure) => return Err(zk_error(path, failure)),
            }
        }
        Ok(())
    }

    /// The cluster's id, `None` before the first broker ever has started.
    pub async fn cluster_id(&self) -> Result<Option<String>, RegistryError> {
        let result = self.execute_one(ZkOp::get(paths::CLUSTER_ID)).await;
        match super::data_of(paths::CLUSTER_ID, result)? {
            Some((data, _)) => Ok(Some(
                super::content(paths::CLUSTER_ID, ClusterId::parse(&data))?.0,
            )),
            None => Ok(None),
        }
    }

    /// The cluster's id; `proposed` becomes it when there is none.
    pub async fn get_or_create_cluster_id(
        &self,
        proposed: &ClusterId,
    ) -> Result<String, RegistryError> {
        if let Some(id) = self.cluster_id().await? {
            return Ok(id);
        }
        match self
            .create_recursive(paths::CLUSTER_ID, Some(proposed.to_bytes()))
            .await
        {
            Ok(_) => Ok(proposed.0.clone()),
            Err(failure) if failure.error == ZkError::NodeExists => self
                .cluster_id()
                .await?
                .ok_or_else(|| zk_error(paths::CLUSTER_ID, ZkError::NoNode)),
            Err(failure) => Err(zk_error(paths::CLUSTER_ID, failure)),
        }
    }
}

/// Makes the chroot of a connect string, over a short session of its own, as brokers do at their start.
/// `secure` is `zookeeper.set.acl`.
pub async fn create_chroot(config: &ZkConfig, secure: bool) -> Result<(), RegistryError> {
    let chroot = config.connect.chroot.clone();
    if chroot.is_empty() {
        return Ok(());
    }
    let mut rootless = config.clone();
    rootless.connect.chroot = String::new();
    rootless.session = None;
    let (zk, mut events) = ZkClient::start(rootless);
    let registry = Registry::new(zk, secure);
    let refused = async {
        while let Some(event) = events.recv().await {
            if event == ZkEvent::Session(SessionState::AuthFailed) {
                return registry.zk.auth_failure().unwrap_or_default();
            }
        }
        std::future::pending().await
    };
    let paths = [&*chroot];
    let made = tokio::select! {
        made = registry.ensure_paths(&paths) => made,
        reason = refused => Err(RegistryError::Login(reason)),
    };
    registry.zk.close().await;
    made
}
