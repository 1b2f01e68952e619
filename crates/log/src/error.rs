//! What can go wrong, by boundary: the disk and the caller ([`LogError`]), an append ([`AppendError`]), a start
//! ([`StartError`]).

use gracchus_kafka_proto::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk refused. `op` is what was tried.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        op: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The device did not take what was written: it may be lost, and asking again would not tell.
    #[error("cannot flush {}: {source}", path.display())]
    Sync { path: PathBuf, source: io::Error },
    /// A file holds what it must not.
    #[error("{} is damaged: {detail}", path.display())]
    Corrupt { path: PathBuf, detail: String },
    #[error("offset {offset} is outside of the log, which holds {start} to {end}")]
    OffsetOutOfRange { offset: i64, start: i64, end: i64 },
    /// An earlier disk error put this log's directory offline.
    #[error("the log directory {} is offline after a disk error; fix the disk and restart the broker", dir.display())]
    Offline { dir: PathBuf },
    /// The partition's stored topic id is another one.
    #[error("{} holds topic id {stored}, asked for {asked}", path.display())]
    InconsistentTopicId {
        path: PathBuf,
        stored: String,
        asked: String,
    },
    /// The log was deleted while it was in use.
    #[error("the log in {} was deleted", dir.display())]
    Deleted { dir: PathBuf },
    /// It is to be loaded yet.
    #[error("the log in {} is not loaded yet", dir.display())]
    NotLoaded { dir: PathBuf },
    /// The broker stops.
    #[error("the log in {} is closed", dir.display())]
    Closed { dir: PathBuf },
    #[error("no log directory is online")]
    NoDirOnline,
    /// A segment's offsets do not fit in its index; it is split when the log is opened.
    #[error("{} holds offsets too far from its first one", path.display())]
    OffsetOverflow { path: PathBuf, base: i64 },
    /// The loading was told to stop.
    #[error("the loading of the logs was stopped")]
    Stopped,
    /// Another operation changed the log meanwhile; nothing was done.
    #[error("{0}")]
    Conflict(String),
}

impl LogError {
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            op,
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn sync(path: &Path, source: io::Error) -> Self {
        Self::Sync {
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_path_buf(),
            detail: detail.into(),
        }
    }

    /// The disk or the quota is full: the log goes on when there is space again.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }

    /// The process ran out of file descriptors: an operator's limit, not a broken disk.
    pub fn is_out_of_files(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(source.raw_os_error(), Some(23 | 24)),
            _ => false,
        }
    }

    /// For what can be made anew at the next start: a full disk is a warning.
    pub(crate) fn unless_full<T>(result: Result<T, Self>) -> Result<Option<T>, Self> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_out_of_space() => {
                tracing::warn!("{error}; going on without");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The file of a disk error after which its directory has to be taken offline (controller.md B7).
    pub fn fatal_to(&self) -> Option<&Path> {
        match self {
            Self::Sync { path, .. } => Some(path),
            Self::Io { path, .. } if !self.is_out_of_space() && !self.is_out_of_files() => {
                Some(path)
            }
            _ => None,
        }
    }

    /// A disk error after which the directory has to be taken offline.
    pub fn takes_dir_offline(&self) -> bool {
        self.fatal_to().is_some()
    }

    /// The protocol's error for it.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Io { .. }
            | Self::Sync { .. }
            | Self::Corrupt { .. }
            | Self::Offline { .. }
            | Self::NoDirOnline
            | Self::OffsetOverflow { .. }
            | Self::NotLoaded { .. }
            | Self::Stopped => ErrorCode::KafkaStorageError,
            Self::Deleted { .. } | Self::Closed { .. } => ErrorCode::NotLeaderOrFollower,
            Self::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::InconsistentTopicId { .. } => ErrorCode::InconsistentTopicId,
            Self::Conflict(_) => ErrorCode::UnknownServerError,
        }
    }
}

/// One record that was refused (KIP-467): its index in the request's batch and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecord {
    pub index: i32,
    pub reason: String,
}

/// An append was refused or failed; the log is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Log(#[from] LogError),
    /// The records broke one of the format's or the topic's rules; `code` is the protocol's error.
    #[error("{reason}")]
    Invalid {
        code: ErrorCode,
        reason: String,
        records: Vec<RefusedRecord>,
    },
    #[error(transparent)]
    Producer(#[from] crate::producer::ProducerError),
    /// A follower's batch does not continue its log.
    #[error(
        "the leader sent offset {first}, but the log ends at {expected}; the log start offset is {log_start}"
    )]
    UnexpectedOffset {
        first: i64,
        last: i64,
        expected: i64,
        log_start: i64,
    },
}

impl AppendError {
    /// The protocol's error for it.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Log(error) => error.error_code(),
            Self::Invalid { code, .. } => *code,
            Self::Producer(error) => error.error_code(),
            Self::UnexpectedOffset { .. } => ErrorCode::UnknownServerError,
        }
    }
}

/// The log directories cannot be used; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "the log directory {} is in use by another process (its file .lock is locked): stop that broker, or give this one another log.dirs",
        dir.display()
    )]
    Locked { dir: PathBuf },
    #[error(
        "cluster.id {stored} in {} is not the cluster's id {expected}: the data belongs to another cluster. Point zookeeper.connect at that cluster, or log.dirs at another directory",
        path.display()
    )]
    ClusterId {
        path: PathBuf,
        stored: String,
        expected: String,
    },
    #[error(
        "broker.id {stored} in {} is not the configured broker.id {expected}: set broker.id={stored} in server.properties, or point log.dirs at this broker's own directory",
        path.display()
    )]
    BrokerId {
        path: PathBuf,
        stored: i32,
        expected: i32,
    },
    #[error(
        "{key} is {left} in {} but {right} in {}: directories of different brokers are mixed in log.dirs",
        left_path.display(),
        right_path.display()
    )]
    Mixed {
        key: &'static str,
        left: String,
        left_path: PathBuf,
        right: String,
        right_path: PathBuf,
    },
    #[error("{} cannot be used: {detail}", path.display())]
    MetaProperties { path: PathBuf, detail: String },
    #[error(
        "{partition} is in two directories, {} and {}: move the one that is not wanted away",
        left.display(),
        right.display()
    )]
    Duplicate {
        partition: String,
        left: PathBuf,
        right: PathBuf,
    },
    #[error("log.dirs names no directory")]
    NoDirs,
    #[error("the loading of the logs was stopped; what was recovered is kept")]
    Stopped,
    #[error("none of log.dirs can be used: {0}")]
    AllFailed(String),
    #[error(transparent)]
    Log(#[from] LogError),
}
