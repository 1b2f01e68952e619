//! LeaderAndIsr and StopReplica: roles given and taken (controller.md A14, B1, B2 of the specification).

use std::collections::BTreeMap;
use std::sync::Arc;

use gracchus_kafka_proto::messages::leader_and_isr_request::LeaderAndIsrPartitionState;
use gracchus_kafka_proto::{ErrorCode, Uuid};
use gracchus_log::{LogError, SharedLog, TopicPartition};
use parking_lot::Mutex;

use super::in_sync::InSync;
use super::isr::Follower;
use super::log_config::log_config;
use super::manager::{Hosted, ReplicaManager, StorageNews, Unopened};
use super::partition::{Partition, report};

/// A StopReplica's leader epoch while the topic is being deleted: stops whatever the epoch here.
pub const EPOCH_DURING_DELETE: i32 = -2;
/// A StopReplica's leader epoch when the controller does not know it.
pub const NO_EPOCH: i32 = -1;

/// One partition of a LeaderAndIsr, with its topic's name and id (ZERO = the controller's protocol has none).
#[derive(Debug, Clone)]
pub struct Assignment {
    /// Its name.
    pub id: TopicPartition,
    /// Its topic's id.
    pub topic_id: Uuid,
    /// Leader, ISR, replicas, epochs.
    pub state: LeaderAndIsrPartitionState,
}

/// One partition of a StopReplica.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Its name.
    pub id: TopicPartition,
    /// Epoch, or one of the two special values.
    pub leader_epoch: i32,
    /// Its log goes too.
    pub delete: bool,
}

/// The controller's epoch is older than one seen before: the whole request is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct StaleController {
    /// The highest epoch seen.
    pub seen: i32,
}

impl ReplicaManager {
    /// Notes the epoch of a controller that sends anything; refuses an earlier one than seen before.
    pub fn admit_controller(&self, epoch: i32) -> Result<(), StaleController> {
        let mut seen = self.controller_epoch.lock();
        if epoch < *seen {
            return Err(StaleController { seen: *seen });
        }
        *seen = epoch;
        Ok(())
    }

    /// Applies a LeaderAndIsr; one error a partition, in order. Does file work: call it where a thread may block.
    pub fn assign(
        &self,
        controller_epoch: i32,
        assignments: Vec<Assignment>,
        now_ms: i64,
    ) -> Result<Vec<(TopicPartition, Uuid, ErrorCode)>, StaleController> {
        let mut seen = self.controller_epoch.lock();
        if controller_epoch < *seen {
            return Err(StaleController { seen: *seen });
        }
        *seen = controller_epoch;
        let mut outcomes = Vec::with_capacity(assignments.len());
        let mut changed = Vec::new();
        for assignment in assignments {
            let code = match self.assign_one(controller_epoch, &assignment, now_ms) {
                Ok(Some(partition)) => {
                    changed.push(partition);
                    ErrorCode::None
                }
                Ok(None) => ErrorCode::None,
                Err(code) => code,
            };
            outcomes.push((assignment.id, assignment.topic_id, code));
        }
        self.enable_high_watermark_checkpoints();
        for partition in changed {
            self.role_changed(&partition);
        }
        Ok(outcomes)
    }

    /// Tells who acts on roles.
    pub(super) fn role_changed(&self, partition: &Arc<Partition>) {
        let (leads, epoch) = {
            let role = partition.role();
            (role.is_leader, role.leader_epoch)
        };
        if self.logs.future(&partition.id).is_some() {
            self.want_move(&partition.id);
        }
        if let Some(fetchers) = self.fetchers.get() {
            match partition.following() {
                Some((leader, order)) if leader >= 0 => {
                    fetchers.follow(&partition.id, leader, order);
                }
                _ => fetchers.leave(&partition.id),
            }
        }
        for observer in self.observers() {
            if leads {
                observer.became_leader(&partition.id, epoch);
            } else {
                observer.lost_leadership(&partition.id, Some(epoch));
            }
        }
    }

