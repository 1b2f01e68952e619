//! One step of a move: under the role and the logs' locks for as short as it takes, with the reading of the log and the
//! writing of the copy outside of the role.

use std::sync::Arc;

use gracchus_log::manager::Swapped;
use gracchus_log::{LogError, PartitionLog, ReadLimit, SharedLog, TopicPartition, in_memory};

use super::rules::{Next, next, parting};
use crate::replica::ReplicaManager;
use crate::replica::failure::Failure;
use crate::replica::fetcher::following::view;
use crate::replica::manager::Hosted;
use crate::replica::partition::Partition;

/// Bytes that may be copied while nobody can append, so that a busy log is caught up with in the end: doubled with each
/// try, up to the second.
const LAST_BYTES: u64 = 1 << 20;
const MOST_LAST_BYTES: u64 = 32 << 20;

/// One move, as its task sees it.
#[derive(Debug)]
pub struct Job {
    id: TopicPartition,
    /// The log and its copy.
    logs: Option<(SharedLog, SharedLog)>,
    /// The records of the copy are the log's, as of this many cuts of the log.
    agreed: Option<u64>,
    /// How often the copy had all, but the log had more when it was to be replaced.
    tries: u32,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were copied, and there is more to do.
    Copied(u64),
    /// To be tried again after a while.
    Later,
    /// Done, given up, or not possible: there is nothing more to do.
    Ended,
}

impl Job {
    /// A move that nothing is known of yet.
    pub fn new(id: TopicPartition) -> Self {
        Self {
            id,
            logs: None,
            agreed: None,
            tries: 0,
        }
    }
}

impl ReplicaManager {
    /// Takes one step of a move. Does file work.
    pub fn step_move(&self, job: &mut Job, now_ms: i64) -> Outcome {
        let Some(Hosted::Online(partition)) = self.hosted(&job.id.topic, job.id.partition) else {
            return Outcome::Ended;
        };
        let (Some(current), Some(future)) = (partition.log(), self.logs.future(&job.id)) else {
            return Outcome::Ended;
        };
        let same = job
            .logs
            .as_ref()
            .is_some_and(|(c, f)| Arc::ptr_eq(c, &current) && Arc::ptr_eq(f, &future));
        if !same {
            *job = Job::new(job.id.clone());
        }
        job.logs = Some((current.clone(), future.clone()));
        let most = self.config.current().replica_fetch_max_bytes;
        let most = u32::try_from(most).unwrap_or(1 << 20);
        let stepped = match copy(&current, &future, &mut job.agreed, most, now_ms) {
            Ok(Some(bytes)) => return Outcome::Copied(bytes),
            Ok(None) => self.swap(job, &partition, &current, &future, now_ms),
            Err(failure) => Err(failure),
        };
        // also of the old directory, from which the log is gone already
        self.take_dirs_offline();
        stepped.unwrap_or_else(|failure| self.move_failed(&job.id, &current, failure))
    }

    /// Puts the copy in the log's place, if it is still the log's equal when nobody can append.
    fn swap(
        &self,
        job: &mut Job,
        partition: &Partition,
        current: &SharedLog,
        future: &SharedLog,
        now_ms: i64,
    ) -> Result<Outcome, Failure> {
        // What the old log has on the device is not to depend on a page cache afterwards.
        self.logs.flush(future, now_ms)?;
        let most = LAST_BYTES
            .checked_shl(job.tries)
            .map_or(MOST_LAST_BYTES, |most| most.min(MOST_LAST_BYTES));
        job.tries = job.tries.saturating_add(1).min(16);
        let swapped: Option<Swapped> = {
            // An order of the controller's must not hold the old log while it is replaced.
            let _seen = self.controller_epoch.lock();
            partition.change_role(|role| {
                if !role
                    .log
                    .as_ref()
                    .is_some_and(|log| Arc::ptr_eq(log, current))
                {
                    return Ok::<_, Failure>(None);
                }
                let mut left = most;
                while let Some(bytes) = copy(current, future, &mut job.agreed, 1 << 20, now_ms)? {
                    left = match left.checked_sub(bytes.max(1)) {
                        Some(left) => left,
                        None => return Ok(None),
                    };
                }
                let swapped = self.logs.replace_with_future(&job.id, now_ms)?;
                role.log = Some(swapped.log.clone());
                Ok(Some(swapped))
            })?
        };
        match swapped {
            None => Ok(Outcome::Copied(0)),
            Some(swapped) => {
                self.logs.finish_swap(&swapped);
                Ok(Outcome::Ended)
            }
        }
    }

