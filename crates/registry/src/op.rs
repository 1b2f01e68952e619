//! Reads and writes of znodes as plain values, so that a state machine can ask for them without doing I/O.

use bytes::Bytes;
pub use gracchus_zk_proto::{Acl, CreateMode, Stat, ZkError};

/// A version that matches any.
pub const ANY_VERSION: i32 = -1;

/// One operation. `data: None` is a null node, which differs from an empty one. `watch` arms a one-shot watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkOp {
    /// The ACL follows from the path and `zookeeper.set.acl`; the parent must exist.
    Create {
        path: String,
        data: Option<Bytes>,
        mode: CreateMode,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    Get {
        path: String,
        watch: bool,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    /// All or none.
    Multi(Vec<MultiStep>),
}

/// One step of a multi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiStep {
    Create {
        path: String,
        data: Option<Bytes>,
        mode: CreateMode,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// Fails with `BadVersion` unless the node has this data version.
    Check {
        path: String,
        version: i32,
    },
}

impl MultiStep {
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::SetData { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }
}

impl ZkOp {
    pub fn create(path: impl Into<String>, data: Option<Bytes>) -> Self {
        Self::Create {
            path: path.into(),
            data,
            mode: CreateMode::Persistent,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::Get {
            path: path.into(),
            watch: false,
        }
    }

    pub fn get_and_watch(path: impl Into<String>) -> Self {
        Self::Get {
            path: path.into(),
            watch: true,
        }
    }

    pub fn exists_and_watch(path: impl Into<String>) -> Self {
        Self::Exists {
            path: path.into(),
            watch: true,
        }
    }

    pub fn children(path: impl Into<String>) -> Self {
        Self::GetChildren {
            path: path.into(),
            watch: false,
        }
    }

    pub fn children_and_watch(path: impl Into<String>) -> Self {
        Self::GetChildren {
            path: path.into(),
            watch: true,
        }
    }

    /// The controller's fence: `step` happens only while `/controller_epoch` has data version `epoch_version`.
    /// The answer's failed step tells a lost fence (step 0) from the write's own error (step 1).
    pub fn fenced(epoch_version: i32, step: MultiStep) -> Self {
        Self::Multi(vec![
            MultiStep::Check {
                path: crate::paths::CONTROLLER_EPOCH.to_owned(),
                version: epoch_version,
            },
            step,
        ])
    }

    /// The node it is about; a multi's last one.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::SetData { path, .. }
            | Self::Delete { path, .. }
            | Self::Get { path, .. }
            | Self::Exists { path, .. }
            | Self::GetChildren { path, .. } => path,
            Self::Multi(steps) => steps.last().map_or("", MultiStep::path),
        }
    }
}

/// The answer to a [`ZkOp`] of the same kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkReply {
    /// `path` ends in the sequence number for a sequential node.
    Created {
        path: String,
        stat: Stat,
    },
    Set(Stat),
    Deleted,
    Data {
        data: Option<Bytes>,
        stat: Stat,
    },
    Exists(Stat),
    Children {
        children: Vec<String>,
        stat: Stat,
    },
    Multi(Vec<MultiReply>),
}

/// The answer to one step of a multi that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiReply {
    Created { path: String },
    Set(Stat),
    Deleted,
    Checked,
}

/// Why an operation did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ZkFailure {
    pub error: ZkError,
    /// In a multi, the step that failed; else 0.
    pub step: usize,
}

impl From<ZkError> for ZkFailure {
    fn from(error: ZkError) -> Self {
        ZkFailure { error, step: 0 }
    }
}

pub type ZkResult = Result<ZkReply, ZkFailure>;

impl ZkReply {
    /// The stat of a create, set, exists, get or children answer, or the last one of a multi.
    pub fn stat(&self) -> Option<&Stat> {
        match self {
            Self::Created { stat, .. }
            | Self::Set(stat)
            | Self::Exists(stat)
            | Self::Data { stat, .. }
            | Self::Children { stat, .. } => Some(stat),
            Self::Multi(replies) => replies.iter().rev().find_map(|reply| match reply {
                MultiReply::Set(stat) => Some(stat),
                _ => None,
            }),
            Self::Deleted => None,
        }
    }
}
