//! Appending as leader, and waiting until the in-sync replicas have it.

use std::sync::Arc;

use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use gracchus_log::{AppendError, AppendInfo, AppendOrigin, LogError};
use tokio::time::Instant;

use super::manager::ReplicaManager;
use super::partition::{Partition, Role};
use super::waiters::Waiter;
use crate::clock::now_ms;

/// An append that was done.
#[derive(Clone)]
pub struct AppendOutcome {
    /// Where.
    pub partition: Arc<Partition>,
    /// Offsets and times given.
    pub info: AppendInfo,
}

/// An append that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendFailure {
    /// The protocol's error.
    pub code: ErrorCode,
    /// A text of its own, where Kafka sends one (KIP-467); else the code's text is the client's business.
    pub message: Option<String>,
    /// Refused records: index in the batch and why.
    pub records: Vec<(i32, String)>,
    /// The log's start, -1 where Kafka does not tell it.
    pub log_start_offset: i64,
}

impl From<ErrorCode> for AppendFailure {
    fn from(code: ErrorCode) -> Self {
        Self {
            code,
            message: None,
            records: Vec::new(),
            log_start_offset: -1,
        }
    }
}

fn enough_in_sync(partition: &Partition, role: &Role) -> bool {
    let in_sync = role.isr.confirmed().len();
    in_sync >= role.replicas.len() || in_sync >= partition.effective_min_isr(role)
}

/// Errors with which Kafka does not tell the log start offset.
fn hides_log_start(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CorruptMessage
            | ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::KafkaStorageError
    )
}

