//! What must hold, looked at after every event.

use std::collections::{BTreeMap, BTreeSet};

use gracchus_broker::replica::ReplicaManager;
use gracchus_kafka_proto::Records;
use gracchus_log::ReadLimit;
use gracchus_record::Entries;
use gracchus_registry::json::PartitionState;

use crate::answers::bytes_of;
use crate::cluster::TOPIC;
use crate::world::World;

#[derive(Default)]
pub struct Oracle {
    /// What a client has seen at each offset: it may never change.
    seen: BTreeMap<i64, String>,
    /// What a producer with acks=all was told.
    pub acknowledged: BTreeMap<i64, String>,
    /// Who accepted writes in a leader epoch.
    leaders: BTreeMap<i32, i32>,
    /// Where each replica's log ends, of a dead one as it left it.
    ends: BTreeMap<i32, i64>,
    /// Leader epoch and log end at the last look.
    roles: BTreeMap<i32, (i32, bool, i64)>,
    /// Lost what they had not synced, and have not everything acknowledged again.
    pub lost: BTreeSet<i32>,
    pub takeovers: u64,
    pub isr_sizes: BTreeMap<usize, u64>,
}

impl Oracle {
    fn see(&mut self, world: &mut World, offset: i64, value: &str, how: &str) {
        match self.seen.get(&offset) {
            Some(known) if known != value => world.violated(format!(
                "a committed record changed: offset {offset} was {known}, {how} {value}"
            )),
            Some(_) => {}
            None => {
                self.seen.insert(offset, value.to_owned());
            }
        }
    }

    pub fn acknowledge(&mut self, world: &mut World, offset: i64, value: &str) {
        world.log(|| format!("acknowledged {value} at {offset}"));
        self.see(world, offset, value, "acknowledged as");
        self.acknowledged.insert(offset, value.to_owned());
    }

    pub fn read(&mut self, world: &mut World, offset: i64, value: &str, high_watermark: i64) {
        if offset >= high_watermark {
            world.violated(format!(
                "a consumer read offset {offset}, past the high watermark {high_watermark}"
            ));
        }
        self.see(world, offset, value, "read as");
    }

    /// The broker's process was restarted: its role is none.
    pub fn forget_role(&mut self, broker: i32) {
        self.roles.remove(&broker);
    }

    pub fn look(
        &mut self,
        world: &mut World,
        broker: i32,
        replicas: &ReplicaManager,
        state: Option<&(PartitionState, i32)>,
    ) {
        let Ok(partition) = replicas.partition(TOPIC, 0) else {
            return;
        };
        let Some(log) = partition.log() else { return };
        let (end, high_watermark) = {
            let log = log.lock();
            (log.log_end_offset(), log.high_watermark())
        };
        self.ends.insert(broker, end);
        let now = (partition.leader_epoch(), partition.is_leader(), end);
        let before = self.roles.insert(broker, now);
        let (epoch, leads, _) = now;
        let same = before.filter(|(e, l, _)| (*e, *l) == (epoch, leads));
        if before != Some(now) {
            world.log(|| {
                format!("{broker}: epoch {epoch} leads {leads} end {end} hw {high_watermark}")
            });
        }
        if leads && same.is_some_and(|(_, _, was)| end > was) {
            let first = *self.leaders.entry(epoch).or_insert(broker);
            if first != broker {
                world.violated(format!(
                    "{first} and {broker} both accepted writes in leader epoch {epoch}"
                ));
            }
        }
        let Some((state, _)) = state else { return };
        if !leads || state.leader_epoch != epoch || state.leader != broker {
            if self.lost.contains(&broker) && same.is_some_and(|(_, _, was)| was != end) {
                self.look_for_recovery(world, broker, replicas);
            }
            return;
        }
        *self.isr_sizes.entry(state.isr.len()).or_default() += 1;
        for member in state.isr.iter().filter(|id| !self.lost.contains(id)) {
            let has = self.ends.get(member).copied().unwrap_or(0);
            if has < high_watermark {
                world.violated(format!(
                    "the high watermark of leader {broker} is {high_watermark}, but {member} of the ISR {:?} in ZooKeeper has only {has}",
                    state.isr
                ));
            }
        }
        if same.is_none() {
            self.takeovers += 1;
            let held: BTreeMap<i64, String> = records(replicas).into_iter().collect();
            self.must_hold(world, broker, &held);
        }
    }

    fn look_for_recovery(&mut self, world: &mut World, broker: i32, replicas: &ReplicaManager) {
        let held: BTreeMap<i64, String> = records(replicas).into_iter().collect();
        let has_all = self
            .acknowledged
            .iter()
            .all(|(offset, value)| held.get(offset) == Some(value));
        if has_all {
            world.log(|| format!("{broker} has all that was acknowledged again"));
            self.lost.remove(&broker);
        }
    }

    fn must_hold(&self, world: &mut World, broker: i32, held: &BTreeMap<i64, String>) {
        for (offset, value) in &self.acknowledged {
            if held.get(offset) != Some(value) {
                world.violated(format!(
                    "acknowledged {value} at {offset} is lost: leader {broker} has {:?} there",
                    held.get(offset)
                ));
                return;
            }
        }
    }

    /// At the end of a run: all logs are the same and have everything.
    pub fn finish(&mut self, world: &mut World, logs: &BTreeMap<i32, Vec<(i64, String)>>) {
        for (broker, records) in logs {
            let held: BTreeMap<i64, String> = records.iter().cloned().collect();
            self.must_hold(world, *broker, &held);
            for (offset, value) in records {
                self.see(world, *offset, value, "in a log as");
            }
        }
    }
}

/// All records of a broker's log.
pub fn records(replicas: &ReplicaManager) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    let Ok(partition) = replicas.partition(TOPIC, 0) else {
        return found;
    };
    let Some(log) = partition.log() else {
        return found;
    };
    let mut log = log.lock();
    let mut at = log.log_start_offset();
    while at < log.log_end_offset() {
        let data = log
            .read(at, 1 << 20, ReadLimit::LogEnd, true)
            .expect("the log reads");
        let read = values(&Records { parts: data.parts });
        at = read.last().map_or(i64::MAX, |(offset, _)| offset + 1);
        found.extend(read);
    }
    found
}

/// (offset, value) of all records.
pub fn values(records: &Records) -> Vec<(i64, String)> {
    let mut out = Vec::new();
    for entry in Entries::new(bytes_of(records)) {
        entry
            .expect("an entry")
            .for_each_record(1 << 20, |record| {
                let value = String::from_utf8(record.value.unwrap_or_default().to_vec())
                    .expect("our own value");
                out.push((record.offset, value));
                Ok::<_, gracchus_record::RecordError>(())
            })
            .expect("records");
    }
    out
}
