//! Writes the transaction log: a batch of transactions is encoded, written and made durable together.
//!
//! The file grows in sparse steps as ZooKeeper's does, and its tail is zeroed a piece ahead of the writes, so that a commit changes
//! no metadata and some room is left when the disk is full.

use super::data_dir::{CUT_PREFIX, sync_dir};
use super::{FORMAT_VERSION, LOG_HEADER_LEN, LOG_MAGIC, RECORD_END};
use bytes::{BufMut, BytesMut};
use gracchus_zk_proto::Jute;
use gracchus_zk_proto::txn::{Txn, TxnHeader};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Zeroed at a time ahead of the writes.
const ZERO_STEP: u64 = 1 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// Of a cut tail at most.
const MAX_KEPT: u64 = 64 << 20;
/// The file is extended when a write comes this near to its end, as in ZooKeeper.
const MARGIN: u64 = 4096;

/// A commit that failed. Nothing of the batch may be applied.
#[derive(Debug, thiserror::Error)]
#[error("can't write the transaction log {path}: {source}")]
pub struct CommitError {
    pub path: PathBuf,
    pub source: io::Error,
    /// What was written of the batch is off the disk again; otherwise a restart might still find it.
    pub undone: bool,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    path: PathBuf,
    /// Where the next record goes.
    position: u64,
    len: u64,
    zeroed_to: u64,
    /// A failed write could not be taken back yet.
    dirty: bool,
}

#[derive(Debug)]
pub struct TxnLog {
    dir: PathBuf,
    pre_alloc: u64,
    force_sync: bool,
    open: Option<OpenLog>,
    batch: BytesMut,
    first_zxid: i64,
    txns: u64,
    /// Since the last roll.
    pub txns_since_roll: u64,
    pub bytes_since_roll: u64,
}

impl TxnLog {
    pub fn new(dir: &Path, pre_alloc: u64, force_sync: bool) -> Self {
        TxnLog {
            dir: dir.into(),
            pre_alloc: pre_alloc.max(MARGIN),
            force_sync,
            open: None,
            batch: BytesMut::new(),
            first_zxid: 0,
            txns: 0,
            txns_since_roll: 0,
            bytes_since_roll: 0,
        }
    }

    /// Goes on behind the last transaction of an existing log; what follows it is cut off unless it is padding.
    pub fn resume(&mut self, path: &Path, position: u64, txns: u64) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        let zeroed_to = padding_end(&file, position, len)?;
        let len = match zeroed_to {
            Some(_) => len,
            None => {
                keep_aside(&file, path, position);
                file.set_len(position)?;
                position
            }
        };
        // What a killed process wrote may not have reached the disk, and is about to be served.
        if self.force_sync {
            file.sync_data()?;
        }
        self.txns_since_roll = txns;
        self.bytes_since_roll = position;
        self.open = Some(OpenLog {
            file,
            path: path.into(),
            position,
            len,
            zeroed_to: zeroed_to.unwrap_or(position),
            dirty: false,
        });
        Ok(())
    }

    /// Adds a transaction to the batch.
    pub fn append(&mut self, header: &TxnHeader, txn: &Txn) {
        if self.batch.is_empty() {
            self.first_zxid = header.zxid;
        }
        let start = self.batch.len();
        self.batch.put_bytes(0, 12);
        header.write(&mut self.batch);
        txn.write(&mut self.batch);
        let end = self.batch.len();
        let payload = self.batch.get(start + 12..end).unwrap_or_default();
        let checksum = i64::from(simd_adler32::adler32(&payload));
        let length = (end - start - 12) as i32;
        if let Some(mut head) = self.batch.get_mut(start..start + 12) {
            head.put_i64(checksum);
            head.put_i32(length);
        }
        self.batch.put_u8(RECORD_END);
        self.txns += 1;
    }

    /// Bytes in the batch.
    pub fn batch_len(&self) -> usize {
        self.batch.len()
    }

    /// Writes the batch and waits for the disk. `Some` says how long that took.
    pub fn commit(&mut self) -> Result<Option<Duration>, CommitError> {
        if self.batch.is_empty() {
            return Ok(None);
        }
        let result = self.write_batch();
        let written = self.batch.len() as u64;
        self.batch.clear();
        if self.batch.capacity() > 8 << 20 {
            self.batch = BytesMut::new();
        }
        let txns = std::mem::take(&mut self.txns);
        if result.is_ok() {
            self.txns_since_roll += txns;
            self.bytes_since_roll += written;
        }
        result
    }

    fn write_batch(&mut self) -> Result<Option<Duration>, CommitError> {
        if self.open.is_none() {
            let path = self.dir.join(format!("log.{:x}", self.first_zxid));
            match create_log(&path, self.force_sync) {
                Ok(file) => {
                    self.open = Some(OpenLog {
                        file,
                        path,
                        position: LOG_HEADER_LEN,
                        len: LOG_HEADER_LEN,
                        zeroed_to: LOG_HEADER_LEN,
                        dirty: false,
                    });
                }
                Err(source) => {
                    // A log without a transaction is of no use, and its name belongs to the next attempt.
                    let undone = std::fs::remove_file(&path).is_ok() || !path.exists();
                    return Err(CommitError {
                        path,
                        source,
                        undone,
                    });
                }
            }
        }
        let Some(log) = &mut self.open else {
            return Ok(None);
        };
        match log.write(&self.batch, self.pre_alloc, self.force_sync) {
            Ok(took) => Ok(took),
            Err(source) => {
                log.dirty = log.cut().is_err();
                Err(CommitError {
                    path: log.path.clone(),
                    source,
                    undone: !log.dirty,
                })
            }
        }
    }

    /// Ends the current file; the next batch opens a new one.
    pub fn roll(&mut self) {
        if let Some(log) = self.open.take() {
            // Padding is of no more use; a failure leaves it, which readers accept.
            let _ = log.file.set_len(log.position);
        }
        self.txns_since_roll = 0;
        self.bytes_since_roll = 0;
    }
}

