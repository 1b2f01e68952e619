//! Watch events and the kinds of watches.

use crate::jute::{JuteError, record};

record! {
    /// A watch event as it goes over the wire; `event_type` and `state` are the numbers of [`EventType`] and [`KeeperState`].
    pub struct WatcherEvent { pub event_type: i32, pub state: i32, pub path: String }
}

impl WatcherEvent {
    pub fn new(event_type: EventType, path: impl Into<String>) -> Self {
        WatcherEvent {
            event_type: event_type as i32,
            state: KeeperState::SyncConnected as i32,
            path: path.into(),
        }
    }

    pub fn kind(&self) -> Result<EventType, JuteError> {
        EventType::from_code(self.event_type)
    }
}

/// What happened to a watched node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum EventType {
    Created = 1,
    Deleted = 2,
    DataChanged = 3,
    ChildrenChanged = 4,
}

impl EventType {
    pub fn from_code(code: i32) -> Result<Self, JuteError> {
        Ok(match code {
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            _ => {
                return Err(JuteError::Unknown {
                    what: "event type",
                    value: code.into(),
                });
            }
        })
    }

    /// The name that ZooKeeper's Java client gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "NodeCreated",
            Self::Deleted => "NodeDeleted",
            Self::DataChanged => "NodeDataChanged",
            Self::ChildrenChanged => "NodeChildrenChanged",
        }
    }
}

/// The state that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum KeeperState {
    Disconnected = 0,
    SyncConnected = 3,
    AuthFailed = 4,
    ConnectedReadOnly = 5,
    SaslAuthenticated = 6,
    Expired = -112,
}

/// addWatch's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum AddWatchMode {
    Persistent = 0,
    PersistentRecursive = 1,
}

impl AddWatchMode {
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            0 => Some(Self::Persistent),
            1 => Some(Self::PersistentRecursive),
            _ => None,
        }
    }
}

/// The watches that checkWatches and removeWatches mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum WatcherType {
    Children = 1,
    Data = 2,
    Any = 3,
    Persistent = 4,
    PersistentRecursive = 5,
}

impl WatcherType {
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            1 => Some(Self::Children),
            2 => Some(Self::Data),
            3 => Some(Self::Any),
            4 => Some(Self::Persistent),
            5 => Some(Self::PersistentRecursive),
            _ => None,
        }
    }
}
