//! Reading for consumers and followers, with long poll.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::{EpochEnd, FetchData, LogError, LogPosition, PartitionLog, ReadLimit};
use tokio::time::Instant;

use super::manager::ReplicaManager;
use super::nearest::{Candidate, nearest};
use super::partition::{Partition, Role, end_for};
use super::waiters::Waiter;
use crate::clock::now_ms;
use crate::metrics::TopicMetrics;

/// What holds for the whole request.
#[derive(Debug, Clone)]
pub struct FetchParams {
    /// The follower's broker id, -1 for a consumer.
    pub replica_id: i32,
    /// How far this reader may see.
    pub limit: ReadLimit,
    /// Bytes to wait for.
    pub min_bytes: u64,
    /// Most bytes in the answer.
    pub max_bytes: u32,
    /// Not even the first batch may exceed `max_bytes` (Fetch before version 3).
    pub hard_max: bool,
    /// Longest wait for `min_bytes`.
    pub max_wait: Duration,
    /// Only the leader may answer.
    pub only_leader: bool,
    /// The consumer's rack, where it may be sent to a replica there.
    pub rack: Option<Arc<str>>,
    /// Consumers read from followers: these are told of a risen high watermark at once.
    pub hurry_high_watermark: bool,
}

impl FetchParams {
    fn is_follower(&self) -> bool {
        self.replica_id >= 0
    }
}

/// One partition to read.
#[derive(Debug, Clone)]
pub struct FetchTarget {
    /// Its topic.
    pub topic: Arc<str>,
    /// ZERO = the request names topics.
    pub topic_id: Uuid,
    /// Its index.
    pub partition: i32,
    /// First offset wanted.
    pub offset: i64,
    /// Most bytes of this partition.
    pub max_bytes: i32,
    /// Leader epoch the client believes in, -1 unknown.
    pub current_leader_epoch: i32,
    /// Epoch of the last record the client has, -1 unknown: asks for a check of divergence (KIP-595).
    pub last_fetched_epoch: i32,
    /// A follower's log start offset, -1 for a consumer.
    pub log_start_offset: i64,
}

/// What a partition answered.
#[derive(Debug, Default)]
pub struct Read {
    /// Records and offsets.
    pub data: FetchData,
    /// The client's log went another way: where the epochs part.
    pub diverging: Option<EpochEnd>,
    /// The client had better ask this broker; nothing was read.
    pub nearer: Option<i32>,
    /// Its topic's counters.
    pub metrics: Option<Arc<TopicMetrics>>,
}

/// What the first look at a partition showed.
struct Seen {
    start: LogPosition,
    high_watermark: i64,
}

/// One answer a target.
pub type Reads = Vec<Result<Read, ErrorCode>>;

impl ReplicaManager {
    /// Reads all targets; waits for `min_bytes` at most `max_wait` when there is nothing else to tell.
    pub async fn fetch(&self, params: &FetchParams, targets: &[FetchTarget], now_ms: i64) -> Reads {
        let reads = self.read_all(params, targets, Some(now_ms));
        if params.max_wait.is_zero() || targets.is_empty() || is_worth_sending(params, &reads) {
            return reads;
        }
        let deadline = Instant::now() + params.max_wait;
        let starts: Vec<Seen> = reads
            .into_iter()
            .map(|read| {
                let data = read.map(|read| read.data).unwrap_or_default();
                Seen {
                    start: data.start,
                    high_watermark: data.high_watermark,
                }
            })
            .collect();
        let mut waiter = Waiter::default();
        for target in targets {
            if let Ok(partition) = self.partition(&target.topic, target.partition) {
                waiter.register(&partition.waiters);
            }
        }
        while !self.has_enough(params, targets, &starts) {
            if !waiter.changed(deadline).await {
                break;
            }
        }
        drop(waiter);
        self.read_all(params, targets, None)
    }

