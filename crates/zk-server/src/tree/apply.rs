//! What a transaction does to the tree: the same rules for a live one and for one read back from the log.
//!
//! They are idempotent, as a snapshot may already hold what a later transaction in the log brings (docs: ZooKeeper's fuzzy snapshots).

use super::node::{Children, Kind, MAX_TTL_MS, Node};
use super::{DataTree, size_of};
use crate::acl::AclList;
use crate::path;
use bytes::Bytes;
use gracchus_zk_proto::data::StatPersisted;
use gracchus_zk_proto::txn::{Txn, TxnHeader};
use gracchus_zk_proto::{Acl, OpCode, Stat, ZkError};
use std::sync::Arc;

/// A change that watchers may want to know.
#[derive(Debug)]
pub enum Change<'a> {
    /// With the lists of the node and of its parent.
    Created {
        path: &'a str,
        acl: &'a AclList,
        parent_acl: &'a AclList,
    },
    Deleted {
        path: &'a str,
        acl: &'a AclList,
        parent_acl: &'a AclList,
    },
    DataChanged {
        path: &'a str,
        acl: &'a AclList,
    },
}

/// What a transaction answers.
#[derive(Debug, PartialEq)]
pub enum Applied {
    /// delete, check, session transactions.
    Done,
    Created {
        path: Arc<str>,
        stat: Stat,
        /// The type of the transaction: create answers no stat.
        op: OpCode,
    },
    Changed(Stat),
    Failed(ZkError),
    /// A multi that went through: each operation's answer and type.
    All(Vec<(Applied, OpCode)>),
    /// A multi of which nothing was applied: a code an operation.
    NothingOf(Vec<i32>),
}

/// Where changes are reported to, in their order.
pub type Sink<'a> = dyn FnMut(Change<'_>) + 'a;

impl DataTree {
    /// Applies a transaction and moves the tree's zxid to it.
    pub fn apply(&mut self, header: &TxnHeader, txn: Txn, sink: &mut Sink<'_>) -> Applied {
        let applied = self.apply_one(header, txn, sink);
        self.last_zxid = self.last_zxid.max(header.zxid);
        applied
    }

    fn apply_one(&mut self, header: &TxnHeader, txn: Txn, sink: &mut Sink<'_>) -> Applied {
        match txn {
            Txn::Create(t) | Txn::Create2(t) => {
                let op = if header.op == OpCode::Create2.code() {
                    OpCode::Create2
                } else {
                    OpCode::Create
                };
                let kind = if t.ephemeral {
                    Kind::Ephemeral(header.client_id)
                } else {
                    Kind::Persistent
                };
                self.create(
                    header,
                    op,
                    t.path,
                    t.data,
                    t.acl,
                    kind,
                    t.parent_cversion,
                    sink,
                )
            }
            Txn::CreateContainer(t) => self.create(
                header,
                OpCode::CreateContainer,
                t.path,
                t.data,
                t.acl,
                Kind::Container,
                t.parent_cversion,
                sink,
            ),
            Txn::CreateTtl(t) => {
                let kind = if (1..=MAX_TTL_MS).contains(&t.ttl_ms) {
                    Kind::Ttl(t.ttl_ms)
                } else {
                    tracing::warn!(
                        "transaction 0x{:x} gives {} a time to live of {} ms, which is not possible: the node is kept as a persistent one",
                        header.zxid,
                        t.path,
                        t.ttl_ms
                    );
                    Kind::Persistent
                };
                self.create(
                    header,
                    OpCode::CreateTtl,
                    t.path,
                    t.data,
                    t.acl,
                    kind,
                    t.parent_cversion,
                    sink,
                )
            }
            Txn::Delete(t) | Txn::DeleteContainer(t) => {
                match self.delete(&t.path, header.zxid, sink) {
                    Ok(()) => Applied::Done,
                    Err(error) => Applied::Failed(error),
                }
            }
            Txn::SetData(t) | Txn::Reconfig(t) => {
                self.set_data(header, &t.path, t.data, t.version, sink)
            }
            Txn::SetAcl(t) => match self.nodes.get_mut(path::key(&t.path)) {
                Some(node) => {
                    node.acl = self.acls.intern(t.acl);
                    node.stat.aversion = t.version;
                    Applied::Changed(node.wire_stat())
                }
                None => Applied::Failed(ZkError::NoNode),
            },
            Txn::Check(_) => Applied::Done,
            Txn::CreateSession(t) => {
                self.sessions.insert(header.client_id, t.timeout_ms);
                Applied::Done
            }
            Txn::CloseSession(paths) => {
                self.close_session(header, paths, sink);
                Applied::Done
            }
            Txn::Error(t) => match ZkError::from_code(t.err) {
                Some(error) => Applied::Failed(error),
                None => Applied::Done,
            },
            Txn::Multi(txns) => self.apply_multi(header, txns, sink),
        }
    }

    fn apply_multi(&mut self, header: &TxnHeader, txns: Vec<Txn>, sink: &mut Sink<'_>) -> Applied {
        let failed = txns.iter().any(|txn| matches!(txn, Txn::Error(_)));
        if failed {
            let code = |txn: &Txn| match txn {
                Txn::Error(error) => error.err,
                _ => 0,
            };
            return Applied::NothingOf(txns.iter().map(code).collect());
        }
        let each = txns.into_iter().map(|txn| {
            let op = txn.opcode();
            let header = TxnHeader {
                op: op.code(),
                ..*header
            };
            (self.apply_one(&header, txn, sink), op)
        });
        Applied::All(each.collect())
    }

