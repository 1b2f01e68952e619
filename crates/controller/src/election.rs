//! Becoming controller, and ceasing to be it.

use gracchus_registry::json::{ControllerZnode, format_controller_epoch, parse_controller_epoch};
use gracchus_registry::op::{CreateMode, MultiStep, ZkError};
use gracchus_registry::{ZkOp, paths};

use crate::action::Action;
use crate::core::{Core, Failure, failed};
use crate::event::Timer;

/// Pause after the first failed election of a row; doubled at each, up to the second figure, in ms.
const PAUSE_MS: (i64, i64) = (200, 10_000);

impl Core {
    /// Arms the watch of `/controller`, whether it is there or not.
    pub async fn watch_controller(&mut self) -> Result<(), Failure> {
        self.watch_exists(paths::CONTROLLER).await
    }

    /// Who is controller, -1 nobody. Content that cannot be read is somebody else.
    async fn read_active_id(&mut self) -> Result<i32, Failure> {
        let Some((data, _)) = self.read(paths::CONTROLLER, false).await? else {
            return Ok(-1);
        };
        Ok(match ControllerZnode::parse(&data) {
            Ok(znode) => znode.broker_id,
            Err(error) => {
                tracing::error!(
                    "{} cannot be read: {error}. Nobody can become controller while it stands; delete it to start an election",
                    paths::CONTROLLER
                );
                -2
            }
        })
    }

    /// Rereads `/controller`; resigns when it names another.
    pub async fn resign_if_replaced(&mut self) -> Result<(), Failure> {
        let was_active = self.is_active();
        self.watch_controller().await?;
        let read = self.read_active_id().await;
        self.active_id = *read.as_ref().unwrap_or(&-1);
        if was_active && !self.is_active() {
            tracing::info!(now = self.active_id, "no longer controller");
            self.resign();
        }
        read.map(|_| ())
    }

    /// A fenced write failed: another controller, or somebody wrote `/controller_epoch`.
    pub async fn after_lost_fence(&mut self) {
        if let Err(failure) = self.resign_if_replaced().await {
            tracing::error!("{} cannot be looked at: {failure}", paths::CONTROLLER);
            return;
        }
        if self.is_active() {
            // Kafka stays active here although no write of it can succeed any more
            tracing::error!(
                "{} was changed by somebody else while {} still names this broker: resigning, for a new election",
                paths::CONTROLLER_EPOCH,
                paths::CONTROLLER
            );
            self.active_id = -1;
            self.resign();
            self.give_up_controller_node(false).await;
            self.elect_later();
        }
    }

    /// Makes room for another election.
    async fn give_up_controller_node(&mut self, fenced: bool) {
        let Ok(Some((data, stat))) = self.read(paths::CONTROLLER, false).await else {
            return;
        };
        if ControllerZnode::parse(&data).map(|z| z.broker_id) != Ok(self.config.broker_id) {
            return;
        }
        let delete = MultiStep::Delete {
            path: paths::CONTROLLER.to_owned(),
            version: stat.version,
        };
        let op = if fenced {
            ZkOp::fenced(self.cx.epoch_version, delete)
        } else {
            ZkOp::Delete {
                path: paths::CONTROLLER.to_owned(),
                version: stat.version,
            }
        };
        if let Err(failure) = self.one(op).await
            && failure.error != ZkError::NoNode
        {
            tracing::error!("{} cannot be deleted: {failure}", paths::CONTROLLER);
        }
    }

    fn elect_later(&mut self) {
        let after_ms = PAUSE_MS
            .0
            .saturating_mul(1 << self.failed_elections.min(16))
            .min(PAUSE_MS.1);
        self.failed_elections = self.failed_elections.saturating_add(1);
        self.port.act(Action::SetTimer {
            timer: Timer::Elect,
            after_ms,
        });
    }

