//! Time, the queue of events, and the network: what is on its way, and what becomes of it.
//!
//! A request to a broker is a [`Call`]: it may arrive late, or not at all, and its answer may be lost; then the asker hears
//! of a failure, though the request was perhaps carried out, or will be. Bytes between a broker and ZooKeeper keep their order
//! on a [`Link`], which stalls while the two are cut off from each other, and breaks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::random::Random;
use crate::requests::{Purpose, Request, Response};

/// ZooKeeper's place; brokers have their ids, clients what is above.
pub const ZOOKEEPER: i32 = 0;
/// An asker that has no answer gives up.
const PATIENCE_US: u64 = 4_000_000;
/// Lines of the trace that are kept.
const TRACE_LINES: usize = 600;
/// Milliseconds since 1970 at the start.
const EPOCH_MS: i64 = 1_700_000_000_000;

#[derive(Debug)]
pub enum Event {
    /// A request arrives.
    Asked(u64),
    Answered(u64, Response),
    Failed(u64, &'static str),
    /// The next bytes of a link arrive, at the server or at the client.
    AtServer(u64),
    AtClient(u64),
    /// The other side of a link learns that it is over.
    CutAtServer(u64),
    CutAtClient(u64),
    /// A broker's, or client's, or ZooKeeper's own clock, of this incarnation.
    Wake(i32, u64),
    Tick(i32, u64),
    /// The next fault is due.
    Fault,
    /// The last fault is over.
    Peace,
    Start(i32),
    Resume(i32),
    Heal(i32, i32),
}

pub struct Call {
    pub from: i32,
    pub incarnation: u64,
    pub to: i32,
    /// None once the asker has given up.
    pub purpose: Option<Purpose>,
    /// None once it has arrived.
    pub request: Option<Request>,
}

pub struct Link {
    pub broker: i32,
    pub incarnation: u64,
    /// Its id at the server.
    pub conn: Option<u64>,
    /// How often the server took it in: never again after its end.
    pub server_conns: u32,
    to_server: VecDeque<Bytes>,
    to_client: VecDeque<Bytes>,
    server_at: u64,
    client_at: u64,
    pub is_open: bool,
}

pub struct World {
    pub now_us: u64,
    pub random: Random,
    queue: BTreeMap<(u64, u64), Event>,
    next: u64,
    pub calls: BTreeMap<u64, Call>,
    pub links: BTreeMap<u64, Link>,
    /// Pairs that do not reach each other, the smaller first.
    pub cut: BTreeSet<(i32, i32)>,
    /// Most of a usual delay.
    pub delay_us: u64,
    /// Requests or answers lost, per mille.
    pub loss: u64,
    trace: VecDeque<String>,
    /// GRACCHUS_SIM_TRACE is set: everything is told at once.
    is_loud: bool,
    /// What must never be was seen.
    pub violation: Option<String>,
    /// Of the times at which anything was told.
    pub digest: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let delay_us = random.pick(&[500, 2_000, 20_000]);
        let loss = random.pick(&[0, 2, 20]);
        Self {
            now_us: 0,
            random,
            queue: BTreeMap::new(),
            next: 0,
            calls: BTreeMap::new(),
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            delay_us,
            loss,
            trace: VecDeque::new(),
            is_loud: std::env::var_os("GRACCHUS_SIM_TRACE").is_some(),
            violation: None,
            digest: 0,
        }
    }

