//! Moving a log to another directory of the broker (KIP-113): the copy is a log of its own in
//! `<topic>-<p>.<unique>-future`, which takes the place of the current one once it holds the same.

use super::create::unique;
use super::{Held, LogManager, SharedLog};
use crate::config::LogConfig;
use crate::disk;
use crate::error::LogError;
use crate::naming::{TopicPartition, future_dir_name};
use crate::partition::PartitionLog;
use gracchus_kafka_proto::Uuid;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Partitions whose directory is remembered until they are made: more than a broker hosts.
const MOST_PREFERRED: usize = 100_000;

/// A log that was replaced by its copy.
#[derive(Debug)]
pub struct Swapped {
    /// The copy, which is the log from here on.
    pub log: SharedLog,
    partition: TopicPartition,
    from: usize,
    to: usize,
}

impl LogManager {
    /// The copy that is being made of a log.
    pub fn future(&self, partition: &TopicPartition) -> Option<SharedLog> {
        self.futures.read().get(partition).map(|h| h.log.clone())
    }

    pub fn futures(&self) -> Vec<(TopicPartition, SharedLog)> {
        let futures = self.futures.read();
        futures
            .iter()
            .map(|(p, h)| (p.clone(), h.log.clone()))
            .collect()
    }

    /// Whether a directory of `log.dirs` works; `None` if it is none of them.
    pub fn is_dir_online(&self, dir: &Path) -> Option<bool> {
        let at = self.place(dir)?;
        self.dirs.get(at).map(|d| !d.is_offline())
    }

    /// Clients name a directory as they were told it: by its absolute path.
    fn place(&self, dir: &Path) -> Option<usize> {
        self.dirs
            .iter()
            .position(|d| d.path == dir || std::path::absolute(&d.path).is_ok_and(|p| p == dir))
    }

    /// Where a log is, as [`Self::is_dir_online`] and [`Self::create_future`] take it.
    pub fn is_in(&self, log: &SharedLog, dir: &Path) -> bool {
        self.place_of(log) == self.place(dir)
    }

    pub(super) fn place_of(&self, log: &SharedLog) -> Option<usize> {
        let parent = log.lock().log_dir();
        self.dirs.iter().position(|d| d.path == parent)
    }

    /// Remembers where the partition's log, or its copy, is to be made. False if too many are remembered already.
    pub fn prefer_dir(&self, partition: &TopicPartition, dir: &Path) -> bool {
        let Some(at) = self.place(dir) else {
            return false;
        };
        let mut preferred = self.preferred.lock();
        if preferred.len() >= MOST_PREFERRED && !preferred.contains_key(partition) {
            return false;
        }
        preferred.insert(partition.clone(), at);
        true
    }

    /// Where a log is to be made: where it was asked for, or else where there are the fewest.
    pub(super) fn places_for(&self, partition: &TopicPartition) -> Result<Vec<usize>, LogError> {
        let Some(at) = self.preferred.lock().get(partition).copied() else {
            return Ok(self.by_emptiness());
        };
        match self.dirs.get(at) {
            Some(dir) if dir.is_offline() => Err(LogError::Offline {
                dir: dir.path.clone(),
            }),
            _ => Ok(vec![at]),
        }
    }

