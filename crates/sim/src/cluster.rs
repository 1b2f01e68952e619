//! A run: three brokers, ZooKeeper and clients; faults for a while, then peace, in which all has to be well again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::{Client, Kind};
use crate::disk;
use crate::oracle::{Oracle, records};
use crate::process::Process;
use crate::world::{Event, World, ZOOKEEPER};
use crate::zookeeper::ZooKeeper;

pub const TOPIC: &str = "t";
pub const BROKERS: [i32; 3] = [1, 2, 3];
const CLIENTS: [(i32, Kind); 5] = [
    (11, Kind::Producer),
    (12, Kind::Producer),
    (13, Kind::Producer),
    (21, Kind::Consumer),
    (22, Kind::Consumer),
];
/// Nothing goes wrong before this, so that the topic is there.
const CALM_US: u64 = 2_000_000;
/// How long things go wrong, and how long the cluster has to be whole again.
const FAULTS_US: u64 = 25_000_000;
const PEACE_US: u64 = 25_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Crash,
    Power,
    Partition,
    Pause,
    ZooKeeper,
    Weather,
}

struct Slot {
    dir: PathBuf,
    process: Option<Process>,
    incarnation: u64,
    paused: bool,
    held: Vec<Event>,
}

/// What a run saw, for tests that want to know that it was worth something.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    pub acknowledged: usize,
    pub takeovers: u64,
    pub faults: u64,
    pub events: u64,
    pub isr_sizes: BTreeMap<usize, u64>,
    /// Of the order of all that was told, to compare runs.
    pub digest: u64,
}

struct Cluster {
    world: World,
    zookeeper: ZooKeeper,
    slots: BTreeMap<i32, Slot>,
    clients: BTreeMap<i32, Client>,
    oracle: Oracle,
    summary: Summary,
    /// The longest pause between two faults.
    fault_every_us: u64,
}

/// Plays a seed; an error is the violated rule, and the trace.
pub fn play(seed: u64) -> Result<Summary, String> {
    disk::watch();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let dir = tempfile::Builder::new()
        .prefix("gracchus-sim")
        .tempdir_in(memory())
        .expect("a directory");
    runtime.block_on(async {
        let mut cluster = Cluster::new(seed, dir.path());
        cluster.run().await;
        let Cluster { world, .. } = &cluster;
        match &world.violation {
            None => Ok(cluster.summary.clone()),
            Some(violation) => Err(format!("{}\n{violation}", world.trace())),
        }
    })
}

/// Where files cost no disk, if there is such a place.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

