//! Opening a log: what a crash left half done is finished or undone, what may be torn is checked.

use super::flush::Names;
use super::{LogEnvironment, PartitionLog, rules};
use crate::config::LogConfig;
use crate::disk;
use crate::epochs::LeaderEpochCache;
use crate::error::LogError;
use crate::identity;
use crate::index::AbortedEntry;
use crate::naming::{FileKind, TopicPartition, parse_segment_file, segment_file};
use crate::producer::ProducerState;
use crate::segment::{HeaderScan, Segment, SegmentList};
use crate::tail::Tail;
use gracchus_record::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How to open a log.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    pub config: Arc<LogConfig>,
    pub env: Arc<LogEnvironment>,
    /// From the checkpoint: everything below is on disk; 0 without one.
    pub recovery_point: i64,
    /// From the checkpoint; 0 without one.
    pub log_start: i64,
    /// The last stop was clean: nothing is checked.
    pub clean: bool,
    /// The directory was just made and is empty.
    pub fresh: bool,
    /// Set when the log directory fails: everything is refused from then on.
    pub offline: Arc<AtomicBool>,
    pub now_ms: i64,
}

/// What a directory holds.
#[derive(Debug, Default)]
struct Listing {
    logs: BTreeMap<i64, u64>,
    files: BTreeSet<(i64, FileKindOrder)>,
    snapshots: BTreeSet<i64>,
    epochs: bool,
    metadata: bool,
    /// There are `.cleaned` or `.swap` files.
    swapping: bool,
}

/// [`FileKind`] as a number, to be sorted.
type FileKindOrder = u8;

fn order(kind: FileKind) -> FileKindOrder {
    match kind {
        FileKind::Log => 0,
        FileKind::OffsetIndex => 1,
        FileKind::TimeIndex => 2,
        FileKind::TxnIndex => 3,
        FileKind::Snapshot => 4,
    }
}

impl PartitionLog {
    /// Opens the log in `dir`, which must exist; makes its first segment if there is none.
    pub fn open(
        dir: impl Into<PathBuf>,
        partition: TopicPartition,
        options: OpenOptions,
    ) -> Result<Self, LogError> {
        let dir: Arc<Path> = Arc::from(dir.into());
        let mut listing = match options.fresh {
            true => Listing::default(),
            false => list(&dir)?,
        };
        if listing.swapping {
            finish_swaps(&dir)?;
            listing = list(&dir)?;
        }
        let mut log = Self {
            rules: Box::new(rules(&partition, &options.config)),
            partition,
            topic_id: None,
            segments: SegmentList::default(),
            log_start: options.log_start,
            log_end: 0,
            high_watermark: 0,
            high_watermark_at: None,
            recovery_point: options.recovery_point,
            last_flush_ms: options.now_ms,
            names: match (options.fresh, options.clean) {
                (true, _) => Names::of_new_directory(),
                (_, true) => Names::default(),
                _ => Names::of_unclean_stop(),
            },
            epochs: LeaderEpochCache::default(),
            producers: ProducerState::new(
                options.env.producer_id_expiration_ms,
                listing.snapshots.clone(),
            ),
            tail: Tail::new(options.env.tail.clone()),
            deleted: Vec::new(),
            truncations: 0,
            truncated_to: None,
            deleted_dir: false,
            offline: options.offline.clone(),
            dir,
            config: options.config.clone(),
            env: options.env.clone(),
        };
        log.load(&listing, &options)?;
        Ok(log)
    }

    fn load(&mut self, listing: &Listing, options: &OpenOptions) -> Result<(), LogError> {
        let dir = self.dir.clone();
        if listing.metadata {
            self.topic_id = match identity::read_topic_id(&dir) {
                Err(error @ LogError::Corrupt { .. }) => {
                    // The controller tells the id again with the partition's first LeaderAndIsr.
                    tracing::warn!("{error}; it is written anew");
                    None
                }
                read => read?,
            };
        }
        let mut epochs_lost = false;
        if !self.config.keeps_epochs() {
            if self.epochs.remove(&dir)? {
                tracing::warn!(
                    "{}: its leader epochs are dropped, since it stores messages of format v{}",
                    self.partition,
                    self.config.magic
                );
            }
        } else if listing.epochs {
            match LeaderEpochCache::read(&dir) {
                Ok(epochs) => self.epochs = epochs,
                Err(error @ LogError::Corrupt { .. }) => {
                    tracing::warn!("{error}; the leader epochs are read from the log");
                    epochs_lost = true;
                    self.epochs = LeaderEpochCache::lost();
                }
                Err(error) => return Err(error),
            }
        }
        let mut to_recover = self.load_segments(listing, options)?;
        if epochs_lost {
            self.epochs_from_headers()?;
        }
        if !options.clean {
            let from = self.segments.floor(options.recovery_point).unwrap_or(0);
            to_recover.extend(from..self.segments.len());
        }
        let followed_to_end = self.recover(&to_recover, options)?;
        self.find_ends(options)?;
        self.epochs.bound(options.log_start, self.log_end);
        self.high_watermark = self.log_start.min(self.log_end);
        let bases = self.segments.bases();
        self.producers.remove_stray_snapshots(&dir, &bases)?;
        self.load_producers(followed_to_end, options)?;
        // Thousands of logs may be loaded before the first is used.
        for segment in self.segments.iter_mut() {
            segment.close_file();
        }
        Ok(())
    }

