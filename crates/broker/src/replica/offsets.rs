//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_log::producer::ProducerView;
use gracchus_log::{EpochEnd, LogError, PartitionLog, ReadLimit, TimestampOffset};
use tokio::time::Instant;

use super::manager::ReplicaManager;
use super::partition::{Partition, Role, end_for};
use super::waiters::Waiter;

/// The end of what the reader may see.
pub const LATEST: i64 = -1;
/// The log's start.
pub const EARLIEST: i64 = -2;
/// The record with the largest timestamp (KIP-734, version 7).
pub const MAX_TIMESTAMP: i64 = -3;
/// The start of what is on local disks (KIP-405, version 8): the log's start, without tiered storage.
pub const EARLIEST_LOCAL: i64 = -4;
/// The last offset in tiered storage (KIP-1005, version 9): none.
pub const LATEST_TIERED: i64 = -5;

/// ListOffsets' answer; all -1 when there is no such record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOffset {
    /// Of the record; -1 for the log's ends.
    pub timestamp: i64,
    /// -1 none.
    pub offset: i64,
    /// -1 unknown.
    pub leader_epoch: i32,
}

impl FoundOffset {
    /// No such record.
    pub const NONE: Self = Self {
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    };
}

/// Who asks ListOffsets.
#[derive(Debug, Clone, Copy)]
pub struct OffsetQuery {
    /// One of the constants above, or a time in ms.
    pub timestamp: i64,
    /// None for a follower or a debugging tool: sees all. Else how far the consumer sees.
    pub limit: Option<ReadLimit>,
    /// -1 unknown.
    pub current_leader_epoch: i32,
    /// False for the debugging replica id -2.
    pub only_leader: bool,
}

/// Who asks ListOffsets version 0.
#[derive(Debug, Clone, Copy)]
pub struct BeforeQuery {
    /// -1, -2 or a time in ms.
    pub timestamp: i64,
    /// Most offsets wanted.
    pub most: i32,
    /// Sees the high watermark instead of what lies beyond.
    pub is_consumer: bool,
    /// False for the debugging replica id -2.
    pub only_leader: bool,
    /// The log's end is of this time.
    pub now_ms: i64,
}

/// Whether a negative timestamp means something in this version of ListOffsets.
pub fn is_timestamp_known(timestamp: i64, version: i16) -> bool {
    match timestamp {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        _ => false,
    }
}

/// A DeleteRecords on its way.
pub struct Deletion {
    partition: Arc<Partition>,
    /// Every live replica has to start here, or later.
    wanted: i64,
}

impl ReplicaManager {
    /// The offset for a timestamp. OFFSET_NOT_AVAILABLE while the high watermark has not reached this leader's epoch.
    pub fn find_offset(
        &self,
        topic: &str,
        partition: i32,
        query: OffsetQuery,
    ) -> Result<FoundOffset, ErrorCode> {
        let partition = self.partition(topic, partition)?;
        let found = partition.with_log(
            query.current_leader_epoch,
            query.only_leader,
            |role, log| find(role, &mut log.lock(), query),
        )?;
        found.map_err(|fault| match fault {
            Fault::Code(code) => code,
            Fault::Log(error) => self.log_failed(&partition.id, "looking an offset up", &error),
        })
    }

    /// ListOffsets version 0: up to `most` offsets before a time, the segments' first ones, newest first.
    pub fn offsets_before(
        &self,
        topic: &str,
        partition: i32,
        query: BeforeQuery,
    ) -> Result<Vec<i64>, ErrorCode> {
        let partition = self.partition(topic, partition)?;
        let offsets = partition.with_log(-1, query.only_leader, |_, log| {
            let mut log = log.lock();
            let limit = query.is_consumer.then(|| log.high_watermark());
            let candidates = candidates(&mut log, query.now_ms)?;
            Ok(offsets_before(
                &candidates,
                query.timestamp,
                query.most,
                limit,
            ))
        })?;
        offsets.map_err(|error| self.log_failed(&partition.id, "listing segments", &error))
    }

