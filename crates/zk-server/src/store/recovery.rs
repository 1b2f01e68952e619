//! From what is on disk to the tree: the newest valid snapshot, then the log.

use super::data_dir::{DataDir, Named};
use super::log_reader::{LogEnd, LogReader, Next};
use super::{StoreError, snapshot_reader, snapshot_writer};
use crate::tree::DataTree;
use parking_lot::RwLock;
use std::path::PathBuf;

/// ZooKeeper gives up after as many.
const MAX_SNAPSHOTS_TRIED: usize = 100;

/// The state to go on from.
#[derive(Debug)]
pub struct Recovered {
    pub tree: DataTree,
    /// The log to go on writing to: its path, the end of its last transaction and how many it holds.
    pub log: Option<(PathBuf, u64, u64)>,
    pub snapshot_zxid: i64,
    pub replayed: u64,
}

/// Loads a data directory. A new one gets its first snapshot, without which ZooKeeper would not start on it.
pub fn recover(dir: &DataDir, trust_empty: bool) -> Result<Recovered, StoreError> {
    let logs = dir.logs()?;
    let Some(mut tree) = load_snapshot(dir, &dir.snapshots()?)? else {
        let empty = logs
            .iter()
            .all(|log| std::fs::metadata(&log.path).is_ok_and(|found| found.len() == 0));
        if !empty && !trust_empty {
            return Err(StoreError::LogsWithoutSnapshot {
                path: dir.snap_dir.clone(),
                logs: dir.log_dir.clone(),
            });
        }
        let tree = RwLock::new(DataTree::new());
        snapshot_writer::write(&tree, &dir.snap_dir)?;
        let mut tree = tree.into_inner();
        let (log, replayed) = replay(&mut tree, &logs)?;
        tree.set_up_quotas();
        return Ok(Recovered {
            tree,
            log,
            snapshot_zxid: 0,
            replayed,
        });
    };
    let snapshot_zxid = tree.last_zxid();
    let (log, replayed) = replay(&mut tree, &logs)?;
    tree.drop_unused_acls();
    tree.set_up_quotas();
    Ok(Recovered {
        tree,
        log,
        snapshot_zxid,
        replayed,
    })
}

fn load_snapshot(dir: &DataDir, snapshots: &[Named]) -> Result<Option<DataTree>, StoreError> {
    let mut newest_error = None;
    for snapshot in snapshots.iter().rev().take(MAX_SNAPSHOTS_TRIED) {
        match snapshot_reader::read(&snapshot.path, snapshot.zxid) {
            Ok(tree) => return Ok(Some(tree)),
            Err(error) => {
                tracing::warn!("{error}; an older snapshot and more of the log are used instead");
                newest_error.get_or_insert(error);
            }
        }
    }
    match newest_error {
        None => Ok(None),
        Some(error) => Err(StoreError::NoValidSnapshot {
            path: dir.snap_dir.clone(),
            tried: snapshots.len().min(MAX_SNAPSHOTS_TRIED),
            newest: error.to_string(),
        }),
    }
}

type LogToResume = Option<(PathBuf, u64, u64)>;

/// Applies what the logs hold beyond the tree's zxid.
fn replay(tree: &mut DataTree, logs: &[Named]) -> Result<(LogToResume, u64), StoreError> {
    let from = tree.last_zxid();
    // The newest log that starts no later than the first transaction wanted, and all after it.
    let first = logs
        .iter()
        .rposition(|log| log.zxid <= from.saturating_add(1))
        .unwrap_or(0);
    let needed = logs.get(first..).unwrap_or_default();
    let mut replayed = 0;
    let mut resume = None;
    for (index, log) in needed.iter().enumerate() {
        let next = needed.get(index + 1);
        let Some(mut reader) = LogReader::open(&log.path)? else {
            tracing::warn!(
                "transaction log {} ends before its header: it holds nothing and is removed",
                log.path.display()
            );
            if next.is_none() {
                let _ = std::fs::remove_file(&log.path);
            }
            continue;
        };
        let mut txns = 0;
        let end = loop {
            match reader.next_txn()? {
                Next::Txn(header, txn) => {
                    txns += 1;
                    if header.zxid <= from {
                        continue;
                    }
                    warn_of_gap(tree.last_zxid(), header.zxid, &log.path);
                    tree.apply(&header, txn, &mut |_| {});
                    replayed += 1;
                }
                Next::End(end) => break end,
            }
        };
        check_end(log, next, &end, tree.last_zxid())?;
        resume = next.is_none().then(|| (log.path.clone(), end.offset, txns));
    }
    Ok((resume, replayed))
}

/// A jump is a new epoch of an ensemble, or a part of the log that is missing.
fn warn_of_gap(last: i64, next: i64, path: &std::path::Path) {
    if next > last.saturating_add(1) && next >> 32 == last >> 32 {
        tracing::warn!(
            "transactions 0x{:x} to 0x{:x} are in no log: {} goes on with 0x{next:x}; what they changed is lost unless an older log file was moved away",
            last + 1,
            next - 1,
            path.display()
        );
    }
}

fn check_end(
    log: &Named,
    next: Option<&Named>,
    end: &LogEnd,
    last_zxid: i64,
) -> Result<(), StoreError> {
    let Some(damage) = &end.damage else {
        return Ok(());
    };
    // After a crash ZooKeeper leaves the torn tail and goes on in a new file.
    let continued = next.is_none_or(|next| next.zxid <= last_zxid.saturating_add(1));
    if !damage.torn || !continued {
        return Err(StoreError::CorruptLog {
            path: log.path.clone(),
            offset: end.offset,
            reason: damage.reason.clone(),
        });
    }
    tracing::warn!(
        "transaction log {} ends in a write that a crash cut short (at byte {}: {}); it was never acknowledged and is dropped",
        log.path.display(),
        end.offset,
        damage.reason
    );
    Ok(())
}
