//! What a read gave, in memory.

use bytes::{Bytes, BytesMut};
use gracchus_kafka_proto::RecordsPart;
use std::io;
use std::os::unix::fs::FileExt;

/// The parts in one piece, those in files read: bounded by what the reader asked for. Nothing is copied where it is one already.
pub fn in_memory(parts: &[RecordsPart]) -> io::Result<Bytes> {
    if let [RecordsPart::Bytes(bytes)] = parts {
        return Ok(bytes.clone());
    }
    let size: u64 = parts.iter().map(RecordsPart::len).sum();
    let mut all = BytesMut::with_capacity(usize::try_from(size).unwrap_or(0));
    for part in parts {
        match part {
            RecordsPart::Bytes(bytes) => all.extend_from_slice(bytes),
            RecordsPart::File(region) => {
                let start = all.len();
                let len = usize::try_from(region.len).map_err(|_| io::ErrorKind::InvalidInput)?;
                all.resize(start + len, 0);
                if let Some(room) = all.get_mut(start..) {
                    region.file.read_exact_at(room, region.offset)?;
                }
            }
        }
    }
    Ok(all.freeze())
}