    /// One pass. A follower's progress is noted with `now_ms`.
    fn read_all(
        &self,
        params: &FetchParams,
        targets: &[FetchTarget],
        now_ms: Option<i64>,
    ) -> Reads {
        let mut left = params.max_bytes;
        let mut min_one = !params.hard_max;
        let mut reads = Vec::with_capacity(targets.len());
        for target in targets {
            let most = u32::try_from(target.max_bytes).unwrap_or(0).min(left);
            let read = self.read(params, target, most, min_one, now_ms);
            if let Ok(read) = &read
                && read.data.bytes > 0
            {
                min_one = false;
                left = left.saturating_sub(u32::try_from(read.data.bytes).unwrap_or(u32::MAX));
            }
            reads.push(read);
        }
        reads
    }

    fn read(
        &self,
        params: &FetchParams,
        target: &FetchTarget,
        max_bytes: u32,
        min_one: bool,
        now_ms: Option<i64>,
    ) -> Result<Read, ErrorCode> {
        let partition = self.partition(&target.topic, target.partition)?;
        if !target.topic_id.is_zero()
            && partition
                .role()
                .topic_id
                .is_some_and(|id| id != target.topic_id)
        {
            return Err(ErrorCode::InconsistentTopicId);
        }
        if params.is_follower() && !partition.is_replica(params.replica_id) {
            partition.with_log(target.current_leader_epoch, true, |_, _| ())?;
            // Epochs agree, so the leader has not heard yet of a new replica: the follower asks again. So it does without
            // an epoch, when nobody knows whose view is old.
            return Err(if target.current_leader_epoch >= 0 {
                ErrorCode::UnknownLeaderEpoch
            } else {
                ErrorCode::NotLeaderOrFollower
            });
        }
        let throttled = params.is_follower()
            && self.is_throttled(&self.leader_throttle, &target.topic, target.partition);
        let is_held = throttled && self.is_held_back(&partition, params.replica_id);
        // its offsets are told, and its place noted
        let (max_bytes, min_one) = if is_held {
            (0, false)
        } else {
            (max_bytes, min_one)
        };
        let read = partition.with_log(
            target.current_leader_epoch,
            params.only_leader,
            |role, log| {
                let mut log = log.lock();
                if let Some(nearer) = self.nearer(params, target, role) {
                    return Ok(Read {
                        data: offsets_of(&log),
                        nearer: Some(nearer),
                        ..Read::default()
                    });
                }
                read_log(&mut log, params.limit, target, max_bytes, min_one)
            },
        )?;
        let mut read = read.map_err(|error| self.log_failed(&partition.id, "reading", &error))?;
        read.metrics = Some(partition.metrics.clone());
        if throttled {
            self.leader_throttle
                .record(read.data.bytes, crate::clock::now_ms());
        }
        if let (true, Some(now_ms), None) = (params.is_follower(), now_ms, read.diverging) {
            let joins = partition.follower_fetched(
                params.replica_id,
                target.offset,
                target.log_start_offset,
                now_ms,
            )?;
            if let Some(proposal) = joins {
                self.isr_changes.propose(partition.id.clone(), proposal);
            }
        }
        Ok(read)
    }

    /// A throttled follower that is not in sync gets no records now.
    fn is_held_back(&self, partition: &Partition, follower: i32) -> bool {
        self.leader_throttle.is_exceeded(now_ms())
            && !partition.role().isr.confirmed().contains(&follower)
    }

    /// The in-sync follower in the consumer's rack that it is to be sent to, where the leader is not there.
    fn nearer(&self, params: &FetchParams, target: &FetchTarget, role: &Role) -> Option<i32> {
        let rack = params.rack.as_deref().filter(|_| role.is_leader)?;
        let snapshot = self.metadata.snapshot();
        let rack_of = |id: i32| snapshot.brokers.get(&id).and_then(|live| live.rack.clone());
        let followers = role.followers.lock();
        let candidates = followers.iter().filter(|(id, follower)| {
            role.isr.confirmed().contains(id)
                && follower.log_end_offset >= target.offset
                && (0..=target.offset).contains(&follower.log_start_offset)
        });
        let now = now_ms();
        let candidates = candidates.map(|(id, follower)| Candidate {
            id: *id,
            log_end_offset: follower.log_end_offset,
            behind_ms: now - follower.last_caught_up_ms,
        });
        nearest(rack, self.broker_id, candidates, rack_of)
    }

