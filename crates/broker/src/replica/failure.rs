//! Why a step of a copy, from another broker or in another directory, could not be done.

use gracchus_log::{AppendError, LogError};

pub(crate) enum Failure {
    Log(LogError),
    /// The records are not what a log can take.
    Records(String),
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Log(error) => Self::Log(error),
            other => Self::Records(other.to_string()),
        }
    }
}
