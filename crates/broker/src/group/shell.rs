//! The state machine in its shell.
//!
//! One lock holds it. Whoever has an event steps it, and carries out the actions before the lock is let go: so records
//! lie in the log in the order of the decisions they record. An append that is done at once (the rule on a broker
//! whose partition has no other in-sync replica) is fed back in the same turn, and the answer needs no other task.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gracchus_groups::request::{
    DeleteGroups, DescribeGroup, Heartbeat, JoinGroup, LeaveGroup, ListGroups, OffsetCommit,
    OffsetDelete, OffsetFetch, SyncGroup, TopicPartition,
};
use gracchus_groups::response::{
    DescribedGroup, JoinGroupResult, LeaveGroupResult, ListGroupsResult, OffsetDeleteResult,
    OffsetFetchResult, SyncGroupResult,
};
use gracchus_groups::{
    Action, AppendBatch, AppendToken, Event, GroupCoordinator, ReplyToken, Request, Response,
};
use gracchus_kafka_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log::OffsetsLog;
use super::settings::Settings;
use super::{OFFSETS_TOPIC, batch, loading};
use crate::clock;
use crate::replica::LeadershipObserver;

/// Partitions that are loaded at the same time.
const PARALLEL_LOADS: usize = 2;
/// Wait for a new look at the clock, when nothing is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The group coordinator of this broker.
pub struct GroupShell {
    inner: Mutex<Inner>,
    /// Events that may come from under our own lock (a log that fails in an append): handled when it is free.
    posted: Mutex<VecDeque<Event>>,
    log: Arc<dyn OffsetsLog>,
    settings: Settings,
    /// Something is due earlier than the timer thinks.
    timer: Notify,
    loads: Arc<Semaphore>,
    started: Instant,
    running: AtomicBool,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

struct Inner {
    coordinator: GroupCoordinator,
    next_token: u64,
    waiting: HashMap<ReplyToken, oneshot::Sender<Response>>,
    /// When the timer will wake up by itself.
    timer_ms: Option<i64>,
}

impl GroupShell {
    /// Does not serve before [`GroupShell::start`].
    pub fn new(
        settings: Settings,
        log: Arc<dyn OffsetsLog>,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        let coordinator = GroupCoordinator::new(settings.group.clone(), || {
            uuid::Uuid::new_v4().hyphenated().to_string()
        });
        Arc::new(GroupShell {
            inner: Mutex::new(Inner {
                coordinator,
                next_token: 0,
                waiting: HashMap::new(),
                timer_ms: None,
            }),
            posted: Mutex::new(VecDeque::new()),
            log,
            settings,
            timer: Notify::new(),
            loads: Arc::new(Semaphore::new(PARALLEL_LOADS)),
            started: Instant::now(),
            running: AtomicBool::new(false),
            shutdown,
            tasks,
        })
    }

    /// Serves from now on. `offsets_partitions` is the number of partitions of the offsets topic if it exists; must come
    /// before this broker is told to lead any.
    pub fn start(self: &Arc<Self>, offsets_partitions: Option<i32>) {
        if let Some(count) = offsets_partitions {
            self.inner
                .lock()
                .coordinator
                .config_mut()
                .offsets_partitions = count;
        }
        self.running.store(true, Ordering::Release);
        self.step(Event::Started);
        self.tasks.spawn(self.clone().run_timer());
        self.tasks.spawn(self.clone().run_expiry());
    }

