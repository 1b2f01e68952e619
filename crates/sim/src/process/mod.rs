//! A broker's process: the real replicas, controller, fetcher machines and ZooKeeper session, and between them thin shells
//! that run on the simulated clock instead of tasks and sockets. A crash drops it.

mod controller;
mod session;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gracchus_broker::config::ConfigStore;
use gracchus_broker::metadata::{MetadataCache, update};
use gracchus_broker::replica::ReplicaManager;
use gracchus_broker::replica::isr_changes;
use gracchus_broker::replica::log_config::log_config;
use gracchus_controller::{Controller, Event as ControllerEvent};
use gracchus_kafka_proto::messages::AlterPartitionResponse;
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::dirs::LogDirs;
use gracchus_log::{LoadControl, LogManager, LogManagerConfig, PendingLogs};
use gracchus_registry::op::ZkResult;
use gracchus_registry::registry::RegisterOutcome;
use gracchus_registry::{Registry, RegistryError};
use gracchus_zk_client::stepped::SteppedSession;
use gracchus_zk_client::{EventReceiver, ZkConfig};

use crate::answers;
use crate::cluster::TOPIC;
use crate::control::{Control, RETRY_US};
use crate::following::{Following, ProcessView};
use crate::requests::{Purpose, Request, Response};
use crate::world::{Event, World};

const TICK_US: u64 = 250_000;
/// Between two looks at a registration that is in the way, and after a failure.
const REGISTER_AGAIN_US: (u64, u64) = (250_000, 5_000_000);
/// Pause before ISR changes that were not taken are sent again.
const ISR_RETRY_US: u64 = 50_000;

/// What a future of this process came to.
enum Done {
    Zk(u64, Vec<ZkResult>),
    Prepared(Result<(), RegistryError>),
    Registered(Result<RegisterOutcome, RegistryError>),
    Answer(u64, Response),
    Nothing,
}

type Running = Pin<Box<dyn Future<Output = Done>>>;

pub struct Process {
    pub id: i32,
    pub incarnation: u64,
    pub replicas: Arc<ReplicaManager>,
    pub metadata: Arc<MetadataCache>,
    config: Arc<ConfigStore>,
    pub controller: Controller,
    pub broker_epoch: i64,
    session: SteppedSession,
    events: EventReceiver,
    registry: Registry,
    link: Option<u64>,
    heard_us: u64,
    sent_us: u64,
    /// When the logs are loaded, until they are.
    pending: Option<(u64, PendingLogs)>,
    is_prepared: bool,
    registering: bool,
    register_at: Option<u64>,
    inbox: VecDeque<ControllerEvent>,
    timers: Vec<(u64, ControllerEvent)>,
    /// AlterPartition requests that the controller works on.
    open: BTreeMap<u64, u64>,
    next_token: u64,
    control: Control,
    following: Following,
    isr_call: Option<u64>,
    isr_not_before: u64,
    running: Vec<Running>,
    ticks: u64,
}

impl Process {
    /// Starts over what the directory has.
    pub fn start(id: i32, incarnation: u64, dir: &Path, world: &mut World) -> Self {
        let props = [
            ("min.insync.replicas", "2"),
            ("replica.lag.time.max.ms", "3000"),
            ("auto.leader.rebalance.enable", "false"),
            ("log.index.size.max.bytes", "4096"),
            ("log.segment.bytes", "16384"),
        ];
        let props = props.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        let config = Arc::new(ConfigStore::new(props.collect()).expect("a configuration"));
        let metadata = Arc::new(MetadataCache::default());
        let now_ms = world.now_ms();
        let default = log_config(&config.topic(""));
        let settings = LogManagerConfig {
            recovery_threads: 1,
            ..LogManagerConfig::default()
        };
        let dirs = LogDirs::open(&[dir.to_path_buf()]).expect("a log directory");
        let (logs, pending) =
            LogManager::open(dirs, settings, default, now_ms).expect("the log directory opens");
        let replicas = Arc::new(ReplicaManager::new(
            id,
            config.clone(),
            metadata.clone(),
            Arc::new(logs),
        ));
        let following = Following::new(id, &config.current());
        replicas.follow_by(following.orders());
        let mut count = 0u8;
        let seed = (incarnation as u8).wrapping_mul(8).wrapping_add(id as u8);
        let controller = Controller::new(
            gracchus_broker::controller::settings(id, &config.current(), "PLAINTEXT".into()),
            move || {
                count = count.wrapping_add(1);
                let mut bytes = [seed | 1; 16];
                bytes[15] = count;
                Uuid::from_bytes(bytes)
            },
        );
        let mut zk_config = ZkConfig::new("sim:2181".parse().expect("a connect string"));
        zk_config.session_timeout = Duration::from_millis(6_000);
        let (zk, events, session) = SteppedSession::new(&zk_config);
        world.log(|| format!("broker {id} starts"));
        world.after(1, Event::Tick(id, incarnation));
        // each partition is served from when its log is loaded, which may be long after the registration
        let slow = world.random.pick(&[1_000, 100_000, 3_000_000]);
        let load_at = world.now_us + world.random.between(1, slow);
        world.at(load_at, Event::Wake(id, incarnation));
        Self {
            id,
            incarnation,
            replicas,
            metadata,
            config,
            controller,
            broker_epoch: -1,
            session,
            events,
            registry: Registry::new(zk, false),
            link: None,
            heard_us: 0,
            sent_us: 0,
            pending: Some((load_at, pending)),
            is_prepared: false,
            registering: false,
            register_at: None,
            inbox: VecDeque::new(),
            timers: Vec::new(),
            open: BTreeMap::new(),
            next_token: 1,
            control: Control::default(),
            following,
            isr_call: None,
            isr_not_before: 0,
            running: Vec::new(),
            ticks: 0,
        }
    }

