//! One partition of this broker: its role, and its log.

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::{LogError, PartitionLog, ReadLimit, SharedLog, TopicPartition};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::in_sync::InSync;
use super::isr::{self, Follower};
use super::isr_changes::Proposal;
use super::waiters::WaitList;
use crate::config::ConfigStore;
use crate::metadata::MetadataCache;
use crate::metrics::TopicMetrics;

/// What the controller said last, and what follows from it.
#[derive(Debug)]
pub(crate) struct Role {
    /// None once the partition was deleted.
    pub(crate) log: Option<SharedLog>,
    /// From the log, so that a fetch need not ask it.
    pub(crate) topic_id: Option<Uuid>,
    /// This broker leads.
    pub(crate) is_leader: bool,
    /// Leader's broker id, -1 none.
    pub(crate) leader_id: i32,
    /// -1 before the first LeaderAndIsr.
    pub(crate) leader_epoch: i32,
    /// Where this leader's epoch began in its log.
    pub(crate) epoch_start: i64,
    /// Epoch of the controller that decided.
    pub(crate) controller_epoch: i32,
    /// zkVersion of the state znode; -1 before the first LeaderAndIsr.
    pub(crate) partition_epoch: i32,
    /// Assigned, preferred first.
    pub(crate) replicas: Vec<i32>,
    /// In sync.
    pub(crate) isr: InSync,
    /// At a leader, the other assigned replicas.
    pub(crate) followers: Mutex<BTreeMap<i32, Follower>>,
}

/// A partition hosted here.
pub struct Partition {
    /// Its name.
    pub id: TopicPartition,
    config: Arc<ConfigStore>,
    metadata: Arc<MetadataCache>,
    /// Its topic's counters.
    pub(crate) metrics: Arc<TopicMetrics>,
    role: RwLock<Role>,
    /// Woken at each change of log, high watermark or role.
    pub(crate) waiters: Arc<WaitList>,
}

impl Partition {
    pub(crate) fn new(
        id: TopicPartition,
        config: Arc<ConfigStore>,
        metadata: Arc<MetadataCache>,
        metrics: Arc<TopicMetrics>,
    ) -> Self {
        Self {
            id,
            config,
            metadata,
            metrics,
            role: RwLock::new(Role {
                log: None,
                topic_id: None,
                is_leader: false,
                leader_id: -1,
                leader_epoch: -1,
                epoch_start: 0,
                controller_epoch: 0,
                partition_epoch: -1,
                replicas: Vec::new(),
                isr: InSync::default(),
                followers: Mutex::new(BTreeMap::new()),
            }),
            waiters: Arc::new(WaitList::default()),
        }
    }

