//! Which batches belong to aborted transactions, and which markers are of transactions without any batch left.

use crate::index::AbortedEntry;
use crate::producer::first_marker;
use gracchus_record::control::Marker;
use gracchus_record::{Batch, Entry};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

#[derive(Debug)]
struct Aborted {
    entry: AbortedEntry,
    seen_batch: bool,
}

/// Follows a log's batches in order.
#[derive(Debug, Default)]
pub struct TransactionTracker {
    committed: HashSet<i64>,
    aborted: HashMap<i64, Aborted>,
    coming: VecDeque<AbortedEntry>,
    /// Aborted transactions whose marker stays, for the cleaned segment's index.
    kept: Vec<AbortedEntry>,
}

impl TransactionTracker {
    /// Adds what the transaction index says of the batches to come.
    pub fn add_aborted(&mut self, entries: impl IntoIterator<Item = AbortedEntry>) {
        let mut all: BTreeMap<(i64, i64), AbortedEntry> = self
            .coming
            .drain(..)
            .map(|e| ((e.first_offset, e.producer_id), e))
            .collect();
        all.extend(
            entries
                .into_iter()
                .map(|e| ((e.first_offset, e.producer_id), e)),
        );
        self.coming = all.into_values().collect();
    }

    pub fn take_kept(&mut self) -> Vec<AbortedEntry> {
        std::mem::take(&mut self.kept)
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(entry) = self.coming.pop_front_if(|e| e.first_offset <= offset) {
            self.aborted.entry(entry.producer_id).or_insert(Aborted {
                entry,
                seen_batch: false,
            });
        }
    }

    /// Follows a batch; true if it can go: a batch of an aborted transaction, or a marker of a transaction that has no
    /// batch left.
    pub fn follow(&mut self, batch: &Batch) -> Result<bool, String> {
        let header = &batch.header;
        self.begin_up_to(header.last_offset());
        if header.is_control() {
            if header.record_count == 0 {
                return Ok(true); // emptied before: the transaction is long gone
            }
            let marker = first_marker(&Entry::V2(batch.clone())).map_err(|e| e.to_string())?;
            return Ok(match marker.map(|(m, _)| m.marker) {
                Some(Marker::Abort) => match self.aborted.remove(&header.producer_id) {
                    Some(txn) if txn.seen_batch => {
                        self.kept.push(txn.entry);
                        false
                    }
                    _ => true,
                },
                Some(Marker::Commit) => !self.committed.remove(&header.producer_id),
                None => false,
            });
        }
        if !header.is_transactional() {
            return Ok(false);
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some(txn) => {
                txn.seen_batch = true;
                Ok(true)
            }
            None => {
                self.committed.insert(header.producer_id);
                Ok(false)
            }
        }
    }
}
