//! Walks a batch's records for the few fields that a leader checks, compressed ones as a stream: memory stays bounded by
//! the codec's window, however large the records claim to be.

use crate::compression::{self, Codec};
use crate::{Batch, RecordError};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read};

/// What a leader looks at in a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordShape {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub has_key: bool,
}

/// Calls `each` for every record of the batch; `limit` bounds the plain bytes that are looked at.
pub(crate) fn walk<E: From<RecordError>>(
    batch: &Batch,
    limit: usize,
    mut each: impl FnMut(RecordShape) -> Result<(), E>,
) -> Result<(), E> {
    let codec = batch.header.codec()?;
    let payload = batch.payload();
    let count = batch.header.record_count;
    if codec == Codec::None {
        return walk_from(Slice(&payload), count, &mut each);
    }
    PLAIN.with_borrow_mut(|plain| {
        plain.resize(IN_MEMORY, 0);
        if codec == Codec::Lz4
            && let Some(got) = compression::lz4_into(&payload, plain)
            && got <= limit
        {
            let plain = plain.get(..got).unwrap_or_default();
            return walk_from(Slice(plain), count, &mut each);
        }
        let mut reader = compression::reader(codec, 2, &payload)?;
        let (got, rest) = fill(&mut reader, plain);
        let plain = plain.get(..got).unwrap_or_default();
        if matches!(rest, Rest::Nothing) && got <= limit {
            return walk_from(Slice(plain), count, &mut each);
        }
        let rest: Box<dyn Read> = match rest {
            Rest::Failed(error) => Box::new(Failed(Some(error))),
            _ => Box::new(reader),
        };
        let stream = Stream {
            inner: BufReader::with_capacity(8 * 1024, plain.chain(rest)),
            left: limit,
            limit,
            codec,
        };
        walk_from(stream, count, &mut each)
    })
}

/// A batch that is not larger than this in plain is walked in memory, which is several times as fast as a stream.
const IN_MEMORY: usize = 128 * 1024;

thread_local! {
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What comes after the bytes that were read.
enum Rest {
    Nothing,
    More,
    Failed(io::Error),
}

fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Rest) {
    let mut got = 0;
    while let Some(room) = buffer.get_mut(got..).filter(|room| !room.is_empty()) {
        match reader.read(room) {
            Ok(0) => return (got, Rest::Nothing),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (got, Rest::Failed(e)),
        }
    }
    (got, Rest::More)
}

/// A decompressor that has failed: the records before it are looked at first, as in a stream.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Plain bytes, in memory or out of a decompressor.
trait Source {
    fn byte(&mut self) -> Result<u8, RecordError>;

    /// The bits of a variable-length integer of at most `max_bytes` (2 or more) bytes, and how many bytes they took.
    fn varint(&mut self, max_bytes: u32) -> Result<(u64, usize), RecordError> {
        varint_of(max_bytes, || self.byte())
    }

    fn skip(&mut self, n: usize) -> Result<(), RecordError>;
    fn at_end(&mut self) -> Result<bool, RecordError>;
}

fn varint_of(
    max_bytes: u32,
    mut byte: impl FnMut() -> Result<u8, RecordError>,
) -> Result<(u64, usize), RecordError> {
    let mut value = 0u64;
    for i in 0..max_bytes {
        let byte = byte()?;
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i as usize + 1));
        }
    }
    Err(RecordError::invalid(format!(
        "variable-length integer is longer than {max_bytes} bytes"
    )))
}

struct Slice<'a>(&'a [u8]);

impl Source for Slice<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, RecordError> {
        let (first, rest) = self
            .0
            .split_first()
            .ok_or(RecordError::Truncated { wanted: 1, left: 0 })?;
        self.0 = rest;
        Ok(*first)
    }

    /// Nearly all lengths and deltas are of one or two bytes.
    #[inline]
    fn varint(&mut self, max_bytes: u32) -> Result<(u64, usize), RecordError> {
        match *self.0 {
            [a @ 0..=0x7f, ref rest @ ..] => {
                self.0 = rest;
                Ok((a.into(), 1))
            }
            [a, b @ 0..=0x7f, ref rest @ ..] => {
                self.0 = rest;
                Ok((u64::from(a & 0x7f) | u64::from(b) << 7, 2))
            }
            _ => varint_of(max_bytes, || self.byte()),
        }
    }

    #[inline]
    fn skip(&mut self, n: usize) -> Result<(), RecordError> {
        self.0 = self.0.get(n..).ok_or(RecordError::Truncated {
            wanted: n,
            left: self.0.len(),
        })?;
        Ok(())
    }

    fn at_end(&mut self) -> Result<bool, RecordError> {
        Ok(self.0.is_empty())
    }
}

struct Stream<R> {
    inner: BufReader<R>,
    left: usize,
    limit: usize,
    codec: Codec,
}

impl<R: Read> Stream<R> {
    fn spend(&mut self, n: usize) -> Result<(), RecordError> {
        self.left = self
            .left
            .checked_sub(n)
            .ok_or(RecordError::TooLarge { limit: self.limit })?;
        Ok(())
    }

    fn fill(&mut self) -> Result<&[u8], RecordError> {
        let codec = self.codec.name();
        self.inner.fill_buf().map_err(|e| RecordError::Decompress {
            codec,
            reason: e.to_string(),
        })
    }
}

