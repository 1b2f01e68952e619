//! What a fetcher's steps do to a log: only while it follows, in the leader epoch that the step is of.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_log::PartitionLog;

use super::steps::{LogView, Outcome, Step, What};
use super::truncation::cut;
use crate::replica::failure::Failure;
use crate::replica::manager::{Hosted, ReplicaManager};
use crate::replica::partition::Partition;

/// What a fetcher sees of a log.
pub fn view(log: &PartitionLog) -> LogView {
    LogView {
        start: log.log_start_offset(),
        end: log.log_end_offset(),
        high_watermark: log.high_watermark(),
        latest_epoch: log.latest_epoch(),
    }
}

impl ReplicaManager {
    /// Does a step of a fetcher.
    pub fn follow_step(&self, step: &Step, now_ms: i64) -> Outcome {
        let id = &step.partition;
        let Some(Hosted::Online(partition)) = self.hosted(&id.topic, id.partition) else {
            return Outcome::Left;
        };
        match partition.follow_step(step, now_ms) {
            None => Outcome::Left,
            Some(Ok(outcome)) => {
                if !matches!(step.what, What::Append { .. }) {
                    // Before what is appended next: a crash must not take it for checked.
                    self.logs().checkpoint_truncation(id);
                }
                partition.waiters.wake();
                self.throttled(step, outcome, now_ms)
            }
            Some(Err(Failure::Records(reason))) => {
                // they may be with the next answer
                tracing::error!(partition = %id, "what the leader sent cannot be appended: {reason}");
                Outcome::Later
            }
            Some(Err(Failure::Log(error))) => {
                let passes = error.is_out_of_space() || error.is_out_of_files();
                self.log_failed(id, "following", &error);
                if passes || error.error_code() == ErrorCode::OffsetOutOfRange {
                    Outcome::Later
                } else {
                    Outcome::Left
                }
            }
        }
    }
}

impl ReplicaManager {
    /// Flushes a followed log if `flush.messages` have come, on a thread that may block.
    pub async fn flush_followed(self: &Arc<Self>, step: &Step, now_ms: i64) {
        let id = &step.partition;
        let Some(Hosted::Online(partition)) = self.hosted(&id.topic, id.partition) else {
            return;
        };
        let Some(log) = partition.log() else { return };
        if !log.lock().flush_is_due_by_count() {
            return;
        }
        let manager = self.clone();
        let flush = move || manager.flush_log(&partition, now_ms);
        // what went wrong has been told
        let _ = tokio::task::spawn_blocking(flush).await;
    }

    /// Counts what was fetched for a throttled replica; one that is behind has to wait when it was too much.
    fn throttled(&self, step: &Step, outcome: Outcome, now_ms: i64) -> Outcome {
        let (
            What::Append {
                records,
                high_watermark,
                ..
            },
            Outcome::Done(log),
        ) = (&step.what, outcome)
        else {
            return outcome;
        };
        let id = &step.partition;
        let throttle = &self.follower_throttle;
        if records.is_empty() || !self.is_throttled(throttle, &id.topic, id.partition) {
            return outcome;
        }
        throttle.record(u64::try_from(records.len()).unwrap_or(u64::MAX), now_ms);
        if log.end < *high_watermark && throttle.is_exceeded(now_ms) {
            Outcome::Throttled(log)
        } else {
            outcome
        }
    }
}

impl Partition {
    /// None when it does not follow in that epoch (any more).
    fn follow_step(&self, step: &Step, now_ms: i64) -> Option<Result<Outcome, Failure>> {
        let role = self.role();
        if role.is_leader || role.leader_epoch != step.leader_epoch {
            return None;
        }
        let mut log = role.log.as_ref()?.lock();
        let outcome = apply(&mut log, &step.what, now_ms);
        if let What::Append { records, .. } = &step.what
            && outcome.is_ok()
        {
            self.metrics
                .add(|c| &c.replication_bytes_in, records.len() as u64);
        }
        Some(outcome)
    }
}

fn apply(log: &mut PartitionLog, what: &What, now_ms: i64) -> Result<Outcome, Failure> {
    match what {
        What::Append {
            offset,
            records,
            high_watermark,
            log_start_offset,
        } => {
            if *offset != log.log_end_offset() {
                return Err(Failure::Records(format!(
                    "it was fetched from {offset}, but the log ends at {}",
                    log.log_end_offset()
                )));
            }
            if !records.is_empty() {
                log.append_as_follower(records.clone(), now_ms)?;
            }
            // Bounded by what is here; it never falls.
            log.maybe_increment_high_watermark((*high_watermark).min(log.log_end_offset()));
            if *log_start_offset > log.log_start_offset()
                && *log_start_offset <= log.high_watermark()
            {
                log.delete_records(*log_start_offset)?;
            }
            Ok(Outcome::Done(view(log)))
        }
        What::Diverged {
            leader,
            high_watermark,
        } => {
            let cut = cut(
                *leader,
                |epoch| log.end_offset_for_epoch(epoch),
                log.log_end_offset(),
                log.high_watermark(),
            );
            note_loss(log, cut.to);
            log.truncate_to(cut.to, now_ms)?;
            Ok(if cut.is_done {
                log.maybe_increment_high_watermark((*high_watermark).min(log.log_end_offset()));
                Outcome::Done(view(log))
            } else {
                Outcome::Undecided(view(log))
            })
        }
        What::Truncate(to) => {
            note_loss(log, *to);
            log.truncate_to(*to, now_ms)?;
            Ok(Outcome::Done(view(log)))
        }
        What::Restart(at) => {
            log.truncate_fully_and_start_at(*at, now_ms)?;
            Ok(Outcome::Done(view(log)))
        }
    }
}

/// Cutting is usual after a change of leader; below the high watermark it means that committed records are lost.
fn note_loss(log: &PartitionLog, to: i64) {
    let (end, committed) = (log.log_end_offset(), log.high_watermark());
    let partition = log.topic_partition();
    if to < committed {
        tracing::warn!(%partition, "truncating from {end} to {to}, below the high watermark {committed}: the leader does not have what follows");
    } else if to < end {
        tracing::info!(%partition, "truncating from {end} to {to}, where the leader's log parts");
    }
}