impl Cluster {
    fn new(seed: u64, dir: &Path) -> Self {
        let slot = |id: i32| {
            let dir = dir.join(format!("broker-{id}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            Slot {
                dir,
                process: None,
                incarnation: 0,
                paused: false,
                held: Vec::new(),
            }
        };
        let zookeeper = dir.join("zookeeper");
        std::fs::create_dir_all(&zookeeper).expect("a directory");
        let mut world = World::new(seed);
        let fault_every_us = world.random.pick(&[700_000, 2_000_000, 5_000_000]);
        Self {
            world,
            fault_every_us,
            zookeeper: ZooKeeper::new(zookeeper),
            slots: BROKERS.iter().map(|id| (*id, slot(*id))).collect(),
            clients: CLIENTS
                .iter()
                .map(|(id, kind)| (*id, Client::new(*id, *kind)))
                .collect(),
            oracle: Oracle::default(),
            summary: Summary::default(),
        }
    }

    async fn run(&mut self) {
        let world = &mut self.world;
        world.at(0, Event::Start(ZOOKEEPER));
        for id in BROKERS {
            let delay = world.random.between(1_000, 300_000);
            world.after(delay, Event::Start(id));
        }
        for (id, _) in CLIENTS {
            world.after(1_000_000, Event::Wake(id, 0));
        }
        world.at(CALM_US, Event::Fault);
        world.at(CALM_US + FAULTS_US, Event::Peace);
        let end = CALM_US + FAULTS_US + PEACE_US;
        while self.world.violation.is_none() {
            let Some((at, event)) = self.world.pop() else {
                break;
            };
            if at > end {
                break;
            }
            let step = at - self.world.now_us;
            if step > 0 {
                tokio::time::advance(Duration::from_micros(step)).await;
            }
            self.world.now_us = at;
            gracchus_broker::clock::simulate(self.world.now_ms());
            self.summary.events += 1;
            self.dispatch(event);
        }
        if self.world.violation.is_none() {
            self.finish();
        }
        self.summary.acknowledged = self.oracle.acknowledged.len();
        self.summary.takeovers = self.oracle.takeovers;
        self.summary.isr_sizes = self.oracle.isr_sizes.clone();
        self.summary.digest = self.world.digest;
    }

    fn dispatch(&mut self, event: Event) {
        let owner = self.world.owner(&event);
        if let Some(slot) = owner.and_then(|owner| self.slots.get_mut(&owner))
            && slot.paused
        {
            slot.held.push(event);
            return;
        }
        match event {
            Event::Asked(id) => self.asked(id),
            Event::Answered(id, response) => self.settled(id, Ok(response)),
            Event::Failed(id, why) => self.settled(id, Err(why)),
            Event::AtServer(link) => self.zookeeper.receive(&mut self.world, link),
            Event::CutAtServer(link) => self.zookeeper.cut(&mut self.world, link),
            Event::AtClient(link) | Event::CutAtClient(link) => {
                let found = self.world.links.get(&link);
                let Some((broker, incarnation)) = found.map(|l| (l.broker, l.incarnation)) else {
                    return;
                };
                let is_cut = matches!(event, Event::CutAtClient(_));
                self.with(broker, incarnation, |process, world| match is_cut {
                    true => process.zookeeper_closed(world, link),
                    false => process.from_zookeeper(world, link),
                });
            }
            Event::Tick(ZOOKEEPER, incarnation) => {
                self.zookeeper.tick(&mut self.world, incarnation);
            }
            Event::Tick(broker, incarnation) => {
                self.with(broker, incarnation, Process::tick);
            }
            Event::Wake(id, incarnation) => match self.clients.get_mut(&id) {
                Some(client) => client.go_on(&mut self.world),
                None => self.with(id, incarnation, |_, _| ()),
            },
            Event::Start(ZOOKEEPER) => self.zookeeper.start(&mut self.world),
            Event::Start(id) => self.start(id),
            Event::Resume(id) => self.resume(id),
            Event::Heal(a, b) => {
                self.world
                    .log(|| format!("{a} and {b} reach each other again"));
                self.world.cut.remove(&(a, b));
            }
            Event::Fault => self.fault(),
            Event::Peace => self.heal(),
        }
    }

    /// Lets a process do something, everything that follows from it, and looks at the result.
    fn with(&mut self, id: i32, incarnation: u64, work: impl FnOnce(&mut Process, &mut World)) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let process = slot.process.as_mut();
        let Some(process) = process.filter(|process| process.incarnation == incarnation) else {
            return;
        };
        work(process, &mut self.world);
        process.settle(&mut self.world);
        let state = self.zookeeper.state();
        self.oracle
            .look(&mut self.world, id, &process.replicas, state.as_ref());
    }

    fn asked(&mut self, id: u64) {
        let Some((from, to, request)) = self.world.arrived(id) else {
            return;
        };
        if !self.world.reach(from, to) {
            return; // lost; the asker's patience ends
        }
        let Some(incarnation) = self
            .slots
            .get(&to)
            .and_then(|slot| slot.process.as_ref())
            .map(|process| process.incarnation)
        else {
            self.world
                .after(1_000, Event::Failed(id, "nobody listens there"));
            return;
        };
        self.with(to, incarnation, |process, world| {
            process.asked(world, id, request);
        });
    }

    fn settled(&mut self, id: u64, response: Result<crate::requests::Response, &'static str>) {
        let Some((from, incarnation, purpose)) = self.world.settled(id) else {
            return;
        };
        if let Err(why) = &response {
            self.world.log(|| format!("{from}'s #{id} failed: {why}"));
        }
        match self.clients.get_mut(&from) {
            Some(client) => client.answered(&mut self.world, &mut self.oracle, id, response),
            None => self.with(from, incarnation, |process, world| {
                process.answered(world, id, purpose, response);
            }),
        }
    }

