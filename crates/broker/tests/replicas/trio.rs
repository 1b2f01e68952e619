//! Three brokers with one partition between them, and a controller by hand: every order of elections, fetches, ISR changes
//! and crashes can be played and repeated. Nothing goes over a network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gracchus_broker::api::{fetch, list_offsets, offset_for_leader_epoch};
use gracchus_broker::metadata::LiveBroker;
use gracchus_broker::replica::fetcher::following::view;
use gracchus_broker::replica::fetcher::round::Round;
use gracchus_broker::replica::fetcher::{Fetcher, Settings, Source, round};
use gracchus_broker::replica::isr_changes::Answer;
use gracchus_kafka_proto::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use gracchus_kafka_proto::{
    ApiKey, ErrorCode, Message, Records, Request, decode_response_header, encode_response,
};
use gracchus_log::{AppendOrigin, ReadLimit, TopicPartition};

use crate::rig::{Rig, TOPIC_ID, batch, bytes_of, context, values_of};

pub const BROKERS: [i32; 3] = [1, 2, 3];

/// Through the wire's form, as the followers get it.
fn through_wire<R: Request>(version: i16, response: &R::Response) -> R::Response {
    let frame = encode_response(1, R::KEY, version, response).unwrap();
    let bytes = frame.into_bytes().unwrap().slice(4..);
    let (_, mut reader) = decode_response_header(bytes, R::KEY, version).unwrap();
    R::Response::decode(&mut reader, version).unwrap()
}

/// The leader, asked directly.
struct Direct<'a>(Option<&'a Rig>);

impl Direct<'_> {
    fn rig(&self) -> Result<&Rig, String> {
        self.0.ok_or_else(|| "dead".to_owned())
    }
}

impl Source for Direct<'_> {
    async fn fetch(
        &mut self,
        version: i16,
        request: FetchRequest,
    ) -> Result<FetchResponse, String> {
        let ctx = context(ApiKey::Fetch, version);
        let mut answer = fetch::answer(&self.rig()?.replicas, &ctx, request).await;
        for topic in &mut answer.responses {
            for part in &mut topic.partitions {
                part.records = part.records.as_ref().map(|r| Records::from(bytes_of(r)));
            }
        }
        Ok(through_wire::<FetchRequest>(version, &answer))
    }

    async fn epochs(
        &mut self,
        version: i16,
        request: OffsetForLeaderEpochRequest,
    ) -> Result<OffsetForLeaderEpochResponse, String> {
        let ctx = context(ApiKey::OffsetForLeaderEpoch, version);
        Ok(offset_for_leader_epoch::answer(&self.rig()?.replicas, &ctx, request).await)
    }

    async fn offsets(
        &mut self,
        version: i16,
        request: ListOffsetsRequest,
    ) -> Result<ListOffsetsResponse, String> {
        let ctx = context(ApiKey::ListOffsets, version);
        Ok(list_offsets::answer(&self.rig()?.replicas, &ctx, request).await)
    }
}

/// Fetches are noted with the machine's own time.
fn real_now() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

pub struct Trio {
    pub rigs: BTreeMap<i32, Rig>,
    pub fetchers: BTreeMap<i32, Fetcher>,
    /// Dead ones' directories wait here.
    pub dead: BTreeMap<i32, Rig>,
    /// The state node.
    pub leader: i32,
    pub epoch: i32,
    pub isr: Vec<i32>,
    pub version: i32,
    props: Vec<(&'static str, &'static str)>,
    /// It may be ahead of the machine's.
    pub now: i64,
    count: usize,
    /// Values that were appended and not yet known to be committed, with their offsets.
    open: BTreeMap<i64, String>,
    /// What a producer with acks=all was told.
    pub acknowledged: BTreeMap<i64, String>,
}

