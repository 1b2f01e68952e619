//! Becoming the controller, and ceasing to be it.

use gracchus_registry::json::{ControllerZnode, format_controller_epoch, parse_controller_epoch};
use gracchus_registry::op::{ANY_VERSION, CreateMode, MultiStep, ZkError, ZkOp, ZkReply};
use gracchus_registry::paths;

use crate::action::Action;
use crate::machine::{Controller, Term};

impl Controller {
    /// Looks at `/controller`, watching it; when nobody holds it, tries to.
    pub(crate) fn elect(&mut self) {
        let ops = vec![
            ZkOp::exists_and_watch(paths::CONTROLLER),
            ZkOp::get(paths::CONTROLLER),
            ZkOp::get(paths::CONTROLLER_EPOCH),
        ];
        self.zk(ops, |me, results| {
            let [_, controller, epoch] = results.as_slice() else { return me.reelect_later() };
            match controller {
                Ok(ZkReply::Data { data, .. }) => match ControllerZnode::parse(data.as_deref().unwrap_or_default()) {
                    Ok(holder) => {
                        // the multi is sent again after a lost connection and then finds what it wrote itself
                        if let (Some(ran_for), Ok(ZkReply::Data { data, stat })) = (me.ran_for, epoch)
                            && holder.broker_id == me.config.broker_id
                            && parse_controller_epoch(data.as_deref().unwrap_or_default()).is_ok_and(|e| e == ran_for)
                        {
                            return me.elected(Term { epoch: ran_for, fence_version: stat.version });
                        }
                        me.somebody_holds(holder.broker_id);
                    }
                    Err(error) => {
                        tracing::error!("/controller can't be read ({error}); nobody is controller until it is deleted");
                        me.resign();
                    }
                },
                Err(failure) if failure.error == ZkError::NoNode => {
                    // it was deleted under us: whoever is elected now has a new epoch
                    me.resign();
                    match epoch {
                        Ok(ZkReply::Data { data, stat }) => {
                            match parse_controller_epoch(data.as_deref().unwrap_or_default()) {
                                Ok(epoch) => me.run_for_office(epoch, stat.version),
                                Err(error) => {
                                    tracing::error!("/controller_epoch can't be read ({error}); put a number there");
                                    me.reelect_later();
                                }
                            }
                        }
                        Err(failure) if failure.error == ZkError::NoNode => {
                            let ops = vec![ZkOp::create(paths::CONTROLLER_EPOCH, Some(format_controller_epoch(0)))];
                            me.zk(ops, |me, _| me.elect());
                        }
                        _ => me.reelect_later(),
                    }
                }
                Err(failure) if failure.error == ZkError::SessionExpired => {}
                _ => me.reelect_later(),
            }
        });
    }

    fn somebody_holds(&mut self, broker_id: i32) {
        self.ran_for = None;
        let me = self.config.broker_id;
        if broker_id == me && self.term.is_some() {
            return;
        }
        if self.term.is_some() {
            tracing::warn!("broker {broker_id} is the controller now");
            self.resign();
        }
        if broker_id == me {
            // of our own earlier session, which will end; the watch tells
            tracing::info!(
                "/controller still names this broker's earlier session; waiting for it to end"
            );
        } else {
            tracing::info!("the controller is broker {broker_id}");
        }
    }

    fn run_for_office(&mut self, epoch: i32, version: i32) {
        let new_epoch = epoch.saturating_add(1);
        self.ran_for = Some(new_epoch);
        let znode = ControllerZnode::new(self.config.broker_id, self.now_ms);
        let ops = vec![ZkOp::Multi(vec![
            MultiStep::Create {
                path: paths::CONTROLLER.into(),
                data: Some(znode.to_bytes()),
                mode: CreateMode::Ephemeral,
            },
            MultiStep::SetData {
                path: paths::CONTROLLER_EPOCH.into(),
                data: Some(format_controller_epoch(new_epoch)),
                version,
            },
        ])];
        self.zk(ops, move |me, results| match results.into_iter().next() {
            Some(Ok(reply)) => {
                let fence_version = reply
                    .stat()
                    .map_or(version.wrapping_add(1), |stat| stat.version);
                me.elected(Term {
                    epoch: new_epoch,
                    fence_version,
                });
            }
            Some(Err(failure))
                if matches!(failure.error, ZkError::NodeExists | ZkError::BadVersion) =>
            {
                me.elect()
            }
            Some(Err(failure)) if failure.error == ZkError::SessionExpired => {}
            other => {
                tracing::error!("the election failed: {other:?}; trying again");
                me.reelect_later();
            }
        });
    }

    fn elected(&mut self, term: Term) {
        self.ran_for = None;
        self.term = Some(term);
        tracing::info!(
            broker = self.config.broker_id,
            epoch = term.epoch,
            "elected controller"
        );
        self.act(Action::Active(Some(term.epoch)));
        self.take_over();
    }

    /// A fenced write found another epoch: somebody else is controller, or `/controller_epoch` was written by hand. A
    /// controller that stayed on could never write again, so it gives the post up and stands again.
    pub(crate) fn fence_lost(&mut self) {
        tracing::warn!(
            "a write was refused because /controller_epoch changed: another controller took over, or the node was edited"
        );
        self.resign();
        let ops = vec![
            ZkOp::get(paths::CONTROLLER),
            ZkOp::get(paths::CONTROLLER_EPOCH),
        ];
        self.zk(ops, |me, results| {
            let [
                Ok(ZkReply::Data { data, .. }),
                Ok(ZkReply::Data { stat, .. }),
            ] = results.as_slice()
            else {
                return me.elect();
            };
            let names_me = ControllerZnode::parse(data.as_deref().unwrap_or_default())
                .is_ok_and(|z| z.broker_id == me.config.broker_id);
            if !names_me {
                return me.elect();
            }
            // only the node that was read: every later holder has raised the epoch
            let step = MultiStep::Delete {
                path: paths::CONTROLLER.into(),
                version: ANY_VERSION,
            };
            let ops = vec![ZkOp::fenced(stat.version, step)];
            me.zk(ops, |me, _| me.reelect_later());
        });
    }

    /// The take-over failed: others may try. Deletes `/controller`, fenced, and stands again after a pause.
    pub(crate) fn give_up_office(&mut self, why: &str) {
        tracing::error!("giving up the controllership: {why}");
        let step = MultiStep::Delete {
            path: paths::CONTROLLER.into(),
            version: ANY_VERSION,
        };
        let ops = vec![ZkOp::fenced(self.fence(), step)];
        self.resign();
        self.is_resting = true;
        self.zk(ops, |me, _| me.reelect_later());
    }
}