    /// A parked fetch looks at what changed: true when it is to be answered, with data or an error.
    fn has_enough(&self, params: &FetchParams, targets: &[FetchTarget], starts: &[Seen]) -> bool {
        let mut bytes = 0;
        for (target, start) in targets.iter().zip(starts) {
            let Ok(partition) = self.partition(&target.topic, target.partition) else {
                return true;
            };
            if params.is_follower()
                && self.is_throttled(&self.leader_throttle, &target.topic, target.partition)
                && self.is_held_back(&partition, params.replica_id)
            {
                continue;
            }
            let available =
                partition.with_log(target.current_leader_epoch, params.only_leader, |_, log| {
                    let mut log = log.lock();
                    if params.hurry_high_watermark && log.high_watermark() > start.high_watermark {
                        return Ok(None);
                    }
                    available(&mut log, params.limit, target, start.start)
                });
            match available {
                Ok(Ok(Some(more))) => bytes += more,
                Ok(Ok(None) | Err(_)) | Err(_) => return true,
            }
        }
        bytes >= params.min_bytes
    }
}

fn is_worth_sending(params: &FetchParams, reads: &Reads) -> bool {
    let mut bytes = 0;
    for read in reads {
        match read {
            Ok(Read {
                diverging: None,
                nearer: None,
                metrics: _,
                data,
            }) => bytes += data.bytes,
            Ok(_) | Err(_) => return true,
        }
    }
    bytes >= params.min_bytes
}

/// No records.
fn offsets_of(log: &PartitionLog) -> FetchData {
    FetchData {
        high_watermark: log.high_watermark(),
        last_stable_offset: log.last_stable_offset(),
        log_start_offset: log.log_start_offset(),
        log_end_offset: log.log_end_offset(),
        ..FetchData::default()
    }
}

fn read_log(
    log: &mut PartitionLog,
    limit: ReadLimit,
    target: &FetchTarget,
    max_bytes: u32,
    min_one: bool,
) -> Result<Read, LogError> {
    if target.last_fetched_epoch >= 0 {
        let out_of_range = LogError::OffsetOutOfRange {
            offset: target.offset,
            start: log.log_start_offset(),
            end: log.log_end_offset(),
        };
        let end = log.end_offset_for_epoch(target.last_fetched_epoch);
        if end.epoch < 0 || end.end_offset < 0 || target.offset < log.log_start_offset() {
            return Err(out_of_range);
        }
        if end.epoch < target.last_fetched_epoch || end.end_offset < target.offset {
            let data = offsets_of(log);
            return Ok(Read {
                data,
                diverging: Some(end),
                ..Read::default()
            });
        }
    }
    let data = log.read(target.offset, max_bytes, limit, min_one)?;
    Ok(Read {
        data,
        ..Read::default()
    })
}

/// Bytes that a reader at `start` could have by now; `None`: it is to be answered whatever they are (the log was
/// truncated below it, or went on in another segment).
fn available(
    log: &mut PartitionLog,
    limit: ReadLimit,
    target: &FetchTarget,
    start: LogPosition,
) -> Result<Option<u64>, LogError> {
    if end_for(log, limit) <= target.offset && log.log_end_offset() >= target.offset {
        return Ok(Some(0));
    }
    let end = match limit {
        ReadLimit::HighWatermark => log.high_watermark_position()?,
        ReadLimit::LastStable => log.last_stable_position()?,
        ReadLimit::LogEnd => log.log_end_position(),
    };
    if !end.same_segment(&start) || end.offset < target.offset {
        return Ok(None);
    }
    let most = u64::try_from(target.max_bytes).unwrap_or(0);
    Ok(Some(
        u64::from(end.position.saturating_sub(start.position)).min(most),
    ))
}