    pub fn now_ms(&self) -> i64 {
        EPOCH_MS + (self.now_us / 1000) as i64
    }

    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE_LINES {
            self.trace.pop_front();
        }
        self.digest = self.digest.wrapping_mul(31).wrapping_add(self.now_us);
        let at = self.now_us as f64 / 1e6;
        let line = format!("{at:10.6} {}", line());
        if self.is_loud {
            println!("{line}");
        }
        self.trace.push_back(line);
    }

    pub fn trace(&self) -> String {
        let lines: Vec<&str> = self.trace.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    pub fn violated(&mut self, what: String) {
        if self.violation.is_none() {
            self.log(|| format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    pub fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub fn at(&mut self, at_us: u64, event: Event) {
        self.next += 1;
        self.queue
            .insert((at_us.max(self.now_us), self.next), event);
    }

    /// The next event; the caller moves the time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let ((at, _), event) = self.queue.pop_first()?;
        Some((at, event))
    }

    fn delay(&mut self) -> u64 {
        if self.random.chance(5) {
            return self.random.between(self.delay_us, self.delay_us * 50);
        }
        self.random.between(50, self.delay_us)
    }

    pub fn reach(&self, a: i32, b: i32) -> bool {
        a == b || !self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub fn call(
        &mut self,
        from: i32,
        incarnation: u64,
        to: i32,
        purpose: Purpose,
        request: Request,
    ) -> u64 {
        self.next += 1;
        let id = self.next;
        self.log(|| format!("{from} asks {to} #{id}: {}", request.shown()));
        self.calls.insert(
            id,
            Call {
                from,
                incarnation,
                to,
                purpose: Some(purpose),
                request: Some(request),
            },
        );
        self.after(PATIENCE_US, Event::Failed(id, "no answer"));
        let lossless = from == to;
        if !lossless && self.random.chance(self.loss) {
            // the connection breaks: perhaps it has got there, perhaps it does later
            let at = self.delay();
            self.after(at, Event::Failed(id, "connection broken"));
            if self.random.chance(500) {
                let late = self.random.between(0, 3_000_000);
                self.after(late, Event::Asked(id));
            }
            return id;
        }
        let delay = self.delay();
        self.after(delay, Event::Asked(id));
        id
    }

    pub fn answer(&mut self, id: u64, response: Response) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let (from, to) = (call.from, call.to);
        if from != to && (!self.reach(from, to) || self.random.chance(self.loss)) {
            let at = self.delay();
            self.after(at, Event::Failed(id, "answer lost"));
            return;
        }
        let delay = self.delay();
        self.after(delay, Event::Answered(id, response));
    }

    /// A process is gone: who waits for its answers hears of a broken connection.
    pub fn fail_calls_to(&mut self, to: i32) {
        let lost: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.to == to && call.request.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            let at = self.delay();
            self.after(at, Event::Failed(id, "the process died"));
        }
    }

    /// What is to be done with a request that arrives; it may have been given up by its asker.
    pub fn arrived(&mut self, id: u64) -> Option<(i32, i32, Request)> {
        let call = self.calls.get_mut(&id)?;
        let found = (call.from, call.to, call.request.take()?);
        if call.purpose.is_none() {
            self.calls.remove(&id);
        }
        Some(found)
    }

    /// Who is to be told of an answer, or a failure; only once.
    pub fn settled(&mut self, id: u64) -> Option<(i32, u64, Purpose)> {
        let call = self.calls.get_mut(&id)?;
        let found = (call.from, call.incarnation, call.purpose.take()?);
        if call.request.is_none() {
            self.calls.remove(&id);
        }
        Some(found)
    }

    /// Whose event it is: it waits while that process is paused.
    pub fn owner(&self, event: &Event) -> Option<i32> {
        match event {
            Event::Asked(id) => self.calls.get(id).map(|call| call.to),
            Event::Answered(id, _) | Event::Failed(id, _) => {
                self.calls.get(id).map(|call| call.from)
            }
            Event::AtClient(link) | Event::CutAtClient(link) => {
                self.links.get(link).map(|link| link.broker)
            }
            Event::Wake(owner, _) | Event::Tick(owner, _) => Some(*owner),
            _ => None,
        }
    }

    // --- links

    pub fn open_link(&mut self, broker: i32, incarnation: u64) -> u64 {
        self.next += 1;
        let id = self.next;
        self.links.insert(
            id,
            Link {
                broker,
                incarnation,
                conn: None,
                server_conns: 0,
                to_server: VecDeque::new(),
                to_client: VecDeque::new(),
                server_at: 0,
                client_at: 0,
                is_open: true,
            },
        );
        id
    }

    pub fn send_to_server(&mut self, id: u64, bytes: Bytes) {
        let delay = self.delay();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let at = (self.now_us + delay).max(link.server_at + 1);
        link.server_at = at;
        link.to_server.push_back(bytes);
        self.at(at, Event::AtServer(id));
    }

    pub fn send_to_client(&mut self, id: u64, bytes: Bytes) {
        let delay = self.delay();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let at = (self.now_us + delay).max(link.client_at + 1);
        link.client_at = at;
        link.to_client.push_back(bytes);
        self.at(at, Event::AtClient(id));
    }

    /// Stalls while the two do not reach each other.
    pub fn next_at_server(&mut self, id: u64) -> Option<Bytes> {
        let broker = self.links.get(&id)?.broker;
        if !self.reach(broker, ZOOKEEPER) {
            self.after(100_000, Event::AtServer(id));
            return None;
        }
        self.links.get_mut(&id)?.to_server.pop_front()
    }

    pub fn next_at_client(&mut self, id: u64) -> Option<Bytes> {
        let link = self.links.get(&id)?;
        if !link.is_open {
            return None;
        }
        if !self.reach(link.broker, ZOOKEEPER) {
            self.after(100_000, Event::AtClient(id));
            return None;
        }
        self.links.get_mut(&id)?.to_client.pop_front()
    }

    /// The client gives a link up; what it sent is still under way.
    pub fn cut_by_client(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.is_open = false;
        let at = link.server_at.max(self.now_us) + 1_000;
        self.at(at, Event::CutAtServer(id));
    }

    pub fn cut_by_server(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.conn = None;
            let at = link.client_at.max(self.now_us) + 1_000;
            self.at(at, Event::CutAtClient(id));
        }
    }
}
