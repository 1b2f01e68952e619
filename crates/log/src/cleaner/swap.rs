//! Putting a cleaned segment in the place of those it was made from, so that a crash at any step is either undone or
//! finished at the next start (`partition::open`): rename to `.swap`, rename the old ones to `.deleted`, drop `.swap`.

use crate::disk;
use crate::error::LogError;
use crate::naming::{FileKind, segment_file_with};
use crate::partition::PartitionLog;
use crate::segment::Segment;

impl PartitionLog {
    /// Swaps `cleaned` (its files complete, on the device and named `.cleaned`) in for the segments with these serials. An
    /// error before the first rename changes nothing. The new names are the caller's to flush, without the log's lock.
    pub(crate) fn swap_in(
        &mut self,
        mut cleaned: Segment,
        serials: &[u64],
        now_ms: i64,
    ) -> Result<(), LogError> {
        let base = cleaned.base_offset();
        if self.is_moving() {
            // The copy may hold what would be gone here, and pass for clean.
            return Err(LogError::Conflict(format!(
                "{}: it is being moved to another log directory; it is compacted there",
                self.topic_partition()
            )));
        }
        let all = self.segments_mut();
        let at = all
            .iter()
            .position(|s| Some(&s.serial()) == serials.first());
        let there = at.is_some_and(|at| {
            let held = all.iter().skip(at).take(serials.len()).map(Segment::serial);
            held.eq(serials.iter().copied()) && at + serials.len() < all.len()
        });
        let Some(at) = at.filter(|_| there) else {
            return Err(LogError::Conflict(format!(
                "{}: its segments changed while they were cleaned; it is tried again",
                self.topic_partition()
            )));
        };
        self.check_online()?;
        if let Err(error) = cleaned.rename(".swap") {
            // Left there, it would pass for complete at the next start, whatever the log holds by then.
            for kind in FileKind::SEGMENT {
                let half = segment_file_with(self.dir(), base, kind, ".swap");
                let _ = disk::remove_if_exists(&half);
            }
            return Err(error);
        }
        let all = self.segments_mut();
        let mut rest = all.split_off(at);
        let newer = rest.split_off(serials.len());
        all.push(cleaned);
        for segment in newer {
            all.push(segment);
        }
        let upper = self.segments_mut().get(at + 1).map(Segment::base_offset);
        self.forget_positions_below(upper.unwrap_or(i64::MAX));
        self.discard_but(rest, Some(base), now_ms)?;
        match self.segments_mut().get_mut(at) {
            Some(cleaned) => cleaned.rename(""),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;
    use crate::naming::TopicPartition;
    use crate::partition::{AppendOrigin, OpenOptions};
    use gracchus_record::{BatchBuilder, Codec, NewRecord};
    use std::sync::Arc;

    /// A follower's log is cut in the middle of a segment that is being cleaned, and goes on with other records.
    #[test]
    fn what_was_cut_off_meanwhile_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let config = Arc::new(LogConfig {
            compact: true,
            segment_bytes: 400,
            ..LogConfig::default()
        });
        let options = OpenOptions {
            config: config.clone(),
            ..OpenOptions::default()
        };
        let partition = TopicPartition::new("t", 0);
        let mut log = PartitionLog::open(dir.path(), partition, options).unwrap();
        let put = |log: &mut PartitionLog, count: usize| {
            for _ in 0..count {
                let mut builder = BatchBuilder::new(Codec::None);
                builder.push(NewRecord {
                    timestamp: 1,
                    key: Some(b"k"),
                    value: Some(&[7; 100]),
                    headers: &[],
                });
                let bytes = builder.build().unwrap().bytes().clone();
                log.append_as_leader(bytes, 0, AppendOrigin::Client, 0)
                    .unwrap();
            }
        };
        put(&mut log, 8);
        log.update_high_watermark(8);
        let cleanable = log.cleanable(None, 0).unwrap();
        let plan = log.plan_cleaning(cleanable).unwrap();
        let serials: Vec<u64> = plan.sources.iter().map(|s| s.serial).collect();
        assert_eq!(serials.len(), 3);
        let base = plan.sources.first().unwrap().base_offset;
        let dir: Arc<std::path::Path> = Arc::from(dir.path());
        let cleaned = Segment::create_as(&dir, base, &config, 0, ".cleaned").unwrap();
        // to where the plan's second segment still stands, shorter, and then has a successor again
        log.truncate_to(3, 0).unwrap();
        put(&mut log, 4);
        let error = log.swap_in(cleaned, &serials[..2], 0).unwrap_err();
        assert!(matches!(error, LogError::Conflict(_)), "{error}");
    }
}
