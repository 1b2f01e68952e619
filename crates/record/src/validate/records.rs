//! What is checked in each record: its key and its timestamp. All faults of a batch are gathered before it is refused.

use super::{Fault, Refused, Rules};
use crate::{NO_TIMESTAMP, TimestampType};

/// One record as the checks see it; its offset is the sender's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub offset: i64,
    pub timestamp: i64,
    pub has_key: bool,
}

/// The faults found in a batch so far.
pub(super) struct Checks<'a> {
    rules: &'a Rules,
    now_ms: i64,
    /// The sender marked the batch as LogAppendTime, which only a broker may.
    marked_append_time: bool,
    index: i32,
    faults: Vec<(i32, String)>,
    bad_timestamp: bool,
}

impl<'a> Checks<'a> {
    pub(super) fn new(rules: &'a Rules, now_ms: i64, marked: TimestampType) -> Self {
        Checks {
            rules,
            now_ms,
            marked_append_time: marked == TimestampType::LogAppendTime,
            index: 0,
            faults: Vec::new(),
            bad_timestamp: false,
        }
    }

    /// Checks the next record of the batch.
    #[inline]
    pub(super) fn check(&mut self, r: Seen) {
        let index = self.index;
        self.index = index.saturating_add(1);
        let rules = self.rules;
        if rules.compacted && !r.has_key {
            self.faults.push((
                index,
                format!(
                    "Compacted topic cannot accept message without key in topic partition {}",
                    rules.partition
                ),
            ));
        } else if rules.timestamp_type == TimestampType::CreateTime && r.timestamp != NO_TIMESTAMP {
            let age = self.now_ms.saturating_sub(r.timestamp);
            if age > rules.before_max_ms || age.saturating_neg() > rules.after_max_ms {
                self.bad_timestamp = true;
                self.faults.push((
                    index,
                    format!(
                        "Timestamp {} of message with offset {} is out of range. The timestamp should be within [{}, {}]",
                        r.timestamp,
                        r.offset,
                        self.now_ms.saturating_sub(rules.before_max_ms),
                        self.now_ms.saturating_add(rules.after_max_ms)
                    ),
                ));
            }
        } else if self.marked_append_time {
            self.bad_timestamp = true;
            self.faults.push((
                index,
                format!(
                    "Invalid timestamp type in message with offset {}. Producer should not set timestamp type to LogAppendTime.",
                    r.offset
                ),
            ));
        }
    }

    /// The refusal, if any record was at fault.
    pub(super) fn finish(self) -> Result<(), Refused> {
        if self.faults.is_empty() {
            return Ok(());
        }
        if self.bad_timestamp {
            return Err(Refused {
                fault: Fault::InvalidTimestamp,
                message: "One or more records have been rejected due to invalid timestamp".into(),
                records: self.faults,
            });
        }
        let shown: Vec<_> = self
            .faults
            .iter()
            .take(3)
            .map(|(i, m)| format!("RecordError(batchIndex={i}, message='{m}')"))
            .collect();
        Err(Refused {
            fault: Fault::InvalidRecord,
            message: format!(
                "One or more records have been rejected due to {} record errors in total, and only showing the first three errors at most: [{}]",
                self.faults.len(),
                shown.join(", ")
            ),
            records: self.faults,
        })
    }
}
