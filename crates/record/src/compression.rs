//! The five codecs. Every decompressor has an output limit, since what a stranger sends may be a bomb.

use crate::RecordError;
use std::io::{Cursor, Read, Write};

/// Compression of a batch, by its id in the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub fn from_id(id: u8) -> Result<Self, RecordError> {
        Ok(match id {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return Err(RecordError::UnknownCodec(id)),
        })
    }

    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ]
        .into_iter()
        .find(|c| c.name() == name)
    }
}

/// How hard to compress: `compression.gzip.level` (-1, 1..=9), `compression.lz4.level`, `compression.zstd.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    pub gzip: i32,
    pub lz4: i32,
    pub zstd: i32,
}

impl Default for Levels {
    fn default() -> Self {
        Levels {
            gzip: -1,
            lz4: 9,
            zstd: 3,
        }
    }
}

fn failed(codec: Codec, reason: impl ToString) -> RecordError {
    RecordError::Decompress {
        codec: codec.name(),
        reason: reason.to_string(),
    }
}

const SNAPPY_MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Plain bytes in one block of Java's snappy framing.
const SNAPPY_BLOCK: usize = 32 * 1024;

/// A reader of the plain bytes. Its memory is bounded by the codec's window, not by the input's word.
pub fn reader<'a>(
    codec: Codec,
    magic: i8,
    input: &'a [u8],
) -> Result<Box<dyn Read + 'a>, RecordError> {
    Ok(match codec {
        Codec::None => Box::new(input),
        Codec::Gzip => Box::new(flate2::read::MultiGzDecoder::new(input)),
        Codec::Snappy => Box::new(SnappyReader::new(input)),
        Codec::Lz4 => {
            let fixed = if magic == 0 {
                fix_lz4_header(input)
            } else {
                None
            };
            match fixed {
                Some(bytes) => Box::new(lz4_flex::frame::FrameDecoder::new(Cursor::new(bytes))),
                None => Box::new(lz4_flex::frame::FrameDecoder::new(input)),
            }
        }
        Codec::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(input).map_err(|e| failed(codec, e))?;
            // 128 MiB, zstd's own default and what Java's clients use at level 22. The window is reserved, not written, so
            // only plain bytes that really come make it resident
            decoder.window_log_max(27).map_err(|e| failed(codec, e))?;
            Box::new(decoder)
        }
    })
}

/// What Java's client and librdkafka begin a frame with: independent blocks of 64 KiB, no sizes, no checksums.
const LZ4_USUAL_HEADER: &[u8] = &[0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const LZ4_BLOCK: usize = 64 * 1024;

/// Writes the plain bytes of one frame with the usual header into `out`, without the reader's buffers and copies.
/// `None`: another header, a fault, or more than `out` holds; [`reader`] is for those.
pub(crate) fn lz4_into(input: &[u8], out: &mut [u8]) -> Option<usize> {
    const STORED: u32 = 1 << 31;
    let mut rest = input.strip_prefix(LZ4_USUAL_HEADER)?;
    let mut filled = 0;
    loop {
        let (word, after) = rest.split_first_chunk()?;
        let word = u32::from_le_bytes(*word);
        if word == 0 {
            return after.is_empty().then_some(filled);
        }
        let len = usize::try_from(word & !STORED).ok()?;
        let (block, after) = after.split_at_checked(len)?;
        rest = after;
        let room = out.get_mut(filled..)?;
        let most = room.len().min(LZ4_BLOCK);
        let room = room.get_mut(..most)?;
        if word & STORED != 0 {
            room.get_mut(..len)?.copy_from_slice(block);
            filled += len;
        } else if len <= LZ4_BLOCK {
            filled += lz4_flex::block::decompress_into(block, room).ok()?;
        } else {
            return None;
        }
    }
}

/// The plain bytes of `input`, at most `limit` of them. `magic` chooses the framing of LZ4 in format v0.
pub fn decompress(
    codec: Codec,
    magic: i8,
    input: &[u8],
    limit: usize,
) -> Result<Vec<u8>, RecordError> {
    let mut out = Vec::with_capacity(input.len().saturating_mul(3).min(limit));
    let mut bounded = reader(codec, magic, input)?.take(limit as u64 + 1);
    bounded
        .read_to_end(&mut out)
        .map_err(|e| failed(codec, e))?;
    if out.len() > limit {
        return Err(RecordError::TooLarge { limit });
    }
    Ok(out)
}

/// Compresses as Java's clients do for a batch of this format.
pub fn compress(
    codec: Codec,
    magic: i8,
    levels: Levels,
    plain: &[u8],
) -> Result<Vec<u8>, RecordError> {
    let fail = |e: std::io::Error| failed(codec, e);
    Ok(match codec {
        Codec::None => plain.to_vec(),
        Codec::Gzip => {
            let level = if (0..=9).contains(&levels.gzip) {
                flate2::Compression::new(levels.gzip as u32)
            } else {
                flate2::Compression::default()
            };
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain).map_err(fail)?;
            encoder.finish().map_err(fail)?
        }
        Codec::Snappy => compress_snappy(plain)?,
        Codec::Lz4 => {
            // 64 KiB independent blocks: what Java's reader takes
            let info =
                lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(plain).map_err(fail)?;
            let mut out = encoder.finish().map_err(|e| failed(codec, e))?;
            if magic == 0 {
                break_lz4_header(&mut out);
            }
            out
        }
        Codec::Zstd => zstd::stream::encode_all(plain, levels.zstd).map_err(fail)?,
    })
}