impl ReplicaManager {
    /// Appends to a partition led here. `acks_all` refuses when the ISR is too small already. Readers are woken; before an
    /// answer come [`Self::flush_appended`] and, for who needs the ISR to have it, [`Self::wait_replicated`].
    pub fn append(
        &self,
        topic: &str,
        partition: i32,
        records: Bytes,
        acks_all: bool,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendOutcome, AppendFailure> {
        let partition = self.partition(topic, partition)?;
        partition.metrics.add(|c| &c.produce_requests, 1);
        let size = records.len() as u64;
        let outcome = partition.with_log(-1, true, |role, log| {
            if acks_all && !enough_in_sync(&partition, role) {
                let code = ErrorCode::NotEnoughReplicas;
                let log_start_offset = log.lock().log_start_offset();
                return Err((
                    AppendFailure {
                        log_start_offset,
                        ..code.into()
                    },
                    None,
                ));
            }
            let mut log = log.lock();
            if records.is_empty() {
                return Ok(nothing(log.log_start_offset()));
            }
            match log.append_as_leader(records, role.leader_epoch, origin, now_ms) {
                Ok(info) => {
                    if !info.flush_due {
                        partition.raise_high_watermark(role, &mut log, now_ms);
                    }
                    Ok(info)
                }
                Err(error) => Err((
                    failure(&error, log.log_start_offset()),
                    Some(Box::new(error)),
                )),
            }
        })?;
        match outcome {
            Ok(info) => {
                if !info.duplicate {
                    let metrics = &partition.metrics;
                    metrics.add(|c| &c.messages_in, info.records.into());
                    metrics.add(|c| &c.bytes_in, info.bytes.into());
                }
                partition.waiters.wake();
                Ok(AppendOutcome { partition, info })
            }
            Err((refused, error)) => {
                // Outside of the locks: a failed directory changes the roles of its partitions.
                if let Some(AppendError::Log(error)) = error.as_deref() {
                    partition.metrics.add(|c| &c.failed_produce_requests, 1);
                    self.log_failed(&partition.id, "appending", error);
                }
                if matches!(
                    refused.code,
                    ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge
                ) {
                    partition.metrics.add(|c| &c.bytes_rejected, size);
                }
                Err(refused)
            }
        }
    }

    /// Carries out the flush that an append left due (`flush.messages`), on a thread that may block, and lets the records be
    /// seen. When the device refuses, its directory is offline, and so is the partition.
    pub async fn flush_appended(
        self: &Arc<Self>,
        appended: &AppendOutcome,
    ) -> Result<(), ErrorCode> {
        if !appended.info.flush_due {
            return Ok(());
        }
        let (manager, partition) = (self.clone(), appended.partition.clone());
        let flush = move || {
            let now = now_ms();
            manager.flush_log(&partition, now)?;
            // Who has lost its leadership meanwhile has nothing to raise.
            let _ = partition.with_log(-1, true, |role, log| {
                partition.raise_high_watermark(role, &mut log.lock(), now)
            });
            partition.waiters.wake();
            Ok(())
        };
        let flushed = tokio::task::spawn_blocking(flush).await;
        flushed.unwrap_or(Err(ErrorCode::UnknownServerError))
    }

    /// Flushes all that a partition's log holds now. A log that is replaced by its copy in another directory meanwhile is
    /// flushed there.
    pub(crate) fn flush_log(&self, partition: &Partition, now_ms: i64) -> Result<(), ErrorCode> {
        loop {
            let Some(log) = partition.log() else {
                return Err(ErrorCode::NotLeaderOrFollower);
            };
            let Err(error) = self.logs().flush(&log, now_ms) else {
                return Ok(());
            };
            let replaced = partition.log().is_some_and(|now| !Arc::ptr_eq(&now, &log));
            if !replaced || !matches!(error, LogError::Deleted { .. }) {
                return Err(self.log_failed(&partition.id, "flushing", &error));
            }
        }
    }

    /// Waits until the in-sync replicas have everything below the given offsets, or the deadline. One error a
    /// partition: NONE, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
    pub async fn wait_replicated(
        &self,
        waits: &[(Arc<Partition>, i64)],
        deadline: Instant,
    ) -> Vec<ErrorCode> {
        let mut done: Vec<Option<ErrorCode>> = vec![None; waits.len()];
        if look(waits, &mut done) {
            return finish(done);
        }
        let mut waiter = Waiter::default();
        for (partition, _) in waits {
            waiter.register(&partition.waiters);
        }
        while !look(waits, &mut done) {
            if !waiter.changed(deadline).await {
                look(waits, &mut done);
                break;
            }
        }
        finish(done)
    }

    /// [`Self::append`] with acks=all and the wait, for the coordinators' own records.
    pub async fn append_replicated(
        self: &Arc<Self>,
        topic: &str,
        partition: i32,
        records: Bytes,
        now_ms: i64,
        deadline: Instant,
    ) -> Result<AppendInfo, AppendFailure> {
        let origin = AppendOrigin::Coordinator;
        let appended = self.append(topic, partition, records, true, origin, now_ms)?;
        self.flush_appended(&appended).await?;
        let wait = (appended.partition, appended.info.last_offset + 1);
        match self
            .wait_replicated(std::slice::from_ref(&wait), deadline)
            .await
            .first()
        {
            None | Some(ErrorCode::None) => Ok(appended.info),
            Some(code) => Err((*code).into()),
        }
    }
}

/// An append of no batch at all, which Produce before version 3 allows.
fn nothing(log_start_offset: i64) -> AppendInfo {
    AppendInfo {
        first_offset: -1,
        last_offset: -1,
        max_timestamp: -1,
        log_append_time: -1,
        log_start_offset,
        records: 0,
        bytes: 0,
        flush_due: false,
        duplicate: false,
    }
}

fn failure(error: &AppendError, log_start_offset: i64) -> AppendFailure {
    let code = error.error_code();
    let (message, records) = match error {
        AppendError::Invalid {
            reason, records, ..
        } if !records.is_empty() => {
            let records = records
                .iter()
                .map(|r| (r.index, r.reason.clone()))
                .collect();
            (Some(reason.clone()), records)
        }
        _ => (None, Vec::new()),
    };
    AppendFailure {
        code,
        message,
        records,
        log_start_offset: if hides_log_start(code) {
            -1
        } else {
            log_start_offset
        },
    }
}

/// Looks at those not decided yet; true when all are.
fn look(waits: &[(Arc<Partition>, i64)], done: &mut [Option<ErrorCode>]) -> bool {
    let mut all = true;
    for ((partition, required), done) in waits.iter().zip(done) {
        if done.is_some() {
            continue;
        }
        let reached = partition.with_log(-1, true, |role, log| {
            (log.lock().high_watermark() >= *required).then(|| {
                if partition.effective_min_isr(role) <= role.isr.most() {
                    ErrorCode::None
                } else {
                    ErrorCode::NotEnoughReplicasAfterAppend
                }
            })
        });
        *done = reached.unwrap_or_else(Some);
        all &= done.is_some();
    }
    all
}

fn finish(done: Vec<Option<ErrorCode>>) -> Vec<ErrorCode> {
    done.into_iter()
        .map(|code| code.unwrap_or(ErrorCode::RequestTimedOut))
        .collect()
}