    fn start(&mut self, id: i32) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        if slot.process.is_some() {
            return;
        }
        slot.incarnation += 1;
        let process = Process::start(id, slot.incarnation, &slot.dir, &mut self.world);
        slot.process = Some(process);
        self.oracle.forget_role(id);
    }

    /// The process is killed; what it wrote stays.
    fn crash(&mut self, id: i32) -> bool {
        self.resume(id);
        let Some(slot) = self.slots.get_mut(&id) else {
            return false;
        };
        if slot.process.take().is_none() {
            return false;
        }
        self.world.log(|| format!("broker {id} dies"));
        self.world.fail_calls_to(id);
        let links: Vec<u64> = self
            .world
            .links
            .iter()
            .filter(|(_, link)| link.broker == id && link.is_open)
            .map(|(link, _)| *link)
            .collect();
        for link in links {
            self.world.cut_by_client(link);
        }
        true
    }

    fn resume(&mut self, id: i32) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        if !std::mem::take(&mut slot.paused) {
            return;
        }
        self.world.log(|| format!("broker {id} goes on"));
        for (at, event) in (1..).zip(std::mem::take(&mut slot.held)) {
            self.world.after(at, event);
        }
    }

    fn fault(&mut self) {
        if self.world.now_us >= CALM_US + FAULTS_US {
            return;
        }
        let next = self.world.random.between(100_000, self.fault_every_us);
        self.world.after(next, Event::Fault);
        self.summary.faults += 1;
        let kinds = [
            Fault::Crash,
            Fault::Crash,
            Fault::Power,
            Fault::Power,
            Fault::Partition,
            Fault::Partition,
            Fault::Pause,
            Fault::Pause,
            Fault::ZooKeeper,
            Fault::Weather,
        ];
        let id = self.world.random.pick(&BROKERS);
        // short ones are the usual ones
        let longest = self.world.random.pick(&[300_000, 3_000_000, 12_000_000]);
        let lasts = self.world.random.between(1_000, longest);
        let kind = self.world.random.pick(&kinds);
        let harms_a_broker = matches!(kind, Fault::Crash | Fault::Partition | Fault::Pause);
        if harms_a_broker && !self.oracle.lost.is_empty() && !self.oracle.lost.contains(&id)
            || kind == Fault::Partition && !self.oracle.lost.is_empty()
        {
            return; // it would be the second that is lost
        }
        match kind {
            Fault::Power => {
                if self.may_lose_one() && self.crash(id) {
                    self.oracle.lost.insert(id);
                    let left = disk::power_cut(&self.slots[&id].dir, &mut self.world.random);
                    self.world
                        .log(|| format!("broker {id} had no power: {left:?}"));
                    self.world.after(lasts, Event::Start(id));
                }
            }
            Fault::Crash => {
                if self.crash(id) {
                    self.world.after(lasts, Event::Start(id));
                }
            }
            Fault::Partition => {
                let other = self.world.random.pick(&[0, 1, 2, 3]);
                if other != id {
                    let (a, b) = (id.min(other), id.max(other));
                    self.world
                        .log(|| format!("{a} and {b} do not reach each other"));
                    self.world.cut.insert((a, b));
                    self.world.after(lasts, Event::Heal(a, b));
                }
            }
            Fault::Pause => {
                if let Some(slot) = self.slots.get_mut(&id)
                    && slot.process.is_some()
                    && !slot.paused
                {
                    slot.paused = true;
                    self.world.log(|| format!("broker {id} stands still"));
                    self.world.after(lasts, Event::Resume(id));
                }
            }
            Fault::ZooKeeper => {
                self.zookeeper.crash(&mut self.world);
                self.world.after(lasts / 2, Event::Start(ZOOKEEPER));
            }
            Fault::Weather => {
                self.world.delay_us = self.world.random.pick(&[500, 2_000, 20_000, 200_000]);
                self.world.loss = self.world.random.pick(&[0, 2, 20, 100]);
            }
        }
    }

    /// Whether everything acknowledged is on two brokers that work when one loses what it has not synced: nobody is out, or
    /// back and not in his role again.
    fn may_lose_one(&self) -> bool {
        let Some((state, _)) = self.zookeeper.state() else {
            return false;
        };
        let works = |slot: &Slot| {
            let process = slot.process.as_ref().filter(|_| !slot.paused);
            process.is_some_and(|process| {
                let partition = process.replicas.partition(TOPIC, 0);
                process.broker_epoch >= 0
                    && partition.is_ok_and(|found| found.leader_epoch() == state.leader_epoch)
            })
        };
        self.oracle.lost.is_empty()
            && self.world.cut.is_empty()
            && state.isr.len() == BROKERS.len()
            && self.slots.values().all(works)
    }

    /// Everything works again.
    fn heal(&mut self) {
        self.world.log(|| "PEACE".into());
        self.world.cut.clear();
        self.world.delay_us = 2_000;
        self.world.loss = 0;
        for id in BROKERS {
            self.resume(id);
            self.world.after(1, Event::Start(id));
        }
        self.world.after(1, Event::Start(ZOOKEEPER));
    }

    /// All replicas are in sync and the same; everything acknowledged is there.
    fn finish(&mut self) {
        let state = self.zookeeper.state();
        let isr = state.as_ref().map(|(state, _)| state.isr.len());
        if isr != Some(BROKERS.len()) {
            self.world
                .violated(format!("the replicas are not in sync again: {state:?}"));
        }
        let active = self
            .slots
            .values()
            .filter_map(|slot| slot.process.as_ref())
            .filter(|process| process.controller.is_active())
            .count();
        if active != 1 {
            self.world
                .violated(format!("{active} brokers believe to be controller"));
        }
        let logs = self
            .slots
            .iter()
            .filter_map(|(id, slot)| Some((*id, records(&slot.process.as_ref()?.replicas))))
            .collect();
        self.oracle.finish(&mut self.world, &logs);
        if self.oracle.acknowledged.is_empty() {
            self.world.violated("nothing was acknowledged".into());
        }
    }
}