fn compress_snappy(plain: &[u8]) -> Result<Vec<u8>, RecordError> {
    let mut out = SNAPPY_MAGIC.to_vec();
    out.extend_from_slice(&1i32.to_be_bytes()); // version
    out.extend_from_slice(&1i32.to_be_bytes()); // lowest compatible version
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(SNAPPY_BLOCK) {
        let packed = encoder
            .compress_vec(block)
            .map_err(|e| failed(Codec::Snappy, e))?;
        out.extend_from_slice(&(packed.len() as i32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// Reads Java's snappy framing block by block, or one raw block without framing (as other clients send).
struct SnappyReader<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    at: usize,
}

/// Largest plain block: a raw one holds a whole batch.
const SNAPPY_BLOCK_MAX: usize = 128 << 20;

impl<'a> SnappyReader<'a> {
    fn new(input: &'a [u8]) -> Self {
        let framed = input.starts_with(SNAPPY_MAGIC) && input.len() >= 16;
        let rest = if framed {
            input.get(16..).unwrap_or_default()
        } else {
            input
        };
        SnappyReader {
            rest,
            framed,
            block: Vec::new(),
            at: 0,
        }
    }

    /// Whether there was something to take; the block may still be empty.
    fn next_block(&mut self) -> Result<bool, String> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let packed = if self.framed {
            let (length, rest) = self
                .rest
                .split_first_chunk::<4>()
                .ok_or("block length ends early")?;
            if SNAPPY_MAGIC.starts_with(length) {
                // streams may be joined end to end, each with its own header
                self.rest = rest.get(12..).ok_or("header ends early")?;
                self.block.clear();
                self.at = 0;
                return Ok(true);
            }
            let length = usize::try_from(i32::from_be_bytes(*length))
                .map_err(|_| "negative block length")?;
            let (packed, rest) = rest.split_at_checked(length).ok_or("block ends early")?;
            self.rest = rest;
            packed
        } else {
            std::mem::take(&mut self.rest)
        };
        let plain = snap::raw::decompress_len(packed).map_err(|e| e.to_string())?;
        // no encoding of snappy reaches 1:64, so a larger claim is a lie
        if plain > SNAPPY_BLOCK_MAX || plain > packed.len().saturating_mul(64) + 64 {
            return Err(format!(
                "block claims {plain} plain bytes in {} packed ones",
                packed.len()
            ));
        }
        self.block.resize(plain, 0);
        self.at = 0;
        snap::raw::Decoder::new()
            .decompress(packed, &mut self.block)
            .map_err(|e| e.to_string())?;
        Ok(true)
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        while self.at >= self.block.len() {
            if !self.next_block().map_err(std::io::Error::other)? {
                return Ok(0);
            }
        }
        let n = self.block.get(self.at..).unwrap_or_default().read(out)?;
        self.at += n;
        Ok(n)
    }
}

/// Where the header checksum of an LZ4 frame lies: after magic, FLG, BD and an optional content size.
fn lz4_checksum_at(frame: &[u8]) -> Option<usize> {
    let flg = *frame.get(4)?;
    let at = if flg & 0x08 != 0 { 14 } else { 6 };
    (at < frame.len()).then_some(at)
}

/// Kafka's format v0 computed the header checksum over the frame's magic too (KAFKA-3160): put the right one.
fn fix_lz4_header(input: &[u8]) -> Option<Vec<u8>> {
    let at = lz4_checksum_at(input)?;
    let right = (xxh32_short(input.get(4..at)?) >> 8) as u8;
    if input.get(at) == Some(&right) {
        return None;
    }
    let mut fixed = input.to_vec();
    if let Some(byte) = fixed.get_mut(at) {
        *byte = right;
    }
    Some(fixed)
}

/// The other way: the wrong checksum that readers of format v0 want.
fn break_lz4_header(frame: &mut [u8]) {
    let Some(at) = lz4_checksum_at(frame) else {
        return;
    };
    let wrong = frame.get(..at).map(|head| (xxh32_short(head) >> 8) as u8);
    if let (Some(byte), Some(wrong)) = (frame.get_mut(at), wrong) {
        *byte = wrong;
    }
}

/// xxHash32 with seed 0 of fewer than 16 bytes, which is all that a frame header has.
fn xxh32_short(input: &[u8]) -> u32 {
    const P1: u32 = 2_654_435_761;
    const P2: u32 = 2_246_822_519;
    const P3: u32 = 3_266_489_917;
    const P4: u32 = 668_265_263;
    const P5: u32 = 374_761_393;
    let mut h = P5.wrapping_add(input.len() as u32);
    let mut chunks = input.chunks_exact(4);
    for c in &mut chunks {
        let word = c
            .iter()
            .rev()
            .fold(0u32, |acc, &b| (acc << 8) | u32::from(b));
        h = h
            .wrapping_add(word.wrapping_mul(P3))
            .rotate_left(17)
            .wrapping_mul(P4);
    }
    for &byte in chunks.remainder() {
        h = h
            .wrapping_add(u32::from(byte).wrapping_mul(P5))
            .rotate_left(11)
            .wrapping_mul(P1);
    }
    h ^= h >> 15;
    h = h.wrapping_mul(P2);
    h ^= h >> 13;
    h = h.wrapping_mul(P3);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    #[test]
    fn each_codec_gives_back_what_it_got() {
        for size in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000] {
            let plain: Vec<u8> = (0..size)
                .map(|i| (i % 251) as u8 ^ (i / 1000) as u8)
                .collect();
            for codec in ALL {
                for magic in [0, 1, 2] {
                    let packed = compress(codec, magic, Levels::default(), &plain).unwrap();
                    assert_eq!(
                        decompress(codec, magic, &packed, size).unwrap(),
                        plain,
                        "{codec:?} {magic} {size}"
                    );
                    if size > 0 {
                        let bomb = decompress(codec, magic, &packed, size - 1);
                        assert_eq!(bomb, Err(RecordError::TooLarge { limit: size - 1 }));
                    }
                }
            }
        }
    }

    #[test]
    fn a_usual_lz4_frame_takes_the_short_way() {
        let plain: Vec<u8> = (0..150_000u32).map(|i| (i / 7 * i) as u8).collect();
        let mut out = vec![0; plain.len()];
        for size in [0, 1, 1000, LZ4_BLOCK, LZ4_BLOCK + 1, plain.len()] {
            let packed = compress(Codec::Lz4, 2, Levels::default(), &plain[..size]).unwrap();
            assert_eq!(lz4_into(&packed, &mut out), Some(size));
            assert_eq!(out[..size], plain[..size]);
            if size > 0 {
                assert_eq!(lz4_into(&packed, &mut out[..size - 1]), None);
            }
            let two = [&packed[..], &packed].concat();
            assert_eq!(
                lz4_into(&two, &mut out),
                None,
                "the reader goes on with the next frame"
            );
        }
    }

    proptest! {
        /// Whatever was done to a frame: where the short way gives bytes, the reader gives the same.
        #[test]
        fn the_short_way_of_lz4_takes_nothing_that_the_reader_refuses(
            plain in prop::collection::vec(0u8..4, 0..3000),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in 0usize..4,
        ) {
            let mut packed = compress(Codec::Lz4, 2, Levels::default(), &plain).unwrap();
            for (at, byte) in changes {
                *at.get_mut(&mut packed) = byte;
            }
            packed.truncate(packed.len() - cut);
            let mut out = vec![0; 1 << 17];
            if let Some(got) = lz4_into(&packed, &mut out) {
                prop_assert_eq!(&decompress(Codec::Lz4, 2, &packed, 1 << 20).unwrap(), &out[..got]);
            }
        }
    }

    #[test]
    fn format_v0_has_lz4s_wrong_header_checksum() {
        let v0 = compress(Codec::Lz4, 0, Levels::default(), b"hello").unwrap();
        let v1 = compress(Codec::Lz4, 1, Levels::default(), b"hello").unwrap();
        assert_ne!(v0[6], v1[6]);
        assert_eq!(decompress(Codec::Lz4, 0, &v0, 10).unwrap(), b"hello");
        // a reader of format v0 takes the right checksum too
        assert_eq!(decompress(Codec::Lz4, 0, &v1, 10).unwrap(), b"hello");
        assert!(decompress(Codec::Lz4, 1, &v0, 10).is_err());
    }

    #[test]
    fn raw_snappy_without_javas_framing_is_read() {
        let packed = snap::raw::Encoder::new()
            .compress_vec(b"plain plain plain plain")
            .unwrap();
        assert_eq!(
            decompress(Codec::Snappy, 2, &packed, 100).unwrap(),
            b"plain plain plain plain"
        );
    }

    #[test]
    fn damaged_input_is_an_error() {
        for codec in ALL {
            let packed = compress(codec, 2, Levels::default(), &[7; 5000]).unwrap();
            let cut = &packed[..packed.len() / 2];
            assert!(
                decompress(codec, 2, cut, 10_000).is_err()
                    || decompress(codec, 2, cut, 10_000).unwrap().len() < 5000
            );
            assert!(
                decompress(codec, 2, b"not compressed at all", 10_000).is_err(),
                "{codec:?}"
            );
        }
    }
}
