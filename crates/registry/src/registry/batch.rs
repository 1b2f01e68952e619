//! Plain operations, pipelined, and what becomes of them when the connection breaks.

use super::Registry;
use crate::op::{MultiReply, MultiStep, ZkFailure, ZkOp, ZkReply, ZkResult};
use gracchus_zk_client::{MultiFailure, Op, OpResult, ReplyFuture, ZkError};
use std::collections::VecDeque;

/// Operations of one batch handed to the session at a time; the session itself bounds what is on the wire.
const WINDOW: usize = 4096;

impl Registry {
    /// Runs operations in order, pipelined; not atomic. A result for each, at its place.
    ///
    /// What a broken connection left unanswered is sent again after it is back, however long that takes, and so is
    /// everything behind it that failed (it may have needed the lost one). When the second try then finds that the
    /// first had taken effect, that counts as success. Ends early only with the session (`SessionExpired`) or the client.
    pub async fn execute(&self, ops: Vec<ZkOp>) -> Vec<ZkResult> {
        let mut results: Vec<ZkResult> = vec![Err(ZkError::ConnectionLoss.into()); ops.len()];
        let mut was_lost = vec![false; ops.len()];
        let mut todo: Vec<usize> = (0..ops.len()).collect();
        while !todo.is_empty() {
            self.run_once(&ops, &todo, &mut results).await;
            let lost = |result: &ZkResult| matches!(result, Err(failure) if failure.error == ZkError::ConnectionLoss);
            let Some(first) = results.iter().position(lost) else {
                break;
            };
            if self.zk.is_closed() {
                break;
            }
            for (mark, result) in was_lost.iter_mut().zip(&results) {
                *mark |= lost(result);
            }
            todo = results
                .iter()
                .enumerate()
                .skip(first)
                .filter(|(_, result)| result.is_err())
                .map(|(at, _)| at)
                .collect();
        }
        for ((op, result), _) in ops
            .iter()
            .zip(&mut results)
            .zip(&was_lost)
            .filter(|(_, lost)| **lost)
        {
            if let Err(failure) = result
                && let Some(reply) = self.had_taken_effect(op, *failure).await
            {
                tracing::info!(
                    "{}: the write before the connection broke had taken effect",
                    op.path()
                );
                *result = Ok(reply);
            }
        }
        results
    }

    /// One operation, as [`execute`](Self::execute) runs it.
    pub async fn execute_one(&self, op: ZkOp) -> ZkResult {
        self.execute(vec![op])
            .await
            .pop()
            .unwrap_or(Err(ZkError::SystemError.into()))
    }

    async fn run_once(&self, ops: &[ZkOp], todo: &[usize], results: &mut [ZkResult]) {
        let mut pending: VecDeque<(usize, ReplyFuture)> =
            VecDeque::with_capacity(todo.len().min(WINDOW));
        let mut rest = todo.iter();
        loop {
            while pending.len() < WINDOW {
                let Some(&at) = rest.next() else { break };
                if let Some(op) = ops.get(at) {
                    pending.push_back((at, self.zk.submit(self.wire(op))));
                }
            }
            let Some((at, reply)) = pending.pop_front() else {
                return;
            };
            let answer = reply.await.result;
            if let (Some(op), Some(slot)) = (ops.get(at), results.get_mut(at)) {
                *slot = typed(op, answer);
            }
        }
    }

    fn wire(&self, op: &ZkOp) -> Op {
        match op {
            ZkOp::Create { path, data, mode } => Op::Create2 {
                path: path.clone(),
                data: data.clone(),
                acl: self.acl_for(path),
                mode: *mode,
                ttl_ms: None,
            },
            ZkOp::SetData {
                path,
                data,
                version,
            } => Op::SetData {
                path: path.clone(),
                data: data.clone(),
                version: *version,
            },
            ZkOp::Delete { path, version } => Op::Delete {
                path: path.clone(),
                version: *version,
            },
            ZkOp::Get { path, watch } => Op::GetData {
                path: path.clone(),
                watch: *watch,
            },
            ZkOp::Exists { path, watch } => Op::Exists {
                path: path.clone(),
                watch: *watch,
            },
            ZkOp::GetChildren { path, watch } => Op::GetChildren {
                path: path.clone(),
                watch: *watch,
            },
            ZkOp::Multi(steps) => {
                Op::Multi(steps.iter().map(|step| self.wire_step(step)).collect())
            }
        }
    }

    fn wire_step(&self, step: &MultiStep) -> Op {
        match step {
            MultiStep::Create { path, data, mode } => Op::Create {
                path: path.clone(),
                data: data.clone(),
                acl: self.acl_for(path),
                mode: *mode,
            },
            MultiStep::SetData {
                path,
                data,
                version,
            } => Op::SetData {
                path: path.clone(),
                data: data.clone(),
                version: *version,
            },
            MultiStep::Delete { path, version } => Op::Delete {
                path: path.clone(),
                version: *version,
            },
            MultiStep::Check { path, version } => Op::Check {
                path: path.clone(),
                version: *version,
            },
        }
    }

