//! Live brokers and their registration.

use super::{Registry, RegistryError, content, data_of, zk_error};
use crate::ANY_VERSION;
use crate::json::{BrokerRegistration, ZnodeError};
use crate::op::{CreateMode, MultiReply, MultiStep, ZkOp, ZkReply};
use crate::paths;
use bytes::Bytes;
use gracchus_zk_client::{ZkClient, ZkConfig, ZkError};

/// What came of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// The broker epoch: the node's czxid.
    Registered { epoch: i64 },
    /// Another session has the id: an earlier process of this broker that the server still waits for, or another
    /// broker with the same id. It goes when that session ends.
    Taken {
        /// The session that owns the node; 0 when the node is not ephemeral.
        owner: i64,
        epoch: i64,
        /// When it was made, ms.
        ctime_ms: i64,
        registration: Result<BrokerRegistration, ZnodeError>,
    },
}

/// A broker that is registered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBroker {
    pub id: i32,
    /// The node's czxid.
    pub epoch: i64,
    /// An error when the node's content cannot be read: skip that broker, tell the operator.
    pub registration: Result<BrokerRegistration, ZnodeError>,
}

impl Registry {
    /// Registers a broker: an ephemeral node of this session. A node that this session owns already is updated.
    pub async fn register_broker(
        &self,
        id: i32,
        registration: &BrokerRegistration,
    ) -> Result<RegisterOutcome, RegistryError> {
        let path = paths::broker(id);
        let data = Some(registration.to_bytes());
        loop {
            let steps = vec![
                MultiStep::Create {
                    path: path.clone(),
                    data: None,
                    mode: CreateMode::Ephemeral,
                },
                MultiStep::SetData {
                    path: path.clone(),
                    data: data.clone(),
                    version: 0,
                },
            ];
            match self.execute_one(ZkOp::Multi(steps)).await {
                Ok(ZkReply::Multi(replies)) => match replies.last() {
                    Some(MultiReply::Set(stat)) => {
                        return Ok(RegisterOutcome::Registered { epoch: stat.czxid });
                    }
                    _ => return Err(zk_error(&path, ZkError::SystemError)),
                },
                Ok(_) => return Err(zk_error(&path, ZkError::SystemError)),
                Err(failure) if failure.error == ZkError::NodeExists => {}
                Err(failure) => return Err(zk_error(&path, failure)),
            }
            let Some((found, stat)) = data_of(&path, self.execute_one(ZkOp::get(&path)).await)?
            else {
                continue; // gone in between
            };
            let session = self.zk.session().map_or(0, |(session, _)| session);
            if session == 0 || stat.ephemeral_owner != session {
                return Ok(RegisterOutcome::Taken {
                    owner: stat.ephemeral_owner,
                    epoch: stat.czxid,
                    ctime_ms: stat.ctime,
                    registration: BrokerRegistration::parse(&found),
                });
            }
            if Some(&found) != data.as_ref() {
                self.update_broker(id, registration).await?;
            }
            return Ok(RegisterOutcome::Registered { epoch: stat.czxid });
        }
    }

    /// Rewrites the registration in place (listeners changed); the epoch stays.
    pub async fn update_broker(
        &self,
        id: i32,
        registration: &BrokerRegistration,
    ) -> Result<(), RegistryError> {
        let path = paths::broker(id);
        let set = ZkOp::SetData {
            path: path.clone(),
            data: Some(registration.to_bytes()),
            version: ANY_VERSION,
        };
        self.execute_one(set)
            .await
            .map(|_| ())
            .map_err(|failure| zk_error(&path, failure))
    }

