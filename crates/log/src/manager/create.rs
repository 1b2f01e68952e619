//! Making and deleting logs.

use super::load::remove_tree;
use super::{Doomed, Held, LogManager, SharedLog};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::naming::{TopicPartition, delete_dir_name};
use crate::partition::{OpenOptions, PartitionLog};
use gracchus_kafka_proto::Uuid;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl LogManager {
    /// The log, made in the directory with the fewest logs if it does not exist. Refused with a directory offline
    /// unless `is_new` (controller.md B7).
    pub fn get_or_create(
        &self,
        partition: &TopicPartition,
        is_new: bool,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<SharedLog, LogError> {
        let topic_id = topic_id.filter(|id| !id.is_zero());
        let _changing = self.changing.lock();
        self.refuse_pending(partition)?;
        if let Some(log) = self.get(partition) {
            if let Some(id) = topic_id {
                log.lock().assign_topic_id(id)?;
            }
            return Ok(log);
        }
        if !is_new && let Some(dir) = self.dirs.iter().find(|d| d.is_offline()) {
            return Err(LogError::Offline {
                dir: dir.path.clone(),
            });
        }
        let mut failed = LogError::NoDirOnline;
        for at in self.places_for(partition)? {
            self.forget_former(at, partition);
            let name = partition.to_string();
            match self.create_in(at, &name, partition, topic_id, &config, now_ms) {
                Ok(log) => {
                    let log = Arc::new(Mutex::new(log));
                    let held = Held {
                        log: log.clone(),
                        dir: at,
                    };
                    self.logs.write().insert(partition.clone(), held);
                    self.preferred.lock().remove(partition);
                    return Ok(log);
                }
                Err(error) => {
                    tracing::warn!("cannot make the log of {partition}: {error}");
                    self.handle_error(&error);
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    pub(super) fn refuse_pending(&self, partition: &TopicPartition) -> Result<(), LogError> {
        match self.pending.get(partition) {
            Some(log) => Err(LogError::NotLoaded { dir: log.path }),
            None => Ok(()),
        }
    }

    /// The directories that work, the one with the fewest logs first.
    pub(super) fn by_emptiness(&self) -> Vec<usize> {
        let mut counts = vec![0; self.dirs.len()];
        self.pending.count(&mut counts);
        for held in self.logs.read().values() {
            if let Some(n) = counts.get_mut(held.dir) {
                *n += 1;
            }
        }
        let mut order: Vec<usize> = (0..self.dirs.len())
            .filter(|at| self.dirs.get(*at).is_some_and(|d| !d.is_offline()))
            .collect();
        order.sort_by_key(|at| counts.get(*at).copied().unwrap_or(0));
        order
    }

    pub(super) fn create_in(
        &self,
        at: usize,
        name: &str,
        partition: &TopicPartition,
        topic_id: Option<Uuid>,
        config: &Arc<LogConfig>,
        now_ms: i64,
    ) -> Result<PartitionLog, LogError> {
        let dir = self.dirs.get(at).ok_or(LogError::NoDirOnline)?;
        let path = dir.path.join(name);
        let made = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(LogError::io("create", &path, e)),
        };
        let options = OpenOptions {
            config: config.clone(),
            env: self.env.clone(),
            clean: made,
            fresh: made,
            offline: dir.offline.clone(),
            now_ms,
            ..OpenOptions::default()
        };
        let opened = PartitionLog::open(&path, partition.clone(), options).and_then(|mut log| {
            if let Some(id) = topic_id {
                log.assign_topic_id(id)?;
            }
            Ok(log)
        });
        if opened.is_err() && made {
            // Nothing was in it: a disk that is full must not keep half-made logs.
            let _ = remove_tree(&path);
        }
        opened
    }

    /// Renames the log's directory to `-delete`, and that of its copy, if it is being moved; their files go after
    /// `file.delete.delay.ms`. False if there is none.
    pub fn delete(&self, partition: &TopicPartition, now_ms: i64) -> Result<bool, LogError> {
        let _changing = self.changing.lock();
        self.refuse_pending(partition)?;
        self.awaited.lock().remove(partition);
        let copied = self.discard_future(partition, now_ms);
        self.preferred.lock().remove(partition);
        let held = self.logs.write().remove(partition);
        let Some(held) = held else {
            return copied;
        };
        self.put_aside(&held, partition, now_ms)?;
        self.forget_checkpoints(held.dir, partition);
        tracing::info!("the log of {partition} is deleted; its files go in a while");
        copied.map(|_| true)
    }

    /// Renames the directory of a log that is out of the map already.
    pub(super) fn put_aside(
        &self,
        held: &Held,
        partition: &TopicPartition,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let mut log = held.log.lock();
        let from = log.dir().to_path_buf();
        let to = from.with_file_name(delete_dir_name(partition, &unique()));
        log.mark_deleted();
        if let Err(e) = std::fs::rename(&from, &to) {
            let error = LogError::io("rename", &from, e);
            drop(log);
            self.handle_error(&error);
            return Err(error);
        }
        if let Some(dir) = self.dirs.get(held.dir) {
            dir.renamed.store(true, Relaxed);
        }
        let at_ms = now_ms.saturating_add(log.config().file_delete_delay_ms);
        self.doomed.lock().push(Doomed { path: to, at_ms });
        Ok(())
    }

    /// Removes directories renamed by `delete` whose time has come.
    pub(super) fn remove_doomed(&self, now_ms: i64) -> usize {
        let due: Vec<Doomed> = {
            let mut doomed = self.doomed.lock();
            let (due, later) = doomed.drain(..).partition(|d| d.at_ms <= now_ms);
            *doomed = later;
            due
        };
        let mut removed = 0;
        for Doomed { path, .. } in due {
            match remove_tree(&path) {
                Ok(()) => removed += 1,
                Err(error) => tracing::warn!("{error}; it is tried again at the next start"),
            }
        }
        removed
    }
}

/// 32 hex digits that do not come twice.
pub(super) fn unique() -> String {
    use std::hash::{BuildHasher, RandomState};
    let (a, b) = (RandomState::new(), RandomState::new());
    format!("{:016x}{:016x}", a.hash_one(1u8), b.hash_one(2u8))
}
