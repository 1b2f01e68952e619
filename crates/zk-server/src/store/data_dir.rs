//! The directories: made, locked, listed, purged.

use super::{StoreError, io_error};
use crate::config::ZkConfig;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The locked directories of a running server. The lock goes with the process.
#[derive(Debug)]
pub struct DataDir {
    pub snap_dir: PathBuf,
    pub log_dir: PathBuf,
    _locks: Vec<File>,
}

/// A snapshot or log by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub zxid: i64,
    pub path: PathBuf,
}

impl DataDir {
    /// Makes the directories if need be and locks them against a second process.
    pub fn open(config: &ZkConfig) -> Result<Self, StoreError> {
        let (snap_dir, log_dir) = (config.snap_dir(), config.log_dir());
        let mut locks = vec![prepare(&snap_dir)?];
        if log_dir != snap_dir {
            locks.push(prepare(&log_dir)?);
            let misplaced = |dir: &Path, prefix, wanted| match list(dir, prefix)?.first() {
                Some(file) => Err(StoreError::Misplaced {
                    found: file
                        .path
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                    path: dir.into(),
                    wanted,
                }),
                None => Ok(()),
            };
            misplaced(&snap_dir, "log.", "snapshots")?;
            misplaced(&log_dir, "snapshot.", "transaction logs")?;
        }
        let dir = DataDir {
            snap_dir,
            log_dir,
            _locks: locks,
        };
        dir.remove_unfinished();
        Ok(dir)
    }

    /// Snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<Named>, StoreError> {
        list(&self.snap_dir, "snapshot.")
    }

    /// Logs, oldest first.
    pub fn logs(&self) -> Result<Vec<Named>, StoreError> {
        list(&self.log_dir, "log.")
    }

    /// Snapshots that a crash left half written.
    fn remove_unfinished(&self) {
        let Ok(entries) = fs::read_dir(&self.snap_dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(UNFINISHED_PREFIX) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes snapshots beyond the newest `keep`, and the logs that none of the kept ones needs.
    pub fn purge(&self, keep: usize) -> Result<Vec<PathBuf>, StoreError> {
        let snapshots = self.snapshots()?;
        let Some(oldest_kept) = snapshots
            .len()
            .checked_sub(keep)
            .and_then(|at| snapshots.get(at))
        else {
            return Ok(Vec::new());
        };
        let logs = self.logs()?;
        // The log that holds the transaction after the snapshot is the newest one that starts no later.
        let first_needed = logs
            .iter()
            .rposition(|log| log.zxid <= oldest_kept.zxid.saturating_add(1))
            .unwrap_or(0);
        let old_snapshots = snapshots
            .iter()
            .filter(|snapshot| snapshot.zxid < oldest_kept.zxid);
        let mut removed = Vec::new();
        for file in old_snapshots.chain(logs.iter().take(first_needed)) {
            fs::remove_file(&file.path).map_err(io_error("remove", &file.path))?;
            removed.push(file.path.clone());
        }
        let kept_from = logs.get(first_needed).map_or(0, |log| log.zxid);
        for path in self.cut_tails(kept_from)? {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
            removed.push(path);
        }
        Ok(removed)
    }

    /// What was cut off logs that start before `zxid`.
    fn cut_tails(&self, zxid: i64) -> Result<Vec<PathBuf>, StoreError> {
        let is_older = |name: &str| {
            let log = name.strip_prefix(CUT_PREFIX)?.split('-').next()?;
            let first = u64::from_str_radix(log.strip_prefix("log.")?, 16).ok()?;
            Some((first as i64) < zxid)
        };
        let entries =
            fs::read_dir(&self.log_dir).map_err(io_error("list the directory", &self.log_dir))?;
        Ok(entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().and_then(is_older) == Some(true))
            .map(|entry| entry.path())
            .collect())
    }
}

/// Before the name of a log in the name of the file that keeps what was cut off it.
pub(crate) const CUT_PREFIX: &str = "cut-from-";

/// Before the zxid of a snapshot while it is written: neither ZooKeeper nor we read such a file.
pub(crate) const UNFINISHED_PREFIX: &str = "unfinished-snapshot-";

fn prepare(dir: &Path) -> Result<File, StoreError> {
    fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
    let handle = File::open(dir).map_err(io_error("open the directory", dir))?;
    match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Locked { path: dir.into() }),
        Err(error) => return Err(io_error("lock the directory", dir)(error.into())),
    }
    rustix::fs::access(
        dir,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )
    .map_err(|error| io_error("write to the directory", dir)(io::Error::from(error)))?;
    Ok(handle)
}

/// Files named `prefix` + hex zxid (snapshots may end in .gz or .snappy), by rising zxid.
fn list(dir: &Path, prefix: &str) -> Result<Vec<Named>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list the directory", dir))? {
        let entry = entry.map_err(io_error("list the directory", dir))?;
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else {
            continue;
        };
        let digits = rest
            .strip_suffix(".gz")
            .or_else(|| rest.strip_suffix(".snappy"))
            .unwrap_or(rest);
        if let Ok(zxid) = u64::from_str_radix(digits, 16) {
            found.push(Named {
                zxid: zxid as i64,
                path: entry.path(),
            });
        }
    }
    found.sort_by(|a, b| (a.zxid, &a.path).cmp(&(b.zxid, &b.path)));
    Ok(found)
}

/// Makes a rename or a new file in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused_and_the_purge_keeps_what_is_needed() {
        let tmp = tempfile::tempdir().unwrap();
        let config = ZkConfig::new(tmp.path());
        let dir = DataDir::open(&config).unwrap();
        assert!(matches!(
            DataDir::open(&config),
            Err(StoreError::Locked { .. })
        ));
        for name in [
            "snapshot.0",
            "snapshot.a",
            "snapshot.20",
            "snapshot.30",
            "log.1",
            "log.8",
            "log.b",
            "log.21",
            "log.junk",
            "cut-from-log.8-at-400",
            "cut-from-log.21-at-400",
        ] {
            fs::write(dir.snap_dir.join(name), b"").unwrap();
        }
        dir.purge(3).unwrap();
        let names = |files: Vec<Named>| {
            files
                .iter()
                .map(|file| format!("{:x}", file.zxid))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names(dir.snapshots().unwrap()), "a 20 30");
        // Snapshot a needs log b alone: it starts with the next transaction.
        assert_eq!(names(dir.logs().unwrap()), "b 21");
        assert!(!dir.log_dir.join("cut-from-log.8-at-400").exists());
        assert!(dir.log_dir.join("cut-from-log.21-at-400").exists());
        assert!(dir.purge(3).unwrap().is_empty());
        drop(dir);
        DataDir::open(&config).unwrap();
    }
}
