//! The way of nearly all appends: the bytes stay, a few header fields are new.

use super::records::{Checks, Seen};
use super::{Fault, Origin, ReadyBatch, Refused, Run, Validated};
use crate::batch::Batch;
use crate::compression::Codec;
use crate::entry::Entry;
use crate::{NO_TIMESTAMP, TimestampType, shape};
use bytes::Bytes;

impl Run<'_> {
    /// A batch of format v2. `None`: its compressed records don't count their offsets from 0, so it must be rebuilt.
    pub(super) fn batch_in_place(&self, batch: &Batch) -> Result<Option<Validated>, Refused> {
        let rules = self.rules;
        let entry = Entry::V2(batch.clone());
        self.check_batch(&entry, &entry)?;
        let codec = batch.header.codec()?;
        let marked = batch.header.timestamp_type();
        let mut checks = Checks::new(rules, self.now_ms, marked);
        let mut expected = 0i32;
        let mut in_order = true;
        let mut newest = NO_TIMESTAMP;
        shape::walk(batch, rules.decompress_limit, |r| -> Result<(), Refused> {
            if r.offset_delta != expected && rules.origin == Origin::Client {
                if codec == Codec::None {
                    return Err(Refused::new(
                        Fault::InvalidRecord,
                        format!(
                            "Inner record {expected} of the record batch does not have incremental offsets: expected {expected}, found {} in topic partition {}",
                            r.offset_delta, rules.partition
                        ),
                    ));
                }
                in_order = false;
            }
            let timestamp = match marked {
                TimestampType::CreateTime => {
                    batch.header.base_timestamp.wrapping_add(r.timestamp_delta)
                }
                TimestampType::LogAppendTime => batch.header.max_timestamp,
            };
            newest = newest.max(timestamp);
            checks.check(Seen {
                offset: batch.header.base_offset.wrapping_add(r.offset_delta.into()),
                timestamp,
                has_key: r.has_key,
            });
            expected = expected.saturating_add(1);
            Ok(())
        })?;
        checks.finish()?;
        if !in_order {
            return Ok(None);
        }
        let mut header = batch.header;
        header.base_offset = self.next_offset;
        header.leader_epoch = rules.leader_epoch;
        let stamp = match rules.timestamp_type {
            TimestampType::CreateTime => newest,
            TimestampType::LogAppendTime => self.now_ms,
        };
        let payload = batch.payload();
        if marked != rules.timestamp_type || header.max_timestamp != stamp {
            header.set_timestamp_type(rules.timestamp_type);
            header.max_timestamp = stamp;
            header.seal(&payload);
        }
        let last_offset = header.last_offset();
        Ok(Some(Validated {
            first_offset: self.next_offset,
            last_offset,
            max_timestamp: stamp,
            // the time index has an entry for each batch, not for each record
            offset_of_max_timestamp: if stamp == NO_TIMESTAMP && codec == Codec::None {
                -1
            } else {
                last_offset
            },
            append_time: self.append_time(),
            record_count: u64::try_from(header.record_count).unwrap_or(0),
            size: batch.bytes().len(),
            codec,
            rebuilt: false,
            batches: vec![ReadyBatch {
                head: Bytes::copy_from_slice(&header.to_bytes()),
                payload,
                last_offset,
                max_timestamp: header.max_timestamp,
                header: Some(header),
            }],
        }))
    }

    /// Messages of format v0 or v1 for a partition that stores that format. `None` as above.
    pub(super) fn messages_in_place(
        &self,
        entries: &[Entry],
    ) -> Result<Option<Validated>, Refused> {
        let rules = self.rules;
        let append_time = self.append_time().filter(|_| rules.magic > 0);
        let mut next = self.next_offset;
        let mut batches = Vec::with_capacity(entries.len());
        let mut newest = NO_TIMESTAMP;
        let mut newest_at = -1;
        let mut codec = Codec::None;
        for entry in entries {
            let Some(first) = entries.first() else { break };
            self.check_batch(first, entry)?;
            let Entry::Legacy(message) = entry else {
                continue;
            };
            codec = message.codec()?;
            let mut checks = Checks::new(rules, self.now_ms, message.timestamp_type());
            let mut stamp = NO_TIMESTAMP;
            let mut expected = 0;
            let mut in_order = true;
            for r in self.legacy_records(message)? {
                checks.check(Seen {
                    offset: r.offset,
                    timestamp: r.timestamp,
                    has_key: r.key().is_some(),
                });
                stamp = stamp.max(r.timestamp);
                in_order &= codec == Codec::None || r.offset == expected;
                expected += 1;
            }
            checks.finish()?;
            if !in_order {
                return Ok(None);
            }
            next += expected;
            let stamp = append_time.unwrap_or(stamp);
            if stamp > newest {
                newest = stamp;
                newest_at = next - 1;
            }
            batches.push(ReadyBatch {
                head: Bytes::new(),
                payload: message.restamped(next - 1, stamp, rules.timestamp_type),
                header: None,
                last_offset: next - 1,
                max_timestamp: stamp,
            });
        }
        if append_time.is_some() && codec == Codec::None {
            newest_at = self.next_offset;
        }
        Ok(Some(Validated {
            first_offset: self.next_offset,
            last_offset: next - 1,
            max_timestamp: newest,
            offset_of_max_timestamp: newest_at,
            append_time: self.append_time(),
            record_count: u64::try_from(next - self.next_offset).unwrap_or(0),
            size: batches.iter().map(ReadyBatch::size).sum(),
            codec,
            rebuilt: false,
            batches,
        }))
    }
}
