//! `.snapshot`, version 1: int16 version, uint32 CRC-32C of what follows, int32 count, 46 bytes a producer.

use super::entry::{BatchMetadata, ProducerEntry};
use crate::disk;
use crate::error::LogError;
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use std::path::Path;

const ENTRY: usize = 46;
const HEAD: usize = 10;
/// Some ten million producers.
const LIMIT: u64 = 512 << 20;

/// Reads a snapshot; damage is an error that names it.
pub fn read_snapshot(path: &Path) -> Result<Vec<ProducerEntry>, LogError> {
    let bytes =
        disk::read_small(path, LIMIT)?.ok_or_else(|| LogError::corrupt(path, "it is gone"))?;
    decode(&bytes).map_err(|detail| LogError::corrupt(path, detail))
}

/// Writes a snapshot in place of any other of that name.
pub fn write_snapshot<'a>(
    path: &Path,
    entries: impl Iterator<Item = &'a ProducerEntry>,
) -> Result<(), LogError> {
    std::fs::write(path, encode(entries)).map_err(|e| {
        let _ = std::fs::remove_file(path);
        LogError::io("write", path, e)
    })
}

fn encode<'a>(entries: impl Iterator<Item = &'a ProducerEntry>) -> Vec<u8> {
    let mut out = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    // Kafka's order is that of a hash map; by id, equal states give equal files.
    let mut entries: Vec<&ProducerEntry> = entries.collect();
    entries.sort_unstable_by_key(|e| e.producer_id);
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    for e in entries {
        let delta = e.last_batch().map_or(0, |b| b.offset_delta);
        out.extend_from_slice(&e.producer_id.to_be_bytes());
        out.extend_from_slice(&e.producer_epoch.to_be_bytes());
        out.extend_from_slice(&e.last_sequence().to_be_bytes());
        out.extend_from_slice(&e.last_data_offset().to_be_bytes());
        out.extend_from_slice(&delta.to_be_bytes());
        out.extend_from_slice(&e.last_timestamp.to_be_bytes());
        out.extend_from_slice(&e.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&e.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
    }
    out[6..10].copy_from_slice(&count.to_be_bytes());
    let crc = crc_fast::checksum(Crc32Iscsi, &out[6..]) as u32;
    out[2..6].copy_from_slice(&crc.to_be_bytes());
    out
}

fn decode(bytes: &[u8]) -> Result<Vec<ProducerEntry>, String> {
    let Some(([v0, v1, c0, c1, c2, c3, n0, n1, n2, n3], body)) = bytes.split_first_chunk::<HEAD>()
    else {
        return Err("it is shorter than its header".into());
    };
    let version = i16::from_be_bytes([*v0, *v1]);
    if version != 1 {
        return Err(format!("its version is {version}, not 1"));
    }
    let stored = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
    let computed = crc_fast::checksum(Crc32Iscsi, bytes.get(6..).unwrap_or_default()) as u32;
    if stored != computed {
        return Err(format!("its checksum is {stored}, computed {computed}"));
    }
    let count = i32::from_be_bytes([*n0, *n1, *n2, *n3]);
    let (entries, rest) = body.as_chunks::<ENTRY>();
    if usize::try_from(count) != Ok(entries.len()) || !rest.is_empty() {
        return Err(format!(
            "{count} producers do not fill {} bytes",
            body.len()
        ));
    }
    Ok(entries.iter().map(entry).collect())
}

fn entry(bytes: &[u8; ENTRY]) -> ProducerEntry {
    fn take<const N: usize>(bytes: &[u8; ENTRY], at: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(slice) = bytes.get(at..at + N) {
            out.copy_from_slice(slice);
        }
        out
    }
    let mut e = ProducerEntry::empty(i64::from_be_bytes(take(bytes, 0)));
    e.set_epoch(i16::from_be_bytes(take(bytes, 8)));
    let last_sequence = i32::from_be_bytes(take(bytes, 10));
    let last_offset = i64::from_be_bytes(take(bytes, 14));
    let offset_delta = i32::from_be_bytes(take(bytes, 22));
    let timestamp = i64::from_be_bytes(take(bytes, 26));
    if last_offset >= 0 {
        e.push(BatchMetadata {
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
        });
    }
    e.last_timestamp = timestamp;
    e.coordinator_epoch = i32::from_be_bytes(take(bytes, 34));
    let txn = i64::from_be_bytes(take(bytes, 38));
    e.current_txn_first_offset = (txn >= 0).then_some(txn);
    e
}