    fn zk_now(world: &World) -> Duration {
        Duration::from_micros(world.now_us)
    }

    fn run(&mut self, work: impl Future<Output = Done> + 'static) {
        // the simulator polls by hand: tokio's budget of polls means nothing here
        self.running
            .push(Box::pin(tokio::task::unconstrained(work)));
    }

    fn load(&mut self, world: &mut World) {
        let now = world.now_us;
        let Some((_, pending)) = self.pending.take_if(|(at, _)| *at <= now) else {
            return;
        };
        let id = self.id;
        world.log(|| format!("{id} loads its logs"));
        let now_ms = world.now_ms();
        let control = LoadControl {
            loaded: &|log| self.replicas.log_loaded(log, now_ms),
            ..LoadControl::default()
        };
        let default = log_config(&self.config.topic(""));
        let logs = self.replicas.logs();
        if !logs.load_pending(pending, &|_| default.clone(), now_ms, &control) {
            world.violated(format!("the logs of broker {id} do not load"));
        }
    }

    pub fn wake_at(&self, world: &mut World, at: u64) {
        world.at(at, Event::Wake(self.id, self.incarnation));
    }

    // --- requests

    pub fn asked(&mut self, world: &mut World, call: u64, request: Request) {
        let now_ms = world.now_ms();
        match request {
            Request::Control(request) => {
                let (replicas, epoch) = (&self.replicas, self.broker_epoch);
                let response = answers::control(replicas, &self.metadata, epoch, request, now_ms);
                world.answer(call, response);
            }
            Request::AlterPartition(request, version) => {
                if !self.controller.is_active() {
                    let error_code = ErrorCode::NotController.code();
                    let refused = AlterPartitionResponse {
                        error_code,
                        ..Default::default()
                    };
                    return world.answer(call, Response::AlterPartition(refused));
                }
                self.next_token += 1;
                self.open.insert(self.next_token, call);
                self.inbox.push_back(ControllerEvent::AlterPartition {
                    token: self.next_token,
                    request,
                    version,
                });
            }
            Request::Leader => {
                let snapshot = self.metadata.snapshot();
                let leader = snapshot.partition(TOPIC, 0).map(|found| found.leader);
                let known = leader.filter(|leader| *leader >= 0);
                world.answer(call, Response::Leader(known));
            }
            request => {
                let wait_ms = match &request {
                    Request::Fetch(request, _) => request.max_wait_ms,
                    Request::Produce(request, _) => request.timeout_ms,
                    _ => 0,
                };
                let at = world.now_us + (wait_ms.max(0) as u64 + 2) * 1000;
                self.wake_at(world, at);
                let replicas = self.replicas.clone();
                self.run(async move {
                    Done::Answer(call, answers::of_replicas(&replicas, request).await)
                });
            }
        }
    }

    pub fn answered(
        &mut self,
        world: &mut World,
        call: u64,
        purpose: Purpose,
        response: Result<Response, &'static str>,
    ) {
        match purpose {
            Purpose::Fetcher(leader) => {
                let view = view(
                    self.id,
                    self.incarnation,
                    self.broker_epoch,
                    &self.replicas,
                    &self.metadata,
                );
                self.following
                    .answered(world, &view, leader, call, response);
            }
            Purpose::Control(broker, number) => {
                if response.is_err() {
                    self.wake_at(world, world.now_us + RETRY_US);
                }
                let event = self.control.answered(world, broker, number, response);
                self.inbox.extend(event);
            }
            Purpose::IsrChange(question) => {
                if self.isr_call == Some(call) {
                    self.isr_call = None;
                }
                let answer = match response {
                    Ok(Response::AlterPartition(answer)) => Ok(answer),
                    Ok(_) => Err("another answer".to_owned()),
                    Err(error) => Err(error.to_owned()),
                };
                let id = self.id;
                world.log(|| format!("{id} AlterPartition came to {answer:?}"));
                let now_ms = world.now_ms();
                if isr_changes::answered(&self.replicas, *question, answer, now_ms) {
                    self.isr_not_before = world.now_us + ISR_RETRY_US;
                    self.wake_at(world, self.isr_not_before);
                }
            }
            Purpose::Client => {}
        }
    }

