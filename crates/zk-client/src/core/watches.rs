//! The watches armed on the server for a session, by absolute path; sent again after a re-attachment.

use crate::op::{Op, OpResult, absolute};
use bytes::BytesMut;
use gracchus_zk_proto::request::{SetWatches2Request, SetWatchesRequest};
use gracchus_zk_proto::{
    AddWatchMode, EventType, Jute, OpCode, RequestHeader, WatcherType, ZkError,
};
use std::collections::BTreeSet;

/// Most bytes of paths in one setWatches2, so that no server refuses the frame.
const SET_WATCHES_CHUNK: usize = 128 * 1024;

/// As many as callers armed.
#[derive(Debug, Default)]
pub(super) struct Watches {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

/// A part of the watches, as one request.
pub(super) struct Batch(SetWatches2Request);

impl Watches {
    /// Remembers a watch that the server armed or removed with this reply.
    pub fn note(&mut self, chroot: &str, op: &Op, result: &Result<OpResult, ZkError>) {
        let at = |path: &String| absolute(chroot, path);
        match (op, result) {
            (Op::GetData { path, watch: true } | Op::Exists { path, watch: true }, Ok(_)) => {
                self.data.insert(at(path));
            }
            (Op::Exists { path, watch: true }, Err(ZkError::NoNode)) => {
                self.exist.insert(at(path));
            }
            (Op::GetChildren { path, watch: true }, Ok(_)) => {
                self.child.insert(at(path));
            }
            (Op::AddWatch { path, mode }, Ok(_)) => {
                match mode {
                    AddWatchMode::Persistent => self.persistent.insert(at(path)),
                    AddWatchMode::PersistentRecursive => self.recursive.insert(at(path)),
                };
            }
            (Op::RemoveWatches { path, kind }, Ok(_)) => self.remove(&at(path), *kind),
            _ => {}
        }
    }

    fn remove(&mut self, path: &str, kind: WatcherType) {
        if matches!(kind, WatcherType::Data | WatcherType::Any) {
            self.data.remove(path);
            self.exist.remove(path);
        }
        if matches!(kind, WatcherType::Children | WatcherType::Any) {
            self.child.remove(path);
        }
        if matches!(kind, WatcherType::Persistent | WatcherType::Any) {
            self.persistent.remove(path);
        }
        if matches!(kind, WatcherType::PersistentRecursive | WatcherType::Any) {
            self.recursive.remove(path);
        }
    }

    /// One-shot watches end with their event.
    pub fn fired(&mut self, kind: EventType, path: &str) {
        if kind != EventType::ChildrenChanged {
            self.data.remove(path);
            self.exist.remove(path);
        }
        if matches!(kind, EventType::ChildrenChanged | EventType::Deleted) {
            self.child.remove(path);
        }
    }

    /// All of them, in requests that arm them or tell at once what changed since `zxid`.
    pub fn batches(&self, zxid: i64) -> Vec<Batch> {
        let empty = SetWatches2Request {
            relative_zxid: zxid,
            ..Default::default()
        };
        let mut batch = empty.clone();
        let mut size = 0;
        let mut batches = Vec::new();
        let all = [
            (0, &self.data),
            (1, &self.exist),
            (2, &self.child),
            (3, &self.persistent),
            (4, &self.recursive),
        ];
        for (kind, path) in all
            .iter()
            .flat_map(|(kind, set)| set.iter().map(|path| (*kind, path)))
        {
            if size + path.len() > SET_WATCHES_CHUNK {
                batches.push(Batch(std::mem::replace(&mut batch, empty.clone())));
                size = 0;
            }
            size += path.len() + 4;
            match kind {
                0 => &mut batch.data,
                1 => &mut batch.exist,
                2 => &mut batch.child,
                3 => &mut batch.persistent,
                _ => &mut batch.persistent_recursive,
            }
            .push(path.clone());
        }
        if size > 0 {
            batches.push(Batch(batch));
        }
        batches
    }
}

impl Batch {
    /// Header and record. Servers before 3.6 know setWatches only, and no persistent watches.
    pub fn write(self, xid: i32, out: &mut BytesMut) {
        let batch = self.0;
        let old = batch.persistent.is_empty() && batch.persistent_recursive.is_empty();
        let op = if old {
            OpCode::SetWatches
        } else {
            OpCode::SetWatches2
        };
        RequestHeader { xid, op: op.code() }.write(out);
        if old {
            SetWatchesRequest {
                relative_zxid: batch.relative_zxid,
                data: batch.data,
                exist: batch.exist,
                child: batch.child,
            }
            .write(out);
        } else {
            batch.write(out);
        }
    }
}
