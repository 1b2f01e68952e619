//! The replicas of `__consumer_offsets`, as the shell sees them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;
use gracchus_log::{AppendOrigin, ReadLimit, in_memory};
use tokio::time::Instant;

use super::OFFSETS_TOPIC;
use crate::clock;
use crate::replica::ReplicaManager;

/// How an append ends: the base offset of its batch, or the log's error.
pub type Appended = Pin<Box<dyn Future<Output = Result<i64, ErrorCode>> + Send>>;

/// A piece of a log: whole batches, the first of which may begin before the offset asked for.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Empty at the end of the log.
    pub records: Bytes,
    /// One after the last record of the log at the time of reading.
    pub log_end: i64,
}

/// What the coordinator needs of the log of a partition of `__consumer_offsets`.
pub trait OffsetsLog: Send + Sync + 'static {
    /// Appends a batch as leader. By the first poll at the latest it is in the leader's log, so that appends polled
    /// in order lie in that order; the future ends when as many replicas have it as `acks` says, or after `timeout`.
    fn append(
        self: Arc<Self>,
        partition: i32,
        batch: Bytes,
        acks: i16,
        timeout: Duration,
    ) -> Appended;

    /// The first offset of the log, if the partition is here.
    fn log_start(&self, partition: i32) -> Result<i64, ErrorCode>;

    /// Reads up to the end of the log, also what is not committed yet: about `max_bytes`, one batch at least. May block
    /// on the disk.
    fn read(&self, partition: i32, offset: i64, max_bytes: usize) -> Result<Piece, ErrorCode>;
}

impl OffsetsLog for ReplicaManager {
    fn append(
        self: Arc<Self>,
        partition: i32,
        batch: Bytes,
        acks: i16,
        timeout: Duration,
    ) -> Appended {
        let all = acks == -1;
        let origin = AppendOrigin::Coordinator;
        // by name: the trait has an append too
        let appended = ReplicaManager::append(
            &self,
            OFFSETS_TOPIC,
            partition,
            batch,
            all,
            origin,
            clock::now_ms(),
        );
        Box::pin(async move {
            let appended = appended.map_err(|failure| failure.code)?;
            self.flush_appended(&appended).await?;
            if all {
                let wait = (appended.partition, appended.info.last_offset + 1);
                let deadline = Instant::now() + timeout;
                let waits = std::slice::from_ref(&wait);
                match self.wait_replicated(waits, deadline).await.first() {
                    None | Some(ErrorCode::None) => {}
                    Some(error) => return Err(*error),
                }
            }
            Ok(appended.info.first_offset)
        })
    }

    fn log_start(&self, partition: i32) -> Result<i64, ErrorCode> {
        let partition = self.partition(OFFSETS_TOPIC, partition)?;
        partition.with_log(-1, false, |_, log| log.lock().log_start_offset())
    }

    fn read(&self, partition: i32, offset: i64, max_bytes: usize) -> Result<Piece, ErrorCode> {
        let limit = ReadLimit::LogEnd;
        let max_bytes = u32::try_from(max_bytes).unwrap_or(u32::MAX);
        let data = self
            .partition(OFFSETS_TOPIC, partition)?
            .with_log(-1, false, |_, log| {
                log.lock().read(offset, max_bytes, limit, true)
            })?;
        let data = data.map_err(|error| error.error_code())?;
        let records = in_memory(&data.parts).map_err(|error| {
            tracing::error!(
                partition = %format_args!("{OFFSETS_TOPIC}-{partition}"),
                offset,
                %error,
                "the log cannot be read"
            );
            ErrorCode::KafkaStorageError
        })?;
        Ok(Piece {
            records,
            log_end: data.log_end_offset,
        })
    }
}
