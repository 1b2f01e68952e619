//! A consumer: of partitions that it is given, or of those that its group assigns to it.

mod assignor;
mod commit;
mod config;
mod fetch;
mod group;

pub use assignor::range;
pub use config::{ConsumerConfig, OffsetReset};

use crate::admin::{Admin, OffsetSpec};
use crate::{ClientError, Cluster, TopicPartition};
use bytes::Bytes;
use fetch::Fetched;
use gracchus_kafka_proto::ErrorCode;
use gracchus_record::TimestampType;
use group::Member;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A record as it was read; keys and values share memory with their batch where it was not compressed.
#[derive(Debug, Clone)]
pub struct ConsumedRecord {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    /// ms since the epoch, -1 for none.
    pub timestamp: i64,
    /// `None` for format v0, which has no timestamps.
    pub timestamp_type: Option<TimestampType>,
    pub leader_epoch: i32,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Where reading stands.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// Next record to be given to the caller; `None` until it has been looked up.
    consumed: Option<i64>,
    /// Next offset to be fetched.
    fetch: i64,
    leader_epoch: i32,
    /// Not fetched before this, after an error.
    not_before: Option<Instant>,
}

impl Position {
    fn at(offset: i64) -> Self {
        Position {
            consumed: Some(offset),
            fetch: offset,
            leader_epoch: -1,
            not_before: None,
        }
    }

    const UNKNOWN: Position = Position {
        consumed: None,
        fetch: -1,
        leader_epoch: -1,
        not_before: None,
    };
}

