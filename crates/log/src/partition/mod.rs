//! One replica's log: segments, indexes, producer state and leader epochs together.
//!
//! Not locked inside: its owner holds a mutex ([`crate::SharedLog`]) and every call is short, save `flush`.

use crate::config::LogConfig;
use crate::error::{AppendError, LogError};
use crate::naming::TopicPartition;
use bytes::Bytes;
use gracchus_kafka_proto::{RecordsPart, Uuid};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who appends; decides which checks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer's request: all checks.
    Client,
    /// The group or transaction coordinator of this broker: no checks of sequences.
    Coordinator,
    /// The transaction coordinator's markers (WriteTxnMarkers).
    Markers,
    /// The leader's batches, at a follower: they were checked there.
    Replication,
}

/// What an append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; -1 if nothing was appended.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Largest timestamp of the records, -1 if none has one.
    pub max_timestamp: i64,
    /// The timestamp given by the broker with LogAppendTime, else -1.
    pub log_append_time: i64,
    /// The log's start offset after the append.
    pub log_start_offset: i64,
    /// Number of records.
    pub records: u32,
    /// Bytes written.
    pub bytes: u32,
    /// These very batches had been appended before: `first_offset` and the rest are of that time, nothing was written.
    pub duplicate: bool,
}

/// How far a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimit {
    /// Consumers, read_uncommitted.
    HighWatermark,
    /// Consumers, read_committed: the answer lists the aborted transactions.
    LastStable,
    /// Replicas.
    LogEnd,
}

/// Where an offset is in the log: enough to count the bytes between two of them in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    pub offset: i64,
    /// Base offset of the segment that holds it.
    pub segment_base: i64,
    /// Byte position in that segment.
    pub position: u32,
}

impl LogPosition {
    /// In the same segment.
    pub fn same_segment(&self, other: &Self) -> bool {
        self.segment_base == other.segment_base
    }

    /// In an older segment.
    pub fn on_older_segment(&self, other: &Self) -> bool {
        self.segment_base < other.segment_base
    }
}

/// A transaction that was aborted: a read_committed consumer drops its records from `first_offset` to the marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// What a read gave.
#[derive(Debug, Clone, Default)]
pub struct FetchData {
    /// Whole batches; the first may begin before the offset asked for. Memory and file regions, not copied.
    pub parts: Vec<RecordsPart>,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Where the read began.
    pub start: LogPosition,
    /// With [`ReadLimit::LastStable`].
    pub aborted: Option<Vec<AbortedTxn>>,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
}

/// An offset found by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
    /// -1 = unknown
    pub leader_epoch: i32,
}

/// Where an epoch ends (OffsetForLeaderEpoch).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// -1 = unknown
    pub epoch: i32,
    /// -1 = unknown
    pub end_offset: i64,
}

/// What a pass of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionOutcome {
    pub deleted_segments: usize,
    pub deleted_bytes: u64,
}

/// One replica's log.
#[derive(Debug)]
pub struct PartitionLog {
    _private: (),
}

