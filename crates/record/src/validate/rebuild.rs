//! Format or codec must change: all records of the append go into one batch, or one message set, of their own.

use super::records::{Checks, Seen};
use super::{Fault, ReadyBatch, Refused, Run, Validated};
use crate::compression::Codec;
use crate::convert::{OwnedRecord, rebuild_v2, records_of};
use crate::entry::{Entries, Entry};
use crate::legacy::{self, LegacyMessage, LegacyRecord};
use crate::{NO_TIMESTAMP, TimestampType};
use bytes::Bytes;

impl Run<'_> {
    pub(super) fn append_time(&self) -> Option<i64> {
        (self.rules.timestamp_type == TimestampType::LogAppendTime).then_some(self.now_ms)
    }

    /// The message, or a wrapper's messages, each with its own checksum checked.
    pub(super) fn legacy_records(
        &self,
        message: &LegacyMessage,
    ) -> Result<Vec<LegacyMessage>, Refused> {
        if message.codec()? == Codec::None {
            return Ok(vec![message.clone()]);
        }
        let inner = message.inner(self.rules.decompress_limit)?;
        for m in &inner {
            m.check_crc().map_err(|e| {
                Refused::new(
                    Fault::CorruptMessage,
                    format!("{e} in topic partition {}", self.rules.partition),
                )
            })?;
        }
        Ok(inner)
    }

    pub(super) fn rebuild(&self, entries: &[Entry], codec: Codec) -> Result<Validated, Refused> {
        let rules = self.rules;
        let mut next = self.next_offset;
        let mut records: Vec<OwnedRecord> = Vec::new();
        let mut template = None;
        for entry in entries {
            let Some(first) = entries.first() else { break };
            self.check_batch(first, entry)?;
            let mut checks = Checks::new(rules, self.now_ms, entry.timestamp_type());
            let mut found = match entry {
                Entry::V2(batch) => {
                    template = Some(batch);
                    records_of(entry, rules.decompress_limit)?
                }
                Entry::Legacy(message) => self
                    .legacy_records(message)?
                    .iter()
                    .map(|m| m.to_record().into())
                    .collect(),
            };
            for r in &mut found {
                checks.check(Seen {
                    offset: r.offset,
                    timestamp: r.timestamp,
                    has_key: r.key.is_some(),
                });
                r.offset = next;
                next += 1;
            }
            checks.finish()?;
            records.append(&mut found);
        }
        let batches = if rules.magic == 2 {
            let mut batch = rebuild_v2(&records, self.next_offset, codec, rules.levels, template)?;
            batch.header.leader_epoch = rules.leader_epoch;
            let payload = batch.payload();
            if let Some(now) = self.append_time() {
                batch
                    .header
                    .set_timestamp_type(TimestampType::LogAppendTime);
                batch.header.max_timestamp = now;
                batch.header.seal(&payload);
            }
            vec![ReadyBatch {
                head: Bytes::copy_from_slice(&batch.header.to_bytes()),
                payload,
                last_offset: batch.header.last_offset(),
                max_timestamp: batch.header.max_timestamp,
                header: Some(batch.header),
            }]
        } else {
            self.rebuild_legacy(&records, codec)?
        };
        for size in batches.iter().map(ReadyBatch::size) {
            if size > rules.max_message_bytes {
                return Err(Refused::new(
                    Fault::MessageTooLarge,
                    format!(
                        "Message batch size is {size} bytes in append to partition {} which exceeds the maximum configured size of {}.",
                        rules.partition, rules.max_message_bytes
                    ),
                ));
            }
        }
        let one_batch = rules.magic == 2 || codec != Codec::None;
        let newest = match self.append_time() {
            Some(_) if rules.magic == 0 => NO_TIMESTAMP,
            Some(now) => now,
            None if rules.magic == 0 => NO_TIMESTAMP,
            None => records
                .iter()
                .map(|r| r.timestamp)
                .max()
                .unwrap_or(NO_TIMESTAMP),
        };
        let newest_at = if newest == NO_TIMESTAMP {
            -1
        } else if one_batch {
            next - 1
        } else if self.append_time().is_some() {
            self.next_offset
        } else {
            records
                .iter()
                .find(|r| r.timestamp == newest)
                .map_or(-1, |r| r.offset)
        };
        Ok(Validated {
            first_offset: self.next_offset,
            last_offset: next - 1,
            max_timestamp: newest,
            offset_of_max_timestamp: newest_at,
            append_time: self.append_time(),
            record_count: records.len() as u64,
            size: batches.iter().map(ReadyBatch::size).sum(),
            codec,
            rebuilt: true,
            batches,
        })
    }

    fn rebuild_legacy(
        &self,
        records: &[OwnedRecord],
        codec: Codec,
    ) -> Result<Vec<ReadyBatch>, Refused> {
        let rules = self.rules;
        if codec == Codec::Zstd {
            return Err(Refused::new(
                Fault::UnsupportedCompressionType,
                format!(
                    "ZStandard compression is not supported for magic {}",
                    rules.magic
                ),
            ));
        }
        // Old formats have no place for headers; records are refused rather than robbed of them.
        if records.iter().any(|r| !r.headers.is_empty()) {
            return Err(Refused::new(
                Fault::UnsupportedForMessageFormat,
                format!("Magic v{} does not support record headers", rules.magic),
            ));
        }
        let old: Vec<_> = records
            .iter()
            .map(|r| LegacyRecord {
                offset: r.offset,
                timestamp: r.timestamp,
                key: r.key.as_deref(),
                value: r.value.as_deref(),
            })
            .collect();
        let mut out = Vec::new();
        legacy::put_set(
            &mut out,
            rules.magic,
            codec,
            rules.levels,
            self.append_time(),
            &old,
        )?;
        let mut batches = Vec::new();
        for entry in Entries::new(Bytes::from(out)) {
            let entry = entry?;
            batches.push(ReadyBatch {
                head: Bytes::new(),
                payload: entry.bytes().clone(),
                header: None,
                last_offset: entry.last_offset(),
                max_timestamp: entry.max_timestamp(),
            });
        }
        Ok(batches)
    }
}