    /// Serves no more; who waits is told to look elsewhere.
    pub fn stop(self: &Arc<Self>) {
        if self.running.swap(false, Ordering::AcqRel) {
            self.step(Event::Stopped);
            self.inner.lock().waiting.clear();
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The partition of the offsets topic that a group belongs to.
    pub fn partition_for(&self, group_id: &str) -> i32 {
        self.inner.lock().coordinator.partition_for(group_id)
    }

    /// Partitions of user topics are gone.
    pub fn partitions_deleted(self: &Arc<Self>, partitions: Vec<TopicPartition>) {
        if !partitions.is_empty() {
            self.post(Event::PartitionsDeleted(partitions));
        }
    }

    /// For metrics: a look at the machine.
    pub fn inspect<T>(&self, look: impl FnOnce(&GroupCoordinator) -> T) -> T {
        look(&self.inner.lock().coordinator)
    }

    /// Milliseconds of a clock that never jumps, near to those since 1970.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Asks the coordinator; `None` when the broker stops.
    async fn ask(self: &Arc<Self>, request: Request) -> Option<Response> {
        let receiver = {
            let mut inner = self.inner.lock();
            let token = ReplyToken(inner.next_token);
            inner.next_token += 1;
            let mut own = None;
            let event = Event::Request { token, request };
            self.drive(&mut inner, event, Some((token, &mut own)));
            if own.is_some() {
                drop(inner);
                self.handle_posted();
                return own;
            }
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(token, sender);
            receiver
        };
        self.handle_posted();
        receiver.await.ok()
    }

    /// Handles an event, now.
    fn step(self: &Arc<Self>, event: Event) {
        self.drive(&mut self.inner.lock(), event, None);
        self.handle_posted();
    }

    /// Handles an event as soon as the lock is free; never waits for it.
    fn post(self: &Arc<Self>, event: Event) {
        self.posted.lock().push_back(event);
        self.handle_posted();
    }

    fn handle_posted(self: &Arc<Self>) {
        // whoever holds the lock comes by here after it
        while !self.posted.lock().is_empty() {
            let Some(mut inner) = self.inner.try_lock() else {
                return;
            };
            let event = self.posted.lock().pop_front();
            if let Some(event) = event {
                self.drive(&mut inner, event, None);
            }
        }
    }

    /// Steps the machine and carries out what it asks for, until nothing is left to do.
    fn drive(
        self: &Arc<Self>,
        inner: &mut Inner,
        event: Event,
        mut own: Option<(ReplyToken, &mut Option<Response>)>,
    ) {
        let now_ms = self.now_ms();
        inner
            .coordinator
            .set_wall_offset_ms(clock::now_ms().saturating_sub(now_ms));
        let mut actions = VecDeque::from(inner.coordinator.step(event, now_ms));
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Reply { token, response } => match &mut own {
                    Some((mine, slot)) if *mine == token => **slot = Some(response),
                    _ => {
                        if let Some(sender) = inner.waiting.remove(&token) {
                            // the client may have gone
                            let _ = sender.send(response);
                        }
                    }
                },
                Action::Append {
                    partition,
                    batch,
                    token,
                } => {
                    if let Some(event) = self.append(partition, &batch, token) {
                        actions.extend(inner.coordinator.step(event, now_ms));
                    }
                }
                Action::Load {
                    partition,
                    leader_epoch,
                } => {
                    self.tasks.spawn(self.clone().load(partition, leader_epoch));
                }
            }
        }
        let next_ms = inner.coordinator.next_deadline_ms();
        if next_ms.is_some() && inner.timer_ms.is_none_or(|at_ms| next_ms < Some(at_ms)) {
            self.timer.notify_one();
        }
    }

    /// Starts an append. If it is done at once, its outcome.
    fn append(
        self: &Arc<Self>,
        partition: i32,
        records: &AppendBatch,
        token: Option<AppendToken>,
    ) -> Option<Event> {
        let done = |result| token.map(|token| Event::AppendDone { token, result });
        let bytes = match batch::encode(records, self.settings.codec) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(
                    partition = %format_args!("{OFFSETS_TOPIC}-{partition}"),
                    %error,
                    "a record of a group cannot be encoded"
                );
                return done(Err(ErrorCode::UnknownServerError));
            }
        };
        let acks = match token {
            Some(_) => self.settings.required_acks,
            None => 0,
        };
        let timeout = self.settings.commit_timeout;
        let mut append = self.log.clone().append(partition, bytes, acks, timeout);
        // the first poll puts it into the log; its waker is of no use, the task's own poll registers again
        match append
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(result) => {
                if let (Err(error), None) = (&result, token) {
                    tracing::warn!(
                        partition = %format_args!("{OFFSETS_TOPIC}-{partition}"),
                        error = error.name(),
                        "tombstones of expired or deleted offsets could not be written; they are written again when \
                         the groups are loaded and expire anew"
                    );
                }
                done(result)
            }
            Poll::Pending => {
                let shell = self.clone();
                self.tasks.spawn(async move {
                    // replicas bound it themselves; should they not, twice the time is all it gets
                    let result = tokio::time::timeout(timeout.saturating_mul(2), append)
                        .await
                        .unwrap_or(Err(ErrorCode::RequestTimedOut));
                    if let Some(token) = token {
                        shell.step(Event::AppendDone { token, result });
                    }
                });
                None
            }
        }
    }

    async fn load(self: Arc<Self>, partition: i32, leader_epoch: i32) {
        let Ok(permit) = self.loads.clone().acquire_owned().await else {
            return;
        };
        let begun = Instant::now();
        let shell = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let wanted = || !shell.shutdown.is_cancelled();
            loading::load(&*shell.log, partition, shell.settings.load_buffer, wanted)
        });
        let (contents, error) = match read.await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(partition, %error, "loading groups and offsets was interrupted");
                Default::default()
            }
        };
        drop(permit);
        let name = format!("{OFFSETS_TOPIC}-{partition}");
        match error {
            None => tracing::info!(
                partition = name,
                leader_epoch,
                records = contents.records,
                skipped = contents.skipped,
                ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                "loaded groups and offsets"
            ),
            Some(error) => tracing::error!(
                partition = name,
                leader_epoch,
                records = contents.records,
                %error,
                "loading groups and offsets ended early: offsets behind that point are not known. Check the disk; \
                 after mending it, restart the broker"
            ),
        }
        self.step(Event::Loaded {
            partition,
            leader_epoch,
            contents,
        });
    }

    async fn run_timer(self: Arc<Self>) {
        loop {
            let sleep = {
                let mut inner = self.inner.lock();
                let next_ms = inner.coordinator.next_deadline_ms();
                inner.timer_ms = next_ms;
                next_ms.map_or(LONGEST_SLEEP, |at_ms| {
                    let left = at_ms.saturating_sub(self.now_ms());
                    Duration::from_millis(u64::try_from(left).unwrap_or(0))
                })
            };
            self.handle_posted();
            tokio::select! {
                () = tokio::time::sleep(sleep) => self.step(Event::Timer),
                () = self.timer.notified() => {}
                () = self.shutdown.cancelled() => return,
            }
        }
    }

    async fn run_expiry(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(self.settings.retention_check);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.step(Event::ExpireOffsets),
                () = self.shutdown.cancelled() => return,
            }
        }
    }
}

