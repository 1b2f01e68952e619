//! One cleaning of one log: offset map, then group by group.

use super::filter::{Filter, Kept};
use super::offset_map::OffsetMap;
use super::plan::{Plan, Source};
use super::transactions::TransactionTracker;
use super::{CleanError, CleanerConfig, Throttle};
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::manager::SharedLog;
use crate::naming::{FileKind, segment_file_with};
use crate::segment::{AppendSpan, BatchScan, DECOMPRESS_LIMIT, Segment};
use bytes::Bytes;
use gracchus_record::{Entry, RecordError};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// What a cleaning did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cleaned {
    /// The new first dirty offset.
    pub end_offset: i64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Output is written in pieces of about this size, an index entry each.
const PIECE: usize = 64 << 10;

/// Cleans the planned part of a log.
pub fn clean(
    log: &SharedLog,
    plan: &Plan,
    config: &CleanerConfig,
    throttle: &mut Throttle,
    now_ms: i64,
) -> Result<Cleaned, CleanError> {
    let (dir, log_config): (Arc<Path>, Arc<LogConfig>) = {
        let log = log.lock();
        (Arc::from(log.dir()), log.config().clone())
    };
    let mut done = Cleaned::default();
    let mut map = OffsetMap::new(
        config.dedupe_buffer_bytes,
        config.load_factor,
        plan.cleanable.cleanable_bytes / 32,
    );
    build_map(plan, &mut map, throttle, &mut done)?;
    done.end_offset = map.latest() + 1;
    let legacy_horizon = plan
        .sources
        .iter()
        .rfind(|s| s.upper <= plan.cleanable.first_dirty)
        .map_or(0, |s| {
            s.last_modified_ms
                .saturating_sub(log_config.delete_retention_ms)
        });
    for group in &plan.groups {
        let sources = plan.sources.get(group.clone()).unwrap_or_default();
        let Some(first) = sources.first() else {
            continue;
        };
        if first.base_offset >= done.end_offset {
            break;
        }
        // Segments beyond the map's reach stay as they are.
        let within = sources
            .iter()
            .take_while(|s| s.base_offset < done.end_offset);
        let sources = sources.get(..within.count()).unwrap_or_default();
        let job = Group {
            log,
            dir: &dir,
            log_config: &log_config,
            plan,
            map: &map,
            legacy_horizon,
            now_ms,
        };
        let result = job.run(sources, throttle, &mut done);
        if result.is_err() {
            for kind in FileKind::SEGMENT {
                let path = segment_file_with(&dir, first.base_offset, kind, ".cleaned");
                let _ = disk::remove_if_exists(&path);
            }
        }
        result?;
    }
    Ok(done)
}

fn each_entry(
    source: &Source,
    from: u64,
    throttle: &mut Throttle,
    mut each: impl FnMut(&Entry) -> Result<bool, CleanError>,
) -> Result<(), CleanError> {
    let mut scan = BatchScan::new(&source.file, &source.path, from, source.size);
    while let Some((position, entry)) = scan.advance()? {
        let bad = |why: String| CleanError::Uncleanable {
            reason: format!("{} at byte {position}: {why}", source.path.display()),
        };
        entry.check_crc().map_err(|e| bad(e.to_string()))?;
        throttle.spend(entry.size() as u64);
        match each(&entry) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(CleanError::Uncleanable { reason }) => return Err(bad(reason)),
            Err(error) => return Err(error),
        }
    }
    if scan.stopped_at() != source.size {
        return Err(CleanError::Uncleanable {
            reason: format!(
                "{} holds no batch at byte {}",
                source.path.display(),
                scan.stopped_at()
            ),
        });
    }
    Ok(())
}

/// Puts the newest offset of each key of the dirty part in the map, as far as it has room.
fn build_map(
    plan: &Plan,
    map: &mut OffsetMap,
    throttle: &mut Throttle,
    done: &mut Cleaned,
) -> Result<(), CleanError> {
    let start = plan.cleanable.first_dirty;
    map.note_latest(start - 1);
    let mut transactions = TransactionTracker::default();
    let mut full = false;
    for source in plan.sources.iter().filter(|s| s.upper > start) {
        if full {
            break;
        }
        transactions.add_aborted(source.aborted.iter().copied());
        each_entry(source, 0, throttle, |entry| {
            done.bytes_read += entry.size() as u64;
            if entry.last_offset() < start {
                return Ok(true);
            }
            if let Entry::V2(batch) = entry {
                let gone = transactions
                    .follow(batch)
                    .map_err(|reason| CleanError::Uncleanable { reason })?;
                if gone || batch.header.is_control() {
                    map.note_latest(entry.last_offset());
                    return Ok(true);
                }
            }
            entry
                .for_each_record(DECOMPRESS_LIMIT, |r| {
                    if let Some(key) = r.key
                        && r.offset >= start
                        && !full
                    {
                        full = !map.put(key, r.offset);
                    }
                    Ok::<_, RecordError>(())
                })
                .map_err(|e| CleanError::Uncleanable {
                    reason: e.to_string(),
                })?;
            if !full {
                map.note_latest(entry.last_offset());
            }
            Ok(!full)
        })?;
        if !full {
            map.note_latest(source.upper - 1);
        }
    }
    Ok(())
}

