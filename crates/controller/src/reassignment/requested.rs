//! Who asks for moves: AlterPartitionReassignments and `/admin/reassign_partitions`.

use std::collections::BTreeSet;

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::json::ReassignPartitions;
use gracchus_registry::op::{MultiStep, ZkError, ZkOp, ZkReply};
use gracchus_registry::paths;

use super::Moves;
use super::assignment::Assignment;
use crate::action::{ApiResult, Outcome, Reassigning};
use crate::context::PartitionKey;
use crate::event::ApiToken;
use crate::machine::Controller;

impl Controller {
    /// AlterPartitionReassignments: replicas to move to, or None to give a move up.
    pub(crate) fn alter_reassignments(
        &mut self,
        token: ApiToken,
        wanted: Vec<(PartitionKey, Option<Vec<i32>>)>,
    ) {
        let mut outcomes: Vec<(PartitionKey, Outcome<()>)> = Vec::new();
        let mut moves = Moves::new();
        for (key, target) in wanted {
            let checked = match &target {
                Some(target) => self.check_target(&key, target),
                None => Ok(()),
            };
            match checked.and_then(|()| self.planned(&key, target)) {
                Ok(planned) => {
                    moves.insert(key.clone(), planned);
                    outcomes.push((key, Ok(())));
                }
                Err(refused) => outcomes.push((key, Err(refused))),
            }
        }
        // the newest word holds, whoever said it
        let overruled: BTreeSet<PartitionKey> = moves.keys().cloned().collect();
        self.forget_requested(overruled, move |me| {
            me.reassign(moves, move |me, failed| {
                for (key, outcome) in &mut outcomes {
                    if failed.contains(key) {
                        let text = "The assignment could not be written.".to_owned();
                        *outcome = Err((ErrorCode::UnknownServerError, text));
                    }
                }
                me.reply(token, ApiResult::Reassigned(Ok(outcomes)));
            });
        });
    }

    fn check_target(&self, key: &PartitionKey, target: &[i32]) -> Result<(), (ErrorCode, String)> {
        let invalid = |text: String| Err((ErrorCode::InvalidReplicaAssignment, text));
        if target.is_empty() {
            return invalid("Empty replica list specified in partition reassignment.".into());
        }
        let distinct: BTreeSet<i32> = target.iter().copied().collect();
        if distinct.len() < target.len() {
            return invalid(format!(
                "Duplicate replica ids in partition reassignment replica list: {target:?}"
            ));
        }
        if target.iter().any(|id| *id < 0) {
            return invalid(format!("Invalid broker id in replica list: {target:?}"));
        }
        let adding = match self.cx.partition(key) {
            Some(partition) => Assignment::of(partition).to(target).adding,
            None => target.to_vec(),
        };
        if adding.iter().any(|id| !self.cx.is_alive(*id)) {
            let live: Vec<&i32> = self.cx.brokers.keys().collect();
            return invalid(format!(
                "Replica assignment has brokers that are not alive. Replica list: {target:?}, live broker list: {live:?}"
            ));
        }
        Ok(())
    }