    /// Stands for election, and takes over when it is won.
    pub async fn elect(&mut self) -> Result<(), Failure> {
        if !self.candidate || self.is_active() {
            return Ok(());
        }
        let found = self.read_active_id().await?;
        self.active_id = found;
        if found != -1 {
            tracing::debug!(found, "somebody is controller already");
            return Ok(());
        }
        match self.stand().await {
            Ok(false) => Ok(()),
            Ok(true) => match self.take_over().await {
                Ok(()) => {
                    self.failed_elections = 0;
                    Ok(())
                }
                Err(Failure::Moved) => Err(Failure::Moved),
                Err(failure) => {
                    tracing::error!("taking over as controller failed: {failure}; resigning");
                    self.active_id = -1;
                    self.resign();
                    self.give_up_controller_node(true).await;
                    self.elect_later();
                    Ok(())
                }
            },
            Err(failure) => {
                tracing::error!("the election of a controller failed: {failure}; trying again");
                self.active_id = -1;
                self.elect_later();
                Ok(())
            }
        }
    }

    /// True: won.
    async fn stand(&mut self) -> Result<bool, Failure> {
        let (epoch, version) = match self.read(paths::CONTROLLER_EPOCH, false).await? {
            Some((data, stat)) => match parse_controller_epoch(&data) {
                Ok(epoch) => (epoch, stat.version),
                Err(error) => {
                    tracing::error!(
                        "{} cannot be read: {error}; set it to a number at least as high as any controller's epoch so far",
                        paths::CONTROLLER_EPOCH
                    );
                    return Err(failed(paths::CONTROLLER_EPOCH, ZkError::MarshallingError));
                }
            },
            None => {
                let create = ZkOp::create(
                    paths::CONTROLLER_EPOCH,
                    Some(format_controller_epoch(0)),
                );
                match self.one(create).await {
                    Ok(_) => (0, 0),
                    Err(failure) if failure.error == ZkError::NodeExists => {
                        // somebody else was quicker, and will be with the rest
                        self.active_id = self.read_active_id().await?;
                        self.elect_later();
                        return Ok(false);
                    }
                    Err(failure) => return Err(failed(paths::CONTROLLER_EPOCH, failure.error)),
                }
            }
        };
        let Some(next) = epoch.checked_add(1) else {
            return Err(failed(paths::CONTROLLER_EPOCH, ZkError::BadArguments));
        };
        let znode = ControllerZnode::new(self.config.broker_id, self.port.now_ms());
        let multi = ZkOp::Multi(vec![
            MultiStep::Create {
                path: paths::CONTROLLER.to_owned(),
                data: Some(znode.to_bytes()),
                mode: CreateMode::Ephemeral,
            },
            MultiStep::SetData {
                path: paths::CONTROLLER_EPOCH.to_owned(),
                data: Some(format_controller_epoch(next)),
                version,
            },
        ]);
        match self.one(multi).await {
            Ok(_) => self.won(next, version.wrapping_add(1)),
            Err(failure)
                if matches!(failure.error, ZkError::NodeExists | ZkError::BadVersion) =>
            {
                // the answer to a first sending may have been lost with the connection
                let active = self.read_active_id().await?;
                let stored = self.read(paths::CONTROLLER_EPOCH, false).await?;
                if active == self.config.broker_id
                    && let Some((data, stat)) = stored
                    && parse_controller_epoch(&data) == Ok(next)
                {
                    self.won(next, stat.version);
                    return Ok(true);
                }
                self.active_id = active;
                if active == -1 {
                    self.elect_later();
                }
                return Ok(false);
            }
            Err(failure) => return Err(failed(paths::CONTROLLER, failure.error)),
        }
        Ok(true)
    }

    fn won(&mut self, epoch: i32, version: i32) {
        self.active_id = self.config.broker_id;
        self.cx = crate::context::Context {
            epoch,
            epoch_version: version,
            ..Default::default()
        };
        tracing::info!(epoch, "elected controller");
    }

    /// Stops acting as controller and forgets all. Writes no znode.
    pub fn resign(&mut self) {
        for id in self.cx.live_or_shutting_down() {
            self.port.act(Action::RemoveBroker { broker_id: id });
        }
        self.port.act(Action::CancelTimer {
            timer: Timer::Rebalance,
        });
        self.batch.clear();
        self.cx = crate::context::Context {
            epoch: self.cx.epoch,
            epoch_version: self.cx.epoch_version,
            ..Default::default()
        };
        tracing::info!(epoch = self.cx.epoch, "resigned as controller");
    }
}