impl<R: Read> Source for Stream<R> {
    fn byte(&mut self) -> Result<u8, RecordError> {
        self.spend(1)?;
        let byte = *self
            .fill()?
            .first()
            .ok_or(RecordError::Truncated { wanted: 1, left: 0 })?;
        self.inner.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, mut n: usize) -> Result<(), RecordError> {
        self.spend(n)?;
        while n > 0 {
            let step = self.fill()?.len().min(n);
            if step == 0 {
                return Err(RecordError::Truncated { wanted: n, left: 0 });
            }
            self.inner.consume(step);
            n -= step;
        }
        Ok(())
    }

    fn at_end(&mut self) -> Result<bool, RecordError> {
        Ok(self.fill()?.is_empty())
    }
}

/// Counts what is taken, so that a record's own length can be checked against its fields.
struct Counted<'a, S> {
    source: &'a mut S,
    taken: usize,
}

impl<S: Source> Counted<'_, S> {
    #[inline]
    fn byte(&mut self) -> Result<u8, RecordError> {
        self.taken += 1;
        self.source.byte()
    }

    #[inline]
    fn number(&mut self, max_bytes: u32) -> Result<i64, RecordError> {
        let (value, taken) = self.source.varint(max_bytes)?;
        self.taken += taken;
        Ok(((value >> 1) as i64) ^ -((value & 1) as i64))
    }

    /// An int32; more than its bits is a lie.
    #[inline]
    fn int(&mut self) -> Result<i32, RecordError> {
        let value = self.number(5)?;
        i32::try_from(value)
            .map_err(|_| RecordError::invalid(format!("{value} is out of range for an int32")))
    }

    /// Skips a field of this many bytes, which must lie inside the record.
    #[inline]
    fn skip(&mut self, n: i32, length: usize) -> Result<(), RecordError> {
        let n = n as usize;
        let left = length.saturating_sub(self.taken);
        if n > left {
            return Err(RecordError::invalid(format!(
                "Found invalid field of {n} bytes, {left} left in the record"
            )));
        }
        self.taken += n;
        self.source.skip(n)
    }
}

fn walk_from<S: Source, E: From<RecordError>>(
    mut source: S,
    count: i32,
    each: &mut impl FnMut(RecordShape) -> Result<(), E>,
) -> Result<(), E> {
    for _ in 0..count {
        if source.at_end()? {
            return Err(RecordError::invalid(
                "Incorrect declared batch size, premature EOF reached",
            )
            .into());
        }
        each(one(&mut source)?)?;
    }
    if !source.at_end()? {
        return Err(RecordError::invalid(
            "Incorrect declared batch size, records still remaining in file",
        )
        .into());
    }
    Ok(())
}

#[inline]
fn one<S: Source>(source: &mut S) -> Result<RecordShape, RecordError> {
    let mut c = Counted { source, taken: 0 };
    let length = c.int()?;
    let length = usize::try_from(length)
        .map_err(|_| RecordError::invalid(format!("Invalid record size {length}")))?;
    c.taken = 0;
    c.byte()?; // attributes
    let timestamp_delta = c.number(10)?;
    let offset_delta = c.int()?;
    let key = c.int()?;
    if key > 0 {
        c.skip(key, length)?;
    }
    let value = c.int()?;
    if value > 0 {
        c.skip(value, length)?;
    }
    let headers = c.int()?;
    if headers < 0 || headers as usize > length {
        return Err(RecordError::invalid(format!(
            "Found invalid number of record headers {headers}"
        )));
    }
    for _ in 0..headers {
        let name = c.int()?;
        if name < 0 {
            return Err(RecordError::invalid(format!(
                "Invalid negative header key size {name}"
            )));
        }
        c.skip(name, length)?;
        let content = c.int()?;
        if content > 0 {
            c.skip(content, length)?;
        }
    }
    if c.taken != length {
        return Err(RecordError::invalid(format!(
            "Invalid record size: expected to read {length} bytes in record payload, but instead read {}",
            c.taken
        )));
    }
    Ok(RecordShape {
        offset_delta,
        timestamp_delta,
        has_key: key >= 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{BatchBuilder, NewRecord};
    use proptest::prelude::*;

    proptest! {
        /// The short cut of a slice says what going byte by byte says.
        #[test]
        fn a_short_integer_is_read_as_a_long_one(
            bytes in prop::collection::vec(any::<u8>(), 0..12),
            max in 2u32..=10,
        ) {
            let mut slice = Slice(&bytes);
            let mut left = &bytes[..];
            let expected = varint_of(max, || Slice(left).byte().inspect(|_| left = &left[1..]));
            prop_assert_eq!(slice.varint(max), expected.clone());
            if expected.is_ok() {
                prop_assert_eq!(slice.0, left);
            }
        }
    }

    /// Around the size that is walked in memory, and well above it.
    #[test]
    fn every_record_is_seen_whatever_the_size() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for plain in [10_000, IN_MEMORY - 200, IN_MEMORY, IN_MEMORY + 200, 500_000] {
                let value = vec![7u8; 90];
                let count = plain / 100;
                let mut builder = BatchBuilder::new(codec);
                for i in 0..count {
                    let record = NewRecord {
                        timestamp: i as i64,
                        value: Some(&value),
                        ..NewRecord::default()
                    };
                    builder.push(record);
                }
                let batch = builder.build().unwrap();
                let seen = |limit| {
                    let mut seen = 0;
                    walk(&batch, limit, |r| {
                        assert_eq!(r.offset_delta, seen);
                        seen += 1;
                        Ok::<_, RecordError>(())
                    })
                    .map(|()| seen)
                };
                assert_eq!(seen(1 << 20).unwrap(), count as i32, "{codec:?} {plain}");
                assert!(matches!(seen(plain / 2), Err(RecordError::TooLarge { .. })));
            }
        }
    }
}
