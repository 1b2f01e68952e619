//! Records in the format that an old consumer understands.

use std::io;
use std::os::unix::fs::FileExt;

use bytes::{Bytes, BytesMut};
use gracchus_kafka_proto::{ErrorCode, Records, RecordsPart};
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
        let bytes = load(&records).map_err(|_| ErrorCode::KafkaStorageError)?;
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

/// The parts in one piece of memory: at most what one fetch may return.
fn load(records: &Records) -> io::Result<Bytes> {
    if let Some(bytes) = records.as_bytes() {
        return Ok(bytes);
    }
    let mut all = BytesMut::with_capacity(usize::try_from(records.len()).unwrap_or(0));
    for part in &records.parts {
        match part {
            RecordsPart::Bytes(bytes) => all.extend_from_slice(bytes),
            RecordsPart::File(region) => {
                let start = all.len();
                let len = usize::try_from(region.len).map_err(|_| io::ErrorKind::InvalidInput)?;
                all.resize(start + len, 0);
                if let Some(room) = all.get_mut(start..) {
                    region.file.read_exact_at(room, region.offset)?;
                }
            }
        }
    }
    Ok(all.freeze())
}