    /// The partition when its role changed, None when the request brings nothing new.
    pub(super) fn assign_one(
        &self,
        controller_epoch: i32,
        assignment: &Assignment,
        now_ms: i64,
    ) -> Result<Option<Arc<Partition>>, ErrorCode> {
        let Assignment {
            id,
            topic_id,
            state,
        } = assignment;
        if self.logs.is_pending(id) {
            return self.keep_role(controller_epoch, assignment).map(|()| None);
        }
        let partition = match self.hosted(&id.topic, id.partition) {
            Some(Hosted::Offline) => return Err(ErrorCode::KafkaStorageError),
            Some(Hosted::Online(partition)) => partition,
            Some(Hosted::Unopened(_)) | None => {
                // A log from before a restart may belong to an earlier topic of the same name.
                let known = self.logs.get(id).and_then(|log| log.lock().topic_id());
                if !is_consistent(*topic_id, known) {
                    return self.inconsistent(id, *topic_id, known);
                }
                self.new_partition(id)
            }
        };
        let (epoch, known_id, partition_epoch) = {
            let role = partition.role();
            (role.leader_epoch, role.topic_id, role.partition_epoch)
        };
        if !is_consistent(*topic_id, known_id) {
            return self.inconsistent(id, *topic_id, known_id);
        }
        if state.leader_epoch < epoch {
            tracing::warn!(partition = %id, controller_epoch, got = state.leader_epoch, current = epoch, "LeaderAndIsr with an older leader epoch ignored");
            return Err(ErrorCode::StaleControllerEpoch);
        }
        if state.leader_epoch == epoch {
            if known_id.is_none() && !topic_id.is_zero() {
                return self.adopt_topic_id(&partition, *topic_id).map(|()| None);
            }
            return Err(ErrorCode::StaleControllerEpoch);
        }
        if !state.replicas.contains(&self.broker_id) {
            tracing::warn!(partition = %id, replicas = ?state.replicas, "LeaderAndIsr for a partition that is not assigned to this broker ignored");
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        if state.partition_epoch < partition_epoch {
            tracing::info!(partition = %id, got = state.partition_epoch, current = partition_epoch, "LeaderAndIsr with an older partition epoch skipped");
            return Ok(None);
        }
        let log = match self.open_log(id, state.is_new, *topic_id, now_ms) {
            Ok(log) => log,
            Err(error) => {
                self.cannot_open(id, &error, state.is_new, *topic_id);
                return Err(error.error_code());
            }
        };
        self.take_role(&partition, log, controller_epoch, state, now_ms)?;
        self.hosted
            .write()
            .insert(id.clone(), Hosted::Online(partition.clone()));
        Ok(Some(partition))
    }

    /// A directory that failed is out until the restart, as in Kafka. Want of space or of file descriptors passes: the
    /// log is tried again ([`Self::retry_unopened`]).
    fn cannot_open(&self, id: &TopicPartition, error: &LogError, is_new: bool, topic_id: Uuid) {
        if error.takes_dir_offline() {
            self.logs.handle_error(error);
            self.take_dirs_offline();
        }
        let hosted = if error.is_out_of_space() || error.is_out_of_files() {
            tracing::error!(partition = %id, %error, "the log cannot be opened for now: the partition is offline until it can");
            Hosted::Unopened(Unopened {
                is_new,
                topic_id,
                opened: false,
            })
        } else {
            tracing::error!(partition = %id, %error, "the log cannot be opened: the partition is offline");
            Hosted::Offline
        };
        self.hosted.write().insert(id.clone(), hosted);
    }

    /// Opens the logs that could not be opened when they were assigned; at the first that still cannot the rest waits for
    /// the next call. The controller is told, and gives them their roles again.
    pub fn retry_unopened(&self, now_ms: i64) {
        // No role may change meanwhile.
        let _seen = self.controller_epoch.lock();
        let waiting: Vec<(TopicPartition, Unopened)> = {
            let hosted = self.hosted.read();
            let waiting = hosted.iter().filter_map(|(id, hosted)| match hosted {
                Hosted::Unopened(unopened) if !unopened.opened => Some((id.clone(), *unopened)),
                _ => None,
            });
            waiting.collect()
        };
        let mut opened = 0usize;
        for (id, unopened) in waiting {
            match self.open_log(&id, unopened.is_new, unopened.topic_id, now_ms) {
                Ok(_) => {
                    opened += 1;
                    let unopened = Unopened {
                        opened: true,
                        ..unopened
                    };
                    self.hosted.write().insert(id, Hosted::Unopened(unopened));
                }
                Err(error) => {
                    let passes = error.is_out_of_space() || error.is_out_of_files();
                    if passes {
                        break;
                    }
                    self.cannot_open(&id, &error, unopened.is_new, unopened.topic_id);
                }
            }
        }
        if opened > 0 {
            tracing::info!(
                "{opened} logs that could not be opened before are open; asking the controller for their roles"
            );
            self.tell_storage_news(StorageNews::LogsOpened);
        }
    }

    fn new_partition(&self, id: &TopicPartition) -> Arc<Partition> {
        Arc::new(Partition::new(
            id.clone(),
            self.config.clone(),
            self.metadata.clone(),
            self.topics.topic(&id.topic),
        ))
    }

    fn inconsistent<T>(
        &self,
        partition: &TopicPartition,
        asked: Uuid,
        known: Option<Uuid>,
    ) -> Result<T, ErrorCode> {
        let known = known.unwrap_or(Uuid::ZERO);
        tracing::error!(%partition, %asked, %known, "the log's partition.metadata has the id of another topic of this name");
        Err(ErrorCode::InconsistentTopicId)
    }

    fn adopt_topic_id(&self, partition: &Partition, id: Uuid) -> Result<(), ErrorCode> {
        let Some(log) = partition.log() else {
            return Ok(());
        };
        let outcome = log.lock().assign_topic_id(id);
        outcome.map_err(|error| {
            self.log_failed(&partition.id, "writing partition.metadata", &error)
        })?;
        partition.change_role(|role| role.topic_id = Some(id));
        Ok(())
    }

    fn open_log(
        &self,
        id: &TopicPartition,
        is_new: bool,
        topic_id: Uuid,
        now_ms: i64,
    ) -> Result<SharedLog, LogError> {
        let topic_id = (!topic_id.is_zero()).then_some(topic_id);
        if let Some(log) = self.logs.get(id) {
            if let Some(topic_id) = topic_id {
                let mut log = log.lock();
                if log.topic_id().is_none() {
                    log.assign_topic_id(topic_id)?;
                }
            }
            return Ok(log);
        }
        let config = log_config(&self.config.topic(&id.topic));
        self.logs
            .get_or_create(id, is_new, topic_id, config, now_ms)
    }

    fn take_role(
        &self,
        partition: &Partition,
        log: SharedLog,
        controller_epoch: i32,
        state: &LeaderAndIsrPartitionState,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let leads = state.leader == self.broker_id;
        let outcome = partition.change_role(|role| {
            let mut opened = log.lock();
            if leads {
                // Noted before any record of the epoch, so that followers find where it began.
                let start = opened.log_end_offset();
                opened.assign_epoch_start(state.leader_epoch, start)?;
                role.epoch_start = start;
            }
            role.topic_id = opened.topic_id();
            role.is_leader = leads;
            role.leader_id = state.leader;
            role.leader_epoch = state.leader_epoch;
            role.controller_epoch = controller_epoch;
            role.partition_epoch = state.partition_epoch;
            role.replicas.clone_from(&state.replicas);
            role.isr = InSync::new(state.isr.clone());
            let mut followers = BTreeMap::new();
            if leads {
                let others = state.replicas.iter().filter(|id| **id != self.broker_id);
                for id in others {
                    let in_isr = state.isr.contains(id);
                    followers.insert(*id, Follower::at_epoch_start(in_isr, now_ms));
                }
            }
            role.followers = Mutex::new(followers);
            if leads {
                partition.raise_high_watermark(role, &mut opened, now_ms);
            }
            drop(opened);
            role.log = Some(log.clone());
            Ok::<_, LogError>(())
        });
        outcome.map_err(|error| self.log_failed(&partition.id, "becoming leader", &error))
    }

    /// Applies a StopReplica; one error a partition, in order. Does file work: call it where a thread may block.
    pub fn stop(
        &self,
        controller_epoch: i32,
        stops: Vec<Stop>,
        now_ms: i64,
    ) -> Result<Vec<(TopicPartition, ErrorCode)>, StaleController> {
        let mut seen = self.controller_epoch.lock();
        if controller_epoch < *seen {
            return Err(StaleController { seen: *seen });
        }
        *seen = controller_epoch;
        let mut outcomes = Vec::with_capacity(stops.len());
        for stop in stops {
            let code = self
                .stop_one(&stop, now_ms)
                .err()
                .unwrap_or(ErrorCode::None);
            outcomes.push((stop.id, code));
        }
        Ok(outcomes)
    }

    pub(super) fn stop_one(&self, stop: &Stop, now_ms: i64) -> Result<(), ErrorCode> {
        if self.logs.is_pending(&stop.id) {
            return self.keep_stop(stop);
        }
        match self.hosted(&stop.id.topic, stop.id.partition) {
            Some(Hosted::Offline) => return Err(ErrorCode::KafkaStorageError),
            Some(Hosted::Online(partition)) => {
                let epoch = partition.leader_epoch();
                let special = [EPOCH_DURING_DELETE, NO_EPOCH].contains(&stop.leader_epoch);
                if !special && stop.leader_epoch < epoch {
                    tracing::warn!(partition = %stop.id, got = stop.leader_epoch, current = epoch, "StopReplica with an older leader epoch ignored");
                    return Err(ErrorCode::FencedLeaderEpoch);
                }
                self.leave(&stop.id);
                if stop.delete {
                    self.hosted.write().remove(&stop.id);
                    partition.change_role(|role| {
                        role.log = None;
                        role.is_leader = false;
                        role.leader_id = -1;
                    });
                } else {
                    partition.waiters.wake();
                }
            }
            Some(Hosted::Unopened(_)) if stop.delete => {
                self.hosted.write().remove(&stop.id);
            }
            Some(Hosted::Unopened(_)) | None => {}
        }
        let epoch = (stop.leader_epoch >= 0).then_some(stop.leader_epoch);
        for observer in self.observers() {
            observer.lost_leadership(&stop.id, epoch);
        }
        if stop.delete {
            // A log of a topic that was deleted while this broker was down has no hosted partition.
            self.logs.delete(&stop.id, now_ms).map_err(|error| {
                let code = report(&stop.id, "deleting the log", &error);
                if error.takes_dir_offline() {
                    self.logs.handle_error(&error);
                    self.take_dirs_offline();
                }
                code
            })?;
        }
        Ok(())
    }
}

/// A request without id, or a log without one, is consistent with anything (topics older than topic ids).
fn is_consistent(asked: Uuid, known: Option<Uuid>) -> bool {
    asked.is_zero() || known.is_none_or(|known| known == asked)
}
