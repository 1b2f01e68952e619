//! What moves between directories have left, at a start: copies that are not complete, and logs that are in two
//! directories because the process ended between the two renames of a swap.

use super::create::unique;
use super::load::DirFacts;
use super::loader::Job;
use super::{Doomed, LoadControl, LogManager};
use crate::config::LogConfig;
use crate::dirs::LogDir;
use crate::error::{LogError, StartError};
use crate::naming::{TopicPartition, delete_dir_name, stray_dir_name};
use crate::partition::{LogEnvironment, OpenOptions, PartitionLog};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A copy to be opened, and what the checkpoints of its directory say of it.
#[derive(Debug)]
pub(super) struct FoundCopy {
    job: Job,
    clean: bool,
    recovery_point: i64,
    high_watermark: i64,
    log_start: i64,
}

impl FoundCopy {
    fn new(job: Job, facts: &[DirFacts]) -> Self {
        let nothing = DirFacts::default();
        let facts = facts.get(job.dir).unwrap_or(&nothing);
        let noted = |offsets: &HashMap<TopicPartition, i64>| {
            offsets.get(&job.partition).copied().unwrap_or(0).max(0)
        };
        Self {
            clean: facts.clean,
            recovery_point: noted(&facts.recovery_points),
            high_watermark: noted(&facts.high_watermarks),
            log_start: noted(&facts.log_starts),
            job,
        }
    }

    fn partition(&self) -> &TopicPartition {
        &self.job.partition
    }

    pub(super) fn place(&self) -> (TopicPartition, usize) {
        (self.job.partition.clone(), self.job.dir)
    }

    fn open(
        &self,
        dir: &LogDir,
        config: Arc<LogConfig>,
        env: &Arc<LogEnvironment>,
        now_ms: i64,
    ) -> Result<PartitionLog, LogError> {
        let options = OpenOptions {
            config,
            env: env.clone(),
            recovery_point: self.recovery_point,
            log_start: self.log_start,
            clean: self.clean,
            fresh: false,
            offline: dir.offline.clone(),
            now_ms,
        };
        let partition = self.job.partition.clone();
        let mut log = PartitionLog::open(self.job.path.clone(), partition, options)?;
        log.update_high_watermark(self.high_watermark);
        Ok(log)
    }
}

/// What a start knows before any log is loaded.
pub(super) struct Start<'a> {
    pub dirs: &'a [LogDir],
    pub facts: &'a [DirFacts],
    pub env: &'a Arc<LogEnvironment>,
    pub default_config: &'a Arc<LogConfig>,
    pub now_ms: i64,
}