    fn move_failed(&self, id: &TopicPartition, current: &SharedLog, failure: Failure) -> Outcome {
        let dir = current.lock().dir().display().to_string();
        match failure {
            Failure::Records(reason) => {
                tracing::error!(partition = %id, "the move stands still, since {dir} holds what cannot be copied: {reason}. It is \
                    tried again when the broker is restarted; to give it up, order the move to the directory where the log is");
                Outcome::Ended
            }
            Failure::Log(error) if error.is_out_of_space() || error.is_out_of_files() => {
                tracing::warn!(partition = %id, "the move waits: {error}");
                Outcome::Later
            }
            Failure::Log(LogError::Deleted { .. } | LogError::Closed { .. }) => Outcome::Ended,
            Failure::Log(LogError::Conflict(reason)) => {
                tracing::debug!(partition = %id, "{reason}");
                Outcome::Later
            }
            Failure::Log(error) => {
                self.log_failed(id, "moving the log", &error);
                Outcome::Ended
            }
        }
    }
}

/// Copies a piece; the bytes copied, None if the copy has all.
fn copy(
    current: &SharedLog,
    future: &SharedLog,
    agreed: &mut Option<u64>,
    most: u32,
    now_ms: i64,
) -> Result<Option<u64>, Failure> {
    let (parts, cuts, end) = {
        let mut log = current.lock();
        let cuts = log.cuts();
        let from = {
            let mut copy = future.lock();
            if *agreed != Some(cuts) {
                agree(&log, &mut copy, now_ms)?;
                *agreed = Some(cuts);
            }
            if let Next::Restart(at) = next(&view(&log), &view(&copy)) {
                tracing::info!(partition = %log.topic_partition(), "the copy begins anew at {at}, where the log begins");
                copy.truncate_fully_and_start_at(at, now_ms)?;
            }
            copy.update_high_watermark(log.high_watermark());
            let start = log.log_start_offset();
            if start > copy.log_start_offset() && start <= copy.high_watermark() {
                copy.delete_records(start)?;
            }
            if next(&view(&log), &view(&copy)) == Next::CaughtUp {
                return Ok(None);
            }
            copy.log_end_offset()
        };
        let read = log.read(from, most, ReadLimit::LogEnd, true)?;
        (read.parts, cuts, log.log_end_offset())
    };
    let records = in_memory(&parts).map_err(|source| LogError::Io {
        op: "read",
        path: current.lock().dir().to_path_buf(),
        source,
    })?;
    // Cut while it was read: the files may hold something else there by now.
    if current.lock().cuts() != cuts {
        return Ok(Some(0));
    }
    if records.is_empty() {
        // Compaction left nothing up to the log's end.
        future.lock().skip_to(end, now_ms)?;
        return Ok(Some(0));
    }
    let bytes = records.len() as u64;
    future.lock().append_as_follower(records, now_ms)?;
    Ok(Some(bytes))
}

/// Cuts the copy until its records are the log's.
fn agree(log: &PartitionLog, copy: &mut PartitionLog, now_ms: i64) -> Result<(), LogError> {
    loop {
        let end_of = |epoch| log.end_offset_for_epoch(epoch);
        let own = |epoch| copy.end_offset_for_epoch(epoch);
        let Some(cut) = parting(&view(log), &view(copy), end_of, own) else {
            return Ok(());
        };
        let end = copy.log_end_offset();
        if cut.to < end {
            tracing::info!(partition = %log.topic_partition(), "the copy is cut from {end} to {}, where the log went another way", cut.to);
            copy.truncate_to(cut.to, now_ms)?;
        }
        // A step that cut nothing would be the same again.
        if cut.is_done || cut.to >= end {
            return Ok(());
        }
    }
}
