//! Opening a log: what a crash left half done is finished or undone, what may be torn is checked.

use super::flush::Names;
use super::listing::{Listing, finish_swaps};
use super::recovery::{Unwatched, Watch};
use super::split::split;
use super::{LogEnvironment, PartitionLog, rules};
use crate::config::LogConfig;
use crate::disk;
use crate::epochs::LeaderEpochCache;
use crate::error::LogError;
use crate::identity;
use crate::naming::{FileKind, TopicPartition, segment_file};
use crate::producer::ProducerState;
use crate::segment::{Segment, SegmentList, fits_in_index};
use crate::tail::Tail;
use std::collections::BTreeSet;
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

impl PartitionLog {
    /// Opens the log in `dir`, which must exist; makes its first segment if there is none.
    pub fn open(
        dir: impl Into<PathBuf>,
        partition: TopicPartition,
        options: OpenOptions,
    ) -> Result<Self, LogError> {
        let dir = dir.into();
        let listing = match options.fresh {
            true => Listing::default(),
            false => Listing::read(&dir)?,
        };
        Self::open_watched(&dir, partition, options, listing, &Unwatched)
    }

    /// As `open`, with the directory already listed.
    pub(crate) fn open_watched(
        dir: &Path,
        partition: TopicPartition,
        options: OpenOptions,
        mut listing: Listing,
        watch: &dyn Watch,
    ) -> Result<Self, LogError> {
        let dir: Arc<Path> = Arc::from(dir);
        if listing.swapping {
            finish_swaps(&dir)?;
            listing = Listing::read(&dir)?;
        }
        loop {
            let mut log = Self::unloaded(&dir, &partition, &options, &listing);
            match log.load(&listing, &options, watch) {
                Ok(()) => return Ok(log),
                // Of the many segments that it becomes none is met again here.
                Err(LogError::OffsetOverflow { base, .. }) => {
                    split(&dir, base, &options.config, options.now_ms)?;
                    listing = Listing::read(&dir)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn unloaded(
        dir: &Arc<Path>,
        partition: &TopicPartition,
        options: &OpenOptions,
        listing: &Listing,
    ) -> Self {
        Self {
            rules: Box::new(rules(partition, &options.config)),
            partition: partition.clone(),
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
            readers: super::readers::Readers::default(),
            deleted: Vec::new(),
            truncations: 0,
            truncated_to: None,
            deleted_dir: false,
            moving: false,
            closed: false,
            offline: options.offline.clone(),
            dir: dir.clone(),
            config: options.config.clone(),
            env: options.env.clone(),
        }
    }

    fn load(
        &mut self,
        listing: &Listing,
        options: &OpenOptions,
        watch: &dyn Watch,
    ) -> Result<(), LogError> {
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
        // A log with records and without the file is of before leader epochs, or lost it.
        let mut epochs_lost =
            !listing.epochs && self.config.keeps_epochs() && listing.has_records();
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
                }
                Err(error) => return Err(error),
            }
        }
        let damaged = self.load_segments(listing, options)?;
        let followed_to_end = self.recover(&damaged, options, watch)?;
        self.check_offsets_fit()?;
        if epochs_lost {
            self.epochs_from_headers()?;
        }
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

    /// Finds a segment with offsets that do not fit in its index among those that were not recovered.
    fn check_offsets_fit(&mut self) -> Result<(), LogError> {
        let bases = self.segments.bases();
        for (segment, next) in self.segments.iter_mut().zip(bases.into_iter().skip(1)) {
            let base = segment.base_offset();
            if !fits_in_index(base, next - 1)
                && segment.size() > 0
                && !fits_in_index(base, segment.next_offset()? - 1)
            {
                let path = segment.path(FileKind::Log);
                return Err(LogError::OffsetOverflow { path, base });
            }
        }
        Ok(())
    }

    fn load_segments(
        &mut self,
        listing: &Listing,
        options: &OpenOptions,
    ) -> Result<BTreeSet<usize>, LogError> {
        let mut damaged = BTreeSet::new();
        for (base, size) in &listing.logs {
            let has = |kind| listing.has(*base, kind);
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
                damaged.insert(self.segments.len());
            }
            self.segments.push(segment);
        }
        for (base, kind) in listing.orphans() {
            disk::remove_if_exists(&segment_file(&self.dir, base, kind))?;
        }
        Ok(damaged)
    }

    /// The log's end, its start, and an active segment.
    fn find_ends(&mut self, options: &OpenOptions) -> Result<(), LogError> {
        let mut end = match self.segments.last_mut() {
            Some(last) => {
                let (next, base) = (last.next_offset()?, last.base_offset());
                if last.size() > 0 && !fits_in_index(base, next - 1) {
                    let path = last.path(FileKind::Log);
                    return Err(LogError::OffsetOverflow { path, base });
                }
                Some(next)
            }
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
}
