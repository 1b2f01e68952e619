//! One replica's log: segments, indexes, producer state and leader epochs together.
//!
//! Not locked inside: its owner holds a mutex ([`crate::SharedLog`]) and every call is short, save `flush`.

mod append;
mod flush;
pub(crate) mod listing;
mod open;
mod read;
mod readers;
pub(crate) mod recovery;
mod relocate;
mod retention;
mod split;
mod truncate;

pub use flush::FlushTask;
pub use open::OpenOptions;
pub use retention::remove_files;

use crate::config::{CompressionType, LogConfig};
use crate::epochs::LeaderEpochCache;
use crate::error::LogError;
use crate::identity;
use crate::naming::TopicPartition;
use crate::producer::{ProducerState, ProducerView};
use crate::segment::SegmentList;
use crate::tail::{Tail, TailBudget};
use gracchus_kafka_proto::{RecordsPart, Uuid};
use gracchus_record::compression::Levels;
use gracchus_record::validate::{Origin, Rules};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    /// `flush.messages` have come: who appended flushes before it answers ([`crate::LogManager::flush`]).
    pub flush_due: bool,
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
    /// Batches; the first may begin before the offset asked for, the last may be cut short by the limit of bytes, as
    /// Kafka's is (readers drop it). Memory and file regions, not copied.
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

/// What a log shares with the others of its broker.
#[derive(Debug)]
pub struct LogEnvironment {
    pub tail: Arc<TailBudget>,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
}

impl Default for LogEnvironment {
    fn default() -> Self {
        Self {
            tail: TailBudget::new(64 << 20, 8 << 20),
            producer_id_expiration_ms: 86_400_000,
        }
    }
}

/// One replica's log.
#[derive(Debug)]
pub struct PartitionLog {
    partition: TopicPartition,
    dir: Arc<Path>,
    config: Arc<LogConfig>,
    env: Arc<LogEnvironment>,
    rules: Box<Rules>,
    topic_id: Option<Uuid>,
    segments: SegmentList,
    log_start: i64,
    log_end: i64,
    high_watermark: i64,
    high_watermark_at: Option<LogPosition>,
    recovery_point: i64,
    last_flush_ms: i64,
    names: flush::Names,
    epochs: LeaderEpochCache,
    producers: ProducerState,
    tail: Tail,
    readers: readers::Readers,
    deleted: Vec<retention::DeletedFiles>,
    /// Counts truncations, so that a flush or a cleaning that began before one does not count.
    truncations: u64,
    /// The lowest offset truncated to since the cleaner asked.
    truncated_to: Option<i64>,
    deleted_dir: bool,
    /// A copy of it is being made in another directory.
    moving: bool,
    closed: bool,
    offline: Arc<AtomicBool>,
}

impl PartitionLog {
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log directory it is in.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.parent().unwrap_or(&self.dir).to_path_buf()
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Takes effect at the next append or pass. With another format to store, the leader epochs begin anew.
    pub fn update_config(&mut self, config: Arc<LogConfig>) {
        *self.rules = rules(&self.partition, &config);
        let before = std::mem::replace(&mut self.config, config);
        if before.magic == self.config.magic {
            return;
        }
        tracing::info!(
            "{}: messages are stored in format v{} from now on, v{} before",
            self.partition,
            self.config.magic,
            before.magic
        );
        if !self.config.keeps_epochs() {
            let dropped = self.epochs.remove(&self.dir);
            if let Err(error) = dropped {
                tracing::warn!(
                    "{}: {error}; it is removed at the next start",
                    self.partition
                );
            }
        }
    }

