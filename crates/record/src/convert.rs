//! Between formats and codecs: what old fetchers can read, and what a topic wants to store.

use crate::batch::Batch;
use crate::builder::BatchBuilder;
use crate::compression::{Codec, Levels};
use crate::entry::{Entries, Entry};
use crate::legacy::{self, LegacyRecord};
use crate::record::Header;
use crate::{Record, RecordError, TimestampType};
use bytes::Bytes;

/// A record on its own, when its batch is taken apart.
#[derive(Debug, Clone)]
pub(crate) struct OwnedRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl From<Record<'_>> for OwnedRecord {
    fn from(r: Record<'_>) -> Self {
        OwnedRecord {
            offset: r.offset,
            timestamp: r.timestamp,
            key: r.key.map(<[u8]>::to_vec),
            value: r.value.map(<[u8]>::to_vec),
            headers: r
                .headers
                .iter()
                .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }
}

impl OwnedRecord {
    pub(crate) fn headers(&self) -> impl Iterator<Item = Header<'_>> + Clone {
        self.headers.iter().map(|(key, value)| Header {
            key,
            value: value.as_deref(),
        })
    }
}

pub(crate) fn records_of(entry: &Entry, limit: usize) -> Result<Vec<OwnedRecord>, RecordError> {
    let mut out = Vec::new();
    entry.for_each_record(limit, |r| {
        out.push(OwnedRecord::from(r));
        Ok::<_, RecordError>(())
    })?;
    Ok(out)
}

/// Rewrites the entries of `bytes` for a reader of at most format `magic` (0 or 1): newer batches are taken apart, control
/// batches left out, the codec kept (zstd, unknown to old readers, is an error the caller answers with
/// UNSUPPORTED_COMPRESSION_TYPE). Records before `first_offset` in a batch are left out, as a reader of single messages
/// expects. A tail that is cut short is dropped.
pub fn down_convert(
    bytes: &Bytes,
    magic: i8,
    first_offset: i64,
    limit: usize,
) -> Result<Bytes, RecordError> {
    let mut out = Vec::with_capacity(bytes.len());
    for entry in Entries::new(bytes.clone()) {
        let entry = entry?;
        if entry.is_control() {
            continue;
        }
        if entry.magic() <= magic {
            out.extend_from_slice(entry.bytes());
            continue;
        }
        let codec = entry.codec()?;
        if codec == Codec::Zstd {
            return Err(RecordError::UnknownCodec(codec.id()));
        }
        let records = records_of(&entry, limit)?;
        let kept: Vec<_> = records
            .iter()
            .filter(|r| codec != Codec::None || r.offset >= first_offset)
            .map(|r| LegacyRecord {
                offset: r.offset,
                timestamp: r.timestamp,
                key: r.key.as_deref(),
                value: r.value.as_deref(),
            })
            .collect();
        let append_time =
            (entry.timestamp_type() == TimestampType::LogAppendTime).then(|| entry.max_timestamp());
        legacy::put_set(
            &mut out,
            magic,
            codec,
            Levels::default(),
            append_time,
            &kept,
        )?;
    }
    Ok(out.into())
}

/// One batch of format v2 from an entry of any format, with another codec.
pub(crate) fn rebuild_v2(
    records: &[OwnedRecord],
    base_offset: i64,
    codec: Codec,
    levels: Levels,
    template: Option<&Batch>,
) -> Result<Batch, RecordError> {
    let mut builder = BatchBuilder::new(codec)
        .levels(levels)
        .base_offset(base_offset);
    if let Some(source) = template {
        let h = &source.header;
        builder = builder
            .producer(h.producer_id, h.producer_epoch, h.base_sequence)
            .transactional(h.is_transactional())
            .control(h.is_control());
    }
    for r in records {
        builder.push_at(
            r.offset,
            r.timestamp,
            r.key.as_deref(),
            r.value.as_deref(),
            r.headers(),
        );
    }
    builder.build()
}