    fn load_segments(
        &mut self,
        listing: &Listing,
        options: &OpenOptions,
    ) -> Result<BTreeSet<usize>, LogError> {
        let mut to_recover = BTreeSet::new();
        for (base, size) in &listing.logs {
            let has = |kind| listing.files.contains(&(*base, order(kind)));
            let mut segment = Segment::existing(&self.dir, *base, *size, options.now_ms);
            segment.set_has_aborts(has(FileKind::TxnIndex));
            let whole = has(FileKind::OffsetIndex)
                && has(FileKind::TimeIndex)
                && (!has(FileKind::TxnIndex) || segment.aborted().is_ok());
            if !whole {
                tracing::warn!(
                    "{}: an index is missing or damaged and is made anew",
                    segment.path(FileKind::Log).display()
                );
                to_recover.insert(self.segments.len());
            }
            self.segments.push(segment);
        }
        for (base, kind) in &listing.files {
            if !listing.logs.contains_key(base) {
                let orphan = FileKind::SEGMENT.into_iter().find(|k| order(*k) == *kind);
                if let Some(kind) = orphan {
                    disk::remove_if_exists(&segment_file(&self.dir, *base, kind))?;
                }
            }
        }
        Ok(to_recover)
    }

    /// Recovers segments, in order. True if the producers' state was followed to the end of the last segment.
    fn recover(
        &mut self,
        which: &BTreeSet<usize>,
        options: &OpenOptions,
    ) -> Result<bool, LogError> {
        let dir = self.dir.clone();
        let config = self.config.clone();
        let mut state: Option<ProducerState> = None;
        for at in which {
            let Some(base) = self.segments.get(*at).map(Segment::base_offset) else {
                break;
            };
            // State goes on from the segment before, if that was recovered too.
            let mut producers = match state.take() {
                Some(state) if state.end_offset() == base => state,
                _ => self.producers_at(base, options)?,
            };
            let epochs = &mut self.epochs;
            let keeps_epochs = config.keeps_epochs();
            let Some(segment) = self.segments.get_mut(*at) else {
                break;
            };
            let mut completed = Vec::new();
            let mut epochs_changed = false;
            let recovered = segment.recover(&config, |entry, aborted| {
                if let Entry::V2(batch) = entry
                    && keeps_epochs
                {
                    epochs_changed |=
                        epochs.note(batch.header.leader_epoch, batch.header.base_offset);
                }
                if let Err(error) = producers.replay(entry, &mut completed) {
                    tracing::warn!("{}: while recovering its producers: {error}", dir.display());
                    producers.set_end_offset(entry.last_offset().saturating_add(1));
                }
                for (done, last_stable_offset) in completed.drain(..) {
                    if done.aborted {
                        aborted.push(AbortedEntry {
                            producer_id: done.producer_id,
                            first_offset: done.first_offset,
                            last_offset: done.last_offset,
                            last_stable_offset,
                        });
                    }
                }
                Ok(())
            })?;
            if epochs_changed {
                LogError::unless_full(self.epochs.write(&dir))?;
            }
            // An empty state of a log's only segment is read from it again as quickly as from a file.
            let trivial = producers.is_empty() && self.segments.len() == 1;
            if !options.clean && !trivial {
                LogError::unless_full(producers.take_snapshot(&dir))?;
                for offset in producers.snapshots() {
                    self.producers.add_snapshot(*offset);
                }
            }
            if recovered.truncated > 0 && *at + 1 < self.segments.len() {
                let rest = self.segments.split_off(*at + 1);
                tracing::warn!(
                    "{}: {} segments after the cut are dropped",
                    dir.display(),
                    rest.len()
                );
                self.discard(rest, options.now_ms)?;
            }
            state = Some(producers);
        }
        let end = match self.segments.last_mut() {
            Some(last) => last.next_offset()?,
            None => return Ok(false),
        };
        match state {
            Some(mut state) if !options.clean && state.end_offset() == end => {
                state.adopt_snapshots(self.producers.snapshots());
                self.producers = state;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The producers' state as of a segment's first offset.
    fn producers_at(
        &mut self,
        base: i64,
        options: &OpenOptions,
    ) -> Result<ProducerState, LogError> {
        let dir = self.dir.clone();
        if !options.clean {
            // Snapshots above speak of batches that may not be there.
            self.producers.delete_snapshots(&dir, |o| o > base)?;
        }
        let usable = self.producers.snapshots().range(..=base).copied().collect();
        let mut state = ProducerState::new(self.env.producer_id_expiration_ms, usable);
        state.reload(&dir, options.log_start, base, options.now_ms)?;
        let from = state.end_offset();
        let first = self.segments.floor(from).unwrap_or(0);
        for at in first..self.segments.len() {
            let Some(segment) = self.segments.get_mut(at) else {
                break;
            };
            if segment.base_offset() >= base || from >= base {
                break;
            }
            segment.for_each_from(from, |entry| {
                let mut completed = Vec::new();
                if let Err(error) = state.replay(entry, &mut completed) {
                    tracing::warn!("{}: while reading its producers: {error}", dir.display());
                }
            })?;
        }
        state.set_end_offset(base);
        Ok(state)
    }

    /// The log's end, its start, and an active segment.
    fn find_ends(&mut self, options: &OpenOptions) -> Result<(), LogError> {
        let mut end = match self.segments.last_mut() {
            Some(last) => Some(last.next_offset()?),
            None => None,
        };
        if let Some(found) = end
            && found < options.log_start
        {
            tracing::warn!(
                "{}: its records end at {found}, before the log start offset {}; they are deleted",
                self.partition,
                options.log_start
            );
            let all = self.segments.split_off(0);
            self.discard(all, options.now_ms)?;
            let dir = self.dir.clone();
            self.epochs.clear(&dir)?;
            self.names.change();
            self.producers.truncate_fully(&dir, options.log_start)?;
            end = None;
        }
        if self.segments.is_empty() {
            let (start, now_ms) = (options.log_start, options.now_ms);
            let first = match start {
                0 => Segment::deferred(&self.dir, 0, &self.config, now_ms),
                start => Segment::create(&self.dir, start, &self.config, now_ms)?,
            };
            self.segments.push(first);
        }
        self.log_end = end.unwrap_or(options.log_start);
        self.recovery_point = if options.clean && end.is_some() {
            self.log_end
        } else {
            options.recovery_point.min(self.log_end)
        };
        let first = self.segments.first().map_or(0, Segment::base_offset);
        self.log_start = options.log_start.max(first);
        Ok(())
    }

    fn load_producers(&mut self, followed: bool, options: &OpenOptions) -> Result<(), LogError> {
        let dir = self.dir.clone();
        let none = self.producers.snapshots().is_empty();
        if self.config.magic < 2 || (none && options.clean) {
            // Old formats have no producers; a clean log without snapshots never had any.
            let bases = self.segments.bases();
            let last_two = bases.iter().rev().take(2).rev();
            for offset in last_two.copied().chain([self.log_end]) {
                self.producers.set_end_offset(offset);
                LogError::unless_full(self.producers.take_snapshot(&dir))?;
            }
            return Ok(());
        }
        if followed {
            return Ok(());
        }
        self.rebuild_producers(options.now_ms)
    }

    /// The leader epochs as the batches' headers tell them.
    fn epochs_from_headers(&mut self) -> Result<(), LogError> {
        let epochs = &mut self.epochs;
        for segment in self.segments.iter_mut().filter(|s| s.size() > 0) {
            let (file, path, size) = (segment.file()?, segment.path(FileKind::Log), segment.size());
            let mut scan = HeaderScan::new(&file, &path, 0, size);
            while let Some(spot) = scan.advance()? {
                epochs.note(spot.leader_epoch, spot.base_offset);
            }
        }
        LogError::unless_full(self.epochs.write(&self.dir)).map(|_| ())
    }
}

fn list(dir: &Path) -> Result<Listing, LogError> {
    let mut listing = Listing::default();
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
        listing.files.insert((base, order(kind)));
    }
    Ok(listing)
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
fn finish_swaps(dir: &Path) -> Result<(), LogError> {
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
    for (base, kind, path) in &valid {
        disk::rename_if_exists(path, &segment_file(dir, *base, *kind))?;
    }
    tracing::info!(
        "{}: an interrupted compaction was {}",
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
