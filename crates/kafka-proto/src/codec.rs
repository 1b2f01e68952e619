//! What the generated messages are written against.

pub use crate::api_key::ApiKey;
pub use crate::error::{DecodeError, EncodeError};
pub use crate::reader::Reader;
pub use crate::records::Records;
pub use crate::uuid::Uuid;
pub use crate::writer::Writer;
pub use bytes::Bytes;

/// A message or a structure in one, in any version of its schema.
pub trait Message: Sized {
    /// Reads it; fields that the version lacks get their defaults. Bytes after it are left in the reader.
    ///
    /// # Errors
    /// Bytes that are no such message, a version that the schema lacks.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Writes it.
    ///
    /// # Errors
    /// A value that the version cannot carry: a non-default field that it lacks (unless `ignorable`), a null where
    /// it has none, a string over 32,767 bytes in a non-flexible version.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// A request, which knows its API key and its response.
pub trait Request: Message {
    const KEY: ApiKey;
    const MIN_VERSION: i16;
    const MAX_VERSION: i16;
    type Response: Message;
}

/// A tagged field that the schema does not know (KIP-482), as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTaggedField {
    pub tag: u32,
    pub data: Bytes,
}

pub(crate) fn check_version(
    message: &'static str,
    version: i16,
    min: i16,
    max: i16,
) -> Result<(), UnsupportedVersion> {
    if (min..=max).contains(&version) {
        Ok(())
    } else {
        Err(UnsupportedVersion {
            message,
            version,
            min,
            max,
        })
    }
}

/// A version outside of the schema's.
pub(crate) struct UnsupportedVersion {
    pub(crate) message: &'static str,
    pub(crate) version: i16,
    pub(crate) min: i16,
    pub(crate) max: i16,
}

pub(crate) fn refuse_tags(
    structure: &'static str,
    tags: &[RawTaggedField],
    version: i16,
) -> Result<(), EncodeError> {
    if tags.is_empty() {
        Ok(())
    } else {
        Err(EncodeError::not_in_version(
            structure,
            "unknown tagged fields",
            version,
        ))
    }
}
