//! The queue, and the event at work.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use gracchus_kafka_proto::ErrorCode;

use crate::action::Action;
use crate::config::ControllerConfig;
use crate::core::Core;
use crate::event::Event;
use crate::port::Port;

/// Figures for metrics, as of the last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauges {
    pub active: bool,
    pub controller_epoch: i32,
    pub live_brokers: usize,
    pub topics: usize,
    pub partitions: usize,
    pub offline_partitions: usize,
    pub preferred_replica_imbalance: usize,
    pub topics_to_delete: usize,
}

type Running = Pin<Box<dyn Future<Output = Box<Core>> + Send>>;

/// A broker's controller, active or not.
pub struct Controller {
    port: Port,
    /// At rest: nothing is at work.
    core: Option<Box<Core>>,
    running: Option<Running>,
    queue: VecDeque<Event>,
    /// Someone else's or our own id as last read from `/controller`.
    active_id: i32,
    gauges: Gauges,
}

impl Controller {
    pub fn new(config: ControllerConfig) -> Self {
        let port = Port::default();
        Self {
            core: Some(Box::new(Core::new(config, port.clone()))),
            port,
            running: None,
            queue: VecDeque::new(),
            active_id: -1,
            gauges: Gauges::default(),
        }
    }

    /// One event; the actions in the order in which they are to be done.
    pub fn step(&mut self, event: Event, now_ms: i64) -> Vec<Action> {
        self.port.set_now(now_ms);
        match event {
            Event::ZkResult { token, results } => {
                if self.port.deliver(token, results) {
                    self.poll();
                }
            }
            Event::SessionExpired => {
                self.refuse_queued();
                self.queue.push_front(Event::SessionExpired);
            }
            event => self.queue.push_back(event),
        }
        while self.running.is_none() {
            let (Some(event), Some(core)) = (self.queue.pop_front(), self.core.take()) else {
                break;
            };
            self.running = Some(Box::pin(core.handle(event)));
            self.poll();
        }
        self.port.take_actions()
    }

    /// Figures for metrics.
    pub fn gauges(&self) -> Gauges {
        self.gauges
    }

    /// The controller's id as this broker last saw it; -1 none.
    pub fn active_id(&self) -> i32 {
        self.active_id
    }

    /// Events that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    fn poll(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let mut context = TaskContext::from_waker(Waker::noop());
        if let Poll::Ready(core) = running.as_mut().poll(&mut context) {
            self.running = None;
            self.active_id = core.active_id;
            self.gauges = core.gauges();
            self.core = Some(core);
        }
    }

    fn refuse_queued(&mut self) {
        let mut kept = VecDeque::new();
        for event in self.queue.drain(..) {
            match event {
                Event::Api { token, request } => self.port.act(Action::Reply {
                    token,
                    reply: request.refused(ErrorCode::NotController),
                }),
                // not the cluster's state, but ours
                Event::Config(_) | Event::Stop | Event::Startup => kept.push_back(event),
                _ => {}
            }
        }
        self.queue = kept;
    }
}
