//! The task that owns the state machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gracchus_controller::{Action, ApiResult, Controller, Event};
use gracchus_kafka_proto::Uuid;
use gracchus_registry::json::BrokerRegistration;
use tokio::sync::{mpsc, oneshot};

use super::link::{self, Link};
use super::{ControllerShell, Input, settings};
use crate::broker::Broker;
use crate::clock::now_ms;

/// An event that waits for ZooKeeper longer than this is named, and then every so often.
const LONG: Duration = Duration::from_secs(10);

pub(super) struct Task {
    broker: Arc<Broker>,
    shell: Arc<ControllerShell>,
    inputs: mpsc::Sender<Input>,
    controller: Controller,
    links: HashMap<i32, Link>,
    open: HashMap<u64, oneshot::Sender<ApiResult>>,
    next_token: u64,
    /// Since when the same event waits for ZooKeeper.
    waits_since: Option<Instant>,
}

impl Task {
    pub(super) fn new(
        broker: Arc<Broker>,
        shell: Arc<ControllerShell>,
        inputs: mpsc::Sender<Input>,
    ) -> Self {
        let config = settings::controller_config(&broker);
        Self {
            broker,
            shell,
            inputs,
            controller: Controller::new(config, random_topic_id),
            links: HashMap::new(),
            open: HashMap::new(),
            next_token: 1,
            waits_since: None,
        }
    }

    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut watchdog = tokio::time::interval(LONG);
        loop {
            let input = tokio::select! {
                () = self.broker.shutdown.cancelled() => return,
                input = inputs.recv() => input,
                _ = watchdog.tick() => {
                    self.tell_of_a_long_wait();
                    continue;
                }
            };
            let event = match input {
                None => return,
                Some(Input::Event(event)) => event,
                Some(Input::Api(make, done)) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.open.insert(token, done);
                    make(token)
                }
            };
            let unclean = self.broker.config.current().unclean_leader_election_enable;
            self.controller.set_unclean_leader_election(unclean);
            let mut next = Some(event);
            while let Some(event) = next.take() {
                for action in self.controller.step(event, now_ms()) {
                    if let Some(overrun) = self.act(action) {
                        next = Some(overrun);
                    }
                }
            }
            if !self.controller.is_waiting() {
                self.waits_since = None;
            } else if self.waits_since.is_none() {
                self.waits_since = Some(Instant::now());
            }
        }
    }

    /// Nothing else would show that the controller stands still, for instance while ZooKeeper is gone.
    fn tell_of_a_long_wait(&self) {
        let waited = self.waits_since.map_or(Duration::ZERO, |at| at.elapsed());
        if waited >= LONG
            && let Some((event, behind)) = self.controller.waits_with()
        {
            tracing::warn!(
                "the controller has waited {} s for ZooKeeper with {event}; {behind} more events wait behind it",
                waited.as_secs()
            );
        }
    }

    /// Carries an action out; gives an event that comes of it at once.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Zk { token, ops } => {
                // beside this task, so that an expired session is heard of while the operations wait
                let (broker, inputs) = (self.broker.clone(), self.inputs.clone());
                self.broker.tasks.spawn(async move {
                    let deliver = |results| {
                        let inputs = inputs.clone();
                        async move {
                            let result = Event::ZkResult { token, results };
                            let _ = inputs.send(Input::Event(result)).await;
                        }
                    };
                    broker.registry.execute_in_parts(ops, deliver).await;
                });
            }
            Action::Send { broker_id, request } => {
                if let Some(link) = self.links.get_mut(&broker_id)
                    && !link.send(request)
                {
                    tracing::warn!(
                        "broker {broker_id} has not taken {} requests: they are dropped, and it is told everything anew",
                        link::REQUESTS_MAX
                    );
                    let registration = link.registration.clone();
                    self.connect(broker_id, registration);
                    return Some(Event::RequestsDropped { broker_id });
                }
            }
            Action::Connect {
                broker_id,
                registration,
            } => {
                self.connect(broker_id, registration);
            }
            Action::Disconnect { broker_id } => {
                self.links.remove(&broker_id);
            }
            Action::Reply { token, result } => {
                if let Some(done) = self.open.remove(&token) {
                    let _ = done.send(result);
                }
            }
            Action::SetTimer { timer, after_ms } => {
                let (inputs, shutdown) = (self.inputs.clone(), self.broker.shutdown.clone());
                self.broker.tasks.spawn(async move {
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = tokio::time::sleep(Duration::from_millis(after_ms)) => {
                            let _ = inputs.send(Input::Event(Event::Timer(timer))).await;
                        }
                    }
                });
            }
            Action::Active(epoch) => self.shell.set_active(epoch),
        }
        None
    }

    fn connect(&mut self, broker_id: i32, registration: BrokerRegistration) {
        let link = Link::open(&self.broker, broker_id, registration, self.inputs.clone());
        self.links.insert(broker_id, link);
    }
}

/// A random id that is none of the reserved ones and does not begin with a dash, which tools would take for an option.
fn random_topic_id() -> Uuid {
    loop {
        let id = Uuid::from_bytes(*uuid::Uuid::new_v4().as_bytes());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}
