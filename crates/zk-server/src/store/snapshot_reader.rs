//! Reads a snapshot, plain or compressed, and checks its seal.

use super::{FORMAT_VERSION, SNAPSHOT_MAGIC, StoreError};
use crate::tree::{DataTree, OPEN_KEY};
use bytes::Bytes;
use gracchus_zk_proto::data::StatPersisted;
use gracchus_zk_proto::{Acl, Id};
use hashbrown::HashMap;
use simd_adler32::Adler32;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// No buffer in a snapshot is longer.
const MAX_BUFFER: u64 = 1 << 30;
/// Xerial's framing of Snappy: this, two version numbers, then blocks behind their length.
const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const MAX_SNAPPY_BLOCK: usize = 1 << 26;

/// Loads the snapshot of `zxid`.
pub fn read(path: &Path, zxid: i64) -> Result<DataTree, StoreError> {
    let bad = |error: io::Error| StoreError::BadSnapshot {
        path: path.into(),
        reason: error.to_string(),
    };
    let file = File::open(path).map_err(bad)?;
    let source: Box<dyn Read> = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Box::new(flate2::read::GzDecoder::new(BufReader::new(file))),
        Some("snappy") => Box::new(XerialReader::open(BufReader::new(file)).map_err(bad)?),
        _ => Box::new(file),
    };
    let mut input = Input {
        source: BufReader::with_capacity(1 << 16, source),
        adler: Adler32::new(),
    };
    load(&mut input, zxid).map_err(bad)
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

fn load(input: &mut Input, zxid: i64) -> io::Result<DataTree> {
    let (magic, version) = (input.int()?, input.int()?);
    if magic != SNAPSHOT_MAGIC || version != FORMAT_VERSION {
        return Err(invalid(format!(
            "it starts with magic 0x{magic:08x} version {version}"
        )));
    }
    input.long()?;
    let mut tree = DataTree::empty();
    for _ in 0..input.count()? {
        let (id, timeout_ms) = (input.long()?, input.int()?);
        tree.restore_session(id, timeout_ms);
    }
    let mut lists = HashMap::new();
    lists.insert(OPEN_KEY, tree.acls().open());
    for _ in 0..input.count()? {
        let key = input.long()?;
        let mut entries = Vec::new();
        for _ in 0..input.count()? {
            let perms = input.int()?;
            let id = Id {
                scheme: input.string()?,
                id: input.string()?,
            };
            entries.push(Acl { perms, id });
        }
        let list = tree.restore_acl(key, entries);
        lists.insert(key, list);
    }
    let mut first = true;
    loop {
        let path = input.string()?;
        if path == "/" {
            break;
        }
        let data = input.buffer()?;
        let acl_key = input.long()?;
        let stat = StatPersisted {
            czxid: input.long()?,
            mzxid: input.long()?,
            ctime: input.long()?,
            mtime: input.long()?,
            version: input.int()?,
            cversion: input.int()?,
            aversion: input.int()?,
            ephemeral_owner: input.long()?,
            pzxid: input.long()?,
        };
        let acl = match lists.get(&acl_key) {
            Some(list) => list.clone(),
            // A fuzzy snapshot of ZooKeeper's may name a list made after it began; the log sets it.
            None => tree.restore_acl(acl_key, vec![Acl::new(0, "world", "anyone")]),
        };
        if path.is_empty() != first || !tree.restore(path.as_str().into(), data, acl, stat) {
            return Err(invalid(format!("node {path:?} comes before its parent")));
        }
        first = false;
    }
    input.check_seal()?;
    tree.ensure_built_in();
    drop(lists);
    tree.drop_unused_acls();
    tree.set_last_zxid(zxid);
    Ok(tree)
}

struct Input {
    source: BufReader<Box<dyn Read>>,
    adler: Adler32,
}

impl Input {
    fn fixed<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut out = [0; N];
        self.source.read_exact(&mut out)?;
        self.adler.write(&out);
        Ok(out)
    }

    fn int(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    fn long(&mut self) -> io::Result<i64> {
        Ok(i64::from_be_bytes(self.fixed()?))
    }

    fn count(&mut self) -> io::Result<i32> {
        let count = self.int()?;
        if count < 0 {
            return Err(invalid(format!("a count of {count}")));
        }
        Ok(count)
    }

    fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let wanted = u64::try_from(length)
            .ok()
            .filter(|wanted| *wanted <= MAX_BUFFER);
        let wanted = wanted.ok_or_else(|| invalid(format!("a length of {length}")))?;
        // Grows with what is really there, whatever the length claims.
        let mut out = Vec::with_capacity(wanted.min(1 << 16) as usize);
        let read = self.source.by_ref().take(wanted).read_to_end(&mut out)?;
        if (read as u64) < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.adler.write(&out);
        Ok(Some(out))
    }

    fn buffer(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self
            .bytes()?
            .map(|bytes| Bytes::from(bytes.into_boxed_slice())))
    }

    fn string(&mut self) -> io::Result<String> {
        let bytes = self.bytes()?.ok_or_else(|| invalid("a null string"))?;
        String::from_utf8(bytes).map_err(|_| invalid("a string that is not UTF-8"))
    }

    fn check_seal(&mut self) -> io::Result<()> {
        let actual = i64::from(self.adler.finish());
        if self.long()? != actual {
            return Err(invalid("its checksum does not match"));
        }
        if self.string()? != "/" {
            return Err(invalid("its end mark is missing"));
        }
        Ok(())
    }
}

struct XerialReader<R> {
    inner: R,
    block: Vec<u8>,
    at: usize,
}

impl<R: Read> XerialReader<R> {
    fn open(mut inner: R) -> io::Result<Self> {
        let mut header = [0; 16];
        inner.read_exact(&mut header)?;
        if !header.starts_with(&XERIAL_MAGIC) {
            return Err(invalid("it does not start as a Snappy stream of Xerial's"));
        }
        Ok(XerialReader {
            inner,
            block: Vec::new(),
            at: 0,
        })
    }

    fn next_block(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        match self.inner.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        let wanted = u32::from_be_bytes(length) as usize;
        if wanted > MAX_SNAPPY_BLOCK {
            return Err(invalid(format!("a Snappy block of {wanted} bytes")));
        }
        let mut compressed = Vec::new();
        self.inner
            .by_ref()
            .take(wanted as u64)
            .read_to_end(&mut compressed)?;
        let plain = snap::raw::decompress_len(&compressed).map_err(io::Error::other)?;
        if plain > MAX_SNAPPY_BLOCK {
            return Err(invalid(format!("a Snappy block that holds {plain} bytes")));
        }
        self.block = snap::raw::Decoder::new()
            .decompress_vec(&compressed)
            .map_err(io::Error::other)?;
        self.at = 0;
        Ok(true)
    }
}

impl<R: Read> Read for XerialReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let read = rest.read(out)?;
        self.at += read;
        Ok(read)
    }
}
