//! What stays of a batch: the rules of compaction, record by record. The table is in `docs/compaction.md`.

use super::offset_map::OffsetMap;
use super::transactions::TransactionTracker;
use crate::segment::DECOMPRESS_LIMIT;
use bytes::Bytes;
use gracchus_record::batch::{HEADER_SIZE, LOG_OVERHEAD};
use gracchus_record::compression::Levels;
use gracchus_record::legacy::{LegacyRecord, put_set};
use gracchus_record::{
    Batch, BatchBuilder, BatchHeader, Codec, Entry, Header, LegacyMessage, NO_TIMESTAMP,
    RecordError, TimestampType,
};
use std::collections::HashMap;

/// The batch of an active producer that must stay, for its sequence number or its epoch.
#[derive(Debug, Clone, Copy)]
pub struct LastOfProducer {
    /// `None`: the last thing in the log is a marker.
    pub last_data_offset: Option<i64>,
    pub producer_epoch: i16,
}

/// What compaction of a segment goes by.
#[derive(Debug)]
pub struct Filter<'a> {
    pub map: &'a OffsetMap,
    pub active_producers: &'a HashMap<i64, LastOfProducer>,
    pub now_ms: i64,
    pub delete_retention_ms: i64,
    /// For formats v0 and v1, which have no delete horizon in their batches.
    pub keep_legacy_tombstones: bool,
}

/// What stays of a batch.
#[derive(Debug, PartialEq)]
pub enum Kept {
    Nothing,
    Whole,
    /// Rewritten, or a header without records.
    Changed(Bytes),
}

struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Filter<'_> {
    /// Decides on an entry.
    pub fn apply(
        &self,
        entry: &Entry,
        transactions: &mut TransactionTracker,
    ) -> Result<Kept, String> {
        match entry {
            Entry::V2(batch) => self.batch(batch, transactions),
            Entry::Legacy(message) => self.legacy(message),
        }
    }

    fn keeps_record(
        &self,
        offset: i64,
        key: Option<&[u8]>,
        tombstone: bool,
        tombstones_stay: bool,
    ) -> bool {
        if offset > self.map.latest() {
            return true; // not looked at yet
        }
        let Some(key) = key else {
            return false; // a compacted log takes no such record; older ones go
        };
        offset >= self.map.get(key) && (!tombstone || tombstones_stay)
    }

    fn is_last_of_producer(&self, h: &BatchHeader) -> bool {
        h.has_producer_id()
            && self
                .active_producers
                .get(&h.producer_id)
                .is_some_and(|last| match last.last_data_offset {
                    Some(offset) => h.last_offset() == offset,
                    None => h.is_control() && h.producer_epoch == last.producer_epoch,
                })
    }

    fn batch(&self, batch: &Batch, transactions: &mut TransactionTracker) -> Result<Kept, String> {
        let h = &batch.header;
        let can_go = transactions.follow(batch)?;
        let past_horizon = h.delete_horizon().is_some_and(|ms| ms <= self.now_ms);
        let discard = can_go && (!h.is_control() || past_horizon);
        let stays_empty = self.is_last_of_producer(h);
        if discard {
            return Ok(if stays_empty {
                Kept::Changed(empty(h))
            } else {
                Kept::Nothing
            });
        }
        let tombstones_stay = h.delete_horizon().is_none_or(|ms| self.now_ms < ms);
        let mut kept: Vec<Owned> = Vec::new();
        let (mut all, mut tombstones) = (true, false);
        batch
            .for_each_record(DECOMPRESS_LIMIT, |r| {
                let stays = h.is_control()
                    || self.keeps_record(r.offset, r.key, r.value.is_none(), tombstones_stay);
                if stays {
                    tombstones |= r.value.is_none();
                    kept.push(Owned {
                        offset: r.offset,
                        timestamp: r.timestamp,
                        key: r.key.map(<[u8]>::to_vec),
                        value: r.value.map(<[u8]>::to_vec),
                        headers: r
                            .headers
                            .iter()
                            .map(|x| (x.key.to_vec(), x.value.map(<[u8]>::to_vec)))
                            .collect(),
                    });
                } else {
                    all = false;
                }
                Ok::<_, RecordError>(())
            })
            .map_err(|e| e.to_string())?;
        if kept.is_empty() {
            return Ok(if stays_empty {
                Kept::Changed(empty(h))
            } else {
                Kept::Nothing
            });
        }
        let empty_txn_marker = can_go && h.is_control();
        let set_horizon = (tombstones || empty_txn_marker) && h.delete_horizon().is_none();
        if all && !set_horizon {
            return Ok(Kept::Whole);
        }
        let horizon = if set_horizon {
            Some(self.now_ms.saturating_add(self.delete_retention_ms))
        } else {
            h.delete_horizon()
        };
        rebuild(h, &kept, horizon)
            .map(Kept::Changed)
            .map_err(|e| e.to_string())
    }

    fn legacy(&self, message: &LegacyMessage) -> Result<Kept, String> {
        let mut kept: Vec<Owned> = Vec::new();
        let mut all = true;
        message
            .for_each_record(DECOMPRESS_LIMIT, |r| {
                let tombstone = r.value.is_none();
                if self.keeps_record(r.offset, r.key, tombstone, self.keep_legacy_tombstones) {
                    kept.push(Owned {
                        offset: r.offset,
                        timestamp: r.timestamp,
                        key: r.key.map(<[u8]>::to_vec),
                        value: r.value.map(<[u8]>::to_vec),
                        headers: Vec::new(),
                    });
                } else {
                    all = false;
                }
                Ok::<_, RecordError>(())
            })
            .map_err(|e| e.to_string())?;
        if kept.is_empty() {
            return Ok(Kept::Nothing);
        }
        if all {
            return Ok(Kept::Whole);
        }
        let records: Vec<LegacyRecord<'_>> = kept
            .iter()
            .map(|r| LegacyRecord {
                offset: r.offset,
                timestamp: r.timestamp,
                key: r.key.as_deref(),
                value: r.value.as_deref(),
            })
            .collect();
        let codec = message.codec().map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        put_set(
            &mut out,
            message.magic,
            codec,
            Levels::default(),
            (message.timestamp_type() == TimestampType::LogAppendTime).then_some(message.timestamp),
            &records,
        )
        .map_err(|e| e.to_string())?;
        Ok(Kept::Changed(out.into()))
    }
}