    #[allow(clippy::too_many_arguments)]
    fn create(
        &mut self,
        header: &TxnHeader,
        op: OpCode,
        path: String,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        kind: Kind,
        parent_cversion: i32,
        sink: &mut Sink<'_>,
    ) -> Applied {
        let acl = self.acls.intern(acl);
        let Some(parent_key) = path::parent(&path) else {
            return Applied::Failed(ZkError::NoNode);
        };
        if let Some(node) = self.nodes.get_mut(path::key(&path)) {
            // Only a replay comes here: the snapshot holds the node already.
            node.acl = acl;
            if op == OpCode::Create
                && let Some(parent) = self.nodes.get_mut(parent_key)
                && parent_cversion > parent.stat.cversion
            {
                parent.stat.cversion = parent_cversion;
                parent.stat.pzxid = header.zxid;
            }
            return Applied::Failed(ZkError::NodeExists);
        }
        let Some(parent) = self.nodes.get_mut(parent_key) else {
            return Applied::Failed(ZkError::NoNode);
        };
        let key: Arc<str> = path.into();
        let cversion = if parent_cversion == -1 {
            parent.stat.cversion.wrapping_add(1)
        } else {
            parent_cversion
        };
        if cversion > parent.stat.cversion {
            parent.stat.cversion = cversion;
            parent.stat.pzxid = header.zxid;
        }
        parent.add_child(key.clone());
        let parent_acl = parent.acl.clone();
        let node = Node {
            // Its own allocation: a slice would keep the whole frame it came in.
            data: data.map(|data| Bytes::copy_from_slice(&data)),
            acl: acl.clone(),
            stat: StatPersisted {
                czxid: header.zxid,
                mzxid: header.zxid,
                pzxid: header.zxid,
                ctime: header.time,
                mtime: header.time,
                ephemeral_owner: kind.owner(),
                ..StatPersisted::default()
            },
            children: None::<Box<Children>>,
        };
        let stat = node.wire_stat();
        self.index(&key, kind);
        self.data_size += size_of(&key, &node.data);
        let bytes = length(&node.data);
        self.nodes.insert(key.clone(), node);
        self.quota_created(&key, bytes);
        sink(Change::Created {
            path: &key,
            acl: &acl,
            parent_acl: &parent_acl,
        });
        Applied::Created {
            path: key,
            stat,
            op,
        }
    }

    fn delete(&mut self, path: &str, zxid: i64, sink: &mut Sink<'_>) -> Result<(), ZkError> {
        let key = path::key(path);
        let parent_key = path::parent(path).ok_or(ZkError::NoNode)?;
        let parent = self.nodes.get_mut(parent_key).ok_or(ZkError::NoNode)?;
        // Also when the node itself is gone already, as ZooKeeper's replay does.
        parent.stat.pzxid = parent.stat.pzxid.max(zxid);
        parent.remove_child(key);
        let parent_acl = parent.acl.clone();
        let node = self.take(key).ok_or(ZkError::NoNode)?;
        // Children here are of a later node of this path that a fuzzy snapshot held; the log makes them again.
        let mut above: Vec<Arc<str>> = node.child_paths().cloned().collect();
        while let Some(key) = above.pop() {
            if let Some(child) = self.take(&key) {
                above.extend(child.child_paths().cloned());
            }
        }
        self.quota_deleted(key, length(&node.data));
        sink(Change::Deleted {
            path: key,
            acl: &node.acl,
            parent_acl: &parent_acl,
        });
        Ok(())
    }

    fn take(&mut self, key: &str) -> Option<Node> {
        let node = self.nodes.remove(key)?;
        self.unindex(key, node.kind());
        self.data_size = self.data_size.saturating_sub(size_of(key, &node.data));
        Some(node)
    }

    fn set_data(
        &mut self,
        header: &TxnHeader,
        path: &str,
        data: Option<Bytes>,
        version: i32,
        sink: &mut Sink<'_>,
    ) -> Applied {
        let key = path::key(path);
        let Some(node) = self.nodes.get_mut(key) else {
            return Applied::Failed(ZkError::NoNode);
        };
        let before = length(&node.data);
        self.data_size = self.data_size.saturating_sub(size_of(key, &node.data));
        node.data = data.map(|data| Bytes::copy_from_slice(&data));
        self.data_size += size_of(key, &node.data);
        node.stat.version = version;
        node.stat.mzxid = header.zxid;
        node.stat.mtime = header.time;
        let stat = node.wire_stat();
        let more = length(&node.data) - before;
        sink(Change::DataChanged {
            path: key,
            acl: &node.acl,
        });
        self.quota_changed(key, 0, more);
        Applied::Changed(stat)
    }

    fn close_session(
        &mut self,
        header: &TxnHeader,
        paths: Option<Vec<String>>,
        sink: &mut Sink<'_>,
    ) {
        let session = header.client_id;
        self.sessions.remove(&session);
        for path in paths.unwrap_or_default() {
            // A path that a replay finds gone is no matter.
            let _ = self.delete(&path, header.zxid, sink);
        }
        let mut rest: Vec<_> = self.ephemerals_of(session).cloned().collect();
        rest.sort();
        for path in rest {
            let _ = self.delete(&path, header.zxid, sink);
        }
    }
}

fn length(data: &Option<Bytes>) -> i64 {
    data.as_ref()
        .map_or(0, |data| i64::try_from(data.len()).unwrap_or(i64::MAX))
}
