//! The fetchers' tasks: for each leader one machine, which asks one question after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_broker::config::BrokerConfig;
use gracchus_broker::replica::ReplicaManager;
use gracchus_broker::replica::fetcher::steps::Step;
use gracchus_broker::replica::fetcher::{Fetcher, Follow, Order, Settings, Work};
use gracchus_log::TopicPartition;
use parking_lot::Mutex;

use crate::requests::{Purpose, Request, Response};
use crate::world::World;

/// Told by the replicas, in order: whom to follow, or to leave the partition.
#[derive(Clone, Default)]
pub struct Orders(Arc<Mutex<Vec<Told>>>);

type Told = (TopicPartition, Option<(i32, Order)>);

impl Follow for Orders {
    fn follow(&self, id: &TopicPartition, leader: i32, order: Order) {
        self.0.lock().push((id.clone(), Some((leader, order))));
    }

    fn leave(&self, id: &TopicPartition) {
        self.0.lock().push((id.clone(), None));
    }
}

struct Task {
    fetcher: Fetcher,
    orders: BTreeMap<TopicPartition, Option<Order>>,
    /// The question that is under way.
    call: Option<u64>,
    not_before: u64,
}

pub struct Following {
    settings: Settings,
    orders: Orders,
    at: BTreeMap<TopicPartition, i32>,
    tasks: BTreeMap<i32, Task>,
}

impl Following {
    pub fn new(id: i32, config: &BrokerConfig) -> Self {
        Self {
            settings: Settings::new(id, config),
            orders: Orders::default(),
            at: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    pub fn orders(&self) -> Orders {
        self.orders.clone()
    }

    fn take_orders(&mut self) -> bool {
        let told = std::mem::take(&mut *self.orders.0.lock());
        let moved = !told.is_empty();
        for (id, word) in told {
            let leader = word.map(|(leader, _)| leader);
            if let Some(old) = self.at.get(&id)
                && Some(*old) != leader
                && let Some(task) = self.tasks.get_mut(old)
            {
                task.orders.insert(id.clone(), None);
                task.not_before = 0;
            }
            match word {
                None => {
                    self.at.remove(&id);
                }
                Some((leader, order)) => {
                    self.at.insert(id.clone(), leader);
                    let task = self.tasks.entry(leader).or_insert_with(|| Task {
                        fetcher: Fetcher::new(self.settings.clone()),
                        orders: BTreeMap::new(),
                        call: None,
                        not_before: 0,
                    });
                    task.orders.insert(id, Some(order));
                    task.not_before = 0;
                }
            }
        }
        moved
    }

    /// Asks what is to be asked now; true when something was done to a log.
    pub fn go_on(&mut self, world: &mut World, process: &ProcessView) -> bool {
        let mut moved = self.take_orders();
        let now_ms = world.now_ms();
        let replicas = process.replicas;
        for (leader, task) in &mut self.tasks {
            if task.call.is_some() || task.not_before > world.now_us {
                continue;
            }
            for (id, order) in std::mem::take(&mut task.orders) {
                match order {
                    Some(o) => task.fetcher.follow(id, o.topic_id, o.leader_epoch, o.log),
                    None => task.fetcher.leave(&id),
                }
            }
            if task.fetcher.is_empty() {
                continue;
            }
            let (epochs, offsets) = {
                let settings = task.fetcher.settings();
                (settings.epochs_version, settings.offsets_version)
            };
            let request = match task.fetcher.next(now_ms) {
                Work::Wait(until) => {
                    let pause = u64::try_from(until.saturating_sub(now_ms)).unwrap_or(0);
                    let at = world.now_us + pause.clamp(1, 60_000) * 1000;
                    task.not_before = at;
                    process.wake_at(world, at);
                    continue;
                }
                Work::Steps(steps) => {
                    take(&mut task.fetcher, replicas, &steps, world);
                    moved = true;
                    continue;
                }
                Work::Epochs(request) => Request::Epochs(request, epochs),
                Work::Offsets(request) => Request::Offsets(request, offsets),
                Work::Fetch(mut request, version) => {
                    if version >= 15 {
                        request.replica_state.replica_epoch = process.broker_epoch;
                    }
                    Request::Fetch(request, version)
                }
            };
            if !process.alive.contains(leader) {
                back_off(task, world);
                process.wake_at(world, task.not_before);
                continue;
            }
            let purpose = Purpose::Fetcher(*leader);
            let call = world.call(process.id, process.incarnation, *leader, purpose, request);
            task.call = Some(call);
        }
        let idle =
            |task: &Task| task.call.is_none() && task.orders.is_empty() && task.fetcher.is_empty();
        self.tasks.retain(|_, task| !idle(task));
        moved
    }

    pub fn answered(
        &mut self,
        world: &mut World,
        process: &ProcessView,
        leader: i32,
        call: u64,
        response: Result<Response, &'static str>,
    ) {
        let Some(task) = self.tasks.get_mut(&leader) else {
            return;
        };
        if task.call != Some(call) {
            return;
        }
        task.call = None;
        let now_ms = world.now_ms();
        let steps = match response {
            Ok(Response::Fetch(answer)) => task.fetcher.fetched(answer, now_ms),
            Ok(Response::Epochs(answer)) => task.fetcher.epochs_answered(answer, now_ms),
            Ok(Response::Offsets(answer)) => task.fetcher.offsets_answered(answer, now_ms),
            Ok(_) | Err(_) => {
                back_off(task, world);
                process.wake_at(world, task.not_before);
                return;
            }
        };
        take(&mut task.fetcher, process.replicas, &steps, world);
    }
}

fn back_off(task: &mut Task, world: &World) {
    task.fetcher.failed();
    let pause = u64::try_from(task.fetcher.settings().backoff_ms).unwrap_or(1000);
    task.not_before = world.now_us + pause * 1000;
}

fn take(fetcher: &mut Fetcher, replicas: &ReplicaManager, steps: &[Step], world: &mut World) {
    for step in steps {
        let outcome = replicas.follow_step(step, world.now_ms());
        fetcher.done(step, outcome, world.now_ms());
    }
}

/// What a fetcher's task needs of its process.
pub struct ProcessView<'a> {
    pub id: i32,
    pub incarnation: u64,
    pub broker_epoch: i64,
    pub replicas: &'a ReplicaManager,
    pub alive: Vec<i32>,
}

impl ProcessView<'_> {
    fn wake_at(&self, world: &mut World, at: u64) {
        world.at(at, crate::world::Event::Wake(self.id, self.incarnation));
    }
}