    /// Begins the copy of a log in another directory. Neither retention nor compaction touches the log from here on.
    /// Refused with a directory offline, which may hold another copy.
    pub fn create_future(
        &self,
        partition: &TopicPartition,
        dir: &Path,
        config: &Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<SharedLog, LogError> {
        let _changing = self.changing.lock();
        let current = self.get(partition);
        let (Some(current), Some(at)) = (current, self.place(dir)) else {
            return Err(LogError::NoDirOnline);
        };
        if let Some(offline) = self.dirs.iter().find(|d| d.is_offline()) {
            return Err(LogError::Offline {
                dir: offline.path.clone(),
            });
        }
        if let Some(future) = self.future(partition) {
            return Ok(future);
        }
        if self.awaited.lock().contains_key(partition) {
            return Err(LogError::NotLoaded {
                dir: dir.to_path_buf(),
            });
        }
        let Some(name) = future_dir_name(partition, &unique()) else {
            return Err(LogError::Conflict(format!(
                "{partition}: its topic's name leaves no room for the name of a copy's directory"
            )));
        };
        self.forget_former(at, partition);
        let topic_id: Option<Uuid> = current.lock().topic_id();
        let made = self.create_in(at, &name, partition, topic_id, config, now_ms);
        let log = Arc::new(Mutex::new(made.inspect_err(|error| {
            self.handle_error(error);
        })?));
        self.hold_future(partition, log.clone(), at);
        self.preferred.lock().remove(partition);
        Ok(log)
    }

    /// Takes a copy in; what it is a copy of is held still.
    pub(super) fn hold_future(&self, partition: &TopicPartition, log: SharedLog, dir: usize) {
        self.futures
            .write()
            .insert(partition.clone(), Held { log, dir });
        if let Some(current) = self.get(partition) {
            current.lock().set_moving(true);
        }
    }

    /// Gives a move up: the copy goes. False if there is none.
    pub fn delete_future(&self, partition: &TopicPartition, now_ms: i64) -> Result<bool, LogError> {
        let _changing = self.changing.lock();
        self.discard_future(partition, now_ms)
    }

    pub(super) fn discard_future(
        &self,
        partition: &TopicPartition,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let held = self.futures.write().remove(partition);
        let Some(held) = held else {
            return Ok(false);
        };
        if let Some(current) = self.get(partition) {
            current.lock().set_moving(false);
        }
        self.put_aside(&held, partition, now_ms)?;
        self.rewrite_checkpoints(held.dir);
        tracing::info!("the copy of {partition} is given up; its files go in a while");
        Ok(true)
    }

    /// A directory failed: copies in it are lost, and what they were copies of is held still no longer.
    pub(super) fn lose_moves(&self, at: usize) {
        let mut lost = Vec::new();
        self.futures.write().retain(|partition, held| {
            let stays = held.dir != at;
            if !stays {
                lost.push(partition.clone());
            }
            stays
        });
        for partition in lost {
            if let Some(current) = self.get(&partition) {
                current.lock().set_moving(false);
            }
        }
    }

    /// Puts the copy in the place of the log, if both end at the same offset. Nobody may append meanwhile. The checkpoints
    /// are left to [`Self::finish_swap`], which may wait for the device.
    ///
    /// The copy is renamed first and the old log put aside then, as Kafka does it: a crash in between leaves both under the
    /// topic's name, of which the next start keeps the one that has all.
    pub fn replace_with_future(
        &self,
        partition: &TopicPartition,
        now_ms: i64,
    ) -> Result<Swapped, LogError> {
        let _changing = self.changing.lock();
        let held = |logs: &parking_lot::RwLock<std::collections::HashMap<_, Held>>| {
            let logs = logs.read();
            logs.get(partition).map(|h| (h.log.clone(), h.dir))
        };
        let (Some((current, from)), Some((future, to))) = (held(&self.logs), held(&self.futures))
        else {
            return Err(LogError::Conflict(format!(
                "{partition}: it is not being moved any more"
            )));
        };
        let renamed = rename(&mut current.lock(), &mut future.lock(), partition);
        let renamed = renamed.inspect_err(|error| {
            self.handle_error(error);
        })?;
        if let Some(dir) = self.dirs.get(to) {
            // Were the new name lost in a power cut and the old log put aside, there would be none.
            disk::sync_dir(&dir.path).inspect_err(|error| {
                self.handle_error(error);
            })?;
        }
        let swapped = Held {
            log: future.clone(),
            dir: to,
        };
        self.futures.write().remove(partition);
        let old = self.logs.write().insert(partition.clone(), swapped);
        if let Some(old) = old {
            // An error takes the old directory offline, with which the log has nothing to do any more.
            if let Err(error) = self.put_aside(&old, partition, now_ms) {
                tracing::error!("the old log of {partition} stays behind: {error}");
            }
        }
        tracing::info!("the log of {partition} has moved to {}", renamed.display());
        Ok(Swapped {
            log: future,
            partition: partition.clone(),
            from,
            to,
        })
    }

    /// Takes the moved log's offsets to the checkpoints of its new directory, and out of the old one's.
    pub fn finish_swap(&self, swapped: &Swapped) {
        let _changing = self.changing.lock();
        let Swapped {
            partition,
            from,
            to,
            ..
        } = swapped;
        self.rewrite_checkpoints(*to);
        self.rewrite_checkpoints(*from);
        self.cleaner.relocate(&self.dirs, *from, *to, partition);
    }
}

/// Gives the copy the topic's name, if it holds what the log holds.
fn rename(
    current: &mut PartitionLog,
    future: &mut PartitionLog,
    partition: &TopicPartition,
) -> Result<PathBuf, LogError> {
    current.check_online()?;
    let (end, copied) = (current.log_end_offset(), future.log_end_offset());
    if end != copied {
        return Err(LogError::Conflict(format!(
            "{partition}: it ends at {end}, its copy at {copied}"
        )));
    }
    future.take_over_from(current)?;
    let path = future.dir().with_file_name(partition.to_string());
    std::fs::rename(future.dir(), &path).map_err(|e| LogError::io("rename", future.dir(), e))?;
    future.set_dir(&path);
    Ok(path)
}
