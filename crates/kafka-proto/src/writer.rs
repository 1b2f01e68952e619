//! Writes the protocol's primitive types.

use crate::codec::RawTaggedField;
use crate::{Chunk, EncodeError, Frame, Records, RecordsPart, Uuid};
use bytes::{BufMut, Bytes, BytesMut};

/// Records of at least so many bytes are sent from where they are; shorter ones are cheaper to copy.
const COPY_BELOW: usize = 512;

/// Collects an encoded message. Record batches are referenced, the rest gathers in one buffer.
#[derive(Debug, Default)]
pub struct Writer {
    /// Pieces done; the first is a placeholder for `first`.
    chunks: Vec<Chunk>,
    /// The first piece, kept writable for the length prefix.
    first: Option<BytesMut>,
    /// The piece being written.
    open: BytesMut,
}

macro_rules! fixed_size {
    ($($name:ident: $type:ty, $put:ident;)*) => {
        $(
            pub fn $name(&mut self, value: $type) {
                self.open.$put(value);
            }
        )*
    };
}

fn too_long(length: usize, limit: u64) -> EncodeError {
    EncodeError::TooLong {
        length: length as u64,
        limit,
    }
}

impl Writer {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves room for a frame's length, which [`Writer::finish_framed`] fills in.
    #[must_use]
    pub(crate) fn framed() -> Self {
        let mut open = BytesMut::with_capacity(256);
        open.put_i32(0);
        Self {
            open,
            ..Self::default()
        }
    }

    fixed_size! {
        i8: i8, put_i8;
        i16: i16, put_i16;
        u16: u16, put_u16;
        i32: i32, put_i32;
        u32: u32, put_u32;
        i64: i64, put_i64;
        f64: f64, put_f64;
    }

    pub fn bool(&mut self, value: bool) {
        self.open.put_u8(u8::from(value));
    }

    pub fn uuid(&mut self, value: Uuid) {
        self.open.put_slice(value.as_bytes());
    }

    pub fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.open.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.open.put_u8(value as u8);
    }

    fn compact_length(&mut self, length: usize) -> Result<(), EncodeError> {
        let limit = i32::MAX as u32 - 1;
        let length = u32::try_from(length).ok().filter(|length| *length <= limit);
        let length = length.ok_or(EncodeError::TooLong {
            length: u64::MAX,
            limit: u64::from(limit),
        })?;
        self.unsigned_varint(length + 1);
        Ok(())
    }

    /// The length of bytes, records or an array.
    pub fn array_length(&mut self, length: usize, flexible: bool) -> Result<(), EncodeError> {
        if flexible {
            return self.compact_length(length);
        }
        self.i32(i32::try_from(length).map_err(|_| too_long(length, i32::MAX as u64))?);
        Ok(())
    }

    /// Null instead of bytes, records or an array.
    pub fn null_array(&mut self, flexible: bool) {
        if flexible {
            self.unsigned_varint(0)
        } else {
            self.i32(-1)
        }
    }

    pub fn string(&mut self, value: &str, flexible: bool) -> Result<(), EncodeError> {
        if flexible {
            self.compact_length(value.len())?;
        } else {
            self.i16(
                i16::try_from(value.len()).map_err(|_| too_long(value.len(), i16::MAX as u64))?,
            );
        }
        self.open.put_slice(value.as_bytes());
        Ok(())
    }

    pub fn null_string(&mut self, flexible: bool) {
        if flexible {
            self.unsigned_varint(0)
        } else {
            self.i16(-1)
        }
    }

    pub fn bytes(&mut self, value: &Bytes, flexible: bool) -> Result<(), EncodeError> {
        self.array_length(value.len(), flexible)?;
        self.reference(value);
        Ok(())
    }

    /// Adds memory to the output: by reference when it is worth a piece of its own.
    fn reference(&mut self, value: &Bytes) {
        if value.len() < COPY_BELOW {
            self.open.put_slice(value);
        } else {
            self.close_piece();
            self.chunks.push(Chunk::Bytes(value.clone()));
        }
    }

    pub fn records(&mut self, value: &Records, flexible: bool) -> Result<(), EncodeError> {
        let limit = i32::MAX as u64 - 1;
        let length = value.len();
        let length = usize::try_from(length).map_err(|_| EncodeError::TooLong { length, limit })?;
        self.array_length(length, flexible)?;
        for part in &value.parts {
            match part {
                RecordsPart::Bytes(bytes) => self.reference(bytes),
                RecordsPart::File(region) if region.len == 0 => {}
                RecordsPart::File(region) => {
                    self.close_piece();
                    self.chunks.push(Chunk::File(region.clone()));
                }
            }
        }
        Ok(())
    }

    /// Ends the piece being written; `open` goes on in the rest of the same allocation.
    fn close_piece(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let piece = self.open.split();
        if self.chunks.is_empty() {
            self.first = Some(piece);
            self.chunks.push(Chunk::Bytes(Bytes::new()));
        } else {
            self.chunks.push(Chunk::Bytes(piece.freeze()));
        }
    }

    /// This writer's output as one tagged field.
    pub(crate) fn into_tagged(self, tag: u32) -> Result<RawTaggedField, EncodeError> {
        let data = self
            .finish()
            .into_bytes()
            .ok_or(EncodeError::RecordsInTaggedField)?;
        Ok(RawTaggedField { tag, data })
    }

    /// A structure's tagged fields, in the order of their tags; both lists are sorted already as a rule.
    pub(crate) fn tagged_fields(
        &mut self,
        known: Vec<RawTaggedField>,
        unknown: &[RawTaggedField],
    ) -> Result<(), EncodeError> {
        if known.is_empty() && unknown.is_empty() {
            self.open.put_u8(0);
            return Ok(());
        }
        let mut fields: Vec<&RawTaggedField> = known.iter().chain(unknown).collect();
        fields.sort_by_key(|field| field.tag);
        let limit = u64::from(u32::MAX);
        self.unsigned_varint(
            u32::try_from(fields.len()).map_err(|_| too_long(fields.len(), limit))?,
        );
        for RawTaggedField { tag, data } in fields {
            self.unsigned_varint(*tag);
            self.unsigned_varint(
                u32::try_from(data.len()).map_err(|_| too_long(data.len(), limit))?,
            );
            self.reference(data);
        }
        Ok(())
    }

    /// What was written.
    #[must_use]
    pub fn finish(mut self) -> Frame {
        self.close_piece();
        if let (Some(first), Some(place)) = (self.first, self.chunks.first_mut()) {
            *place = Chunk::Bytes(first.freeze());
        }
        Frame {
            chunks: self.chunks,
        }
    }

    /// What was written into a [`Writer::framed`], with its length in front.
    pub(crate) fn finish_framed(mut self) -> Result<Frame, EncodeError> {
        self.close_piece();
        let prefix = 4;
        let piece = self.first.as_ref().map_or(0, BytesMut::len) as u64;
        let length =
            (piece + self.chunks.iter().map(Chunk::len).sum::<u64>()).saturating_sub(prefix);
        let length = i32::try_from(length).map_err(|_| EncodeError::TooLong {
            length,
            limit: i32::MAX as u64,
        })?;
        if let Some(room) = self
            .first
            .as_mut()
            .and_then(|first| first.first_chunk_mut())
        {
            *room = length.to_be_bytes();
        }
        Ok(self.finish())
    }
}
