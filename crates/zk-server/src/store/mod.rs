//! What is on disk: ZooKeeper's own snapshots and transaction logs, read and written.

pub mod data_dir;
pub mod log_reader;
pub mod recovery;
pub mod snapshot_reader;
pub mod snapshot_writer;
pub mod txn_log;

use std::io;
use std::path::PathBuf;

/// First bytes of a log, a snapshot; the format's version.
pub(crate) const LOG_MAGIC: i32 = 0x5A4B_4C47;
pub(crate) const SNAPSHOT_MAGIC: i32 = 0x5A4B_534E;
pub(crate) const FORMAT_VERSION: i32 = 2;
/// After every record of a log.
pub(crate) const RECORD_END: u8 = b'B';
pub(crate) const LOG_HEADER_LEN: u64 = 16;

/// What keeps a data directory from being used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "can't {action} {path}: {source}. Check that the directory exists, belongs to this user and has space."
    )]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{path} is in use by another process. Stop it, or give this server a dataDir of its own."
    )]
    Locked { path: PathBuf },
    #[error(
        "transaction log {path} is damaged at byte {offset}: {reason}, and more transactions follow. Nothing was changed. Restore the file from a backup, or move it and all later log files away to give up what they hold from there on."
    )]
    CorruptLog {
        path: PathBuf,
        offset: u64,
        reason: String,
    },
    #[error(
        "{path} is not a transaction log: {reason}. Nothing was changed. Restore it from a backup or move it away."
    )]
    NotALog { path: PathBuf, reason: String },
    #[error("{path} is not a valid snapshot: {reason}")]
    BadSnapshot { path: PathBuf, reason: String },
    #[error(
        "no snapshot in {path} can be read ({tried} tried, the newest: {newest}). Nothing was changed. Restore one from a backup."
    )]
    NoValidSnapshot {
        path: PathBuf,
        tried: usize,
        newest: String,
    },
    #[error(
        "{path} has no snapshot but there are transaction logs in {logs}: data may be missing. Nothing was changed. Restore the snapshot, or set snapshot.trust.empty=true if the logs are complete."
    )]
    LogsWithoutSnapshot { path: PathBuf, logs: PathBuf },
    #[error(
        "{found} lies in {path}, where only {wanted} belong. Move it to the right directory (dataDir holds snapshots, dataLogDir logs)."
    )]
    Misplaced {
        found: String,
        path: PathBuf,
        wanted: &'static str,
    },
}

pub(crate) fn io_error(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.into();
    move |source| StoreError::Io {
        action,
        path,
        source,
    }
}