/// A header alone: keeps a producer's sequence and epoch.
fn empty(h: &BatchHeader) -> Bytes {
    let mut header = BatchHeader {
        length: (HEADER_SIZE - LOG_OVERHEAD) as i32,
        attributes: 0,
        base_timestamp: NO_TIMESTAMP,
        record_count: 0,
        ..*h
    };
    header.set_codec(Codec::None);
    header.set_timestamp_type(h.timestamp_type());
    header.set_transactional(h.is_transactional());
    header.set_control(h.is_control());
    header.seal(&[]);
    Bytes::copy_from_slice(&header.to_bytes())
}

/// The kept records in a batch with the same offsets, sequences and flags; it still ends where it ended.
fn rebuild(h: &BatchHeader, kept: &[Owned], horizon: Option<i64>) -> Result<Bytes, RecordError> {
    let mut builder = BatchBuilder::new(h.codec()?)
        .base_offset(h.base_offset)
        .leader_epoch(h.leader_epoch)
        .producer(h.producer_id, h.producer_epoch, h.base_sequence)
        .transactional(h.is_transactional())
        .control(h.is_control());
    if h.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.append_time(h.max_timestamp);
    }
    if let Some(ms) = horizon {
        builder = builder.delete_horizon(ms);
    }
    for r in kept {
        let headers = r.headers.iter().map(|(key, value)| Header {
            key,
            value: value.as_deref(),
        });
        builder.push_at(
            r.offset,
            r.timestamp,
            r.key.as_deref(),
            r.value.as_deref(),
            headers,
        );
    }
    let batch = builder.last_offset(h.last_offset()).build()?;
    Ok(batch.bytes().clone())
}
