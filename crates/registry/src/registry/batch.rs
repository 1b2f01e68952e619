//! Plain operations, pipelined, and what becomes of them when the connection breaks.

use super::Registry;
use crate::op::{MultiReply, MultiStep, ZkFailure, ZkOp, ZkReply, ZkResult};
use gracchus_zk_client::{MultiFailure, Op, OpResult, RepliesFuture, Reply, ZkError};
use std::collections::VecDeque;

/// Operations of one batch handed to the session at a time; the session itself bounds what is on the wire.
const WINDOW: usize = 4096;
/// Of these, how many are submitted and come back together.
const PART: usize = 256;

impl Registry {
    /// Runs operations in order, pipelined; not atomic. A result for each, at its place.
    ///
    /// What a broken connection left unanswered is sent again after it is back, however long that takes, and so is
    /// everything under way behind it that failed (it may have needed the lost one). When the second try then finds that the
    /// first had taken effect, that counts as success. Ends early only with the session (`SessionExpired`) or the client.
    pub async fn execute(&self, ops: Vec<ZkOp>) -> Vec<ZkResult> {
        let mut all = Vec::with_capacity(ops.len());
        self.execute_in_parts(ops, |mut part| {
            all.append(&mut part);
            std::future::ready(())
        })
        .await;
        all
    }

    /// [`execute`](Self::execute), whose results are delivered in order as they come, while later operations are under way.
    pub async fn execute_in_parts<D: Future<Output = ()>>(
        &self,
        ops: Vec<ZkOp>,
        mut deliver: impl FnMut(Vec<ZkResult>) -> D,
    ) {
        let mut chunks = ops.chunks(PART);
        let mut flying: VecDeque<(&[ZkOp], RepliesFuture)> = VecDeque::new();
        loop {
            while flying.len() < WINDOW / PART {
                let Some(chunk) = chunks.next() else { break };
                flying.push_back((chunk, self.submit(chunk.iter())));
            }
            let Some((chunk, replies)) = flying.pop_front() else {
                return;
            };
            let mut results = all_typed(chunk, replies.await);
            if results.iter().any(is_lost) {
                let mut behind = chunk.to_vec();
                while let Some((chunk, replies)) = flying.pop_front() {
                    behind.extend_from_slice(chunk);
                    results.append(&mut all_typed(chunk, replies.await));
                }
                self.repeat_lost(&behind, &mut results).await;
            }
            deliver(results).await;
        }
    }

    /// What was lost of `ops`, and what failed behind it, again and again until nothing is.
    async fn repeat_lost(&self, ops: &[ZkOp], results: &mut [ZkResult]) {
        let mut was_lost = vec![false; ops.len()];
        while let Some(first) = results.iter().position(is_lost) {
            if self.zk.is_closed() {
                break;
            }
            for (mark, result) in was_lost.iter_mut().zip(results.iter()) {
                *mark |= is_lost(result);
            }
            let todo: Vec<(&ZkOp, &mut ZkResult)> = ops
                .iter()
                .zip(results.iter_mut())
                .skip(first)
                .filter(|(_, result)| result.is_err())
                .collect();
            let replies = self.submit(todo.iter().map(|(op, _)| *op)).await;
            for ((op, slot), reply) in todo.into_iter().zip(replies) {
                *slot = typed(op, reply.result);
            }
        }
        for ((op, result), _) in ops
            .iter()
            .zip(results)
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
    }

    fn submit<'a>(&self, ops: impl Iterator<Item = &'a ZkOp>) -> RepliesFuture {
        self.zk.submit_all(ops.map(|op| self.wire(op)).collect())
    }

    /// One operation, as [`execute`](Self::execute) runs it.
    pub async fn execute_one(&self, op: ZkOp) -> ZkResult {
        self.execute(vec![op])
            .await
            .pop()
            .unwrap_or(Err(ZkError::SystemError.into()))
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

fn is_lost(result: &ZkResult) -> bool {
    matches!(result, Err(failure) if failure.error == ZkError::ConnectionLoss)
}

fn all_typed(ops: &[ZkOp], replies: Vec<Reply>) -> Vec<ZkResult> {
    let of = |(op, reply): (&ZkOp, Reply)| typed(op, reply.result);
    ops.iter().zip(replies).map(of).collect()
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