impl Trio {
    /// Broker 1 leads; all are in sync.
    pub fn new(props: &[(&'static str, &'static str)]) -> Self {
        let mut all = vec![("min.insync.replicas", "2")];
        all.extend_from_slice(props);
        let mut trio = Self {
            rigs: BROKERS
                .iter()
                .map(|id| (*id, Rig::broker(*id, &all)))
                .collect(),
            fetchers: BTreeMap::new(),
            dead: BTreeMap::new(),
            leader: 1,
            epoch: 0,
            isr: BROKERS.to_vec(),
            version: 0,
            props: all,
            now: real_now(),
            count: 0,
            open: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        };
        trio.tell();
        trio
    }

    fn partition() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    /// LeaderAndIsr and UpdateMetadata to all that live.
    pub fn tell(&mut self) {
        let ids: Vec<i32> = self.rigs.keys().copied().collect();
        for id in ids {
            self.tell_one(id);
        }
    }

    fn tell_one(&mut self, id: i32) {
        let alive: BTreeSet<i32> = self.rigs.keys().copied().collect();
        let rig = &self.rigs[&id];
        rig.know("t", TOPIC_ID, self.leader, self.epoch, &BROKERS);
        rig.metadata.update(|snapshot| {
            snapshot.brokers = alive
                .iter()
                .map(|id| {
                    let live = LiveBroker {
                        id: *id,
                        rack: None,
                        endpoints: Vec::new(),
                    };
                    (*id, Arc::new(live))
                })
                .collect();
        });
        let mut state = Rig::state(self.leader, self.epoch, &BROKERS, &self.isr);
        state.partition_epoch = self.version;
        if rig.assign("t", TOPIC_ID, state) != ErrorCode::None {
            return; // it has that word already
        }
        let partition = rig.replicas.partition("t", 0).unwrap();
        let mut settings = Settings::new(id, &rig.config.current());
        settings.max_wait_ms = 0;
        let fetcher = self
            .fetchers
            .entry(id)
            .or_insert_with(|| Fetcher::new(settings));
        // as a fetcher of another source, its session is another
        fetcher.failed();
        fetcher.leave(&Self::partition());
        if self.leader != id && self.leader >= 0 {
            let log = view(&partition.log().unwrap().lock());
            fetcher.follow(Self::partition(), TOPIC_ID, self.epoch, log);
        }
    }

    /// One question of a follower's fetcher.
    pub async fn step(&mut self, follower: i32) -> Round {
        let (Some(rig), Some(fetcher)) =
            (self.rigs.get(&follower), self.fetchers.get_mut(&follower))
        else {
            return Round::Idle(0);
        };
        let mut source = Direct(self.rigs.get(&self.leader));
        let now = self.now;
        let round = round(fetcher, &mut source, &rig.replicas, || now).await;
        self.note_commits();
        round
    }

    /// Appends a value with acks=all to whoever leads, if the ISR is large enough.
    pub fn produce(&mut self, leader: i32) {
        let Some(rig) = self.rigs.get(&leader) else {
            return;
        };
        self.count += 1;
        let value = format!("{}-{}", self.count, "x".repeat(self.count % 50));
        let origin = AppendOrigin::Client;
        let appended = rig
            .replicas
            .append("t", 0, batch(&[&value]), true, origin, self.now);
        if let Ok(appended) = appended
            && leader == self.leader
        {
            self.open.insert(appended.info.first_offset, value);
            self.note_commits();
        }
    }

    /// Everything below the present leader's high watermark is acknowledged.
    fn note_commits(&mut self) {
        let Some(rig) = self.rigs.get(&self.leader) else {
            return;
        };
        let Ok(partition) = rig.replicas.partition("t", 0) else {
            return;
        };
        if !partition.is_leader() || self.isr.len() < 2 {
            return;
        }
        let committed = rig.high_watermark("t");
        let rest = self.open.split_off(&committed);
        self.acknowledged
            .extend(std::mem::replace(&mut self.open, rest));
    }