    /// The reply that a write would have had if its first, unanswered sending was what makes the second one fail.
    /// For a multi: only one step that writes, behind checks that held.
    async fn had_taken_effect(&self, op: &ZkOp, failure: ZkFailure) -> Option<ZkReply> {
        match op {
            ZkOp::Create { path, data, mode } => {
                let step = MultiStep::Create {
                    path: path.clone(),
                    data: data.clone(),
                    mode: *mode,
                };
                self.step_had_taken_effect(&step, failure.error)
                    .await
                    .map(|(plain, _)| plain)
            }
            ZkOp::SetData {
                path,
                data,
                version,
            } => {
                let step = MultiStep::SetData {
                    path: path.clone(),
                    data: data.clone(),
                    version: *version,
                };
                self.step_had_taken_effect(&step, failure.error)
                    .await
                    .map(|(plain, _)| plain)
            }
            ZkOp::Delete { path, version } => {
                let step = MultiStep::Delete {
                    path: path.clone(),
                    version: *version,
                };
                self.step_had_taken_effect(&step, failure.error)
                    .await
                    .map(|(plain, _)| plain)
            }
            ZkOp::Multi(steps) => {
                let (last, checks) = steps.split_last()?;
                if failure.step != checks.len()
                    || !checks
                        .iter()
                        .all(|step| matches!(step, MultiStep::Check { .. }))
                {
                    return None;
                }
                let (_, reply) = self.step_had_taken_effect(last, failure.error).await?;
                let mut replies = vec![MultiReply::Checked; checks.len()];
                replies.push(reply);
                Some(ZkReply::Multi(replies))
            }
            ZkOp::Get { .. } | ZkOp::Exists { .. } | ZkOp::GetChildren { .. } => None,
        }
    }

    async fn step_had_taken_effect(
        &self,
        step: &MultiStep,
        error: ZkError,
    ) -> Option<(ZkReply, MultiReply)> {
        match (step, error) {
            (MultiStep::Create { path, data, mode }, ZkError::NodeExists)
                if !mode.is_sequential() =>
            {
                let (found, stat) = self.zk.get_data(path, false).await.ok()?;
                let session = self.zk.session().map_or(0, |(id, _)| id);
                let owner = if mode.is_ephemeral() { session } else { 0 };
                (found == *data && stat.ephemeral_owner == owner).then(|| {
                    (
                        ZkReply::Created {
                            path: path.clone(),
                            stat,
                        },
                        MultiReply::Created { path: path.clone() },
                    )
                })
            }
            (
                MultiStep::SetData {
                    path,
                    data,
                    version,
                },
                ZkError::BadVersion,
            ) => {
                let (found, stat) = self.zk.get_data(path, false).await.ok()?;
                (found == *data && version.checked_add(1) == Some(stat.version))
                    .then_some((ZkReply::Set(stat), MultiReply::Set(stat)))
            }
            (MultiStep::Delete { .. }, ZkError::NoNode) => {
                Some((ZkReply::Deleted, MultiReply::Deleted))
            }
            _ => None,
        }
    }
}

fn typed(op: &ZkOp, answer: Result<OpResult, ZkError>) -> ZkResult {
    Ok(match (op, answer?) {
        (ZkOp::Create { .. }, OpResult::Created2(path, stat)) => ZkReply::Created { path, stat },
        (ZkOp::SetData { .. }, OpResult::Stat(stat)) => ZkReply::Set(stat),
        (ZkOp::Delete { .. }, OpResult::Deleted) => ZkReply::Deleted,
        (ZkOp::Get { .. }, OpResult::Data(data, stat)) => ZkReply::Data { data, stat },
        (ZkOp::Exists { .. }, OpResult::Stat(stat)) => ZkReply::Exists(stat),
        (ZkOp::GetChildren { .. }, OpResult::Children(children, stat)) => {
            ZkReply::Children { children, stat }
        }
        (ZkOp::Multi(_), OpResult::Multi(Err(MultiFailure { index, error }))) => {
            return Err(ZkFailure { error, step: index });
        }
        (ZkOp::Multi(_), OpResult::Multi(Ok(results))) => ZkReply::Multi(
            results
                .into_iter()
                .map(|result| match result {
                    OpResult::Created(path) | OpResult::Created2(path, _) => {
                        MultiReply::Created { path }
                    }
                    OpResult::Stat(stat) => MultiReply::Set(stat),
                    OpResult::Deleted => MultiReply::Deleted,
                    _ => MultiReply::Checked,
                })
                .collect(),
        ),
        _ => return Err(ZkError::SystemError.into()),
    })
}