    /// From `partition.metadata`; none with topics older than topic ids.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id
    }

    /// Writes `partition.metadata`, or checks it.
    pub fn assign_topic_id(&mut self, id: Uuid) -> Result<(), LogError> {
        match self.topic_id {
            Some(stored) if stored == id => Ok(()),
            Some(stored) => Err(LogError::InconsistentTopicId {
                path: self.dir.join(identity::PARTITION_METADATA),
                stored: stored.to_string(),
                asked: id.to_string(),
            }),
            None => {
                identity::write_topic_id(&self.dir, id)?;
                self.names.change();
                self.topic_id = Some(id);
                Ok(())
            }
        }
    }

    /// Its directory was renamed away: every further operation is refused with [`LogError::Deleted`].
    pub(crate) fn mark_deleted(&mut self) {
        self.deleted_dir = true;
        self.tail.clear();
        self.readers.forget();
    }

    /// Deleted, closed, or its log directory offline.
    pub fn is_failed(&self) -> bool {
        self.deleted_dir || self.closed || self.offline.load(Relaxed)
    }

    pub(crate) fn check_online(&self) -> Result<(), LogError> {
        if self.deleted_dir {
            return Err(LogError::Deleted {
                dir: self.dir.to_path_buf(),
            });
        }
        if self.closed {
            return Err(LogError::Closed {
                dir: self.dir.to_path_buf(),
            });
        }
        if self.offline.load(Relaxed) {
            return Err(LogError::Offline {
                dir: self.log_dir(),
            });
        }
        Ok(())
    }

    // --- offsets

    pub fn log_start_offset(&self) -> i64 {
        self.log_start
    }

    /// The next record's offset (LEO).
    pub fn log_end_offset(&self) -> i64 {
        self.log_end
    }

    pub fn log_end_position(&self) -> LogPosition {
        let last = self.segments.last();
        LogPosition {
            offset: self.log_end,
            segment_base: last.map_or(0, |s| s.base_offset()),
            position: last.map_or(0, |s| u32::try_from(s.size()).unwrap_or(u32::MAX)),
        }
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    pub fn high_watermark_position(&mut self) -> Result<LogPosition, LogError> {
        if let Some(known) = self.high_watermark_at {
            return Ok(known);
        }
        let at = self.position_of(self.high_watermark)?;
        self.high_watermark_at = Some(at);
        Ok(at)
    }

    /// Sets it, kept between log start and LEO; returns what it became.
    pub fn update_high_watermark(&mut self, offset: i64) -> i64 {
        let bounded = offset.clamp(self.log_start.min(self.log_end), self.log_end);
        if bounded != self.high_watermark || self.high_watermark_at.is_none() {
            self.high_watermark = bounded;
            self.high_watermark_at = if bounded == self.log_end {
                Some(self.log_end_position())
            } else {
                self.tail.position(bounded)
            };
            self.producers.on_high_watermark(bounded);
        }
        bounded
    }

    /// As `update_high_watermark`, but never lowers it; true if it rose.
    pub fn maybe_increment_high_watermark(&mut self, offset: i64) -> bool {
        if offset <= self.high_watermark {
            return false;
        }
        let before = self.high_watermark;
        self.update_high_watermark(offset) > before
    }

    /// Lower of the high watermark and the first offset of an undecided transaction.
    pub fn last_stable_offset(&self) -> i64 {
        let unstable = self.producers.first_unstable_offset();
        let unstable = unstable.map(|o| o.max(self.log_start));
        unstable.map_or(self.high_watermark, |o| o.min(self.high_watermark))
    }

    pub fn last_stable_position(&mut self) -> Result<LogPosition, LogError> {
        let offset = self.last_stable_offset();
        if offset == self.high_watermark {
            self.high_watermark_position()
        } else {
            self.position_of(offset)
        }
    }

    /// Everything below it is on disk for sure.
    pub fn recovery_point(&self) -> i64 {
        self.recovery_point
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.size()
    }

    /// Base offset of the first segment.
    pub fn first_base_offset(&self) -> i64 {
        self.segments.first().map_or(0, |s| s.base_offset())
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    // --- leader epochs

    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest().map(|e| e.epoch)
    }

    /// The epoch that holds at an offset.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.epoch_for_offset(offset)
    }

    /// The epochs and where they begin.
    pub fn epochs(&self) -> &LeaderEpochCache {
        &self.epochs
    }

    /// A replica that becomes leader notes its epoch before any record (controller.md B1).
    pub fn assign_epoch_start(&mut self, epoch: i32, offset: i64) -> Result<(), LogError> {
        self.check_online()?;
        if !self.config.keeps_epochs() {
            return Ok(());
        }
        let dir = self.dir.clone();
        let changed = self.epochs.assign(&dir, epoch, offset)?;
        self.names.note(changed);
        Ok(())
    }

    /// The end of the largest epoch <= `epoch` (KIP-101, KIP-279); epoch and offset -1 if unknown.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> EpochEnd {
        let found = self.epochs.end_offset_for(epoch, self.log_end);
        let (epoch, end_offset) = found.unwrap_or((-1, -1));
        EpochEnd { epoch, end_offset }
    }

    // --- producers

    /// Forgets producers that were silent longer than `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, expiration_ms: i64, now_ms: i64) {
        self.producers.set_expiration(expiration_ms);
        self.producers.expire(now_ms);
    }

    /// State of the producers (DescribeProducers).
    pub fn active_producers(&self) -> Vec<ProducerView> {
        self.producers.views()
    }

    /// The first batch's offset of each open transaction, oldest first, and the age of the oldest's producer.
    pub fn producer_state(&self) -> &ProducerState {
        &self.producers
    }

    pub(crate) fn segments_mut(&mut self) -> &mut SegmentList {
        &mut self.segments
    }

    /// Compaction moved what lies below `offset`.
    pub(crate) fn forget_positions_below(&mut self, offset: i64) {
        self.tail.drop_before(offset);
        self.readers.forget();
        if self.high_watermark < offset {
            self.high_watermark_at = None;
        }
    }

    /// Counts truncations.
    pub(crate) fn truncations(&self) -> u64 {
        self.truncations
    }

    /// The lowest offset truncated to since the last call.
    pub(crate) fn take_truncated_to(&mut self) -> Option<i64> {
        self.truncated_to.take()
    }

    /// Closes files and empties the tail if nobody used them since the last call.
    pub fn release_idle(&mut self) {
        self.tail.clear_idle();
        self.readers.forget();
        for segment in self.segments.iter_mut() {
            segment.close_idle();
        }
    }
}

fn rules(partition: &TopicPartition, config: &LogConfig) -> Rules {
    Rules {
        partition: partition.to_string(),
        magic: config.magic,
        codec: match config.compression {
            CompressionType::Producer => None,
            CompressionType::Codec(codec) => Some(codec),
        },
        zstd: config.zstd,
        levels: Levels {
            gzip: config.gzip_level,
            lz4: config.lz4_level,
            zstd: config.zstd_level,
        },
        compacted: config.compact,
        timestamp_type: config.timestamp_type,
        before_max_ms: config.timestamp_before_max_ms,
        after_max_ms: config.timestamp_after_max_ms,
        max_message_bytes: config.max_message_bytes as usize,
        decompress_limit: crate::segment::DECOMPRESS_LIMIT,
        origin: Origin::Client,
        leader_epoch: -1,
    }
}