/// Not shared: one task polls it.
pub struct Consumer {
    /// For fetches, which brokers hold.
    cluster: Cluster,
    admin: Admin,
    config: Arc<ConsumerConfig>,
    positions: BTreeMap<TopicPartition, Position>,
    buffer: VecDeque<ConsumedRecord>,
    fetches: JoinSet<(i32, Result<Vec<Fetched>, ClientError>)>,
    /// Brokers that a fetch is at.
    busy: HashSet<i32>,
    /// Fetches of an older assignment are dropped.
    assignment: u64,
    member: Option<Member>,
    next_commit: Option<Instant>,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.config.group)
            .field("positions", &self.positions)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Self {
        let separate = cluster.separate();
        Consumer {
            admin: Admin::new(cluster),
            cluster: separate,
            config: Arc::new(config),
            positions: BTreeMap::new(),
            buffer: VecDeque::new(),
            fetches: JoinSet::new(),
            busy: HashSet::new(),
            assignment: 0,
            member: None,
            next_commit: None,
        }
    }

    /// Reads these partitions, each from an offset, or from its committed one (else the reset rule) when `None`.
    pub fn assign(&mut self, partitions: &[(TopicPartition, Option<i64>)]) {
        self.take_assignment(partitions.iter().map(|(tp, at)| {
            let position = at.map_or(Position::UNKNOWN, Position::at);
            (tp.clone(), position)
        }));
    }

    /// Reads these too, from then on; those that it reads already stay where they are.
    pub fn assign_more(&mut self, partitions: &[(TopicPartition, Option<i64>)]) {
        for (tp, at) in partitions {
            let position = at.map_or(Position::UNKNOWN, Position::at);
            self.positions.entry(tp.clone()).or_insert(position);
        }
    }

    fn take_assignment(&mut self, partitions: impl Iterator<Item = (TopicPartition, Position)>) {
        self.positions = partitions.collect();
        self.buffer.clear();
        self.fetches.abort_all();
        self.busy.clear();
        self.fetches = JoinSet::new();
        self.assignment += 1;
    }

    /// Joins the group, with the partitions of these topics shared among its members.
    pub fn subscribe(&mut self, topics: &[String]) -> Result<(), ClientError> {
        let group = self.group()?;
        self.member = Some(Member::new(
            self.admin.cluster.separate(),
            self.config.clone(),
            group,
            topics.to_vec(),
        ));
        Ok(())
    }

    fn group(&self) -> Result<String, ClientError> {
        self.config
            .group
            .clone()
            .ok_or_else(|| ClientError::Invalid("a consumer group needs group.id".into()))
    }

    /// What it reads now.
    pub fn assigned(&self) -> Vec<TopicPartition> {
        self.positions.keys().cloned().collect()
    }

    /// Next offset that poll will give.
    pub fn position(&self, tp: &TopicPartition) -> Option<i64> {
        self.positions.get(tp).and_then(|p| p.consumed)
    }

    pub fn seek(&mut self, tp: &TopicPartition, offset: i64) {
        if self.positions.contains_key(tp) {
            self.positions.insert(tp.clone(), Position::at(offset));
            self.buffer
                .retain(|r| r.partition != tp.partition || *r.topic != *tp.topic);
        }
    }

    /// The next records; none if there are none within `timeout`. Joining the group may take longer than that. It may be
    /// given up at any moment.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumedRecord>, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.commit_when_due().await?;
            self.keep_membership().await?;
            self.look_up_positions().await?;
            if self.buffer.is_empty() {
                self.start_fetches().await?;
            }
            while let Some(done) = self.fetches.try_join_next() {
                self.take_fetch(done)?;
            }
            if !self.buffer.is_empty() {
                let records = self.give();
                // the next fetch is on its way while the caller works
                self.start_fetches().await?;
                return Ok(records);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(Vec::new());
            }
            // wakes now and then for the group's sake
            let wake = deadline.min(now + Duration::from_millis(100));
            tokio::select! {
                Some(done) = self.fetches.join_next(), if !self.fetches.is_empty() => {
                    self.take_fetch(done)?;
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn give(&mut self) -> Vec<ConsumedRecord> {
        let count = self.buffer.len().min(self.config.max_poll_records.max(1));
        let records: Vec<_> = self.buffer.drain(..count).collect();
        for r in records.iter().rev() {
            let tp = TopicPartition::new(&r.topic, r.partition);
            if let Some(p) = self.positions.get_mut(&tp)
                && p.consumed.is_none_or(|at| at <= r.offset)
            {
                p.consumed = Some(r.offset + 1);
                p.leader_epoch = r.leader_epoch;
            }
        }
        records
    }

    async fn keep_membership(&mut self) -> Result<(), ClientError> {
        let must_join = match &mut self.member {
            Some(member) => member.must_join().await?,
            None => false,
        };
        if !must_join {
            return Ok(());
        }
        // the eager protocol: commit, give everything up, join
        let offsets = self.consumed();
        if self.config.auto_commit.is_some()
            && let Some(member) = self.member.as_ref().filter(|m| m.is_member())
            && let Err(e) = member.commit(&offsets).await
        {
            tracing::warn!(error = %e, "offsets could not be committed before the rebalance");
        }
        self.take_assignment(std::iter::empty());
        // the member stays in place while it joins, so that a poll that is given up can still leave the group
        let Some(member) = &mut self.member else {
            return Ok(());
        };
        let assigned = member.join().await?;
        self.take_assignment(assigned.into_iter().map(|tp| (tp, Position::UNKNOWN)));
        Ok(())
    }

    async fn look_up_positions(&mut self) -> Result<(), ClientError> {
        let unknown: Vec<_> = self
            .positions
            .iter()
            .filter(|(_, p)| p.consumed.is_none())
            .map(|(tp, _)| tp.clone())
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let committed = match &self.config.group {
            Some(group) => self.admin.committed_offsets(group, Some(&unknown)).await?,
            None => BTreeMap::new(),
        };
        let mut reset = Vec::new();
        for tp in unknown {
            match committed.get(&tp) {
                Some(c) => drop(self.positions.insert(tp, Position::at(c.offset))),
                None => reset.push(tp),
            }
        }
        self.reset(&reset).await
    }

    async fn reset(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let spec = match self.config.offset_reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            OffsetReset::Latest => OffsetSpec::Latest,
            OffsetReset::None => {
                let names: Vec<_> = partitions.iter().map(ToString::to_string).collect();
                return Err(ClientError::api(
                    ErrorCode::OffsetOutOfRange,
                    Some(&format!(
                        "Undefined offset with no reset policy for partitions: [{}]",
                        names.join(", ")
                    )),
                ));
            }
        };
        let wanted: Vec<_> = partitions.iter().map(|tp| (tp.clone(), spec)).collect();
        for (tp, listed) in self
            .admin
            .list_offsets(&wanted, self.config.isolation)
            .await?
        {
            self.positions.insert(tp, Position::at(listed?.offset));
        }
        Ok(())
    }

    async fn start_fetches(&mut self) -> Result<(), ClientError> {
        // what is buffered is enough for now
        if self.buffer.len() > self.config.max_poll_records {
            return Ok(());
        }
        let now = Instant::now();
        let mut by_broker: BTreeMap<i32, Vec<(TopicPartition, i64)>> = BTreeMap::new();
        let ready: Vec<_> = self
            .positions
            .iter()
            .filter(|(_, p)| p.consumed.is_some() && p.not_before.is_none_or(|at| at <= now))
            .map(|(tp, p)| (tp.clone(), p.fetch))
            .collect();
        for (tp, offset) in ready {
            match self.cluster.leader(&tp).await {
                Ok(leader) => {
                    if !self.busy.contains(&leader.broker) {
                        by_broker
                            .entry(leader.broker)
                            .or_default()
                            .push((tp, offset));
                    }
                }
                Err(e) if e.is_retriable() => self.back_off(&tp),
                Err(e) => return Err(e),
            }
        }
        for (broker, partitions) in by_broker {
            self.busy.insert(broker);
            let (cluster, config) = (self.cluster.clone(), self.config.clone());
            self.fetches.spawn(async move {
                let result = fetch::fetch(&cluster, &config, broker, partitions).await;
                (broker, result)
            });
        }
        Ok(())
    }

    fn back_off(&mut self, tp: &TopicPartition) {
        self.cluster.forget_leader(tp);
        let at = Instant::now() + self.cluster.config().retry_backoff;
        if let Some(p) = self.positions.get_mut(tp) {
            p.not_before = Some(at);
        }
    }

    fn take_fetch(
        &mut self,
        done: Result<(i32, Result<Vec<Fetched>, ClientError>), tokio::task::JoinError>,
    ) -> Result<(), ClientError> {
        let Ok((broker, result)) = done else {
            return Ok(());
        };
        self.busy.remove(&broker);
        let fetched = match result {
            Ok(fetched) => fetched,
            Err(e) if e.is_retriable() => {
                tracing::debug!(broker, error = %e, "fetch failed");
                let all: Vec<_> = self.positions.keys().cloned().collect();
                for tp in all {
                    if self
                        .cluster
                        .known_leader(&tp)
                        .is_some_and(|l| l.broker == broker)
                    {
                        self.back_off(&tp);
                    }
                }
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        for f in fetched {
            let Some(position) = self.positions.get_mut(&f.partition) else {
                continue;
            };
            // sought elsewhere meanwhile
            if position.fetch != f.asked {
                continue;
            }
            match f.result {
                Ok((records, next)) => {
                    position.fetch = next;
                    if records.is_empty() && position.consumed == Some(f.asked) {
                        // markers and aborted records only
                        position.consumed = Some(next);
                    }
                    self.buffer.extend(records);
                }
                Err(e) if e.code() == Some(ErrorCode::OffsetOutOfRange) => {
                    if self.config.offset_reset == OffsetReset::None {
                        return Err(e);
                    }
                    tracing::info!(partition = %f.partition, offset = f.asked, "offset out of range, reset");
                    *position = Position::UNKNOWN;
                    position.not_before = None;
                    self.out_of_range(&f.partition);
                }
                Err(e) if e.is_retriable() => self.back_off(&f.partition),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// A committed offset that is out of range must not be looked up again, so the log's own bounds count.
    fn out_of_range(&mut self, tp: &TopicPartition) {
        let admin = self.admin.clone();
        let spec = match self.config.offset_reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            _ => OffsetSpec::Latest,
        };
        let isolation = self.config.isolation;
        let tp = tp.clone();
        // as a fetch that gives no records but the next offset
        self.positions.insert(
            tp.clone(),
            Position {
                consumed: Some(-1),
                fetch: -1,
                leader_epoch: -1,
                not_before: Some(Instant::now() + Duration::from_secs(3600)),
            },
        );
        self.fetches.spawn(async move {
            let result = admin.list_offsets(&[(tp.clone(), spec)], isolation).await;
            let result = result.map(|list| {
                list.into_iter()
                    .map(|(partition, listed)| Fetched {
                        partition,
                        asked: -1,
                        result: listed.map(|l| (Vec::new(), l.offset)),
                    })
                    .collect()
            });
            (-1, result)
        });
    }
}
