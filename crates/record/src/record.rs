//! One record, whatever format it came in, as slices of its batch.

use crate::RecordError;
use crate::varint::{put_varint, put_varlong, varint, varint_size, varlong, varlong_size};

/// A record's content; key and value `None` are null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record<'a> {
    pub offset: i64,
    /// ms since the epoch, or [`NO_TIMESTAMP`](crate::NO_TIMESTAMP).
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// Encoded size, bytes.
    pub size: usize,
}

/// A record header; a null value differs from an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// A record's headers, still encoded and already checked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Headers<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = self.bytes;
        let mut left = self.count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            next_header(&mut rest).ok()
        })
    }
}

fn take<'a>(buf: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordError> {
    let (head, tail) = buf.split_at_checked(length).ok_or(RecordError::Truncated {
        wanted: length,
        left: buf.len(),
    })?;
    *buf = tail;
    Ok(head)
}

/// A length-prefixed field; a negative length is null.
fn take_nullable<'a>(buf: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordError> {
    let length = varint(buf)?;
    if length < 0 {
        return Ok(None);
    }
    take(buf, length as usize).map(Some)
}

fn next_header<'a>(buf: &mut &'a [u8]) -> Result<Header<'a>, RecordError> {
    let length = varint(buf)?;
    if length < 0 {
        return Err(RecordError::invalid(format!(
            "Invalid negative header key size {length}"
        )));
    }
    let key = take(buf, length as usize)?;
    let value = take_nullable(buf)?;
    Ok(Header { key, value })
}

/// Offset and timestamp that a batch adds to its records' deltas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub offset: i64,
    pub timestamp: i64,
    /// LogAppendTime: every record has the batch's own timestamp.
    pub append_time: Option<i64>,
}

/// Takes one record of format v2 from the front of `buf`.
pub(crate) fn take_v2<'a>(buf: &mut &'a [u8], base: Base) -> Result<Record<'a>, RecordError> {
    let before = buf.len();
    let length = varint(buf)?;
    if length < 0 {
        return Err(RecordError::invalid(format!(
            "Invalid record size {length}"
        )));
    }
    let mut body = take(buf, length as usize)?;
    let size = before - buf.len();
    take(&mut body, 1)?; // attributes: unused in v2
    let timestamp_delta = varlong(&mut body)?;
    let offset_delta = varint(&mut body)?;
    let key = take_nullable(&mut body)?;
    let value = take_nullable(&mut body)?;
    let count = varint(&mut body)?;
    if count < 0 {
        return Err(RecordError::invalid(format!(
            "Found invalid number of record headers {count}"
        )));
    }
    if count as usize > body.len() {
        return Err(RecordError::invalid(format!(
            "Found invalid number of record headers. {count} is larger than the remaining size of the buffer"
        )));
    }
    let bytes = body;
    for _ in 0..count {
        next_header(&mut body)?;
    }
    if !body.is_empty() {
        return Err(RecordError::invalid(format!(
            "Invalid record size: expected to read {length} bytes in record payload, but {} are left",
            body.len()
        )));
    }
    Ok(Record {
        offset: base.offset.wrapping_add(offset_delta.into()),
        timestamp: base
            .append_time
            .unwrap_or_else(|| base.timestamp.wrapping_add(timestamp_delta)),
        key,
        value,
        headers: Headers {
            count: count as u32,
            bytes,
        },
        size,
    })
}

fn nullable_size(field: Option<&[u8]>) -> usize {
    match field {
        None => 1,
        Some(bytes) => varint_size(bytes.len() as i32) + bytes.len(),
    }
}

fn put_nullable(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}

/// Size of a v2 record's body, without its own length.
fn body_size<'a>(
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'a>>,
) -> (usize, usize) {
    let mut count = 0;
    let mut size = 1
        + varlong_size(timestamp_delta)
        + varint_size(offset_delta)
        + nullable_size(key)
        + nullable_size(value);
    for h in headers {
        count += 1;
        size += varint_size(h.key.len() as i32) + h.key.len() + nullable_size(h.value);
    }
    (size + varint_size(count as i32), count)
}

/// Appends one record of format v2.
pub(crate) fn put_v2<'a>(
    out: &mut Vec<u8>,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'a>> + Clone,
) {
    let (size, count) = body_size(offset_delta, timestamp_delta, key, value, headers.clone());
    put_varint(out, size as i32);
    out.push(0);
    put_varlong(out, timestamp_delta);
    put_varint(out, offset_delta);
    put_nullable(out, key);
    put_nullable(out, value);
    put_varint(out, count as i32);
    for h in headers {
        put_varint(out, h.key.len() as i32);
        out.extend_from_slice(h.key);
        put_nullable(out, h.value);
    }
}