struct Group<'a> {
    log: &'a SharedLog,
    dir: &'a Arc<Path>,
    log_config: &'a LogConfig,
    plan: &'a Plan,
    map: &'a OffsetMap,
    legacy_horizon: i64,
    now_ms: i64,
}

/// Batches that stay, until they are written.
#[derive(Default)]
struct Piece {
    batches: Vec<Bytes>,
    span: Option<AppendSpan>,
}

impl Group<'_> {
    fn run(
        &self,
        sources: &[Source],
        throttle: &mut Throttle,
        done: &mut Cleaned,
    ) -> Result<(), CleanError> {
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else {
            return Ok(());
        };
        let mut cleaned = Segment::create_as(
            self.dir,
            first.base_offset,
            self.log_config,
            self.now_ms,
            ".cleaned",
        )?;
        let mut transactions = TransactionTracker::default();
        let mut piece = Piece::default();
        for source in sources {
            transactions.add_aborted(source.aborted.iter().copied());
            let filter = Filter {
                map: self.map,
                active_producers: &self.plan.active_producers,
                now_ms: self.now_ms,
                delete_retention_ms: self.log_config.delete_retention_ms,
                keep_legacy_tombstones: source.last_modified_ms > self.legacy_horizon,
            };
            each_entry(source, 0, throttle, |entry| {
                done.bytes_read += entry.size() as u64;
                let kept = filter
                    .apply(entry, &mut transactions)
                    .map_err(|reason| CleanError::Uncleanable { reason })?;
                match kept {
                    Kept::Nothing => {}
                    Kept::Whole => piece.add(entry.bytes().clone(), entry),
                    Kept::Changed(bytes) => piece.add(bytes, entry),
                }
                if piece.bytes() >= PIECE as u64 {
                    done.bytes_written += piece.write(&mut cleaned, self.log_config)?;
                }
                Ok(true)
            })?;
        }
        done.bytes_written += piece.write(&mut cleaned, self.log_config)?;
        cleaned.add_aborts(&transactions.take_kept())?;
        cleaned.seal(self.log_config)?;
        cleaned.flush(self.log_config)?;
        // Retention goes by the time of the last ones it was made from.
        cleaned.set_modified(last.last_modified_ms)?;
        let serials: Vec<u64> = sources.iter().map(|s| s.serial).collect();
        self.log.lock().swap_in(cleaned, &serials, self.now_ms)?;
        disk::sync_if_exists(self.dir).map_err(CleanError::Log)
    }
}

impl Piece {
    fn bytes(&self) -> u64 {
        self.span.map_or(0, |s| s.bytes)
    }

    fn add(&mut self, bytes: Bytes, source: &Entry) {
        // The timestamps as they are in what stays.
        let kept = Entry::parse(&bytes).ok();
        let (timestamp, last) = kept.map_or((source.max_timestamp(), source.last_offset()), |e| {
            (e.max_timestamp(), e.last_offset())
        });
        let span = self.span.get_or_insert(AppendSpan {
            last_offset: last,
            max_timestamp: -1,
            max_timestamp_offset: last,
            bytes: 0,
        });
        span.last_offset = source.last_offset().max(last);
        span.bytes += bytes.len() as u64;
        if timestamp > span.max_timestamp {
            span.max_timestamp = timestamp;
            span.max_timestamp_offset = last;
        }
        self.batches.push(bytes);
    }

    fn write(&mut self, cleaned: &mut Segment, config: &LogConfig) -> Result<u64, LogError> {
        let Some(span) = self.span.take() else {
            return Ok(0);
        };
        let batches = std::mem::take(&mut self.batches);
        let mut slices: Vec<IoSlice<'_>> = batches.iter().map(|b| IoSlice::new(b)).collect();
        cleaned.append(&mut slices, span, config)?;
        Ok(span.bytes)
    }
}
