//! Jute: big-endian primitives, length-prefixed buffers and vectors, -1 for null, no tags.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JuteError {
    #[error("record ends early: {wanted} more bytes wanted, {left} left")]
    Truncated { wanted: usize, left: usize },
    #[error("length {0} is not possible here")]
    BadLength(i32),
    #[error("null where a value is required")]
    UnexpectedNull,
    #[error("{what} {value} is unknown")]
    Unknown { what: &'static str, value: i64 },
}

/// A value with a jute encoding.
pub trait Jute: Sized {
    /// Fewest bytes an encoded value takes; bounds what a vector's count may claim.
    const MIN_SIZE: usize;

    fn read(r: &mut Reader) -> Result<Self, JuteError>;
    fn write(&self, out: &mut BytesMut);

    /// Decodes a whole buffer; bytes after the record are ignored, as ZooKeeper does.
    fn from_bytes(bytes: Bytes) -> Result<Self, JuteError> {
        Self::read(&mut Reader::new(bytes))
    }

    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out);
        out.freeze()
    }
}

/// Reads records from a buffer; data fields are slices of it, not copies.
#[derive(Debug, Clone)]
pub struct Reader {
    buf: Bytes,
}

impl Reader {
    pub fn new(buf: Bytes) -> Self {
        Reader { buf }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.buf.len()
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &Bytes {
        &self.buf
    }

    fn need(&self, wanted: usize) -> Result<(), JuteError> {
        let left = self.buf.len();
        if wanted > left {
            return Err(JuteError::Truncated { wanted, left });
        }
        Ok(())
    }

    pub fn u8(&mut self) -> Result<u8, JuteError> {
        self.need(1)?;
        Ok(self.buf.get_u8())
    }

    pub fn i32(&mut self) -> Result<i32, JuteError> {
        self.need(4)?;
        Ok(self.buf.get_i32())
    }

    pub fn i64(&mut self) -> Result<i64, JuteError> {
        self.need(8)?;
        Ok(self.buf.get_i64())
    }

    /// A length-prefixed buffer, `None` for null (-1).
    pub fn buffer(&mut self) -> Result<Option<Bytes>, JuteError> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        let wanted = usize::try_from(length).map_err(|_| JuteError::BadLength(length))?;
        self.need(wanted)?;
        Ok(Some(self.buf.split_to(wanted)))
    }

    /// A string, `None` for null; what is not UTF-8 becomes U+FFFD as in Java.
    pub fn string(&mut self) -> Result<Option<String>, JuteError> {
        Ok(self
            .buffer()?
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// A vector, `None` for null.
    pub fn vector<T: Jute>(&mut self) -> Result<Option<Vec<T>>, JuteError> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).map_err(|_| JuteError::BadLength(count))?;
        // A count that the rest can't hold is refused before anything is allocated for it.
        self.need(count.saturating_mul(T::MIN_SIZE))?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::read(self)?);
        }
        Ok(Some(items))
    }
}

/// Writes a buffer; lengths beyond i32 can't occur, since frames are bounded far below.
pub fn write_buffer(out: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        None => out.put_i32(-1),
        Some(bytes) => {
            out.put_i32(bytes.len() as i32);
            out.put_slice(bytes);
        }
    }
}

pub fn write_vector<T: Jute>(out: &mut BytesMut, items: &[T]) {
    out.put_i32(items.len() as i32);
    for item in items {
        item.write(out);
    }
}

macro_rules! primitive {
    ($type:ty, $size:expr, $read:ident, $write:ident) => {
        impl Jute for $type {
            const MIN_SIZE: usize = $size;
            fn read(r: &mut Reader) -> Result<Self, JuteError> {
                r.$read()
            }
            fn write(&self, out: &mut BytesMut) {
                out.$write(*self);
            }
        }
    };
}
primitive!(i32, 4, i32, put_i32);
primitive!(i64, 8, i64, put_i64);

impl Jute for bool {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        Ok(r.u8()? != 0)
    }
    fn write(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }
}

impl Jute for String {
    const MIN_SIZE: usize = 4;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        r.string()?.ok_or(JuteError::UnexpectedNull)
    }
    fn write(&self, out: &mut BytesMut) {
        write_buffer(out, Some(self.as_bytes()));
    }
}

impl Jute for Option<String> {
    const MIN_SIZE: usize = 4;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        r.string()
    }
    fn write(&self, out: &mut BytesMut) {
        write_buffer(out, self.as_ref().map(String::as_bytes));
    }
}

/// Null data (`None`) and empty data differ, on the wire and on disk.
impl Jute for Option<Bytes> {
    const MIN_SIZE: usize = 4;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        r.buffer()
    }
    fn write(&self, out: &mut BytesMut) {
        write_buffer(out, self.as_deref());
    }
}

impl<T: Jute> Jute for Vec<T> {
    const MIN_SIZE: usize = 4;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        r.vector()?.ok_or(JuteError::UnexpectedNull)
    }
    fn write(&self, out: &mut BytesMut) {
        write_vector(out, self);
    }
}

impl<T: Jute> Jute for Option<Vec<T>> {
    const MIN_SIZE: usize = 4;
    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        r.vector()
    }
    fn write(&self, out: &mut BytesMut) {
        match self {
            None => out.put_i32(-1),
            Some(items) => write_vector(out, items),
        }
    }
}

/// Declares a record: its fields back to back, in order.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident : $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::jute::Jute for $name {
            const MIN_SIZE: usize = 0 $(+ <$type as $crate::jute::Jute>::MIN_SIZE)*;
            #[allow(unused_variables)]
            fn read(r: &mut $crate::jute::Reader) -> Result<Self, $crate::jute::JuteError> {
                Ok($name { $($field: <$type as $crate::jute::Jute>::read(r)?),* })
            }
            #[allow(unused_variables)]
            fn write(&self, out: &mut bytes::BytesMut) {
                $($crate::jute::Jute::write(&self.$field, out);)*
            }
        }
    };
}
pub(crate) use record;