impl Start<'_> {
    /// Of each log that is in several directories the one that has all is kept, by the last epoch and then the end, as
    /// leaders are chosen. The others go; one that holds what the kept one has not is put aside for good (`-stray`). Logs of
    /// different topics of one name, or one that cannot be opened, are left to the operator.
    pub(super) fn settle(
        &self,
        jobs: Vec<Job>,
        doomed: &mut Vec<Doomed>,
    ) -> Result<Vec<Job>, StartError> {
        let mut seen = HashSet::with_capacity(jobs.len());
        let twice: HashSet<TopicPartition> = jobs
            .iter()
            .filter(|job| !seen.insert(&job.partition))
            .map(|job| job.partition.clone())
            .collect();
        if twice.is_empty() {
            return Ok(jobs);
        }
        let mut several: HashMap<TopicPartition, Vec<Job>> = HashMap::new();
        let mut settled = Vec::with_capacity(jobs.len());
        for job in jobs {
            match twice.contains(&job.partition) {
                true => several.entry(job.partition.clone()).or_default().push(job),
                false => settled.push(job),
            }
        }
        for (_, jobs) in several {
            settled.extend(self.choose(jobs, doomed)?);
        }
        Ok(settled)
    }

    fn choose(&self, jobs: Vec<Job>, doomed: &mut Vec<Doomed>) -> Result<Option<Job>, StartError> {
        let paths: Vec<PathBuf> = jobs.iter().map(|job| job.path.clone()).collect();
        let undecided = |job: Job| {
            let other = paths.iter().find(|path| **path != job.path);
            StartError::Duplicate {
                partition: job.partition.to_string(),
                left: other.cloned().unwrap_or_default(),
                right: job.path,
            }
        };
        let mut best: Option<(FoundCopy, PartitionLog)> = None;
        for job in jobs {
            let found = FoundCopy::new(job, self.facts);
            let Some(dir) = self.dirs.get(found.job.dir) else {
                continue;
            };
            let config = self.default_config.clone();
            let log = match found.open(dir, config, self.env, self.now_ms) {
                Ok(log) => log,
                Err(error) => {
                    tracing::error!("{error}");
                    return Err(undecided(found.job));
                }
            };
            best = Some(match best {
                None => (found, log),
                Some((_, other)) if are_of_different_topics(&log, &other) => {
                    return Err(undecided(found.job));
                }
                Some(other) => {
                    let (kept, gone) = match is_ahead(&log, &other.1) {
                        true => ((found, log), other),
                        false => (other, (found, log)),
                    };
                    self.put_aside(&kept, &gone, doomed)?;
                    kept
                }
            });
        }
        Ok(best.map(|(found, _)| found.job))
    }

    fn put_aside(
        &self,
        (kept, log): &(FoundCopy, PartitionLog),
        (gone, other): &(FoundCopy, PartitionLog),
        doomed: &mut Vec<Doomed>,
    ) -> Result<(), StartError> {
        let (partition, path) = (&gone.job.partition, &gone.job.path);
        let has_all = contains(log, other);
        let name = match has_all {
            true => delete_dir_name(partition, &unique()),
            false => stray_dir_name(partition, &unique()),
        };
        let to = path.with_file_name(name);
        std::fs::rename(path, &to).map_err(|e| LogError::io("rename", path, e))?;
        if let Some(dir) = self.dirs.get(gone.job.dir) {
            dir.renamed.store(true, Relaxed);
        }
        let kept = kept.job.path.display();
        if has_all {
            tracing::warn!(
                "{partition} was in two directories; {kept} has all that {} has, which is deleted",
                path.display()
            );
            let at_ms = self
                .now_ms
                .saturating_add(self.default_config.file_delete_delay_ms);
            doomed.push(Doomed { path: to, at_ms });
        } else {
            tracing::warn!(
                "{partition} was in two directories; {kept} has the later records and is used. {} has others: it is kept as {} and \
                 not used; look whether anything in it is wanted, and delete it",
                path.display(),
                to.display()
            );
        }
        Ok(())
    }

    /// The copies. One that lies beside what it is to be a copy of, which no broker makes, is left alone. One without a log
    /// though no directory is missing is the log: a power cut kept the second of a swap's renames alone, or a disk was lost.
    pub(super) fn copies(
        &self,
        futures: Vec<Job>,
        jobs: &mut Vec<Job>,
        doomed: &mut Vec<Doomed>,
    ) -> Result<Vec<FoundCopy>, StartError> {
        if futures.is_empty() {
            return Ok(Vec::new());
        }
        let live: HashMap<TopicPartition, usize> = jobs
            .iter()
            .map(|job| (job.partition.clone(), job.dir))
            .collect();
        let complete = self.dirs.iter().all(|dir| !dir.is_offline());
        let (beside, futures): (Vec<Job>, Vec<Job>) = futures
            .into_iter()
            .partition(|job| live.get(&job.partition) == Some(&job.dir));
        for job in beside {
            tracing::warn!(
                "{} is a copy of {} in the same directory; it is left alone",
                job.path.display(),
                job.partition
            );
        }
        let mut found = Vec::new();
        for mut job in self.settle(futures, doomed)? {
            if !complete || live.contains_key(&job.partition) {
                found.push(FoundCopy::new(job, self.facts));
                continue;
            }
            let to = job.path.with_file_name(job.partition.to_string());
            std::fs::rename(&job.path, &to).map_err(|e| LogError::io("rename", &job.path, e))?;
            tracing::warn!(
                "the copy of {} in {} is all that there is of it, and is used",
                job.partition,
                job.path.display()
            );
            if let Some(dir) = self.dirs.get(job.dir) {
                dir.renamed.store(true, Relaxed);
            }
            job.path = to;
            jobs.push(job);
        }
        Ok(found)
    }
}

