//! Reads a transaction log, and says what is at its end: padding, a torn record, or damage in the middle.

use super::{FORMAT_VERSION, LOG_HEADER_LEN, LOG_MAGIC, RECORD_END, StoreError, io_error};
use bytes::{Buf, Bytes};
use gracchus_zk_proto::txn::{Txn, TxnHeader};
use gracchus_zk_proto::{Jute, Reader};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// No record is longer: ZooKeeper bounds requests far below.
const MAX_RECORD: u64 = 1 << 30;
/// A lost write leaves at least one sector of zeros.
const SECTOR: usize = 512;

/// Where a log's valid part ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    pub offset: u64,
    /// What is wrong there; `None` if only padding or nothing follows.
    pub damage: Option<Damage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub reason: String,
    /// A write that a crash cut short: nothing whole follows, or a part of it never reached the disk. Never acknowledged.
    pub torn: bool,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    Txn(TxnHeader, Txn),
    End(LogEnd),
}

#[derive(Debug)]
pub struct LogReader {
    file: BufReader<File>,
    path: PathBuf,
    offset: u64,
    len: u64,
}

impl LogReader {
    /// `None` for a file that a crash left before its header was complete.
    pub fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        let file = File::open(path).map_err(io_error("open", path))?;
        let len = file.metadata().map_err(io_error("look at", path))?.len();
        if len < LOG_HEADER_LEN {
            return Ok(None);
        }
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut header = [0; LOG_HEADER_LEN as usize];
        file.read_exact(&mut header)
            .map_err(io_error("read", path))?;
        let mut fields = &header[..];
        let (magic, version) = (fields.get_i32(), fields.get_i32());
        if magic == 0 && version == 0 && len == LOG_HEADER_LEN {
            return Ok(None);
        }
        if magic != LOG_MAGIC || version != FORMAT_VERSION {
            return Err(StoreError::NotALog {
                path: path.into(),
                reason: format!(
                    "it starts with magic 0x{magic:08x} version {version} instead of 0x{LOG_MAGIC:08x} version {FORMAT_VERSION}"
                ),
            });
        }
        Ok(Some(LogReader {
            file,
            path: path.into(),
            offset: LOG_HEADER_LEN,
            len,
        }))
    }

    pub fn next_txn(&mut self) -> Result<Next, StoreError> {
        let left = self.len - self.offset;
        let mut head = [0; 12];
        if left < head.len() as u64 {
            return Ok(self.end(None));
        }
        self.file
            .read_exact(&mut head)
            .map_err(io_error("read", &self.path))?;
        let mut fields = &head[..];
        let (checksum, length) = (fields.get_i64(), fields.get_i32());
        if checksum == 0 && length == 0 {
            return Ok(self.end(None));
        }
        let whole = u64::try_from(length).unwrap_or(u64::MAX);
        if length <= 0 || whole > MAX_RECORD {
            return self.damaged(format!("a record of {length} bytes is not possible"), 12);
        }
        if whole + 13 > left {
            return self.damaged("the file ends inside a record".into(), left);
        }
        let mut record = vec![0; whole as usize + 1];
        self.file
            .read_exact(&mut record)
            .map_err(io_error("read", &self.path))?;
        let extent = whole + 13;
        if record.pop() != Some(RECORD_END) {
            return self.damaged("a record lacks its end mark".into(), extent);
        }
        if i64::from(simd_adler32::adler32(&record.as_slice())) != checksum {
            return self.damaged("the checksum of a record does not match".into(), extent);
        }
        let mut reader = Reader::new(Bytes::from(record));
        let decoded = TxnHeader::read(&mut reader)
            .and_then(|header| Ok((header, Txn::read(header.op, &mut reader)?)));
        let (header, txn) = decoded.map_err(|error| StoreError::CorruptLog {
            path: self.path.clone(),
            offset: self.offset,
            reason: format!("its checksum holds but it can't be read: {error}"),
        })?;
        self.offset += extent;
        Ok(Next::Txn(header, txn))
    }

    fn end(&self, damage: Option<Damage>) -> Next {
        Next::End(LogEnd {
            offset: self.offset,
            damage,
        })
    }

    fn damaged(&mut self, reason: String, extent: u64) -> Result<Next, StoreError> {
        let torn = self.lost_sector(extent)? || !self.valid_record_follows()?;
        Ok(self.end(Some(Damage { reason, torn })))
    }

    /// Whether a whole sector of the record is zeros: a page that never reached the disk.
    fn lost_sector(&mut self, extent: u64) -> Result<bool, StoreError> {
        let extent = extent.min(self.len - self.offset).min(MAX_RECORD);
        let mut record = vec![0; extent as usize];
        let file = self.file.get_ref();
        file.read_exact_at(&mut record, self.offset)
            .map_err(io_error("read", &self.path))?;
        let skip = (SECTOR - (self.offset as usize % SECTOR)) % SECTOR;
        let rest = record.get(skip..).unwrap_or_default();
        Ok(rest
            .chunks_exact(SECTOR)
            .any(|sector| sector.iter().all(|b| *b == 0)))
    }

    /// Looks for a whole record anywhere behind the damage.
    fn valid_record_follows(&mut self) -> Result<bool, StoreError> {
        self.file
            .seek(SeekFrom::Start(self.offset + 1))
            .map_err(io_error("read", &self.path))?;
        let mut rest = Vec::new();
        // Damage is rare, and a log of its usual size fits.
        self.file
            .by_ref()
            .take(MAX_RECORD)
            .read_to_end(&mut rest)
            .map_err(io_error("read", &self.path))?;
        while rest.last() == Some(&0) {
            rest.pop();
        }
        for at in 0..rest.len() {
            let Some(mut head) = rest.get(at..at + 12) else {
                break;
            };
            let (checksum, length) = (head.get_i64(), head.get_i32());
            if length <= 0 || checksum <= 0 || checksum > i64::from(u32::MAX) {
                continue;
            }
            let (from, to) = (at + 12, at + 12 + length as usize);
            if rest.get(to) == Some(&RECORD_END)
                && let Some(payload) = rest.get(from..to)
                && i64::from(simd_adler32::adler32(&payload)) == checksum
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
