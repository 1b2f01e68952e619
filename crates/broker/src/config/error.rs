//! What can be wrong with a configuration.

use thiserror::Error;

/// A configuration that cannot be used. The texts follow Kafka's, so that scripts and people recognise them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A value of the wrong form.
    #[error("Invalid value {value} for configuration {key}: {reason}")]
    Invalid {
        /// The key.
        key: String,
        /// The text as given.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// A key without a default is missing.
    #[error("Missing required configuration \"{key}\" which has no default value.")]
    Missing {
        /// The key.
        key: String,
    },
    /// Keys that contradict each other, or one that this broker cannot obey without harm.
    #[error("{0}")]
    Refused(String),
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        reason: String,
    },
}

impl ConfigError {
    pub(crate) fn invalid(key: &str, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid {
            key: key.to_owned(),
            value: value.into(),
            reason: reason.into(),
        }
    }
}