impl OpenLog {
    fn write(
        &mut self,
        batch: &[u8],
        pre_alloc: u64,
        force_sync: bool,
    ) -> io::Result<Option<Duration>> {
        if self.dirty {
            self.cut()?;
            self.dirty = false;
        }
        let end = self.position + batch.len() as u64;
        if end + MARGIN > self.len {
            let steps = (end + MARGIN - self.len).div_ceil(pre_alloc);
            let len = self.len + steps * pre_alloc;
            self.file.set_len(len)?;
            self.len = len;
        }
        if force_sync && end > self.zeroed_to {
            self.zero_ahead(end);
        }
        self.file.write_all_at(batch, self.position)?;
        let mut took = None;
        if force_sync {
            let start = Instant::now();
            self.file.sync_data()?;
            took = Some(start.elapsed());
        }
        self.position = end;
        self.zeroed_to = self.zeroed_to.max(end);
        Ok(took)
    }

    /// Without room for zeros the write itself may still find some.
    fn zero_ahead(&mut self, end: u64) {
        let from = self.zeroed_to.max(self.position);
        let to = (end + ZERO_STEP).min(self.len);
        let mut at = from;
        while at < to {
            let piece = ZEROS
                .get(..((to - at) as usize).min(ZEROS.len()))
                .unwrap_or_default();
            match self.file.write_at(piece, at) {
                Ok(written) if written > 0 => at += written as u64,
                _ => break,
            }
        }
        self.zeroed_to = at;
    }

    /// Takes back what a failed write left behind the last durable record.
    fn cut(&mut self) -> io::Result<()> {
        // Zeroed room stays reserved where it can be zeroed again without new blocks.
        let end = self.zeroed_to.min(self.len);
        let mut at = self.position;
        while at < end {
            let piece = ZEROS
                .get(..((end - at) as usize).min(ZEROS.len()))
                .unwrap_or_default();
            match self.file.write_at(piece, at) {
                Ok(written) if written > 0 => at += written as u64,
                _ => break,
            }
        }
        if at < end {
            self.zeroed_to = self.position;
            self.len = self.position;
        } else {
            self.len = end.max(self.position);
        }
        self.file.set_len(self.len)
    }
}

fn create_log(path: &Path, force_sync: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let mut header = BytesMut::new();
    header.put_i32(LOG_MAGIC);
    header.put_i32(FORMAT_VERSION);
    header.put_i64(0);
    file.write_all_at(&header, 0)?;
    if force_sync {
        file.sync_all()?;
        if let Some(dir) = path.parent() {
            sync_dir(dir)?;
        }
    }
    Ok(file)
}

/// Copies what is about to be cut off a log into a file beside it, as far as there is room: should it have mattered, it is not gone.
fn keep_aside(file: &File, path: &Path, position: u64) {
    use std::io::{Read, Seek, SeekFrom};
    let copy = || {
        let mut tail = Vec::new();
        let mut reader = file;
        reader.seek(SeekFrom::Start(position))?;
        reader.take(MAX_KEPT).read_to_end(&mut tail)?;
        let used = tail.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        tail.truncate(used);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = path.with_file_name(format!("{CUT_PREFIX}{name}-at-{position}"));
        std::fs::write(&aside, &tail)?;
        io::Result::Ok(aside)
    };
    match copy() {
        Ok(aside) => tracing::warn!(
            "the tail cut off {} is kept in {}; it may be removed",
            path.display(),
            aside.display()
        ),
        Err(error) => tracing::warn!(
            "the tail cut off {} can't be kept aside: {error}",
            path.display()
        ),
    }
}

/// How far the zeros on disk reach from `position` on, or `None` if anything else follows it.
fn padding_end(file: &File, position: u64, len: u64) -> io::Result<Option<u64>> {
    use rustix::fs::SeekFrom;
    let mut zeroed_to = position;
    let mut at = position;
    while at < len {
        // Holes read as zeros and take no room: skip them.
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
        let mut piece = vec![0; 1 << 16];
        let mut from = data;
        while from < hole {
            let wanted = ((hole - from) as usize).min(piece.len());
            let Some(buffer) = piece.get_mut(..wanted) else {
                break;
            };
            let read = file.read_at(buffer, from)?;
            if read == 0 {
                break;
            }
            if buffer.iter().take(read).any(|b| *b != 0) {
                return Ok(None);
            }
            from += read as u64;
        }
        if data <= zeroed_to {
            zeroed_to = hole;
        }
        at = hole.max(at + 1);
    }
    Ok(Some(zeroed_to))
}