/// Later records, or more of the same epoch, or else fewer that were deleted.
fn is_ahead(log: &PartitionLog, other: &PartitionLog) -> bool {
    let place = |log: &PartitionLog| {
        (
            log.latest_epoch().unwrap_or(-1),
            log.log_end_offset(),
            log.log_start_offset(),
        )
    };
    place(log) > place(other)
}

fn are_of_different_topics(log: &PartitionLog, other: &PartitionLog) -> bool {
    match (log.topic_id(), other.topic_id()) {
        (Some(id), Some(other)) => id != other,
        _ => false,
    }
}

/// All records of the other one are in it, but for those that retention took.
fn contains(log: &PartitionLog, other: &PartitionLog) -> bool {
    if other.log_end_offset() > log.log_end_offset() {
        return false;
    }
    match other.latest_epoch() {
        _ if other.log_end_offset() == other.log_start_offset() => true,
        None => log.latest_epoch().is_none(),
        Some(epoch) => {
            let end = log.end_offset_for_epoch(epoch);
            end.epoch == epoch && end.end_offset >= other.log_end_offset()
        }
    }
}

impl LogManager {
    /// Opens the copies that moves had made so far; the moves are gone on with when their partitions have their roles. False
    /// if it was told to stop before.
    pub(super) fn load_copies(
        &self,
        copies: Vec<FoundCopy>,
        topic_config: &(dyn Fn(&str) -> Arc<LogConfig> + Sync),
        now_ms: i64,
        control: &LoadControl<'_>,
    ) -> bool {
        for found in copies {
            if control.stop.load(Relaxed) {
                return false;
            }
            let Some(dir) = self.dirs.get(found.job.dir) else {
                continue;
            };
            let partition = found.partition();
            let configs_before = self.config_changes.load(SeqCst);
            let opened = match dir.is_offline() {
                true => Err(LogError::Offline {
                    dir: dir.path.clone(),
                }),
                false => {
                    let config = topic_config(&partition.topic);
                    found.open(dir, config, &self.env, now_ms)
                }
            };
            let _changing = self.changing.lock();
            let is_awaited = self.awaited.lock().remove(partition).is_some();
            match opened {
                Ok(mut log) if is_awaited => {
                    log.raise_recovery_point(found.recovery_point);
                    let log = Arc::new(Mutex::new(log));
                    self.hold_future(partition, log.clone(), found.job.dir);
                    if self.config_changes.load(SeqCst) != configs_before {
                        log.lock().update_config(topic_config(&partition.topic));
                    }
                }
                // The partition was deleted meanwhile.
                Ok(_) => self.drop_copy(&found.job, now_ms),
                Err(error) => {
                    let current = self.get(partition);
                    if let Some(current) = &current {
                        current.lock().set_moving(false);
                    }
                    if error.takes_dir_offline() {
                        self.handle_error(&error);
                    } else if current.is_some() && !matches!(error, LogError::Offline { .. }) {
                        tracing::error!(
                            "{error}; the copy is deleted. {partition} stays where it is until its move is ordered again"
                        );
                        self.drop_copy(&found.job, now_ms);
                    } else {
                        tracing::error!("{error}; the copy of {partition} is left alone");
                    }
                }
            }
        }
        true
    }

    pub(super) fn awaits_copy_in(&self, dir: usize) -> bool {
        self.awaited.lock().values().any(|at| *at == dir)
    }

    fn drop_copy(&self, job: &Job, now_ms: i64) {
        let to = job
            .path
            .with_file_name(delete_dir_name(&job.partition, &unique()));
        match std::fs::rename(&job.path, &to) {
            Ok(()) => {
                let delay = self.default_config.lock().file_delete_delay_ms;
                let at_ms = now_ms.saturating_add(delay);
                self.doomed.lock().push(Doomed { path: to, at_ms });
            }
            Err(e) => tracing::error!("{}", LogError::io("rename", &job.path, e)),
        }
    }
}