impl LeadershipObserver for Arc<GroupShell> {
    fn became_leader(&self, partition: &gracchus_log::TopicPartition, leader_epoch: i32) {
        if *partition.topic == *OFFSETS_TOPIC {
            self.post(Event::Elected {
                partition: partition.partition,
                leader_epoch,
            });
        }
    }

    fn lost_leadership(&self, partition: &gracchus_log::TopicPartition, leader_epoch: Option<i32>) {
        if *partition.topic == *OFFSETS_TOPIC {
            self.post(Event::Resigned {
                partition: partition.partition,
                leader_epoch,
            });
        }
    }
}

/// One typed call a request: the answer's kind is the request's.
macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident($request:ident) -> $result:ty, $kind:ident, $stopped:expr;)*) => {
        impl GroupShell {
            $($(#[$doc])*
            pub async fn $call(self: &Arc<Self>, request: $request) -> $result {
                match self.ask(Request::$kind(request)).await {
                    Some(Response::$kind(result)) => result,
                    _ => $stopped,
                }
            })*
        }
    };
}

const STOPPED: ErrorCode = ErrorCode::CoordinatorNotAvailable;

calls! {
    /// Waits until the rebalance is over.
    join_group(JoinGroup) -> JoinGroupResult, JoinGroup, JoinGroupResult::error("", STOPPED);
    /// Waits for the leader's assignment.
    sync_group(SyncGroup) -> SyncGroupResult, SyncGroup, SyncGroupResult::error(STOPPED);
    /// Answered at once.
    heartbeat(Heartbeat) -> ErrorCode, Heartbeat, STOPPED;
    /// Answered at once.
    leave_group(LeaveGroup) -> LeaveGroupResult, LeaveGroup, LeaveGroupResult { error: STOPPED, members: Vec::new() };
    /// Waits for the log. No outcome of a partition: the broker stops.
    commit_offsets(OffsetCommit) -> Vec<(TopicPartition, ErrorCode)>, OffsetCommit, Vec::new();
    /// Answered at once.
    fetch_offsets(OffsetFetch) -> OffsetFetchResult, OffsetFetch, OffsetFetchResult { error: STOPPED, offsets: Vec::new() };
    /// Answered at once.
    delete_offsets(OffsetDelete) -> OffsetDeleteResult, OffsetDelete, OffsetDeleteResult { error: STOPPED, partitions: Vec::new() };
    /// Answered at once.
    list_groups(ListGroups) -> ListGroupsResult, ListGroups, ListGroupsResult { error: STOPPED, groups: Vec::new() };
    /// Answered at once.
    describe_group(DescribeGroup) -> DescribedGroup, DescribeGroup, DescribedGroup {
        error: STOPPED,
        state: String::new(),
        protocol_type: String::new(),
        protocol: String::new(),
        members: Vec::new(),
    };
    /// Answered at once.
    delete_groups(DeleteGroups) -> Vec<(String, ErrorCode)>, DeleteGroups, Vec::new();
}
