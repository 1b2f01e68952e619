//! Reading a partition of the offsets topic back.

use bytes::Bytes;
use gracchus_groups::{LoadedPartition, PartitionLoader};
use gracchus_kafka_proto::ErrorCode;
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{Entries, Entry, RecordError};

use super::OFFSETS_TOPIC;
use super::log::OffsetsLog;

/// A batch of the offsets topic may not unpack to more than this many bytes; 64 times the largest that is accepted.
const UNPACKED_LIMIT: usize = 64 << 20;

/// Why a load stopped early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The replica refused to be read.
    #[error("reading at offset {offset} failed with {}", .error.name())]
    Read {
        /// Where.
        offset: i64,
        /// What the replica said.
        error: ErrorCode,
    },
    /// The log's bytes make no batch.
    #[error("no batch can be read at offset {offset}: {error}")]
    Batch {
        /// Where.
        offset: i64,
        /// Why.
        error: RecordError,
    },
}

/// Reads a partition from its first to its last offset. Blocks on the disk. What was read before an error is returned
/// with it: Kafka serves the partition then too.
pub fn load(
    log: &dyn OffsetsLog,
    partition: i32,
    buffer_size: usize,
    still_wanted: impl Fn() -> bool,
) -> (LoadedPartition, Option<LoadError>) {
    let mut loader = PartitionLoader::new(partition);
    let error = read_all(log, partition, buffer_size, still_wanted, &mut loader).err();
    (loader.finish(), error)
}

fn read_all(
    log: &dyn OffsetsLog,
    partition: i32,
    buffer_size: usize,
    still_wanted: impl Fn() -> bool,
    loader: &mut PartitionLoader,
) -> Result<(), LoadError> {
    let start = log.log_start(partition);
    let mut offset = start.map_err(|error| LoadError::Read { offset: 0, error })?;
    while still_wanted() {
        let piece = log
            .read(partition, offset, buffer_size)
            .map_err(|error| LoadError::Read { offset, error })?;
        let from = offset;
        for entry in Entries::new(piece.records) {
            let entry = entry.map_err(|error| LoadError::Batch { offset, error })?;
            let next = entry.last_offset().saturating_add(1);
            if next > offset {
                take(&entry, loader).unwrap_or_else(|error| {
                    tracing::error!(
                        partition = %format_args!("{OFFSETS_TOPIC}-{partition}"),
                        offset,
                        %error,
                        "skipped a batch that cannot be read while loading groups and offsets"
                    );
                });
                offset = next;
            }
        }
        if offset >= piece.log_end || offset == from {
            break;
        }
    }
    Ok(())
}

fn take(entry: &Entry, loader: &mut PartitionLoader) -> Result<(), RecordError> {
    let header = match entry {
        Entry::V2(batch) => Some(&batch.header),
        Entry::Legacy(_) => None,
    };
    let producer = header
        .filter(|header| header.is_transactional())
        .map(|header| header.producer_id);
    let bytes = |part: Option<&[u8]>| part.map(Bytes::copy_from_slice);
    let mut first = None;
    entry.for_each_record::<RecordError>(UNPACKED_LIMIT, |record| {
        if entry.is_control() {
            if let Some(end) = EndTransaction::parse(record.key, record.value)? {
                loader.end_transaction(entry.producer_id(), end.marker == Marker::Commit);
            }
            return Ok(());
        }
        let batch_offset = *first.get_or_insert(record.offset);
        loader.record(
            batch_offset,
            bytes(record.key),
            bytes(record.value),
            producer,
        );
        Ok(())
    })
}