#[allow(unused_variables, clippy::todo)]
impl PartitionLog {
    pub fn topic_partition(&self) -> &TopicPartition {
        todo!()
    }
    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        todo!()
    }
    /// The log directory it is in.
    pub fn log_dir(&self) -> PathBuf {
        todo!()
    }
    pub fn config(&self) -> &Arc<LogConfig> {
        todo!()
    }
    /// Takes effect at the next append or pass.
    pub fn update_config(&mut self, config: Arc<LogConfig>) {
        todo!()
    }
    /// From `partition.metadata`; none with topics older than topic ids.
    pub fn topic_id(&self) -> Option<Uuid> {
        todo!()
    }
    /// Writes `partition.metadata`, or checks it.
    pub fn assign_topic_id(&mut self, id: Uuid) -> Result<(), LogError> {
        todo!()
    }

    // --- offsets
    pub fn log_start_offset(&self) -> i64 {
        todo!()
    }
    /// The next record's offset (LEO).
    pub fn log_end_offset(&self) -> i64 {
        todo!()
    }
    pub fn log_end_position(&self) -> LogPosition {
        todo!()
    }
    pub fn high_watermark(&self) -> i64 {
        todo!()
    }
    pub fn high_watermark_position(&mut self) -> Result<LogPosition, LogError> {
        todo!()
    }
    /// Sets it, kept between log start and LEO; returns what it became.
    pub fn update_high_watermark(&mut self, offset: i64) -> i64 {
        todo!()
    }
    /// As `update_high_watermark`, but never lowers it; true if it rose.
    pub fn maybe_increment_high_watermark(&mut self, offset: i64) -> bool {
        todo!()
    }
    /// Lower of the high watermark and the first offset of an undecided transaction.
    pub fn last_stable_offset(&self) -> i64 {
        todo!()
    }
    pub fn last_stable_position(&mut self) -> Result<LogPosition, LogError> {
        todo!()
    }
    /// Everything below it is on disk for sure.
    pub fn recovery_point(&self) -> i64 {
        todo!()
    }
    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        todo!()
    }
    pub fn segment_count(&self) -> usize {
        todo!()
    }

    // --- appending
    /// Validates, gives offsets, appends. With a topic's LogAppendTime, recompression or format change the records are
    /// rewritten, else written as they came, in one write.
    pub fn append_as_leader(
        &mut self,
        records: Bytes,
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        todo!()
    }
    /// Appends the leader's batches with the offsets that they have. A trailing partial batch is ignored.
    pub fn append_as_follower(
        &mut self,
        records: Bytes,
        now_ms: i64,
    ) -> Result<AppendInfo, AppendError> {
        todo!()
    }

    // --- reading
    /// Reads whole batches from `offset` on, at most `max_bytes`; with `min_one`, at least the first batch.
    /// An offset beyond the limit but not beyond the log's end gives no data.
    pub fn read(
        &mut self,
        offset: i64,
        max_bytes: u32,
        limit: ReadLimit,
        min_one: bool,
    ) -> Result<FetchData, LogError> {
        todo!()
    }
    /// The first record with `timestamp >=` the one given (ListOffsets).
    pub fn find_by_timestamp(
        &mut self,
        timestamp: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        todo!()
    }
    /// The record with the largest timestamp (ListOffsets -3, KIP-734).
    pub fn find_max_timestamp(&mut self) -> Result<Option<TimestampOffset>, LogError> {
        todo!()
    }

    // --- leader epochs
    pub fn latest_epoch(&self) -> Option<i32> {
        todo!()
    }
    /// The epoch that holds at an offset.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        todo!()
    }
    /// A replica that becomes leader notes its epoch before any record (controller.md B1).
    pub fn assign_epoch_start(&mut self, epoch: i32, offset: i64) -> Result<(), LogError> {
        todo!()
    }
    /// The end of the largest epoch <= `epoch` (KIP-101, KIP-279); epoch and offset -1 if unknown.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> EpochEnd {
        todo!()
    }

    // --- shortening
    /// Cuts everything from `offset` on; true if there was anything.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<bool, LogError> {
        todo!()
    }
    /// Deletes everything and goes on at `offset`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: i64,
        now_ms: i64,
    ) -> Result<(), LogError> {
        todo!()
    }
    /// Raises the log start offset (DeleteRecords, or the leader's at a follower); beyond the high watermark:
    /// OffsetOutOfRange. Segments go at the next retention pass. True if it rose.
    pub fn delete_records(&mut self, offset: i64) -> Result<bool, LogError> {
        todo!()
    }
    /// Deletes segments by time, size and log start offset; renames to `.deleted`, files go after
    /// `file.delete.delay.ms`.
    pub fn apply_retention(&mut self, now_ms: i64) -> Result<RetentionOutcome, LogError> {
        todo!()
    }
    /// Removes `.deleted` files whose time has come.
    pub fn remove_deleted_files(&mut self, now_ms: i64) -> usize {
        todo!()
    }
    /// Begins a new segment now; its base offset.
    pub fn roll(&mut self, now_ms: i64) -> Result<i64, LogError> {
        todo!()
    }

    // --- keeping
    /// Writes all to the device up to the LEO and raises the recovery point.
    pub fn flush(&mut self, now_ms: i64) -> Result<(), LogError> {
        todo!()
    }
    /// True when `flush.ms` has passed since the last flush and there is something to flush.
    pub fn flush_is_due(&self, now_ms: i64) -> bool {
        todo!()
    }
    /// Forgets producers that were silent longer than `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, expiration_ms: i64, now_ms: i64) {
        todo!()
    }
    /// State of the producers (DescribeProducers).
    pub fn active_producers(&self) -> Vec<crate::producer::ProducerView> {
        todo!()
    }
}
