//! Why bytes are not records.

/// What is wrong with a batch, a message or a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record data ends early: {wanted} bytes wanted, {left} left")]
    Truncated { wanted: usize, left: usize },
    #[error("record size {size} is less than the minimum record overhead ({least})")]
    TooSmall { size: i64, least: usize },
    #[error("unknown magic {0}")]
    BadMagic(i8),
    #[error("Record is corrupt (stored crc = {stored}, computed crc = {computed})")]
    BadCrc { stored: u32, computed: u32 },
    #[error("unknown compression type id {0}")]
    UnknownCodec(u8),
    #[error("{codec} data can't be decompressed: {reason}")]
    Decompress { codec: &'static str, reason: String },
    #[error("decompressed data is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{0}")]
    Invalid(String),
}

impl RecordError {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        RecordError::Invalid(text.into())
    }
}