    /// Resolves when the node of broker `id` is gone, or tells at once that it is not there: arms a watch, whose event
    /// comes on the session's event queue. Returns whether it exists.
    pub async fn watch_broker(&self, id: i32) -> Result<bool, RegistryError> {
        let path = paths::broker(id);
        match self.execute_one(ZkOp::exists_and_watch(&path)).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.error == ZkError::NoNode => Ok(false),
            Err(failure) => Err(zk_error(&path, failure)),
        }
    }

    /// The ids that are registered now, in ascending order. Names that are no numbers are left out.
    pub async fn broker_ids(&self, watch: bool) -> Result<Vec<i32>, RegistryError> {
        let children = self.children(paths::BROKER_IDS, watch).await?;
        let mut ids: Vec<i32> = children
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// All live brokers, by ascending id.
    pub async fn brokers(&self) -> Result<Vec<LiveBroker>, RegistryError> {
        let ids = self.broker_ids(false).await?;
        let results = self
            .execute(ids.iter().map(|id| ZkOp::get(paths::broker(*id))).collect())
            .await;
        let mut brokers = Vec::with_capacity(ids.len());
        for (id, result) in ids.into_iter().zip(results) {
            if let Some((data, stat)) = data_of(&paths::broker(id), result)? {
                brokers.push(LiveBroker {
                    id,
                    epoch: stat.czxid,
                    registration: BrokerRegistration::parse(&data),
                });
            }
        }
        Ok(brokers)
    }

    /// One broker's registration and epoch.
    pub async fn broker(
        &self,
        id: i32,
    ) -> Result<Option<(BrokerRegistration, i64)>, RegistryError> {
        let path = paths::broker(id);
        match data_of(&path, self.execute_one(ZkOp::get(&path)).await)? {
            Some((data, stat)) => Ok(Some((
                content(&path, BrokerRegistration::parse(&data))?,
                stat.czxid,
            ))),
            None => Ok(None),
        }
    }

    /// A generated broker id, above `reserved_max` (`reserved.broker.max.id`).
    pub async fn next_broker_id(&self, reserved_max: i32) -> Result<i32, RegistryError> {
        let path = paths::BROKER_SEQUENCE_ID;
        let set = ZkOp::SetData {
            path: path.to_owned(),
            data: Some(Bytes::new()),
            version: ANY_VERSION,
        };
        let stat = match self.execute_one(set.clone()).await {
            Err(failure) if failure.error == ZkError::NoNode => {
                self.ensure_paths(&[path]).await?;
                self.execute_one(set).await
            }
            other => other,
        };
        match stat {
            Ok(ZkReply::Set(stat)) => reserved_max
                .checked_add(stat.version)
                .ok_or_else(|| zk_error(path, ZkError::SystemError)),
            Ok(_) => Err(zk_error(path, ZkError::SystemError)),
            Err(failure) => Err(zk_error(path, failure)),
        }
    }

    /// A node's children; a node that is not there has none.
    pub async fn children(&self, path: &str, watch: bool) -> Result<Vec<String>, RegistryError> {
        match self
            .execute_one(ZkOp::GetChildren {
                path: path.to_owned(),
                watch,
            })
            .await
        {
            Ok(ZkReply::Children { children, .. }) => Ok(children),
            Ok(_) => Err(zk_error(path, ZkError::SystemError)),
            Err(failure) if failure.error == ZkError::NoNode => Ok(Vec::new()),
            Err(failure) => Err(zk_error(path, failure)),
        }
    }
}

/// Ends a session of an earlier process, whose id and password were kept, so that its ephemerals go at once. Harmless
/// when the session is gone already. Waits for the server as long as it takes to reach it.
pub async fn end_session(config: &ZkConfig, session: (i64, Bytes)) {
    let mut config = config.clone();
    config.session = Some(session);
    let (zk, mut events) = ZkClient::start(config);
    // connected or expired: either way the server has spoken
    while let Some(event) = events.recv().await {
        use gracchus_zk_client::{SessionState, ZkEvent};
        if let ZkEvent::Session(
            SessionState::Connected { .. }
            | SessionState::Expired
            | SessionState::AuthFailed
            | SessionState::Closed,
        ) = event
        {
            break;
        }
    }
    zk.close().await;
}