    fn propose(&mut self, world: &mut World) {
        if self.isr_call.is_some() || world.now_us < self.isr_not_before {
            return;
        }
        let own = (self.id, self.broker_epoch);
        let Some(question) = isr_changes::question(&self.replicas, own, 3) else {
            return;
        };
        let snapshot = self.metadata.snapshot();
        let controller = snapshot.controller_id;
        match controller.filter(|id| snapshot.is_alive(*id)) {
            Some(controller) => {
                let request = Request::AlterPartition(question.request.clone(), question.version);
                let purpose = Purpose::IsrChange(Box::new(question));
                let call = world.call(self.id, self.incarnation, controller, purpose, request);
                self.isr_call = Some(call);
            }
            None => {
                let unknown = Err("no controller is known".to_owned());
                isr_changes::answered(&self.replicas, question, unknown, world.now_ms());
                self.isr_not_before = world.now_us + ISR_RETRY_US;
                self.wake_at(world, self.isr_not_before);
            }
        }
    }

    // --- time

    pub fn tick(&mut self, world: &mut World) {
        self.ticks += 1;
        self.keep_session(world);
        if self.ticks.is_multiple_of(6) {
            self.replicas.shrink_isrs(world.now_ms());
        }
        if self.ticks.is_multiple_of(20) {
            self.replicas.logs().checkpoint_high_watermarks();
        }
        if self.ticks.is_multiple_of(40) {
            self.replicas.logs().run_flush_once(world.now_ms());
            self.replicas.logs().checkpoint_recovery_points();
        }
        world.after(TICK_US, Event::Tick(self.id, self.incarnation));
    }

    /// Goes on with everything that can go on now.
    pub fn settle(&mut self, world: &mut World) {
        for _ in 0..1000 {
            let mut moved = false;
            while let Ok(event) = self.events.try_recv() {
                self.session_event(world, event);
                moved = true;
            }
            self.register(world);
            self.load(world);
            let now = world.now_us;
            let due: Vec<usize> = (0..self.timers.len())
                .filter(|at| self.timers[*at].0 <= now)
                .collect();
            for at in due.into_iter().rev() {
                self.inbox.push_back(self.timers.remove(at).1);
            }
            while let Some(event) = self.inbox.pop_front() {
                self.step_controller(world, event);
                moved = true;
            }
            moved |= self.poll(world);
            let view = view(
                self.id,
                self.incarnation,
                self.broker_epoch,
                &self.replicas,
                &self.metadata,
            );
            moved |= self.following.go_on(world, &view);
            self.control.go_on(world, self.id, self.incarnation);
            self.propose(world);
            let bytes = self.session.flush(Self::zk_now(world));
            if let Some(link) = self.link
                && !bytes.is_empty()
            {
                self.sent_us = world.now_us;
                world.send_to_server(link, bytes);
            }
            if !moved {
                return;
            }
        }
        let id = self.id;
        world.violated(format!("broker {id} never comes to rest"));
    }

    fn poll(&mut self, world: &mut World) -> bool {
        let mut done = Vec::new();
        self.running.retain_mut(|running| {
            match running
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(outcome) => {
                    done.push(outcome);
                    false
                }
                Poll::Pending => true,
            }
        });
        let moved = !done.is_empty();
        for outcome in done {
            match outcome {
                Done::Zk(token, results) => {
                    self.inbox
                        .push_back(ControllerEvent::ZkResult { token, results });
                }
                Done::Prepared(outcome) => {
                    self.registering = false;
                    self.is_prepared = outcome.is_ok();
                    let pause = if outcome.is_ok() {
                        0
                    } else {
                        REGISTER_AGAIN_US.0
                    };
                    self.register_later(world, pause);
                }
                Done::Registered(outcome) => {
                    self.registering = false;
                    let id = self.id;
                    world.log(|| format!("{id} registers: {outcome:?}"));
                    match outcome {
                        Ok(RegisterOutcome::Registered { epoch }) => {
                            self.broker_epoch = epoch;
                            self.inbox.push_back(ControllerEvent::Registered);
                        }
                        Ok(RegisterOutcome::Taken { .. }) => {
                            self.register_later(world, REGISTER_AGAIN_US.0);
                        }
                        Err(_) => self.register_later(world, REGISTER_AGAIN_US.1),
                    }
                }
                Done::Answer(call, response) => world.answer(call, response),
                Done::Nothing => {}
            }
        }
        moved
    }
}

fn view<'a>(
    id: i32,
    incarnation: u64,
    broker_epoch: i64,
    replicas: &'a ReplicaManager,
    metadata: &MetadataCache,
) -> ProcessView<'a> {
    ProcessView {
        id,
        incarnation,
        broker_epoch,
        replicas,
        alive: metadata.snapshot().brokers.keys().copied().collect(),
    }
}

/// UpdateMetadata into the cache.
pub fn learn(
    metadata: &MetadataCache,
    request: &gracchus_kafka_proto::messages::UpdateMetadataRequest,
) {
    metadata.update(|snapshot| {
        update::apply(snapshot, request);
    });
}
