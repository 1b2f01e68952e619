//! What can be wrong with bytes read and values written.

use crate::codec::UnsupportedVersion;

/// Bytes that are not the message they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{needed} bytes needed, {remaining} remain")]
    Truncated { needed: usize, remaining: usize },
    #[error("a length of {length} does not fit in the {remaining} bytes that remain")]
    LengthTooLong { length: u64, remaining: usize },
    #[error("null where the version allows none")]
    UnexpectedNull,
    #[error("a string that is not UTF-8")]
    InvalidUtf8,
    #[error("a varint of more than 5 bytes or 32 bits")]
    VarintTooLong,
    #[error("{excess} bytes too many in a tagged field")]
    TaggedFieldTooLong { excess: usize },
    #[error("{message} version {version} is not in {min} to {max}")]
    UnsupportedVersion {
        message: &'static str,
        version: i16,
        min: i16,
        max: i16,
    },
    #[error("unknown API key {0}")]
    UnknownApiKey(i16),
}

/// A value that the version cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{structure}.{field} is set, but version {version} lacks it")]
    NotInVersion {
        structure: &'static str,
        field: &'static str,
        version: i16,
    },
    #[error("{structure}.{field} is null, which version {version} does not allow")]
    NotNullable {
        structure: &'static str,
        field: &'static str,
        version: i16,
    },
    #[error("a length of {length} is over the limit of {limit}")]
    TooLong { length: u64, limit: u64 },
    #[error("records inside of a tagged field")]
    RecordsInTaggedField,
    #[error("{message} version {version} is not in {min} to {max}")]
    UnsupportedVersion {
        message: &'static str,
        version: i16,
        min: i16,
        max: i16,
    },
}

impl EncodeError {
    pub(crate) fn not_in_version(
        structure: &'static str,
        field: &'static str,
        version: i16,
    ) -> Self {
        Self::NotInVersion {
            structure,
            field,
            version,
        }
    }

    pub(crate) fn not_nullable(structure: &'static str, field: &'static str, version: i16) -> Self {
        Self::NotNullable {
            structure,
            field,
            version,
        }
    }
}

impl From<UnsupportedVersion> for DecodeError {
    fn from(
        UnsupportedVersion {
            message,
            version,
            min,
            max,
        }: UnsupportedVersion,
    ) -> Self {
        Self::UnsupportedVersion {
            message,
            version,
            min,
            max,
        }
    }
}

impl From<UnsupportedVersion> for EncodeError {
    fn from(
        UnsupportedVersion {
            message,
            version,
            min,
            max,
        }: UnsupportedVersion,
    ) -> Self {
        Self::UnsupportedVersion {
            message,
            version,
            min,
            max,
        }
    }
}
