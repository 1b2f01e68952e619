//! Roles for logs that are not loaded yet: kept, and taken as each is. The controller is answered at once, since who may
//! lead is settled; a client is told to look for the leader again until its partition is served.

use gracchus_kafka_proto::ErrorCode;
use gracchus_log::TopicPartition;

use super::assignment::{Assignment, EPOCH_DURING_DELETE, NO_EPOCH, Stop};
use super::manager::ReplicaManager;

/// What the controller has said of a log that is not loaded yet: a deletion first, then a role.
#[derive(Default)]
pub(crate) struct Waiting {
    deletion: Option<Stop>,
    /// With the epoch of the controller that gave it.
    role: Option<(i32, Assignment)>,
}

impl ReplicaManager {
    /// The log is loaded: what was kept for it is done. Does file work.
    pub fn log_loaded(&self, id: &TopicPartition, now_ms: i64) {
        // No role may be given meanwhile.
        let _seen = self.controller_epoch.lock();
        let Some(waiting) = self.waiting.lock().remove(id) else {
            return;
        };
        if let Some(stop) = waiting.deletion
            && let Err(code) = self.stop_one(&stop, now_ms)
        {
            tracing::error!(partition = %id, error = code.name(), "the deletion that waited for the log to be loaded failed");
        }
        if let Some((controller_epoch, assignment)) = waiting.role {
            match self.assign_one(controller_epoch, &assignment, now_ms) {
                Ok(Some(partition)) => self.role_changed(&partition),
                Ok(None) => {}
                // the broker stops
                Err(ErrorCode::NotLeaderOrFollower) => {}
                Err(code) => {
                    tracing::error!(partition = %id, error = code.name(), "the role that waited for the log to be loaded cannot be taken");
                }
            }
        }
    }

    /// Keeps a role until the log is loaded. The lock of the controller's epoch is held.
    pub(super) fn keep_role(
        &self,
        controller_epoch: i32,
        assignment: &Assignment,
    ) -> Result<(), ErrorCode> {
        let Assignment { id, state, .. } = assignment;
        if !state.replicas.contains(&self.broker_id) {
            tracing::warn!(partition = %id, replicas = ?state.replicas, "LeaderAndIsr for a partition that is not assigned to this broker ignored");
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let mut all = self.waiting.lock();
        let waiting = all.entry(id.clone()).or_default();
        if let Some((_, kept)) = &waiting.role {
            let (new, kept) = (
                (state.leader_epoch, state.partition_epoch),
                (kept.state.leader_epoch, kept.state.partition_epoch),
            );
            if new <= kept {
                return Err(ErrorCode::StaleControllerEpoch);
            }
        }
        waiting.role = Some((controller_epoch, assignment.clone()));
        drop(all);
        if state.leader == self.broker_id {
            self.logs.want(id);
        }
        Ok(())
    }

    /// Keeps a deletion until the log is loaded; any other StopReplica ends what role was kept.
    pub(super) fn keep_stop(&self, stop: &Stop) -> Result<(), ErrorCode> {
        let mut all = self.waiting.lock();
        let waiting = all.entry(stop.id.clone()).or_default();
        let special = [EPOCH_DURING_DELETE, NO_EPOCH].contains(&stop.leader_epoch);
        if let Some((_, kept)) = &waiting.role
            && !special
            && stop.leader_epoch < kept.state.leader_epoch
        {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        waiting.role = None;
        if stop.delete {
            waiting.deletion = Some(stop.clone());
        }
        Ok(())
    }
}
