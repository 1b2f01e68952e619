//! Zig-zag variable-length integers, as in format v2's records.

use crate::RecordError;

/// The bytes of a value, most 10.
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut v = ((value << 1) ^ (value >> 63)) as u64;
    while v >= 0x80 {
        out.push((v as u8) | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, value.into());
}

/// How many bytes a value takes.
pub fn varlong_size(value: i64) -> usize {
    let v = ((value << 1) ^ (value >> 63)) as u64;
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

pub fn varint_size(value: i32) -> usize {
    varlong_size(value.into())
}

/// Takes a value of at most `max_bytes` bytes from the front of `buf`.
fn take(buf: &mut &[u8], max_bytes: usize) -> Result<u64, RecordError> {
    let mut value = 0u64;
    for (i, &byte) in buf.iter().take(max_bytes).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            *buf = buf.get(i + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    Err(if buf.len() < max_bytes {
        RecordError::Truncated {
            wanted: buf.len() + 1,
            left: buf.len(),
        }
    } else {
        RecordError::invalid(format!(
            "variable-length integer is longer than {max_bytes} bytes"
        ))
    })
}

pub fn varlong(buf: &mut &[u8]) -> Result<i64, RecordError> {
    let v = take(buf, 10)?;
    Ok(((v >> 1) as i64) ^ -((v & 1) as i64))
}

pub fn varint(buf: &mut &[u8]) -> Result<i32, RecordError> {
    let v = take(buf, 5)? as u32;
    Ok(((v >> 1) as i32) ^ -((v & 1) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(value in any::<i64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            prop_assert_eq!(out.len(), varlong_size(value));
            prop_assert_eq!(varlong(&mut out.as_slice()).unwrap(), value);
            let small = value as i32;
            let mut out = Vec::new();
            put_varint(&mut out, small);
            prop_assert_eq!(varint(&mut out.as_slice()).unwrap(), small);
        }
    }

    #[test]
    fn known_encodings() {
        for (value, bytes) in [
            (0, &[0u8][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (-64, &[127]),
            (64, &[0x80, 1]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert!(varint(&mut &[0x80u8; 4][..]).is_err());
        assert!(varint(&mut &[0x80u8, 0x80, 0x80, 0x80, 0x80, 1][..]).is_err());
    }
}
