//! The batches of a segment, and the records in them.

use super::indexes::Mismatches;
use super::{Options, base_offset, optional, unreadable};
use crate::tools::Failure;
use bytes::Bytes;
use gracchus_record::batch::increment_sequence;
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::entry::{PREFIX_SIZE, Prefix};
use gracchus_record::{Entry, Record, RecordError, TimestampType};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most plain bytes of one compressed batch.
pub(super) const DECOMPRESS_LIMIT: usize = 1 << 30;

/// The batches of a file, one in memory at a time.
pub(super) struct Batches {
    file: File,
    /// Where the next one begins.
    pub position: u64,
    end: u64,
}

impl Batches {
    pub(super) fn open(path: &Path, from: u64, max_bytes: u64) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let end = file.metadata()?.len().min(from.saturating_add(max_bytes));
        Ok(Batches {
            file,
            position: from,
            end,
        })
    }

    /// Bytes after the last whole batch.
    pub(super) fn rest(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// The next whole batch.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        let mut prefix = [0u8; PREFIX_SIZE];
        if self.rest() < PREFIX_SIZE as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut prefix, self.position)?;
        let invalid =
            |e: RecordError| Failure::other(format!("at position {}: {e}", self.position));
        let prefix = Prefix::parse(&prefix).map_err(invalid)?;
        if prefix.size as u64 > self.rest() {
            return Ok(None);
        }
        let mut bytes = vec![0; prefix.size];
        self.file.read_exact_at(&mut bytes, self.position)?;
        let entry = Entry::parse(&Bytes::from(bytes)).map_err(invalid)?;
        self.position += prefix.size as u64;
        Ok(Some(entry))
    }
}

/// A timestamp with its type, as Kafka names it.
fn time(entry: &Entry, ms: i64) -> String {
    match (entry.magic(), entry.timestamp_type()) {
        (0, _) => format!("NoTimestampType: {ms}"),
        (_, TimestampType::CreateTime) => format!("CreateTime: {ms}"),
        (_, TimestampType::LogAppendTime) => format!("LogAppendTime: {ms}"),
    }
}

pub(super) fn dump(
    o: &Options,
    file: &Path,
    out: &mut impl Write,
    found: &mut Mismatches,
) -> Result<(), Failure> {
    writeln!(out, "Log starting offset: {}", base_offset(file)?)?;
    let limit = u64::try_from(o.max_bytes).unwrap_or(0);
    let mut batches = Batches::open(file, 0, limit).map_err(|e| unreadable(file, e))?;
    let mut last = None;
    loop {
        let position = batches.position;
        let entry = match batches.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(e) => {
                writeln!(out, "{}: {e}", file.display())?;
                break;
            }
        };
        print_batch(out, &entry, position)?;
        if o.is_deep() {
            print_records(o, out, &entry, |offset| {
                if let Some(before) = last.replace(offset)
                    && offset != before + 1
                {
                    found.gap(file, before, offset);
                }
            })?;
        }
    }
    if batches.rest() > 0 && o.max_bytes == i32::MAX {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        writeln!(
            out,
            "Found {} invalid bytes at the end of {name}",
            batches.rest()
        )?;
    }
    Ok(())
}

fn print_batch(out: &mut impl Write, entry: &Entry, position: u64) -> Result<(), Failure> {
    let crc = match entry {
        Entry::V2(b) => {
            let h = &b.header;
            write!(
                out,
                "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {}",
                h.base_offset,
                h.last_offset(),
                h.record_count,
                h.base_sequence,
                h.last_sequence(),
                h.producer_id,
                h.producer_epoch,
                h.leader_epoch,
                h.is_transactional(),
                h.is_control(),
                optional(h.delete_horizon())
            )?;
            h.crc
        }
        Entry::Legacy(m) => {
            write!(out, "offset: {}", m.offset)?;
            m.crc
        }
    };
    let codec = entry.codec().map_or("unknown", |c| c.name());
    writeln!(
        out,
        " position: {position} {} size: {} magic: {} compresscodec: {codec} crc: {crc} isvalid: {}",
        time(entry, entry.max_timestamp()),
        entry.size(),
        entry.magic(),
        entry.check_crc().is_ok()
    )?;
    Ok(())
}

fn print_records(
    o: &Options,
    out: &mut impl Write,
    entry: &Entry,
    mut seen: impl FnMut(i64),
) -> Result<(), Failure> {
    // only old formats have a checksum in each record
    let inner = match entry {
        Entry::Legacy(m) if entry.codec() != Ok(gracchus_record::Codec::None) => {
            m.inner(DECOMPRESS_LIMIT).unwrap_or_default()
        }
        Entry::Legacy(m) => vec![m.clone()],
        Entry::V2(_) => Vec::new(),
    };
    let mut inner = inner.iter();
    let mut failure = None;
    let walked = entry.for_each_record(DECOMPRESS_LIMIT, |r| {
        let checksum = inner.next().map(|m| (m.check_crc().is_ok(), m.crc));
        seen(r.offset);
        if let Err(e) = print_record(o, out, entry, &r, checksum) {
            failure = Some(e);
            return Err(RecordError::Invalid("stopped".into()));
        }
        Ok(())
    });
    match (failure, walked) {
        (Some(e), _) => Err(e.into()),
        (None, Err(e)) => {
            writeln!(out, "| {e}")?;
            Ok(())
        }
        (None, Ok(())) => Ok(()),
    }
}

fn print_record(
    o: &Options,
    out: &mut impl Write,
    entry: &Entry,
    r: &Record<'_>,
    checksum: Option<(bool, u32)>,
) -> std::io::Result<()> {
    let mut prefix = "| ";
    if !o.skip_record_metadata {
        let length = |f: Option<&[u8]>| f.map_or(-1, |b| b.len() as i64);
        write!(
            out,
            "{prefix}offset: {} {} keySize: {} valueSize: {}",
            r.offset,
            time(entry, r.timestamp),
            length(r.key),
            length(r.value)
        )?;
        prefix = " ";
        if let Entry::V2(b) = entry {
            let h = &b.header;
            let sequence = if h.base_sequence < 0 {
                -1
            } else {
                let delta = i32::try_from(r.offset - h.base_offset).unwrap_or(0);
                increment_sequence(h.base_sequence, delta)
            };
            let names: Vec<_> = r
                .headers
                .iter()
                .map(|h| String::from_utf8_lossy(h.key).into_owned())
                .collect();
            write!(
                out,
                " sequence: {sequence} headerKeys: [{}]",
                names.join(",")
            )?;
        }
        if let Some((valid, crc)) = checksum {
            write!(out, " isValid: {valid} crc: {crc}}}")?;
        }
        if entry.is_control() {
            match EndTransaction::parse(r.key, r.value) {
                Ok(Some(end)) => {
                    let name = match end.marker {
                        Marker::Abort => "ABORT",
                        Marker::Commit => "COMMIT",
                    };
                    write!(
                        out,
                        " endTxnMarker: {name} coordinatorEpoch: {}",
                        end.coordinator_epoch
                    )?;
                }
                Ok(None) => write!(out, " controlType: UNKNOWN")?,
                Err(e) => write!(out, " {e}")?,
            }
        }
    }
    if o.prints_data() && !entry.is_control() {
        let (key, value) = o.show(r);
        if let Some(key) = key {
            write!(out, "{prefix}key: {key}")?;
        }
        if let Some(value) = value {
            write!(out, " payload: {value}")?;
        }
    }
    writeln!(out)
}