    /// The assignment that a request means.
    fn planned(
        &self,
        key: &PartitionKey,
        target: Option<Vec<i32>>,
    ) -> Result<Assignment, (ErrorCode, String)> {
        let unknown = |text: String| Err((ErrorCode::UnknownTopicOrPartition, text));
        let Some(partition) = self.cx.partition(key).filter(|p| !p.replicas.is_empty()) else {
            return match target {
                None => Err((
                    ErrorCode::NoReassignmentInProgress,
                    "No partition reassignment is in progress.".into(),
                )),
                Some(_) => unknown("The partition does not exist.".into()),
            };
        };
        if self.cx.is_deleting(&key.topic) {
            return unknown("The topic is being deleted.".into());
        }
        let now = Assignment::of(partition);
        let planned = match target {
            Some(target) => now.to(&target),
            None if now.is_moving() => now.to(&now.origin()),
            None => {
                return Err((
                    ErrorCode::NoReassignmentInProgress,
                    "No partition reassignment is in progress.".into(),
                ));
            }
        };
        // Kafka would leave the partition to a replica that has not all that was committed
        if let Some(found) = &partition.leader_isr
            && !found.state.isr.iter().any(|b| planned.replicas.contains(b))
        {
            return Err((
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "None of the in-sync replicas {:?} would stay among {:?}; let one of these catch up first",
                    found.state.isr, planned.replicas
                ),
            ));
        }
        Ok(planned)
    }

    /// ListPartitionReassignments; None: all.
    pub(crate) fn list_reassignments(
        &mut self,
        token: ApiToken,
        wanted: Option<Vec<PartitionKey>>,
    ) {
        let keys = wanted.unwrap_or_else(|| self.cx.reassigning());
        let mut found = Vec::new();
        for key in keys {
            if let Some(partition) = self.cx.partition(&key).filter(|p| p.is_moving()) {
                found.push(Reassigning {
                    key: key.clone(),
                    replicas: partition.replicas.clone(),
                    adding: partition.adding.clone(),
                    removing: partition.removing.clone(),
                });
            }
        }
        self.reply(token, ApiResult::Reassignments(Ok(found)));
    }

    /// `/admin/reassign_partitions`, as the old tools write it: without the request's checks. What can't be done is taken
    /// out of the node; the rest goes when it is done.
    pub(crate) fn reassignment_requested(&mut self) {
        self.take_requested(|_| {});
    }

    pub(super) fn take_requested(&mut self, then: impl FnOnce(&mut Controller) + Send + 'static) {
        let ops = vec![
            ZkOp::exists_and_watch(paths::REASSIGN_PARTITIONS),
            ZkOp::get(paths::REASSIGN_PARTITIONS),
        ];
        self.zk(ops, |me, results| {
            let Some(Ok(ZkReply::Data { data, stat })) = results.get(1) else {
                return then(me);
            };
            let requested = match ReassignPartitions::parse(data.as_deref().unwrap_or_default()) {
                Ok(requested) => requested,
                Err(error) => {
                    tracing::error!(
                        "{} can't be read ({error}); removed, nothing is moved: write it anew",
                        paths::REASSIGN_PARTITIONS
                    );
                    // left there, as Kafka leaves it, it would keep every later request out
                    let step = MultiStep::Delete {
                        path: paths::REASSIGN_PARTITIONS.to_owned(),
                        version: stat.version,
                    };
                    let ops = vec![
                        ZkOp::fenced(me.fence(), step),
                        ZkOp::exists_and_watch(paths::REASSIGN_PARTITIONS),
                    ];
                    return me.zk_fenced(ops, |me, _| then(me));
                }
            };
            let mut moves = Moves::new();
            let mut refused = BTreeSet::new();
            for entry in requested.entries {
                let key = PartitionKey::new(&entry.topic, entry.partition);
                let target = Some(entry.replicas).filter(|replicas| !replicas.is_empty());
                match me.planned(&key, target) {
                    Ok(planned) => {
                        moves.insert(key, planned);
                    }
                    Err((error, text)) => {
                        tracing::warn!(
                            "the reassignment of {key} is dropped: {} {text}",
                            error.name()
                        );
                        refused.insert(key);
                    }
                }
            }
            me.forget_requested(refused, move |me| me.reassign(moves, move |me, _| then(me)));
        });
    }

    /// Takes partitions out of `/admin/reassign_partitions`, which goes with the last one.
    pub(super) fn forget_requested(
        &mut self,
        gone: BTreeSet<PartitionKey>,
        then: impl FnOnce(&mut Controller) + Send + 'static,
    ) {
        if gone.is_empty() {
            return then(self);
        }
        self.zk(
            vec![ZkOp::get(paths::REASSIGN_PARTITIONS)],
            move |me, results| {
                let Some(Ok(ZkReply::Data { data, stat })) = results.first() else {
                    return then(me);
                };
                let Ok(mut left) = ReassignPartitions::parse(data.as_deref().unwrap_or_default())
                else {
                    return then(me); // named where it is read
                };
                let before = left.entries.len();
                left.entries
                    .retain(|e| !gone.contains(&PartitionKey::new(&e.topic, e.partition)));
                if left.entries.len() == before {
                    return then(me);
                }
                let path = paths::REASSIGN_PARTITIONS.to_owned();
                let version = stat.version;
                let step = if left.entries.is_empty() {
                    MultiStep::Delete { path, version }
                } else {
                    let data = Some(left.to_bytes());
                    MultiStep::SetData {
                        path,
                        data,
                        version,
                    }
                };
                let ops = vec![
                    ZkOp::fenced(me.fence(), step),
                    ZkOp::exists_and_watch(paths::REASSIGN_PARTITIONS),
                ];
                me.zk_fenced(ops, |me, results| match results.first() {
                    // written anew meanwhile
                    Some(Err(f)) if f.error == ZkError::BadVersion => {
                        me.forget_requested(gone, then)
                    }
                    _ => then(me),
                });
            },
        );
    }
}
