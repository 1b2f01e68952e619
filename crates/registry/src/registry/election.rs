//! Becoming controller.

use super::{Registry, RegistryError, content, data_of, zk_error};
use crate::json::{ControllerZnode, format_controller_epoch, parse_controller_epoch};
use crate::op::{CreateMode, MultiReply, MultiStep, ZkOp, ZkReply};
use crate::paths;
use gracchus_zk_client::{Stat, ZkError};

/// Who holds `/controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerOf {
    pub znode: ControllerZnode,
    pub stat: Stat,
}

/// What came of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Election {
    /// Fenced writes expect `epoch_version` of `/controller_epoch`.
    Won { epoch: i32, epoch_version: i32 },
    /// Somebody else was first; `None` when they are gone again.
    Lost(Option<i32>),
}

impl Registry {
    /// The present controller. `watch` arms one for its end, or its appearance when there is none.
    pub async fn controller(&self, watch: bool) -> Result<Option<ControllerOf>, RegistryError> {
        let path = paths::CONTROLLER;
        if watch {
            match self.execute_one(ZkOp::exists_and_watch(path)).await {
                Ok(_) => {}
                Err(failure) if failure.error == ZkError::NoNode => return Ok(None),
                Err(failure) => return Err(zk_error(path, failure)),
            }
        }
        match data_of(path, self.execute_one(ZkOp::get(path)).await)? {
            Some((data, stat)) => Ok(Some(ControllerOf {
                znode: content(path, ControllerZnode::parse(&data))?,
                stat,
            })),
            None => Ok(None),
        }
    }

    /// The controller epoch and the data version of its node; made with "0" when there is none.
    pub async fn controller_epoch(&self) -> Result<(i32, i32), RegistryError> {
        let path = paths::CONTROLLER_EPOCH;
        loop {
            if let Some((data, stat)) = data_of(path, self.execute_one(ZkOp::get(path)).await)? {
                return Ok((content(path, parse_controller_epoch(&data))?, stat.version));
            }
            match self
                .execute_one(ZkOp::create(path, Some(format_controller_epoch(0))))
                .await
            {
                Ok(_) => return Ok((0, 0)),
                Err(failure) if failure.error == ZkError::NodeExists => {} // another candidate made it
                Err(failure) => return Err(zk_error(path, failure)),
            }
        }
    }

    /// Tries to become controller: `/controller` is created and the epoch raised in one step.
    pub async fn elect(&self, broker_id: i32, now_ms: i64) -> Result<Election, RegistryError> {
        let (epoch, version) = self.controller_epoch().await?;
        let next = epoch
            .checked_add(1)
            .ok_or_else(|| zk_error(paths::CONTROLLER_EPOCH, ZkError::SystemError))?;
        let me = ControllerZnode::new(broker_id, now_ms);
        let result = self
            .execute_one(ZkOp::Multi(vec![
                MultiStep::Create {
                    path: paths::CONTROLLER.to_owned(),
                    data: Some(me.to_bytes()),
                    mode: CreateMode::Ephemeral,
                },
                MultiStep::SetData {
                    path: paths::CONTROLLER_EPOCH.to_owned(),
                    data: Some(format_controller_epoch(next)),
                    version,
                },
            ]))
            .await;
        match result {
            Ok(ZkReply::Multi(replies)) => match replies.last() {
                Some(MultiReply::Set(stat)) => Ok(Election::Won {
                    epoch: next,
                    epoch_version: stat.version,
                }),
                _ => Err(zk_error(paths::CONTROLLER, ZkError::SystemError)),
            },
            Ok(_) => Err(zk_error(paths::CONTROLLER, ZkError::SystemError)),
            Err(failure) if matches!(failure.error, ZkError::NodeExists | ZkError::BadVersion) => {
                // the first sending may have won, and its answer been lost with the connection
                let holder = self.controller(false).await?;
                let (stored, stored_version) = self.controller_epoch().await?;
                match holder {
                    Some(holder)
                        if holder.znode == me && stored == next && self.owns(&holder.stat) =>
                    {
                        Ok(Election::Won {
                            epoch: next,
                            epoch_version: stored_version,
                        })
                    }
                    Some(holder) => Ok(Election::Lost(Some(holder.znode.broker_id))),
                    None => Ok(Election::Lost(None)),
                }
            }
            Err(failure) => Err(zk_error(paths::CONTROLLER, failure)),
        }
    }

    /// Whether an ephemeral node is this session's.
    pub fn owns(&self, stat: &Stat) -> bool {
        self.zk
            .session()
            .is_some_and(|(session, _)| session != 0 && session == stat.ephemeral_owner)
    }
}
