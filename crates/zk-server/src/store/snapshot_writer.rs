//! Writes a snapshot while the server goes on: the tree is visited piece by piece under short read locks.
//!
//! The result is fuzzy as ZooKeeper's own: named after the last transaction applied when it began, it may hold parts of later ones,
//! which the replay of the log repeats without harm. Nodes made since then are left out, as the replay makes them; a list set since then
//! is written as one that grants nothing, until the replay sets it.

use super::data_dir::{UNFINISHED_PREFIX, sync_dir};
use super::{FORMAT_VERSION, SNAPSHOT_MAGIC, StoreError, io_error};
use crate::tree::{DataTree, OPEN_KEY};
use bytes::{BufMut, BytesMut};
use gracchus_zk_proto::jute::write_buffer;
use gracchus_zk_proto::{Acl, Jute};
use hashbrown::HashSet;
use parking_lot::RwLock;
use simd_adler32::Adler32;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes and nodes handled under one lock.
const PIECE_BYTES: usize = 1 << 18;
const PIECE_NODES: usize = 2000;

/// What was written.
#[derive(Debug)]
pub struct Written {
    pub zxid: i64,
    pub path: PathBuf,
    pub bytes: u64,
}

/// Writes a snapshot of the tree into `dir`.
pub fn write(tree: &RwLock<DataTree>, dir: &Path) -> Result<Written, StoreError> {
    let start = Start::of(&tree.read());
    let unfinished = dir.join(format!("{UNFINISHED_PREFIX}{:x}", start.zxid));
    let path = dir.join(format!("snapshot.{:x}", start.zxid));
    let written = write_file(tree, &start, &unfinished).and_then(|bytes| {
        std::fs::rename(&unfinished, &path)?;
        sync_dir(dir)?;
        Ok(bytes)
    });
    match written {
        Ok(bytes) => Ok(Written {
            zxid: start.zxid,
            path,
            bytes,
        }),
        Err(error) => {
            let _ = std::fs::remove_file(&unfinished);
            Err(io_error("write the snapshot", path)(error))
        }
    }
}

/// What belongs to the moment at which the snapshot begins.
struct Start {
    zxid: i64,
    sessions: Vec<(i64, i32)>,
    lists: Vec<(i64, Vec<Acl>)>,
    keys: HashSet<i64>,
    /// The list that stands for those set later.
    closed_key: i64,
}

impl Start {
    fn of(tree: &DataTree) -> Self {
        let lists = tree.acls().lists();
        let closed_key = tree.acls().free_key();
        Start {
            zxid: tree.last_zxid(),
            sessions: tree
                .sessions()
                .iter()
                .map(|(id, timeout)| (*id, *timeout))
                .collect(),
            keys: lists
                .iter()
                .map(|list| list.key)
                .chain([OPEN_KEY])
                .collect(),
            lists: lists
                .iter()
                .map(|list| (list.key, list.entries.clone()))
                .collect(),
            closed_key,
        }
    }

    fn write(&self, out: &mut BytesMut) {
        out.put_i32(SNAPSHOT_MAGIC);
        out.put_i32(FORMAT_VERSION);
        out.put_i64(-1);
        out.put_i32(self.sessions.len() as i32);
        for (id, timeout_ms) in &self.sessions {
            out.put_i64(*id);
            out.put_i32(*timeout_ms);
        }
        out.put_i32(self.lists.len() as i32 + 1);
        for (key, entries) in &self.lists {
            out.put_i64(*key);
            entries.write(out);
        }
        out.put_i64(self.closed_key);
        vec![Acl::new(0, "world", "anyone")].write(out);
    }
}

struct Output {
    file: File,
    adler: Adler32,
    bytes: u64,
}

impl Output {
    fn write(&mut self, piece: &mut BytesMut) -> io::Result<()> {
        self.adler.write(piece);
        self.file.write_all(piece)?;
        self.bytes += piece.len() as u64;
        piece.clear();
        Ok(())
    }

    /// The checksum of all before it, then a mark.
    fn seal(&mut self, piece: &mut BytesMut) -> io::Result<()> {
        self.write(piece)?;
        piece.put_i64(i64::from(self.adler.finish()));
        write_buffer(piece, Some(b"/"));
        self.write(piece)
    }
}

fn write_file(tree: &RwLock<DataTree>, start: &Start, path: &Path) -> io::Result<u64> {
    let mut out = Output {
        file: File::create(path)?,
        adler: Adler32::new(),
        bytes: 0,
    };
    let mut piece = BytesMut::with_capacity(PIECE_BYTES + (64 << 10));
    start.write(&mut piece);
    out.write(&mut piece)?;
    // Children are visited after their parent; one that vanished meanwhile is skipped.
    let mut open: Vec<Arc<str>> = vec!["".into()];
    while !open.is_empty() {
        write_piece(&tree.read(), start, &mut open, &mut piece);
        out.write(&mut piece)?;
    }
    write_buffer(&mut piece, Some(b"/"));
    out.seal(&mut piece)?;
    out.file.sync_all()?;
    Ok(out.bytes)
}

fn write_piece(tree: &DataTree, start: &Start, open: &mut Vec<Arc<str>>, piece: &mut BytesMut) {
    for _ in 0..PIECE_NODES {
        if piece.len() >= PIECE_BYTES {
            return;
        }
        let Some(key) = open.pop() else { return };
        let Some(node) = tree.get(&key) else { continue };
        if node.stat.czxid > start.zxid {
            continue;
        }
        write_buffer(piece, Some(key.as_bytes()));
        node.data.write(piece);
        let acl = node.acl.key;
        piece.put_i64(if start.keys.contains(&acl) {
            acl
        } else {
            start.closed_key
        });
        node.stat.write(piece);
        open.extend(node.child_paths().cloned());
    }
}
