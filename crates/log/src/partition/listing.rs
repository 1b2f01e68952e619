//! What a log's directory holds, and the leftovers of an interrupted swap of segments.

use crate::disk;
use crate::error::LogError;
use crate::identity;
use crate::naming::{FileKind, parse_segment_file, segment_file};
use crate::segment::HeaderScan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a log's directory holds.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Size of each `.log` file by base offset.
    pub logs: BTreeMap<i64, u64>,
    files: BTreeSet<(i64, FileKind)>,
    pub snapshots: BTreeSet<i64>,
    pub epochs: bool,
    pub metadata: bool,
    /// There are `.cleaned` or `.swap` files.
    pub swapping: bool,
}

impl Listing {
    /// Lists the directory; `.deleted` files go.
    pub fn read(dir: &Path) -> Result<Self, LogError> {
        let mut listing = Self::default();
        for entry in read_dir(dir)? {
            let (name, path) = entry?;
            match name.as_str() {
                crate::epochs::FILE => listing.epochs = true,
                identity::PARTITION_METADATA => listing.metadata = true,
                _ => {}
            }
            let Some((base, kind, suffix)) = parse_segment_file(&name) else {
                continue;
            };
            if suffix == ".deleted" {
                disk::remove_if_exists(&path)?;
                continue;
            }
            if !suffix.is_empty() {
                listing.swapping |= suffix == ".cleaned" || suffix == ".swap";
                continue;
            }
            match kind {
                FileKind::Log => {
                    let size = disk::file_len(&path)?.unwrap_or(0);
                    listing.logs.insert(base, size);
                }
                FileKind::Snapshot => {
                    listing.snapshots.insert(base);
                    continue;
                }
                _ => {}
            }
            listing.files.insert((base, kind));
        }
        Ok(listing)
    }

    pub fn has(&self, base: i64, kind: FileKind) -> bool {
        self.files.contains(&(base, kind))
    }

    pub fn has_records(&self) -> bool {
        self.logs.values().any(|size| *size > 0)
    }

    /// Index files whose log is gone.
    pub fn orphans(&self) -> impl Iterator<Item = (i64, FileKind)> {
        let orphans = self.files.iter().copied();
        orphans.filter(|(base, _)| !self.logs.contains_key(base))
    }

    /// Bytes that a recovery from this point on looks at.
    pub fn bytes_from(&self, recovery_point: i64) -> u64 {
        let first = self.logs.range(..=recovery_point).next_back();
        let first = first.map_or(0, |(base, _)| *base);
        self.logs.range(first..).map(|(_, size)| size).sum()
    }
}

fn read_dir(
    dir: &Path,
) -> Result<impl Iterator<Item = Result<(String, PathBuf), LogError>> + use<'_>, LogError> {
    let entries = std::fs::read_dir(dir).map_err(|e| LogError::io("list", dir, e))?;
    Ok(entries.map(move |entry| {
        let entry = entry.map_err(|e| LogError::io("list", dir, e))?;
        Ok((
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        ))
    }))
}

/// Finishes or undoes a swap of cleaned segments that a crash interrupted: `.cleaned` files were not complete and go; a
/// `.swap` log was complete: the segments that it replaces go, and it takes its name.
pub(super) fn finish_swaps(dir: &Path) -> Result<(), LogError> {
    let mut cleaned = Vec::new();
    let mut swaps = Vec::new();
    let mut others = Vec::new();
    for entry in read_dir(dir)? {
        let (name, path) = entry?;
        match parse_segment_file(&name) {
            Some((base, _, ".cleaned")) => cleaned.push((base, path)),
            Some((base, kind, ".swap")) => swaps.push((base, kind, path)),
            Some((base, kind, "")) => others.push((base, kind, path)),
            _ => {}
        }
    }
    if cleaned.is_empty() && swaps.is_empty() {
        return Ok(());
    }
    let least_cleaned = cleaned.iter().map(|(base, _)| *base).min();
    for (_, path) in &cleaned {
        disk::remove_if_exists(path)?;
    }
    let mut valid = Vec::new();
    for (base, kind, path) in swaps {
        if least_cleaned.is_some_and(|least| base >= least) {
            disk::remove_if_exists(&path)?;
        } else {
            valid.push((base, kind, path));
        }
    }
    let (mut from, mut to) = (i64::MAX, i64::MIN);
    for (base, kind, path) in &valid {
        if *kind == FileKind::Log {
            from = from.min(*base);
            to = to.max(next_offset_of(path, *base)?);
        }
    }
    for (base, _, path) in &others {
        if *base >= from && *base < to {
            disk::remove_if_exists(path)?;
        }
    }
    // From the first to the last: after a crash in between, those left are a range again without those done.
    valid.sort();
    for (base, kind, path) in &valid {
        disk::rename_if_exists(path, &segment_file(dir, *base, *kind))?;
    }
    tracing::info!(
        "{}: an interrupted swap of segments was {}",
        dir.display(),
        if valid.is_empty() {
            "undone"
        } else {
            "finished"
        }
    );
    disk::sync_dir(dir)
}

fn next_offset_of(path: &Path, base: i64) -> Result<i64, LogError> {
    let file = disk::open_read(path)?;
    let size = disk::file_len(path)?.unwrap_or(0);
    let mut scan = HeaderScan::new(&file, path, 0, size);
    let mut next = base;
    while let Some(spot) = scan.advance()? {
        next = spot.last_offset.saturating_add(1);
    }
    Ok(next)
}
