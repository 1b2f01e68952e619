//! All producers of a partition, the open transactions, and the snapshots that were taken.

use super::entry::ProducerEntry;
use super::snapshot::{read_snapshot, write_snapshot};
use super::update::{CompletedTxn, ProducerUpdate};
use super::{ProducerError, ProducerView};
use crate::disk;
use crate::error::LogError;
use crate::naming::{FileKind, segment_file};
use crate::partition::AppendOrigin;
use gracchus_record::control::EndTransaction;
use gracchus_record::{BatchHeader, Entry};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The producers' state up to `end_offset`.
#[derive(Debug, Default)]
pub struct ProducerState {
    producers: HashMap<i64, ProducerEntry>,
    /// First offset -> producer, of transactions without a marker.
    ongoing: BTreeMap<i64, i64>,
    /// First offset -> marker's offset, of transactions whose marker is above the high watermark.
    unreplicated: BTreeMap<i64, i64>,
    snapshots: BTreeSet<i64>,
    end_offset: i64,
    last_snapshot: i64,
    expiration_ms: i64,
}

impl ProducerState {
    /// With the snapshots that were found in the directory.
    pub fn new(expiration_ms: i64, snapshots: BTreeSet<i64>) -> Self {
        Self {
            snapshots,
            expiration_ms,
            ..Self::default()
        }
    }

    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub fn set_end_offset(&mut self, offset: i64) {
        self.end_offset = offset;
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    pub fn snapshots(&self) -> &BTreeSet<i64> {
        &self.snapshots
    }

    pub fn get(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    pub fn producers(&self) -> impl Iterator<Item = &ProducerEntry> {
        self.producers.values()
    }

    pub fn views(&self) -> Vec<ProducerView> {
        let view = |e: &ProducerEntry| ProducerView {
            producer_id: e.producer_id,
            producer_epoch: e.producer_epoch,
            last_sequence: e.last_sequence(),
            last_timestamp: e.last_timestamp,
            coordinator_epoch: e.coordinator_epoch,
            current_txn_start_offset: e.current_txn_first_offset.unwrap_or(-1),
        };
        self.producers.values().map(view).collect()
    }

    /// The first offset that may not be read as committed: of a transaction undecided, or decided above the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        let ongoing = self.ongoing.keys().next();
        let unreplicated = self.unreplicated.keys().next();
        match (ongoing, unreplicated) {
            (Some(a), Some(b)) => Some(*a.min(b)),
            (a, b) => a.or(b).copied(),
        }
    }

    /// Begins the check of a producer's batches in an append.
    pub fn prepare(&self, producer_id: i64, origin: AppendOrigin) -> ProducerUpdate {
        let current = self.producers.get(&producer_id);
        ProducerUpdate::new(
            current
                .cloned()
                .unwrap_or_else(|| ProducerEntry::empty(producer_id)),
            origin,
        )
    }

    /// Takes over a checked update.
    pub fn update(&mut self, update: ProducerUpdate) {
        let (updated, started) = update.into_parts();
        let producer_id = updated.producer_id;
        self.producers
            .entry(producer_id)
            .or_insert_with(|| ProducerEntry::empty(producer_id))
            .absorb(&updated);
        for first_offset in started {
            self.ongoing.insert(first_offset, producer_id);
        }
    }

    /// The last stable offset that a marker leaves behind, while its transaction still counts as open.
    pub fn last_stable_after(&self, completed: &CompletedTxn) -> i64 {
        self.ongoing
            .iter()
            .find(|(_, producer)| **producer != completed.producer_id)
            .map_or(completed.last_offset.saturating_add(1), |(first, _)| *first)
    }

    /// The last stable offset that each marker of one append leaves behind, as if its batches had come one by one: a
    /// follower gets many at once, and too high an offset would hide aborted transactions from readers.
    pub fn last_stable_offsets(
        &self,
        updates: &[ProducerUpdate],
        completed: &[CompletedTxn],
    ) -> Vec<i64> {
        if completed.is_empty() {
            return Vec::new();
        }
        let started = updates.iter().flat_map(ProducerUpdate::started);
        let mut open: BTreeSet<i64> = self.ongoing.keys().chain(started).copied().collect();
        let after = |done: &CompletedTxn| {
            open.remove(&done.first_offset);
            let end = done.last_offset.saturating_add(1);
            open.first().map_or(end, |first| end.min(*first))
        };
        completed.iter().map(after).collect()
    }

    /// The transaction has its marker; it becomes stable when that is below the high watermark.
    pub fn complete(&mut self, completed: &CompletedTxn) {
        self.ongoing.remove(&completed.first_offset);
        self.unreplicated
            .insert(completed.first_offset, completed.last_offset);
    }

    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        if !self.unreplicated.is_empty() {
            self.unreplicated.retain(|_, last| *last >= high_watermark);
        }
    }

    /// Follows a batch of a log that was written before (recovery, followers); what it completes is added to `completed`
    /// together with the last stable offset at that point.
    pub fn replay(
        &mut self,
        entry: &Entry,
        completed: &mut Vec<(CompletedTxn, i64)>,
    ) -> Result<(), ProducerError> {
        if let Entry::V2(batch) = entry
            && batch.header.has_producer_id()
        {
            let mut update = self.prepare(batch.header.producer_id, AppendOrigin::Replication);
            let done = add_batch(&mut update, &batch.header, || first_marker(entry))?;
            self.update(update);
            if let Some(done) = done {
                completed.push((done, self.last_stable_after(&done)));
                self.complete(&done);
            }
        }
        self.end_offset = entry.last_offset().saturating_add(1);
        Ok(())
    }

    // --- expiry and truncation

