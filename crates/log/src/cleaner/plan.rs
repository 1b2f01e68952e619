//! Which part of which log to clean: dirty ratio, compaction lags, and segments grouped to be merged.

use super::filter::LastOfProducer;
use crate::error::LogError;
use crate::index::AbortedEntry;
use crate::naming::FileKind;
use crate::partition::PartitionLog;
use crate::segment::Segment;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// What could be cleaned of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleanable {
    pub first_dirty: i64,
    pub first_uncleanable: i64,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// `max.compaction.lag.ms` has passed for some record.
    pub overdue: bool,
}

impl Cleanable {
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 {
            0.0
        } else {
            self.cleanable_bytes as f64 / total as f64
        }
    }
}

/// A segment to be read: its open file stays readable whatever happens to its name.
#[derive(Debug, Clone)]
pub struct Source {
    pub serial: u64,
    pub base_offset: i64,
    /// First offset after it.
    pub upper: i64,
    pub size: u64,
    pub file: Arc<File>,
    pub path: PathBuf,
    pub last_modified_ms: i64,
    pub aborted: Vec<AbortedEntry>,
}

/// A cleaning, decided under the log's lock and carried out without it.
#[derive(Debug)]
pub struct Plan {
    pub cleanable: Cleanable,
    /// All segments below the first uncleanable one.
    pub sources: Vec<Source>,
    pub groups: Vec<std::ops::Range<usize>>,
    pub active_producers: HashMap<i64, LastOfProducer>,
}

impl PartitionLog {
    /// What could be cleaned, given the cleaner's checkpoint.
    pub(crate) fn cleanable(
        &mut self,
        checkpoint: Option<i64>,
        now_ms: i64,
    ) -> Result<Cleanable, LogError> {
        let start = self.log_start_offset();
        let first_dirty = match checkpoint {
            Some(offset) if (start..=self.log_end_offset()).contains(&offset) => offset,
            _ => start,
        };
        let config = self.config().clone();
        let stable = self.last_stable_offset();
        let segments = self.segments_mut();
        let active = segments.last().map_or(0, Segment::base_offset);
        let mut limit = stable.min(active);
        let dirty_from = segments.floor(first_dirty).unwrap_or(0);
        let non_active = segments.len().saturating_sub(1);
        let mut earliest = i64::MAX;
        for segment in segments.iter_mut().take(non_active).skip(dirty_from) {
            if config.min_compaction_lag_ms > 0
                && segment.base_offset() < limit
                && segment.retention_timestamp(now_ms)? > now_ms - config.min_compaction_lag_ms
            {
                limit = limit.min(segment.base_offset());
            }
            let first = segment.first_timestamp()?;
            if first > 0 {
                earliest = earliest.min(first);
            }
        }
        let limit = limit.max(first_dirty);
        // Whole segments only: the one that holds the limit is not cleaned.
        let first_uncleanable = segments
            .floor(limit)
            .and_then(|at| segments.get(at))
            .map_or(first_dirty, Segment::base_offset);
        let (mut clean_bytes, mut cleanable_bytes) = (0, 0);
        for (at, segment) in segments.iter().enumerate() {
            let upper = segments.get(at + 1).map_or(i64::MAX, Segment::base_offset);
            if upper <= first_dirty {
                clean_bytes += segment.size();
            } else if segment.base_offset() < first_uncleanable {
                cleanable_bytes += segment.size();
            }
        }
        let late = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
        Ok(Cleanable {
            first_dirty,
            first_uncleanable: first_uncleanable.max(first_dirty),
            clean_bytes,
            cleanable_bytes,
            overdue: cleanable_bytes > 0 && earliest < late,
        })
    }

    /// Opens what a cleaning reads and groups it.
    pub(crate) fn plan_cleaning(&mut self, cleanable: Cleanable) -> Result<Plan, LogError> {
        let end = self.log_end_offset();
        let producers = self.producer_state().producers().map(|e| {
            let offset = e.last_data_offset();
            let last = LastOfProducer {
                last_data_offset: (offset >= 0).then_some(offset),
                producer_epoch: e.producer_epoch,
            };
            (e.producer_id, last)
        });
        let active_producers = producers.collect();
        let bases = self.segments_mut().bases();
        let mut sources = Vec::new();
        let mut sizes = Vec::new();
        for (at, base) in bases.iter().enumerate() {
            if *base >= cleanable.first_uncleanable {
                break;
            }
            let upper = bases.get(at + 1).copied().unwrap_or(end);
            let aborted = self.aborted_in(*base, upper)?;
            let Some(segment) = self.segments_mut().get_mut(at) else {
                break;
            };
            sizes.push(segment.index_lens()?);
            sources.push(Source {
                serial: segment.serial(),
                base_offset: *base,
                upper,
                size: segment.size(),
                file: segment.file()?,
                path: segment.path(FileKind::Log),
                last_modified_ms: segment.last_modified_ms()?,
                aborted,
            });
        }
        let groups = self.group(&sources, &sizes);
        Ok(Plan {
            cleanable,
            sources,
            groups,
            active_producers,
        })
    }

    /// Neighbours that fit in one segment are merged, so that segments do not become ever smaller.
    fn group(&self, sources: &[Source], lens: &[(u32, u32)]) -> Vec<std::ops::Range<usize>> {
        let config = self.config();
        let index_most = u64::from(config.segment_index_bytes);
        let mut groups = Vec::new();
        let mut from = 0;
        while from < sources.len() {
            let (mut size, mut index, mut time) = (0u64, 0u64, 0u64);
            let mut to = from;
            while let (Some(source), Some((i, t))) = (sources.get(to), lens.get(to)) {
                let (i, t) = (u64::from(*i) * 8, u64::from(*t) * 12);
                let base = sources.get(from).map_or(0, |s| s.base_offset);
                let fits = size + source.size <= u64::from(config.segment_bytes)
                    && index + i <= index_most
                    && time + t <= index_most
                    && (source.upper - 1).saturating_sub(base) <= i64::from(i32::MAX);
                if to > from && !fits {
                    break;
                }
                size += source.size;
                index += i;
                time += t;
                to += 1;
            }
            groups.push(from..to);
            from = to;
        }
        groups
    }
}
