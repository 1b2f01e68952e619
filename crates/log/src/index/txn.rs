//! `.txnindex`: one entry an aborted transaction whose marker is in the segment; 34 bytes: int16 version 0, int64
//! producer id, int64 first offset, int64 last offset (the marker's), int64 last stable offset at that time.

use crate::disk;
use crate::error::LogError;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: usize = 34;
/// Sixteen million aborts in one segment; more is damage.
const LIMIT: u64 = 512 << 20;

/// An aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedEntry {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

/// The file is made with its first entry, and read whole: aborts are rare.
#[derive(Debug, Default)]
pub struct TxnIndex;

impl TxnIndex {
    /// All entries; none without a file.
    pub fn read(path: &Path) -> Result<Vec<AbortedEntry>, LogError> {
        let Some(bytes) = disk::read_small(path, LIMIT)? else {
            return Ok(Vec::new());
        };
        let (entries, rest) = bytes.as_chunks::<SIZE>();
        if !rest.is_empty() {
            return Err(LogError::corrupt(
                path,
                format!("its size {} is no multiple of {SIZE}", bytes.len()),
            ));
        }
        entries
            .iter()
            .map(|e| {
                decode(e).ok_or_else(|| LogError::corrupt(path, "an entry's version is not 0"))
            })
            .collect()
    }

    /// Adds entries at the end; on an error the file is as it was.
    pub fn append(path: &Path, entries: &[AbortedEntry]) -> Result<(), LogError> {
        if entries.is_empty() {
            return Ok(());
        }
        let file = disk::open(path, true)?;
        let io = |e| LogError::io("append to", path, e);
        let len = file.metadata().map_err(io)?.len();
        let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
        file.write_all_at(&bytes, len).map_err(|e| {
            let _ = file.set_len(len);
            io(e)
        })
    }

    /// Forgets transactions whose marker is at or after `offset`.
    pub fn truncate_to(path: &Path, offset: i64) -> Result<(), LogError> {
        let entries = Self::read(path)?;
        let keep = entries.partition_point(|e| e.last_offset < offset);
        if keep == entries.len() {
            return Ok(());
        }
        disk::open(path, false)?
            .set_len((keep * SIZE) as u64)
            .map_err(|e| LogError::io("cut", path, e))
    }

    /// Empties the file, if there is one.
    pub fn reset(path: &Path) -> Result<(), LogError> {
        match disk::file_len(path)? {
            None | Some(0) => Ok(()),
            Some(_) => disk::open(path, false)?
                .set_len(0)
                .map_err(|e| LogError::io("cut", path, e)),
        }
    }
}

fn encode(e: &AbortedEntry) -> [u8; SIZE] {
    let mut out = [0u8; SIZE];
    out[2..10].copy_from_slice(&e.producer_id.to_be_bytes());
    out[10..18].copy_from_slice(&e.first_offset.to_be_bytes());
    out[18..26].copy_from_slice(&e.last_offset.to_be_bytes());
    out[26..34].copy_from_slice(&e.last_stable_offset.to_be_bytes());
    out
}

fn decode(e: &[u8; SIZE]) -> Option<AbortedEntry> {
    let (version, rest) = e.split_first_chunk::<2>()?;
    if *version != [0, 0] {
        return None;
    }
    let (longs, _) = rest.as_chunks::<8>();
    let mut longs = longs.iter().map(|b| i64::from_be_bytes(*b));
    Some(AbortedEntry {
        producer_id: longs.next()?,
        first_offset: longs.next()?,
        last_offset: longs.next()?,
        last_stable_offset: longs.next()?,
    })
}
