//! Why a client could not do what it was asked.

use gracchus_kafka_proto::{DecodeError, EncodeError, ErrorCode};
use gracchus_record::RecordError;
use std::time::Duration;

/// What went wrong, and with which broker.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    #[error("the connection to {address} was closed: {reason}")]
    Closed { address: String, reason: String },
    #[error("{address} did not answer {api} within {} ms", .after.as_millis())]
    Timeout {
        address: String,
        api: &'static str,
        after: Duration,
    },
    #[error(
        "{address} does not support {api} in a version that this client knows: it has {broker:?}, the client {client:?}"
    )]
    Unsupported {
        address: String,
        api: &'static str,
        broker: Option<(i16, i16)>,
        client: (i16, i16),
    },
    #[error("{address} answered {api} with bytes that are no such response: {reason}")]
    BadAnswer {
        address: String,
        api: &'static str,
        reason: String,
    },
    #[error("the request cannot be sent: {0}")]
    Encode(String),
    /// The cluster refused it; the message is the broker's own, or Kafka's sentence for the code.
    #[error("{message}")]
    Api { code: ErrorCode, message: String },
    #[error("no broker of {bootstrap} could be reached: {reason}")]
    NoBroker { bootstrap: String, reason: String },
    #[error("records could not be read or written: {0}")]
    Record(#[from] RecordError),
    #[error("{0}")]
    Invalid(String),
}

impl ClientError {
    /// An error of the cluster with its own text, if it gave one.
    pub fn api(code: ErrorCode, message: Option<&str>) -> Self {
        let message = match message {
            Some(text) if !text.is_empty() => text,
            _ => code.message(),
        };
        ClientError::Api {
            code,
            message: message.to_owned(),
        }
    }

    /// `Err` unless the code is 0.
    pub fn check(code: i16, message: Option<&str>) -> Result<(), Self> {
        match ErrorCode::from_code(code) {
            ErrorCode::None => Ok(()),
            code => Err(Self::api(code, message)),
        }
    }

    /// The protocol's code, if the cluster gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Connect { .. }
            | ClientError::Closed { .. }
            | ClientError::Timeout { .. }
            | ClientError::NoBroker { .. } => true,
            ClientError::Api { code, .. } => {
                code.is_retriable() || *code == ErrorCode::NotController
            }
            _ => false,
        }
    }
}

impl From<EncodeError> for ClientError {
    fn from(error: EncodeError) -> Self {
        ClientError::Encode(error.to_string())
    }
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        ClientError::Invalid(error.to_string())
    }
}