    fn expired(&self, entry: &ProducerEntry, now_ms: i64) -> bool {
        entry.current_txn_first_offset.is_none()
            && now_ms.saturating_sub(entry.last_timestamp) >= self.expiration_ms
    }

    pub fn set_expiration(&mut self, expiration_ms: i64) {
        self.expiration_ms = expiration_ms;
    }

    /// Forgets producers that were silent too long; those with an open transaction stay.
    pub fn expire(&mut self, now_ms: i64) {
        let mut producers = std::mem::take(&mut self.producers);
        producers.retain(|_, e| !self.expired(e, now_ms));
        producers.shrink_to_fit();
        self.producers = producers;
    }

    pub fn on_log_start(&mut self, log_start: i64) {
        self.unreplicated.retain(|_, last| *last >= log_start);
        self.end_offset = self.end_offset.max(log_start);
        self.last_snapshot = self.snapshots.last().copied().unwrap_or(log_start);
    }

    /// Forgets everything, and the snapshots' files.
    pub fn truncate_fully(&mut self, dir: &Path, offset: i64) -> Result<(), LogError> {
        self.producers = HashMap::new();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.delete_snapshots(dir, |_| true)?;
        self.last_snapshot = 0;
        self.end_offset = offset;
        Ok(())
    }

    /// Deletes the snapshots that `which` names.
    pub fn delete_snapshots(
        &mut self,
        dir: &Path,
        which: impl Fn(i64) -> bool,
    ) -> Result<(), LogError> {
        let gone: Vec<i64> = self
            .snapshots
            .iter()
            .copied()
            .filter(|o| which(*o))
            .collect();
        for offset in gone {
            disk::remove_if_exists(&segment_file(dir, offset, FileKind::Snapshot))?;
            self.snapshots.remove(&offset);
        }
        Ok(())
    }

    pub(crate) fn add_snapshot(&mut self, offset: i64) {
        self.snapshots.insert(offset);
    }

    pub(crate) fn adopt_snapshots(&mut self, all: &BTreeSet<i64>) {
        self.snapshots.extend(all);
    }

    /// A snapshot's file went with its segment.
    pub fn forget_snapshot(&mut self, offset: i64) -> bool {
        self.snapshots.remove(&offset)
    }

    /// Starts anew from the newest readable snapshot at or before `log_end`; later ones, those at or before `log_start`
    /// and damaged ones are deleted. Without one the state is empty at `log_start`.
    pub fn reload(
        &mut self,
        dir: &Path,
        log_start: i64,
        log_end: i64,
        now_ms: i64,
    ) -> Result<(), LogError> {
        self.delete_snapshots(dir, |o| o > log_end || o <= log_start)?;
        self.producers = HashMap::new();
        self.ongoing.clear();
        self.unreplicated.clear();
        while let Some(offset) = self.snapshots.last().copied() {
            let path = segment_file(dir, offset, FileKind::Snapshot);
            match read_snapshot(&path) {
                Ok(entries) => {
                    for entry in entries {
                        if self.expired(&entry, now_ms) {
                            continue;
                        }
                        if let Some(first) = entry.current_txn_first_offset {
                            self.ongoing.insert(first, entry.producer_id);
                        }
                        self.producers.insert(entry.producer_id, entry);
                    }
                    self.last_snapshot = offset;
                    self.end_offset = offset;
                    return Ok(());
                }
                Err(error @ LogError::Corrupt { .. }) => {
                    tracing::warn!("{error}; the state of its producers is read from the log");
                    self.delete_snapshots(dir, |o| o == offset)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.last_snapshot = log_start;
        self.end_offset = log_start;
        Ok(())
    }

    /// Deletes snapshots that belong to no segment, save the newest if it lies beyond all of them (of a clean stop).
    pub fn remove_stray_snapshots(&mut self, dir: &Path, bases: &[i64]) -> Result<(), LogError> {
        let newest = bases.last().copied();
        let last = self.snapshots.last().copied();
        self.delete_snapshots(dir, |o| {
            bases.binary_search(&o).is_err() && !(Some(o) == last && newest.is_none_or(|n| o > n))
        })
    }

    /// Writes a snapshot of the state at `end_offset`, unless there is one.
    pub fn take_snapshot(&mut self, dir: &Path) -> Result<(), LogError> {
        if self.end_offset <= self.last_snapshot {
            return Ok(());
        }
        let path = segment_file(dir, self.end_offset, FileKind::Snapshot);
        write_snapshot(&path, self.producers.values())?;
        self.snapshots.insert(self.end_offset);
        self.last_snapshot = self.end_offset;
        Ok(())
    }
}

/// Adds a batch to an update: a data batch, or a marker read by `marker`.
pub(crate) fn add_batch(
    update: &mut ProducerUpdate,
    header: &BatchHeader,
    marker: impl FnOnce() -> Result<Option<(EndTransaction, i64)>, ProducerError>,
) -> Result<Option<CompletedTxn>, ProducerError> {
    if !header.is_control() {
        update.add_data(header)?;
        return Ok(None);
    }
    match marker()? {
        Some((marker, timestamp)) => {
            update.add_marker(marker, header.producer_epoch, header.base_offset, timestamp)
        }
        // Emptied by compaction: the whole transaction is gone.
        None => Ok(None),
    }
}

/// A control batch's marker and its timestamp; `None` if the batch is empty or of another kind.
pub(crate) fn first_marker(entry: &Entry) -> Result<Option<(EndTransaction, i64)>, ProducerError> {
    let mut found = None;
    entry
        .for_each_record(1 << 20, |r| {
            if found.is_none() {
                found = EndTransaction::parse(r.key, r.value)?.map(|m| (m, r.timestamp));
            }
            Ok::<_, gracchus_record::RecordError>(())
        })
        .map_err(|e| ProducerError::InvalidRecord(e.to_string()))?;
    Ok(found)
}
