//! Offset and time indexes, and how they fit their log.

use super::segment::{Batches, DECOMPRESS_LIMIT};
use super::{Options, base_offset, unreadable};
use crate::tools::Failure;
use gracchus_record::{NO_TIMESTAMP, RecordError};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

type Pairs = BTreeMap<PathBuf, Vec<(i64, i64)>>;

/// What does not fit, told at the end.
#[derive(Debug, Default)]
pub(super) struct Mismatches {
    offsets: Pairs,
    timestamps: Pairs,
    unordered: Pairs,
    not_found: Vec<(i64, i64)>,
    gaps: Pairs,
}

impl Mismatches {
    /// A record does not follow the one before.
    pub(super) fn gap(&mut self, file: &Path, before: i64, offset: i64) {
        self.gaps
            .entry(file.to_owned())
            .or_default()
            .push((before, offset));
    }

    pub(super) fn print(&self) {
        let each = |pairs: &Pairs, title: &str, line: &dyn Fn(i64, i64) -> String| {
            for (file, list) in pairs {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
                eprintln!("{title}{}", file.display());
                for (a, b) in list {
                    eprintln!("  {}", line(*a, *b));
                }
            }
        };
        each(&self.offsets, "Mismatches in :", &|a, b| {
            format!("Index offset: {a}, log offset: {b}")
        });
        each(
            &self.timestamps,
            "Found timestamp mismatch in :",
            &|a, b| format!("Index timestamp: {a}, log timestamp: {b}"),
        );
        each(
            &self.unordered,
            "Found out of order timestamp in :",
            &|a, b| format!("Index timestamp: {a}, Previously indexed timestamp: {b}"),
        );
        if !self.not_found.is_empty() {
            eprintln!("The following indexed offsets are not found in the log.");
            for (a, b) in &self.not_found {
                eprintln!("Indexed offset: {a}, found log offset: {b}");
            }
        }
        each(&self.gaps, "Non-consecutive offsets in ", &|a, b| {
            format!("{a} is followed by {b}")
        });
    }
}

/// A file of the same segment.
fn beside(file: &Path, extension: &str) -> PathBuf {
    file.with_extension(extension)
}

/// Index entries: offset and position.
fn offset_entries(file: &Path, base: i64) -> Result<Vec<(i64, u64)>, Failure> {
    let bytes = std::fs::read(file).map_err(|e| unreadable(file, e))?;
    let entries = bytes.chunks_exact(8).map_while(|e| {
        let (offset, rest) = e.split_first_chunk::<4>()?;
        let position = rest.first_chunk::<4>()?;
        Some((
            base + i64::from(i32::from_be_bytes(*offset)),
            u64::from(u32::from_be_bytes(*position)),
        ))
    });
    Ok(entries.collect())
}

/// Index entries: timestamp and offset.
fn time_entries(file: &Path, base: i64) -> Result<Vec<(i64, i64)>, Failure> {
    let bytes = std::fs::read(file).map_err(|e| unreadable(file, e))?;
    let entries = bytes.chunks_exact(12).map_while(|e| {
        let (timestamp, rest) = e.split_first_chunk::<8>()?;
        let offset = rest.first_chunk::<4>()?;
        Some((
            i64::from_be_bytes(*timestamp),
            base + i64::from(i32::from_be_bytes(*offset)),
        ))
    });
    Ok(entries.collect())
}

/// Whether a broker would keep an index when it starts: whole entries, and the last one not before the first possible.
fn check_sanity(file: &Path, entry_size: u64, last: Option<i64>, base: i64) -> Result<(), Failure> {
    let length = std::fs::metadata(file)
        .map_err(|e| unreadable(file, e))?
        .len();
    if length % entry_size != 0 {
        return Err(unreadable(
            file,
            format!(
                "Index file is corrupt: found {length} bytes which is neither positive nor a multiple of {entry_size}."
            ),
        ));
    }
    match last {
        Some(last) if last < base => Err(unreadable(
            file,
            format!("Corrupt index found: the last offset {last} is below the base offset {base}"),
        )),
        _ => Ok(()),
    }
}

pub(super) fn dump_offsets(
    o: &Options,
    file: &Path,
    out: &mut impl Write,
    found: &mut Mismatches,
) -> Result<(), Failure> {
    let base = base_offset(file)?;
    let entries = offset_entries(file, base)?;
    if entries.is_empty() {
        writeln!(out, "{} is empty.", file.display())?;
        return Ok(());
    }
    if o.index_sanity_check {
        check_sanity(file, 8, entries.last().map(|e| e.0), base)?;
        writeln!(out, "{} passed sanity check.", file.display())?;
        return Ok(());
    }
    let log = beside(file, "log");
    for (i, (offset, position)) in entries.into_iter().enumerate() {
        // a broker that did not stop cleanly leaves zeros behind the last entry
        if offset == base && i > 0 {
            break;
        }
        let mut batches = Batches::open(&log, position, o.max_message_size as u64)
            .map_err(|e| unreadable(&log, e))?;
        let last = match batches.next() {
            Ok(Some(entry)) => entry.last_offset(),
            _ => -1,
        };
        if last != offset {
            let list = found.offsets.entry(file.to_owned()).or_default();
            list.push((offset, last));
        }
        if !o.verify_index_only {
            writeln!(out, "offset: {offset} position: {position}")?;
        }
    }
    Ok(())
}

pub(super) fn dump_times(
    o: &Options,
    file: &Path,
    out: &mut impl Write,
    found: &mut Mismatches,
) -> Result<(), Failure> {
    let base = base_offset(file)?;
    let entries = time_entries(file, base)?;
    if o.index_sanity_check {
        check_sanity(file, 12, entries.last().map(|e| e.1), base)?;
        writeln!(out, "{} passed sanity check.", file.display())?;
        return Ok(());
    }
    let log = beside(file, "log");
    let positions = offset_entries(&beside(file, "index"), base).unwrap_or_default();
    let mut before = NO_TIMESTAMP;
    for (i, (timestamp, offset)) in entries.into_iter().enumerate() {
        if offset == base && i > 0 {
            break;
        }
        let from = positions
            .iter()
            .take_while(|(at, _)| *at <= offset)
            .last()
            .map_or(0, |(_, position)| *position);
        let mut batches = Batches::open(&log, from, u64::MAX).map_err(|e| unreadable(&log, e))?;
        let entry = loop {
            match batches.next() {
                Ok(Some(entry)) if entry.last_offset() < offset => {}
                Ok(entry) => break entry,
                Err(_) => break None,
            }
        };
        match entry {
            Some(entry) if entry.last_offset() == offset => {
                let mut newest = NO_TIMESTAMP;
                let _ = entry.for_each_record(DECOMPRESS_LIMIT, |r| {
                    newest = newest.max(r.timestamp);
                    Ok::<_, RecordError>(())
                });
                if newest != timestamp {
                    let list = found.timestamps.entry(file.to_owned()).or_default();
                    list.push((timestamp, newest));
                }
                if before >= timestamp {
                    let list = found.unordered.entry(file.to_owned()).or_default();
                    list.push((timestamp, before));
                }
            }
            other => {
                let at = other.map_or(-1, |e| e.last_offset());
                found.not_found.push((offset, at));
            }
        }
        if !o.verify_index_only {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        before = timestamp;
    }
    Ok(())
}