    /// The end of the largest epoch not above `epoch`.
    pub fn epoch_end(
        &self,
        topic: &str,
        partition: i32,
        current_leader_epoch: i32,
        epoch: i32,
    ) -> Result<EpochEnd, ErrorCode> {
        let partition = self.partition(topic, partition)?;
        partition.with_log(current_leader_epoch, true, |_, log| {
            log.lock().end_offset_for_epoch(epoch)
        })
    }

    /// Raises the log start; -1 = to the high watermark. POLICY_VIOLATION for a topic that is only compacted.
    pub fn delete_records(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<Deletion, ErrorCode> {
        let partition = self.partition(topic, partition)?;
        let outcome = partition.with_log(-1, true, |_, log| {
            let mut log = log.lock();
            if !log.config().delete {
                return Err(Fault::Code(ErrorCode::PolicyViolation));
            }
            let wanted = if offset == -1 {
                log.high_watermark()
            } else {
                offset
            };
            if wanted < 0 {
                return Err(Fault::Code(ErrorCode::OffsetOutOfRange));
            }
            log.delete_records(wanted).map_err(Fault::Log)?;
            Ok(wanted)
        })?;
        match outcome {
            Ok(wanted) => {
                partition.waiters.wake();
                Ok(Deletion { partition, wanted })
            }
            Err(Fault::Code(code)) => Err(code),
            Err(Fault::Log(error)) => {
                Err(self.log_failed(&partition.id, "deleting records", &error))
            }
        }
    }

    /// Waits until all live replicas have deleted; the low watermark of each, or its error.
    pub async fn wait_deleted(
        &self,
        deletions: &[Deletion],
        deadline: Instant,
    ) -> Vec<Result<i64, ErrorCode>> {
        let mut waiter = Waiter::default();
        for deletion in deletions {
            waiter.register(&deletion.partition.waiters);
        }
        loop {
            let states: Vec<_> = deletions.iter().map(deletion_state).collect();
            let pending = states
                .iter()
                .any(|state| matches!(state, Err(ErrorCode::RequestTimedOut)));
            if !pending || !waiter.changed(deadline).await {
                return states;
            }
        }
    }

    /// Producers with state in a partition led here.
    pub fn producers(&self, topic: &str, partition: i32) -> Result<Vec<ProducerView>, ErrorCode> {
        let partition = self.partition(topic, partition)?;
        let mut producers = partition.with_log(-1, true, |_, log| log.lock().active_producers())?;
        producers.sort_unstable_by_key(|producer| producer.producer_id);
        Ok(producers)
    }
}

/// The low watermark once it is high enough; REQUEST_TIMED_OUT stands for "not yet".
fn deletion_state(deletion: &Deletion) -> Result<i64, ErrorCode> {
    let partition = &deletion.partition;
    let low = partition.with_log(-1, true, |role, log| {
        partition.low_watermark(role, &log.lock())
    })?;
    if low >= deletion.wanted {
        Ok(low)
    } else {
        Err(ErrorCode::RequestTimedOut)
    }
}

enum Fault {
    Code(ErrorCode),
    Log(LogError),
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

fn find(role: &Role, log: &mut PartitionLog, query: OffsetQuery) -> Result<FoundOffset, Fault> {
    if log.config().magic == 0 && !matches!(query.timestamp, LATEST | EARLIEST) {
        // Messages of format v0 have no timestamps to search by.
        return Err(Fault::Code(ErrorCode::UnsupportedForMessageFormat));
    }
    let end = end_for(log, query.limit.unwrap_or(ReadLimit::LogEnd));
    // A new leader's high watermark may lag behind what an earlier leader told: offsets would go backwards.
    let behind = role.is_leader && role.epoch_start > end && query.limit.is_some();
    match query.timestamp {
        LATEST if behind => Err(Fault::Code(ErrorCode::OffsetNotAvailable)),
        LATEST => Ok(FoundOffset {
            timestamp: -1,
            offset: end,
            leader_epoch: role.leader_epoch,
        }),
        EARLIEST | EARLIEST_LOCAL => {
            let TimestampOffset {
                offset,
                leader_epoch,
                ..
            } = log.earliest();
            Ok(FoundOffset {
                timestamp: -1,
                offset,
                leader_epoch,
            })
        }
        LATEST_TIERED => Ok(FoundOffset::NONE),
        timestamp => {
            let found = if timestamp == MAX_TIMESTAMP {
                log.find_max_timestamp()?
            } else {
                log.find_by_timestamp(timestamp)?
            };
            match found {
                Some(found) if found.offset < end => Ok(FoundOffset {
                    timestamp: found.timestamp,
                    offset: found.offset,
                    leader_epoch: found.leader_epoch,
                }),
                _ if behind => Err(Fault::Code(ErrorCode::OffsetNotAvailable)),
                _ => Ok(FoundOffset::NONE),
            }
        }
    }
}

/// Each segment's first offset and when it was written last; the log's end, written now, closes the list unless the
/// last segment is empty.
fn candidates(log: &mut PartitionLog, now_ms: i64) -> Result<Vec<(i64, i64)>, LogError> {
    let start = log.log_start_offset();
    let end = log.log_end_offset();
    let mut candidates = Vec::with_capacity(log.segment_count() + 1);
    let mut has_records = false;
    for at in 0..log.segment_count() {
        if let Some(segment) = log.segment_at(at) {
            candidates.push((
                segment.base_offset().max(start),
                segment.last_modified_ms()?,
            ));
            has_records = segment.size() > 0;
        }
    }
    if has_records {
        candidates.push((end, now_ms));
    }
    Ok(candidates)
}

/// Kafka's rule of version 0 over (offset, last modified in ms), oldest first.
fn offsets_before(
    candidates: &[(i64, i64)],
    timestamp: i64,
    most: i32,
    limit: Option<i64>,
) -> Vec<i64> {
    let last = match timestamp {
        LATEST => candidates.len().checked_sub(1),
        EARLIEST => candidates.first().map(|_| 0),
        time => candidates
            .iter()
            .rposition(|(_, modified)| *modified <= time),
    };
    let Some(last) = last else { return Vec::new() };
    let most = usize::try_from(most).unwrap_or(0);
    let offsets: Vec<i64> = candidates
        .iter()
        .take(last + 1)
        .rev()
        .take(most)
        .map(|(offset, _)| *offset)
        .collect();
    match limit {
        Some(limit) if offsets.iter().any(|offset| *offset > limit) => {
            let seen = offsets.into_iter().skip_while(|offset| *offset > limit);
            std::iter::once(limit).chain(seen).collect()
        }
        _ => offsets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_timestamps_by_version() {
        for (timestamp, first) in [
            (LATEST, 0),
            (EARLIEST, 0),
            (MAX_TIMESTAMP, 7),
            (EARLIEST_LOCAL, 8),
            (LATEST_TIERED, 9),
        ] {
            for version in 0..10 {
                assert_eq!(
                    is_timestamp_known(timestamp, version),
                    version >= first,
                    "{timestamp} v{version}"
                );
            }
        }
        assert!(!is_timestamp_known(-6, 9));
        assert!(is_timestamp_known(0, 0));
    }

    #[test]
    fn version_0_lists_segments() {
        let segments = [(0, 100), (10, 200), (20, 300), (25, 1_000)];
        assert_eq!(offsets_before(&segments, LATEST, 10, None), [25, 20, 10, 0]);
        assert_eq!(offsets_before(&segments, LATEST, 1, None), [25]);
        assert_eq!(offsets_before(&segments, EARLIEST, 10, None), [0]);
        assert_eq!(offsets_before(&segments, 250, 10, None), [10, 0]);
        assert_eq!(offsets_before(&segments, 50, 10, None), [0i64; 0]);
        assert_eq!(offsets_before(&segments, LATEST, 0, None), [0i64; 0]);
        // A consumer sees the high watermark for all that lies beyond it.
        assert_eq!(
            offsets_before(&segments, LATEST, 10, Some(22)),
            [22, 20, 10, 0]
        );
        assert_eq!(offsets_before(&segments, LATEST, 2, Some(15)), [15]);
    }
}
