//! Records in the format that an old consumer understands.

use bytes::Bytes;
use gracchus_kafka_proto::{ErrorCode, Records};
use gracchus_log::in_memory;
use gracchus_record::RecordError;
use gracchus_record::convert::down_convert;

use crate::config::TopicConfig;

/// Batches larger than this, uncompressed, are not converted.
const DECOMPRESS_LIMIT: usize = 512 << 20;
/// Versions of Fetch from which a reader knows zstd (KIP-110).
const ZSTD_FROM: i16 = 10;

/// What the reader takes.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Of the Fetch request.
    pub version: i16,
    /// Records before it are left out, where records are taken apart.
    pub first_offset: i64,
}

impl Format {
    /// The newest message format that the version knows.
    fn magic(self) -> i8 {
        match self.version {
            ..=1 => 0,
            2..=3 => 1,
            _ => 2,
        }
    }
}

/// The records as they are for a reader that knows the format which the topic stores; for an older one they are read into
/// memory and rewritten, if the topic allows it.
pub async fn convert(
    topic: &TopicConfig,
    format: Format,
    records: Records,
) -> Result<Records, ErrorCode> {
    if format.version < ZSTD_FROM && topic.compression_type == "zstd" {
        return Err(ErrorCode::UnsupportedCompressionType);
    }
    if format.magic() >= topic.record_version || records.is_empty() {
        return Ok(records);
    }
    if !topic.message_downconversion_enable {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let work = move || -> Result<Bytes, ErrorCode> {
        let bytes = in_memory(&records.parts).map_err(|_| ErrorCode::KafkaStorageError)?;
        let converted = down_convert(
            &bytes,
            format.magic(),
            format.first_offset,
            DECOMPRESS_LIMIT,
        );
        converted.map_err(|error| match error {
            RecordError::UnknownCodec(_) => ErrorCode::UnsupportedCompressionType,
            _ => ErrorCode::CorruptMessage,
        })
    };
    let converted = tokio::task::spawn_blocking(work).await;
    converted
        .unwrap_or(Err(ErrorCode::UnknownServerError))
        .map(Records::from)
}
