//! Reads the protocol's primitive types from one frame.

use crate::codec::RawTaggedField;
use crate::{DecodeError, Records, Uuid};
use bytes::Bytes;

/// The most that is reserved for an array on the strength of its length alone, in bytes; it grows with its elements.
const FIRST_RESERVATION: usize = 64 * 1024;

/// A position in a frame. Never reads past its end; what it cuts out (bytes, records) shares the frame's memory.
#[derive(Debug, Clone)]
pub struct Reader {
    frame: Bytes,
    at: usize,
}

macro_rules! fixed_size {
    ($($name:ident: $type:ty;)*) => {
        $(
            pub fn $name(&mut self) -> Result<$type, DecodeError> {
                self.take().map(<$type>::from_be_bytes)
            }
        )*
    };
}

impl Reader {
    #[must_use]
    pub fn new(frame: Bytes) -> Self {
        Self { frame, at: 0 }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.at
    }

    /// What is left, as a slice of the frame.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.frame.slice(self.at..)
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated {
            needed,
            remaining: self.remaining(),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self
            .frame
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or_else(|| self.truncated(N))?;
        self.at += N;
        Ok(bytes)
    }

    /// The bytes of a length that was checked, and the position moved over them.
    fn slice(&mut self, length: usize) -> Result<&[u8], DecodeError> {
        if length > self.remaining() {
            return Err(self.too_long(length as u64));
        }
        let start = self.at;
        self.at += length;
        self.frame
            .get(start..self.at)
            .ok_or(DecodeError::Truncated {
                needed: length,
                remaining: 0,
            })
    }

    fn too_long(&self, length: u64) -> DecodeError {
        DecodeError::LengthTooLong {
            length,
            remaining: self.remaining(),
        }
    }

    fixed_size! {
        i8: i8;
        i16: i16;
        u16: u16;
        i32: i32;
        u32: u32;
        i64: i64;
        f64: f64;
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.take().map(Uuid::from_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take()?;
            if shift == 28 && byte > 0x0f {
                return Err(DecodeError::VarintTooLong);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong)
    }

    /// A length of bytes, records or elements; `None` is null.
    fn length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            Ok((self.unsigned_varint()? as usize).checked_sub(1))
        } else {
            // Every negative length is null, as in Kafka's readers.
            Ok(usize::try_from(self.i32()?).ok())
        }
    }

    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<String>, DecodeError> {
        let length = if flexible {
            self.length(true)?
        } else {
            usize::try_from(self.i16()?).ok()
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let text =
            std::str::from_utf8(self.slice(length)?).map_err(|_| DecodeError::InvalidUtf8)?;
        Ok(Some(text.to_owned()))
    }

    pub fn string(&mut self, flexible: bool) -> Result<String, DecodeError> {
        self.nullable_string(flexible)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    /// A slice of the frame, not a copy.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(flexible)? else {
            return Ok(None);
        };
        let start = self.at;
        self.slice(length)?;
        Ok(Some(self.frame.slice(start..self.at)))
    }

    pub fn bytes(&mut self, flexible: bool) -> Result<Bytes, DecodeError> {
        self.nullable_bytes(flexible)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    pub fn nullable_records(&mut self, flexible: bool) -> Result<Option<Records>, DecodeError> {
        Ok(self.nullable_bytes(flexible)?.map(Records::from))
    }

    pub fn records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        self.bytes(flexible).map(Records::from)
    }

    /// An array whose elements take at least `least` bytes each: no more of them can be in the frame than fit in it.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        least: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(length) = self.length(flexible)? else {
            return Ok(None);
        };
        if length > self.remaining() / least.max(1) {
            return Err(self.too_long(length as u64));
        }
        let mut elements =
            Vec::with_capacity(length.min(FIRST_RESERVATION / size_of::<T>().max(1)));
        for _ in 0..length {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    pub fn array<T>(
        &mut self,
        flexible: bool,
        least: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_array(flexible, least, element)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    /// The byte before a nullable structure.
    pub fn is_null_struct(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? < 0)
    }

    /// How many tagged fields follow; each takes at least two bytes.
    pub fn tag_count(&mut self) -> Result<u32, DecodeError> {
        let count = self.unsigned_varint()?;
        if count as usize > self.remaining() / 2 {
            return Err(self.too_long(u64::from(count)));
        }
        Ok(count)
    }

    /// A tag and a reader over that field alone.
    pub fn tagged_field(&mut self) -> Result<(u32, Self), DecodeError> {
        let tag = self.unsigned_varint()?;
        let length = self.unsigned_varint()? as usize;
        let start = self.at;
        self.slice(length)?;
        Ok((tag, Self::new(self.frame.slice(start..self.at))))
    }

    /// Tagged fields of a structure whose schema has none.
    pub fn unknown_tagged_fields(&mut self) -> Result<Vec<RawTaggedField>, DecodeError> {
        let mut fields = Vec::new();
        for _ in 0..self.tag_count()? {
            let (tag, field) = self.tagged_field()?;
            fields.push(field.into_raw(tag));
        }
        Ok(fields)
    }

    /// What is left as a tagged field that nobody here knows.
    #[must_use]
    pub fn into_raw(self, tag: u32) -> RawTaggedField {
        RawTaggedField {
            tag,
            data: self.frame.slice(self.at..),
        }
    }

    /// An error when a tagged field is longer than what it holds.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            excess => Err(DecodeError::TaggedFieldTooLong { excess }),
        }
    }
}