    /// Carries the proposals of all brokers to the state node, as the controller does.
    pub fn alter(&mut self) {
        for (id, rig) in &self.rigs {
            for (partition, proposal) in rig.replicas.isr_changes().take() {
                let answer = if (proposal.leader_epoch, proposal.partition_epoch)
                    != (self.epoch, self.version)
                {
                    Answer::Open
                } else if proposal.isr.iter().any(|m| !self.rigs.contains_key(m)) {
                    Answer::TakenBack
                } else {
                    assert_eq!(*id, self.leader, "only the leader of the epoch proposes");
                    self.version += 1;
                    self.isr.clone_from(&proposal.isr);
                    Answer::Confirmed {
                        leader_epoch: self.epoch,
                        partition_epoch: self.version,
                        isr: self.isr.clone(),
                    }
                };
                rig.replicas
                    .isr_answered(&partition, &proposal, answer, self.now);
            }
        }
        self.note_commits();
    }

    pub fn kill(&mut self, id: i32) {
        if let Some(rig) = self.rigs.remove(&id) {
            self.fetchers.remove(&id);
            self.dead.insert(id, rig);
        }
    }

    /// The controller notices who is dead: the ISR shrinks to the living, keeping its last member, and a member leads.
    pub fn elect(&mut self, prefer: i32) {
        let living: Vec<i32> = self
            .isr
            .iter()
            .copied()
            .filter(|id| self.rigs.contains_key(id))
            .collect();
        self.epoch += 1;
        self.version += 1;
        if living.is_empty() {
            self.leader = -1;
            self.isr.truncate(1);
        } else {
            self.leader = *living
                .iter()
                .find(|id| **id == prefer)
                .unwrap_or(&living[0]);
            self.isr = living;
        }
        // what the last leader had not committed nobody was told of
        self.open.clear();
    }

    pub fn revive(&mut self, id: i32) {
        if let Some(rig) = self.dead.remove(&id) {
            self.rigs.insert(id, rig.crashed(id, &self.props));
            self.tell_one(id);
        }
    }

    /// Everybody lives, follows and is in sync.
    pub async fn settle(&mut self) {
        for id in BROKERS {
            self.revive(id);
        }
        let prefer = self.isr[0];
        self.elect(prefer);
        self.tell();
        for _ in 0..200 {
            self.now += 100;
            for id in BROKERS {
                if id != self.leader {
                    self.step(id).await;
                }
            }
            self.alter();
            let ends: BTreeSet<i64> = self.rigs.values().map(|rig| rig.log_end("t")).collect();
            if ends.len() == 1
                && self.isr.len() == 3
                && self
                    .rigs
                    .values()
                    .all(|rig| rig.high_watermark("t") == rig.log_end("t"))
            {
                return;
            }
        }
        let logs = |rig: &Rig| (rig.log_end("t"), rig.high_watermark("t"));
        let logs: Vec<_> = self.rigs.iter().map(|(id, rig)| (id, logs(rig))).collect();
        panic!(
            "they never agree: leader {}, ISR {:?}, ends and high watermarks {logs:?}",
            self.leader, self.isr
        );
    }

    /// All records of a broker's log.
    pub fn records(&self, id: i32) -> Vec<(i64, String)> {
        let partition = self.rigs[&id].replicas.partition("t", 0).unwrap();
        let log = partition.log().unwrap();
        let mut log = log.lock();
        let mut found = Vec::new();
        let mut at = log.log_start_offset();
        while at < log.log_end_offset() {
            let data = log.read(at, 1 << 20, ReadLimit::LogEnd, true).unwrap();
            let read = values_of(data.parts);
            at = read.last().unwrap().0 + 1;
            found.extend(read);
        }
        found
    }

    /// The logs are the same, and have everything that was acknowledged.
    pub fn check(&self, what: &str) {
        let leader = self.records(self.leader);
        for id in BROKERS {
            assert_eq!(
                self.records(id),
                leader,
                "{what}: broker {id} and the leader"
            );
        }
        let held: BTreeMap<i64, String> = leader.into_iter().collect();
        for (offset, value) in &self.acknowledged {
            assert_eq!(
                held.get(offset),
                Some(value),
                "{what}: acknowledged at {offset}"
            );
        }
    }
}
