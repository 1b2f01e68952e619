//! Groups and offsets rebuilt from a partition of `__consumer_offsets`, record by record in the log's order.

use crate::offsets::{Committed, GroupOffsets};
use crate::record::{self, Key, StoredGroup};
use crate::request::TopicPartition;
use bytes::Bytes;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Gathers the records of one partition. Later records of a key replace earlier ones, tombstones remove them,
/// transactional offsets wait for their marker.
#[derive(Debug, Default)]
pub struct PartitionLoader {
    partition: i32,
    groups: IndexMap<String, StoredGroup>,
    offsets: IndexMap<String, GroupOffsets>,
    /// By producer, then by group and partition.
    open: HashMap<i64, IndexMap<(String, TopicPartition), Committed>>,
    records: u64,
    skipped: u64,
}

/// What a partition's log holds, to be handed to the coordinator.
#[derive(Debug, Default, PartialEq)]
pub struct LoadedPartition {
    pub(crate) groups: IndexMap<String, StoredGroup>,
    pub(crate) offsets: IndexMap<String, GroupOffsets>,
    /// Records read, and of those the ones that could not be understood.
    pub records: u64,
    pub skipped: u64,
}

impl LoadedPartition {
    /// Whether there is neither a group nor an offset.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.offsets.is_empty()
    }
}

impl PartitionLoader {
    /// `partition` is only for log lines.
    pub fn new(partition: i32) -> Self {
        PartitionLoader {
            partition,
            ..Default::default()
        }
    }

    /// The next record. `batch_offset` is the offset of its batch's first record, `transaction` the producer id if
    /// the batch is transactional. A record that cannot be read is skipped with a warning: better one lost offset
    /// than a coordinator that does not start.
    pub fn record(
        &mut self,
        batch_offset: i64,
        key: Option<Bytes>,
        value: Option<Bytes>,
        transaction: Option<i64>,
    ) {
        self.records += 1;
        let outcome = match key {
            Some(key) => self.apply(batch_offset, &key, value, transaction),
            None => Err("it has no key".to_owned()),
        };
        if let Err(reason) = outcome {
            self.skipped += 1;
            tracing::warn!(
                partition = %format_args!("__consumer_offsets-{}", self.partition),
                batch_offset,
                reason,
                "skipped a record while loading groups and offsets"
            );
        }
    }

    fn apply(
        &mut self,
        log_offset: i64,
        key: &Bytes,
        value: Option<Bytes>,
        transaction: Option<i64>,
    ) -> Result<(), String> {
        match record::read_key(key).map_err(|error| error.to_string())? {
            Key::Offset { group, partition } => {
                let committed = match value {
                    Some(value) => Some(Committed {
                        log_offset,
                        value: record::read_offset_value(&value)
                            .map_err(|error| format!("offset of group {group}: {error}"))?,
                    }),
                    None => None,
                };
                match (transaction, committed) {
                    (Some(producer), Some(committed)) => {
                        let staged = self.open.entry(producer).or_default();
                        staged.insert((group, partition), committed);
                    }
                    (Some(producer), None) => {
                        if let Some(staged) = self.open.get_mut(&producer) {
                            staged.shift_remove(&(group, partition));
                        }
                    }
                    (None, Some(committed)) => self
                        .offsets
                        .entry(group)
                        .or_default()
                        .insert_loaded(partition, committed),
                    (None, None) => {
                        if let Some(offsets) = self.offsets.get_mut(&group) {
                            offsets.remove(&[partition]);
                        }
                    }
                }
                Ok(())
            }
            Key::Group { group } => {
                match value {
                    Some(value) => {
                        let stored = record::read_group_value(&value)
                            .map_err(|error| format!("metadata of group {group}: {error}"))?;
                        self.groups.insert(group, stored);
                    }
                    None => {
                        self.groups.shift_remove(&group);
                    }
                }
                Ok(())
            }
            Key::Unknown { version } => Err(format!(
                "its key has version {version}, which belongs to a newer group protocol"
            )),
        }
    }

    /// A transaction's marker: what the producer committed counts now, or is dropped.
    pub fn end_transaction(&mut self, producer_id: i64, commit: bool) {
        let Some(staged) = self.open.remove(&producer_id) else {
            return;
        };
        if commit {
            for ((group, partition), committed) in staged {
                self.offsets
                    .entry(group)
                    .or_default()
                    .insert_loaded_if_newer(partition, committed);
            }
        }
    }

    /// All records have been fed.
    pub fn finish(mut self) -> LoadedPartition {
        for (producer_id, staged) in self.open {
            for ((group, partition), committed) in staged {
                self.offsets
                    .entry(group)
                    .or_default()
                    .insert_loaded_transactional(producer_id, partition, committed);
            }
        }
        self.offsets.retain(|_, offsets| !offsets.is_empty());
        LoadedPartition {
            groups: self.groups,
            offsets: self.offsets,
            records: self.records,
            skipped: self.skipped,
        }
    }
}
