//! Splitting a segment whose offsets do not fit in its index: brokers of before KAFKA-6264 could write such ones. Every
//! record stays.
//!
//! As with compaction, a crash at any step is undone or finished by [`super::listing::finish_swaps`]: the new segments are
//! written as `.cleaned`, renamed to `.swap` from the last to the first, and then take the old one's place.

use super::listing::finish_swaps;
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::index::AbortedEntry;
use crate::naming::{FileKind, segment_file};
use crate::segment::{AppendSpan, BatchScan, Segment, fits_in_index};
use bytes::Bytes;
use gracchus_record::{Entry, RecordError};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// Batches are written in pieces of about this size, an index entry each.
const PIECE: u64 = 64 << 10;

/// Splits the segment of a log that is not open, into as few as its offsets allow.
pub(super) fn split(
    dir: &Arc<Path>,
    base: i64,
    config: &LogConfig,
    now_ms: i64,
) -> Result<(), LogError> {
    let source = segment_file(dir, base, FileKind::Log);
    let size = disk::file_len(&source)?.unwrap_or(0);
    let mut old = Segment::existing(dir, base, size, now_ms);
    old.set_has_aborts(true);
    // A damaged one is made anew by the recovery.
    let aborted = old.aborted().unwrap_or_default();
    let file = old.file()?;
    let mut scan = BatchScan::new(&file, &source, 0, size);
    let mut parts = vec![Part::new(dir, base, config, now_ms)?];
    while let Some((_, entry)) = scan.advance()? {
        let wanted = parts
            .last()
            .filter(|part| !fits_in_index(part.base, entry.last_offset()));
        if wanted.is_some() {
            let first = first_offset(&entry, &source)?;
            parts.push(Part::new(dir, first, config, now_ms)?);
        }
        if let Some(part) = parts.last_mut() {
            part.add(&entry, config)?;
        }
    }
    let modified = old.last_modified_ms()?;
    let mut bases: Vec<i64> = Vec::new();
    for part in &mut parts {
        part.finish(&aborted, config, modified)?;
        bases.push(part.base);
    }
    tracing::info!(
        "{}: its offsets do not fit in its index; it becomes {} segments, at {bases:?}",
        source.display(),
        bases.len()
    );
    for part in parts.iter_mut().rev() {
        part.segment.rename(".swap")?;
    }
    disk::sync_dir(dir)?;
    finish_swaps(dir)
}

/// One of the new segments.
struct Part {
    base: i64,
    last: i64,
    segment: Segment,
    batches: Vec<Bytes>,
    span: Option<AppendSpan>,
}

impl Part {
    fn new(dir: &Arc<Path>, base: i64, config: &LogConfig, now_ms: i64) -> Result<Self, LogError> {
        Ok(Self {
            base,
            last: base - 1,
            segment: Segment::create_as(dir, base, config, now_ms, ".cleaned")?,
            batches: Vec::new(),
            span: None,
        })
    }

    fn add(&mut self, entry: &Entry, config: &LogConfig) -> Result<(), LogError> {
        let span = self.span.get_or_insert(AppendSpan {
            last_offset: -1,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            bytes: 0,
        });
        self.last = entry.last_offset();
        span.last_offset = self.last;
        span.bytes += entry.size() as u64;
        if entry.max_timestamp() > span.max_timestamp {
            span.max_timestamp = entry.max_timestamp();
            span.max_timestamp_offset = self.last;
        }
        let full = span.bytes >= PIECE;
        self.batches.push(entry.bytes().clone());
        if full { self.write(config) } else { Ok(()) }
    }

    fn write(&mut self, config: &LogConfig) -> Result<(), LogError> {
        let Some(span) = self.span.take() else {
            return Ok(());
        };
        let batches = std::mem::take(&mut self.batches);
        let mut slices: Vec<IoSlice<'_>> = batches.iter().map(|b| IoSlice::new(b)).collect();
        self.segment.append(&mut slices, span, config)
    }

    /// The rest, the aborts whose markers are here, the times of the old segment, all on the device.
    fn finish(
        &mut self,
        aborted: &[AbortedEntry],
        config: &LogConfig,
        modified_ms: i64,
    ) -> Result<(), LogError> {
        self.write(config)?;
        let here = self.base..=self.last;
        let mine: Vec<_> = aborted
            .iter()
            .filter(|e| here.contains(&e.last_offset))
            .copied()
            .collect();
        self.segment.add_aborts(&mine)?;
        self.segment.seal(config)?;
        self.segment.flush(config)?;
        self.segment.set_modified(modified_ms)
    }
}

/// Of a compressed set of an old format only known by looking into it.
fn first_offset(entry: &Entry, path: &Path) -> Result<i64, LogError> {
    let Entry::Legacy(_) = entry else {
        return Ok(entry.base_offset());
    };
    let mut first = None;
    let looked = entry.for_each_record(crate::segment::DECOMPRESS_LIMIT, |r| {
        first.get_or_insert(r.offset);
        Ok::<_, RecordError>(())
    });
    looked.map_err(|e| LogError::corrupt(path, e.to_string()))?;
    Ok(first.unwrap_or(entry.base_offset()))
}