    pub(crate) fn role(&self) -> RwLockReadGuard<'_, Role> {
        self.role.read()
    }

    /// Changes the role, then wakes who waits.
    pub(crate) fn change_role<T>(&self, change: impl FnOnce(&mut Role) -> T) -> T {
        let outcome = change(&mut self.role.write());
        self.waiters.wake();
        outcome
    }

    /// The leader epoch, -1 before the first LeaderAndIsr.
    pub fn leader_epoch(&self) -> i32 {
        self.role.read().leader_epoch
    }

    /// Leader's id (-1 none) and epoch as this replica knows them: what clients that came to the wrong broker are told.
    pub fn leader_and_epoch(&self) -> (i32, i32) {
        let role = self.role.read();
        (role.leader_id, role.leader_epoch)
    }

    /// True if this broker leads it.
    pub fn is_leader(&self) -> bool {
        self.role.read().is_leader
    }

    /// The topic id in `partition.metadata`.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.role.read().topic_id
    }

    /// The log, None after a deletion.
    pub fn log(&self) -> Option<SharedLog> {
        self.role.read().log.clone()
    }

    /// Runs `work` on the log, under a role that holds for the request: the epoch the client believes in (-1 = it does
    /// not say) and, if asked for, leadership. The order of the checks is Kafka's.
    pub(crate) fn with_log<T>(
        &self,
        current_leader_epoch: i32,
        only_leader: bool,
        work: impl FnOnce(&Role, &SharedLog) -> T,
    ) -> Result<T, ErrorCode> {
        let role = self.role.read();
        check_epoch(&role, current_leader_epoch)?;
        if only_leader && !role.is_leader {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let log = role.log.as_ref().ok_or(ErrorCode::NotLeaderOrFollower)?;
        Ok(work(&role, log))
    }

    /// `min.insync.replicas`, as far as the replication factor allows.
    pub(crate) fn effective_min_isr(&self, role: &Role) -> usize {
        let wanted = self.config.topic(&self.id.topic).min_insync_replicas;
        usize::try_from(wanted)
            .unwrap_or(1)
            .min(role.replicas.len())
    }

    /// Raises the leader's high watermark as far as the ISR allows; true if it rose. It stands still while the ISR is
    /// smaller than `min.insync.replicas` (KIP-966).
    pub(crate) fn raise_high_watermark(
        &self,
        role: &Role,
        log: &mut PartitionLog,
        now_ms: i64,
    ) -> bool {
        let in_sync = role.isr.confirmed().len();
        if in_sync < role.replicas.len() && in_sync < self.effective_min_isr(role) {
            return false;
        }
        let end = log.log_end_offset();
        let mark = if role.replicas.len() == 1 {
            end
        } else {
            let lag = self.config.current().replica_lag_time_max_ms;
            let snapshot = self.metadata.snapshot();
            isr::high_watermark(end, &role.isr, &role.followers.lock(), now_ms, lag, |id| {
                snapshot.is_alive(id)
            })
        };
        log.maybe_increment_high_watermark(mark)
    }

    /// A follower fetched: notes how far it is, and that it joins the ISR if it may. UNKNOWN_LEADER_EPOCH when it is not an assigned replica (as Kafka
    /// answers a follower ahead of this leader's knowledge), NOT_LEADER_OR_FOLLOWER when this broker does not lead.
    pub(crate) fn follower_fetched(
        &self,
        follower: i32,
        fetch_offset: i64,
        log_start_offset: i64,
        now_ms: i64,
    ) -> Result<Option<Proposal>, ErrorCode> {
        let role = self.role.read();
        let log = role.log.as_ref().filter(|_| role.is_leader);
        let mut log = log.ok_or(ErrorCode::NotLeaderOrFollower)?.lock();
        let end = log.log_end_offset();
        match role.followers.lock().get_mut(&follower) {
            Some(state) => state.fetched(fetch_offset, log_start_offset, end, now_ms),
            None => return Err(ErrorCode::UnknownLeaderEpoch),
        }
        let rose = self.raise_high_watermark(&role, &mut log, now_ms);
        let may_join = self.may_join(&role, log.high_watermark(), follower, fetch_offset);
        drop(log);
        drop(role);
        if rose {
            self.waiters.wake();
        }
        if may_join {
            return Ok(self.propose_joining(follower));
        }
        Ok(None)
    }

    pub(crate) fn is_alive(&self, broker: i32) -> bool {
        self.metadata.snapshot().is_alive(broker)
    }

    /// True if the broker is one of the assigned replicas.
    pub(crate) fn is_replica(&self, broker: i32) -> bool {
        self.role.read().replicas.contains(&broker)
    }

    /// The lowest log start offset of the live replicas (DeleteRecords).
    pub(crate) fn low_watermark(&self, role: &Role, log: &PartitionLog) -> i64 {
        let snapshot = self.metadata.snapshot();
        let followers = role.followers.lock();
        followers
            .iter()
            .filter(|(id, _)| snapshot.is_alive(**id))
            .map(|(_, follower)| follower.log_start_offset)
            .fold(log.log_start_offset(), i64::min)
    }
}

/// Offset up to which this kind of reader may see.
pub(crate) fn end_for(log: &PartitionLog, limit: ReadLimit) -> i64 {
    match limit {
        ReadLimit::HighWatermark => log.high_watermark(),
        ReadLimit::LastStable => log.last_stable_offset(),
        ReadLimit::LogEnd => log.log_end_offset(),
    }
}

fn check_epoch(role: &Role, current_leader_epoch: i32) -> Result<(), ErrorCode> {
    match current_leader_epoch {
        ..0 => Ok(()),
        epoch if epoch < role.leader_epoch => Err(ErrorCode::FencedLeaderEpoch),
        epoch if epoch > role.leader_epoch => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Logs an error of a log for the operator; the client gets the code.
pub(crate) fn report(partition: &TopicPartition, doing: &str, error: &LogError) -> ErrorCode {
    let code = error.error_code();
    match error {
        LogError::OffsetOutOfRange { .. } => {}
        // what was under way when the broker stopped: nobody acts on it any more
        LogError::Closed { .. } => tracing::debug!(%partition, %error, "{doing} came too late"),
        _ => tracing::error!(%partition, %error, "{doing} failed"),
    }
    code
}
