//! What the controller's state machine asks for is done here.

use gracchus_controller::{Action, ApiResult, Event as ControllerEvent};

use super::{Done, Process};
use crate::requests::Response;
use crate::world::World;

impl Process {
    pub(super) fn step_controller(&mut self, world: &mut World, event: ControllerEvent) {
        let id = self.id;
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if !matches!(event, ControllerEvent::ZkResult { .. }) {
                world.log(|| format!("{id} controller: {}", event.name()));
            }
            for action in self.controller.step(event, world.now_ms()) {
                match action {
                    Action::Zk { token, ops } => {
                        world.log(|| {
                            let paths: Vec<&str> = ops.iter().map(|op| op.path()).collect();
                            format!("{id} controller: {paths:?}")
                        });
                        let registry = self.registry.clone();
                        self.run(async move { Done::Zk(token, registry.execute(ops).await) });
                    }
                    Action::Send { broker_id, request } => {
                        if let Some(overrun) = self.control.send(broker_id, request) {
                            next = Some(overrun);
                        }
                    }
                    Action::Connect { broker_id, .. } => self.control.connect(broker_id),
                    Action::Disconnect { broker_id } => self.control.disconnect(broker_id),
                    Action::Reply { token, result } => {
                        if let Some(call) = self.open.remove(&token)
                            && let ApiResult::AlterPartition(answer) = result
                        {
                            world.answer(call, Response::AlterPartition(answer));
                        }
                    }
                    Action::SetTimer { timer, after_ms } => {
                        let at = world.now_us + after_ms * 1000;
                        self.timers.push((at, ControllerEvent::Timer(timer)));
                        self.wake_at(world, at);
                    }
                    Action::Active(epoch) => {
                        world.log(|| format!("{id} is controller: {epoch:?}"));
                    }
                }
            }
        }
    }
}
