//! The shell around the controller: one task owns the state machine, carries out its actions and feeds it the session's
//! events, the brokers' answers and the requests that only the active controller may carry out.
//!
//! `lifecycle` calls, in this order: [`ControllerShell::new`], then (after the registration) [`ControllerShell::start`],
//! then [`ControllerShell::zk_event`] for each event of the ZooKeeper session, in order. When the session has expired:
//! [`ControllerShell::session_expired`] before a new session is opened, and [`ControllerShell::registered`] when the
//! broker is registered again. [`ControllerShell::stop`] comes first in a shutdown after the controlled part.

mod link;
mod settings;
mod task;
mod unclean;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use gracchus_controller::{ApiResult, Event, Outcome, PartitionKey, Reassigning};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{AlterPartitionRequest, AlterPartitionResponse};
use gracchus_zk_client::ZkEvent;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::broker::Broker;

pub use crate::topic_creation::auto::auto_create_topics;
pub use link::{deleted, leader_and_isr_errors};
pub use settings::settings;

/// Inputs that wait for the task, which never waits itself; who sends more waits with them.
const INPUTS_MAX: usize = 1024;

/// What the task takes in.
pub(crate) enum Input {
    Event(Event),
    /// An event that is answered; the task gives it its token.
    Api(
        Box<dyn FnOnce(u64) -> Event + Send>,
        oneshot::Sender<ApiResult>,
    ),
}

/// The controller of this broker, active or not.
pub struct ControllerShell {
    inputs: mpsc::Sender<Input>,
    receiver: Mutex<Option<mpsc::Receiver<Input>>>,
    /// Controller epoch of the present term, -1 when not active.
    epoch: AtomicI32,
}

impl ControllerShell {
    pub fn new() -> Arc<Self> {
        let (inputs, receiver) = mpsc::channel(INPUTS_MAX);
        Arc::new(Self {
            inputs,
            receiver: Mutex::new(Some(receiver)),
            epoch: AtomicI32::new(-1),
        })
    }

    /// The broker is registered: takes part in elections from now on.
    pub fn start(self: &Arc<Self>, broker: &Arc<Broker>) {
        let Some(receiver) = self.receiver.lock().take() else {
            return;
        };
        let task = task::Task::new(broker.clone(), self.clone(), self.inputs.clone());
        let registered = self.inputs.try_send(Input::Event(Event::Registered));
        if registered.is_err() {
            // nobody sends before the start
            tracing::error!(
                "the controller's queue is full at its start; this broker stands for no election"
            );
        }
        broker.spawn_vital("the controller", task.run(receiver));
        unclean::start(broker, self);
    }

    pub(super) async fn tell(&self, event: Event) {
        // the task is gone only when the broker stops
        let _ = self.inputs.send(Input::Event(event)).await;
    }

    /// One event of the session, in order.
    pub async fn zk_event(&self, event: &ZkEvent) {
        if let ZkEvent::Watch(watch) = event
            && let Some(event) = Event::of_watch(&watch.path)
        {
            self.tell(event).await;
        }
    }

    /// The session is over: resigns without touching ZooKeeper, ahead of all that waits.
    pub async fn session_expired(&self) {
        self.epoch.store(-1, Ordering::Release);
        self.tell(Event::SessionExpired).await;
    }

    /// The broker is registered again under a new session.
    pub async fn registered(&self, _broker_epoch: i64) {
        self.tell(Event::Registered).await;
    }

    /// Resigns and stops. `/controller` goes with the session.
    pub async fn stop(&self) {
        self.epoch.store(-1, Ordering::Release);
        self.tell(Event::Stop).await;
    }

    /// Is this broker the active controller? Requests that only it may carry out answer NOT_CONTROLLER otherwise.
    pub fn is_active(&self) -> bool {
        self.epoch.load(Ordering::Acquire) >= 0
    }

    pub(crate) fn set_active(&self, epoch: Option<i32>) {
        self.epoch.store(epoch.unwrap_or(-1), Ordering::Release);
    }

    async fn ask(&self, event: impl FnOnce(u64) -> Event + Send + 'static) -> Option<ApiResult> {
        let (done, answer) = oneshot::channel();
        self.inputs
            .send(Input::Api(Box::new(event), done))
            .await
            .ok()?;
        answer.await.ok()
    }

    /// AlterPartition (56), by the active controller; `version` decides between names and topic ids and some error codes.
    pub async fn alter_partition(
        &self,
        request: AlterPartitionRequest,
        version: i16,
    ) -> AlterPartitionResponse {
        let asked = self.ask(move |token| Event::AlterPartition {
            token,
            request,
            version,
        });
        match asked.await {
            Some(ApiResult::AlterPartition(answer)) => answer,
            _ => AlterPartitionResponse {
                error_code: ErrorCode::NotController.code(),
                ..Default::default()
            },
        }
    }

    /// A block of producer ids for a broker: first id and length.
    pub async fn allocate_producer_ids(
        &self,
        broker_id: i32,
        broker_epoch: i64,
    ) -> Result<(i64, i32), ErrorCode> {
        let asked = self.ask(move |token| Event::AllocateProducerIds {
            token,
            broker_id,
            broker_epoch,
        });
        match asked.await {
            Some(ApiResult::ProducerIds(answer)) => answer,
            _ => Err(ErrorCode::NotController),
        }
    }

    /// ControlledShutdown (7): moves leaders away; answers the partitions that the broker still leads.
    pub async fn controlled_shutdown(
        &self,
        broker_id: i32,
        broker_epoch: i64,
    ) -> Result<Vec<(String, i32)>, ErrorCode> {
        let asked = self.ask(move |token| Event::ControlledShutdown {
            token,
            broker_id,
            broker_epoch,
        });
        match asked.await {
            Some(ApiResult::ControlledShutdown(answer)) => answer,
            _ => Err(ErrorCode::NotController),
        }
    }

    /// ElectLeaders (43): the leader of each partition, or why there is none of that kind.
    pub async fn elect_leaders(
        &self,
        partitions: Vec<PartitionKey>,
        unclean: bool,
    ) -> Result<Vec<(PartitionKey, Outcome<i32>)>, ErrorCode> {
        let asked = self.ask(move |token| Event::ElectLeaders {
            token,
            partitions,
            unclean,
        });
        match asked.await {
            Some(ApiResult::Elections(answer)) => answer,
            _ => Err(ErrorCode::NotController),
        }
    }

    /// AlterPartitionReassignments (45): replicas to move to, None to give a move up.
    pub async fn alter_reassignments(
        &self,
        wanted: Vec<(PartitionKey, Option<Vec<i32>>)>,
    ) -> Result<Vec<(PartitionKey, Outcome<()>)>, ErrorCode> {
        let asked = self.ask(move |token| Event::AlterReassignments { token, wanted });
        match asked.await {
            Some(ApiResult::Reassigned(answer)) => answer,
            _ => Err(ErrorCode::NotController),
        }
    }

    /// ListPartitionReassignments (46); None: all.
    pub async fn list_reassignments(
        &self,
        wanted: Option<Vec<PartitionKey>>,
    ) -> Result<Vec<Reassigning>, ErrorCode> {
        let asked = self.ask(move |token| Event::ListReassignments { token, wanted });
        match asked.await {
            Some(ApiResult::Reassignments(answer)) => answer,
            _ => Err(ErrorCode::NotController),
        }
    }
}
