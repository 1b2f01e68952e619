//! The controller's send queues: requests to a broker go in order, one outstanding, each tried until it is answered.

use std::collections::{BTreeMap, VecDeque};

use gracchus_broker::controller::{deleted, leader_and_isr_errors};
use gracchus_controller::{ControlRequest, Event as ControllerEvent};

use crate::requests::{Purpose, Request, Response};
use crate::world::World;

pub const RETRY_US: u64 = 100_000;
const REQUESTS_MAX: usize = 1000;

#[derive(Default)]
struct Queue {
    number: u64,
    waiting: VecDeque<ControlRequest>,
    /// The first that waits is under way.
    is_sent: bool,
    not_before: u64,
}

#[derive(Default)]
pub struct Control {
    queues: BTreeMap<i32, Queue>,
    opened: u64,
}

impl Control {
    pub fn connect(&mut self, broker: i32) {
        self.opened += 1;
        let queue = Queue {
            number: self.opened,
            ..Queue::default()
        };
        self.queues.insert(broker, queue);
    }

    pub fn disconnect(&mut self, broker: i32) {
        self.queues.remove(&broker);
    }

    /// An event that comes of it when too many wait.
    pub fn send(&mut self, broker: i32, request: ControlRequest) -> Option<ControllerEvent> {
        let queue = self.queues.get_mut(&broker)?;
        if queue.waiting.len() >= REQUESTS_MAX {
            self.connect(broker);
            return Some(ControllerEvent::RequestsDropped { broker_id: broker });
        }
        queue.waiting.push_back(request);
        None
    }

    pub fn go_on(&mut self, world: &mut World, own: i32, incarnation: u64) {
        for (broker, queue) in &mut self.queues {
            if queue.is_sent || queue.not_before > world.now_us {
                continue;
            }
            let Some(request) = queue.waiting.front() else {
                continue;
            };
            queue.is_sent = true;
            let purpose = Purpose::Control(*broker, queue.number);
            let request = Request::Control(request.clone());
            world.call(own, incarnation, *broker, purpose, request);
        }
    }

    pub fn answered(
        &mut self,
        world: &mut World,
        broker: i32,
        number: u64,
        response: Result<Response, &'static str>,
    ) -> Option<ControllerEvent> {
        let queue = self.queues.get_mut(&broker)?;
        if queue.number != number {
            return None;
        }
        queue.is_sent = false;
        let Ok(response) = response else {
            queue.not_before = world.now_us + RETRY_US;
            return None;
        };
        let request = queue.waiting.pop_front()?;
        match (&request, &response) {
            (ControlRequest::LeaderAndIsr(request, _), Response::LeaderAndIsr(answer)) => {
                Some(ControllerEvent::LeaderAndIsrAnswered {
                    broker_id: broker,
                    partitions: leader_and_isr_errors(request, answer),
                })
            }
            (ControlRequest::StopReplica(request, _), Response::StopReplica(answer)) => {
                Some(ControllerEvent::StopReplicaAnswered {
                    broker_id: broker,
                    partitions: deleted(request, answer),
                })
            }
            _ => None,
        }
    }
}
