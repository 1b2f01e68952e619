//! From a write request to the transaction that goes to the log, checked against the tree and against all that is ahead of it in its batch.
//!
//! The first check that fails decides the error, in ZooKeeper's order (docs/zookeeper-server.md). A refused write is a transaction too: it takes a zxid.

mod quotas;

use crate::acl::{self, AclList, Identity, Schemes};
use crate::path;
use crate::tree::{DataTree, Kind, MAX_TTL_MS};
use bytes::Bytes;
use gracchus_zk_proto::multi::MultiOp;
use gracchus_zk_proto::request::{
    CheckVersionRequest, CreateTtlRequest, DeleteRequest, SetAclRequest, SetDataRequest,
};
use gracchus_zk_proto::txn::{
    CheckVersionTxn, CreateContainerTxn, CreateSessionTxn, CreateTtlTxn, CreateTxn, DeleteTxn,
    ErrorTxn, SetAclTxn, SetDataTxn, Txn,
};
use gracchus_zk_proto::{Acl, CreateMode, OpCode, ZkError, perms};
use hashbrown::HashMap;
use quotas::Quotas;
use std::sync::Arc;

/// A write as it comes from a client or from the server itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// create, create2, createContainer and createTTL, told apart by the code.
    Create(OpCode, CreateTtlRequest),
    Delete(DeleteRequest),
    /// The server's own removal of a container or TTL node; from a client it needs a node of that kind and DELETE on its parent.
    DeleteContainer {
        path: String,
        from_client: bool,
    },
    SetData(SetDataRequest),
    SetAcl(SetAclRequest),
    Multi(Vec<MultiOp>),
    /// A multi that could not be read; it takes a zxid all the same.
    MalformedMulti,
    Reconfig,
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession,
}

/// What the configuration has to say about writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// `extendedTypesEnabled`: TTL nodes may be made.
    pub extended_types: bool,
    pub reconfig_enabled: bool,
    /// `skipACL`.
    pub skip_acl: bool,
    /// `enforceQuota`: hard limits of quotas bind.
    pub enforce_quota: bool,
    pub schemes: Schemes,
}

/// What is ahead in the batch for one node.
#[derive(Debug, Clone)]
struct Ahead {
    exists: bool,
    version: i32,
    /// Stored: creates of children.
    cversion: i32,
    aversion: i32,
    children: i32,
    owner: i64,
    /// Bytes of data.
    length: usize,
    acl: Arc<AclList>,
}

/// Prepares the writes of one batch, in order.
#[derive(Debug)]
pub struct Prep<'a> {
    tree: &'a DataTree,
    rules: Rules,
    ahead: HashMap<String, Ahead>,
    /// What to put back when a multi fails, newest last.
    undo: Option<Vec<(String, Option<Ahead>)>>,
    quotas: Quotas,
}

impl<'a> Prep<'a> {
    pub fn new(tree: &'a DataTree, rules: Rules) -> Self {
        Prep {
            tree,
            rules,
            ahead: HashMap::new(),
            undo: None,
            quotas: Quotas::new(rules.enforce_quota),
        }
    }

    /// The transaction of a write; a refused one gives an error transaction.
    pub fn prepare(&mut self, session: i64, who: &Identity, write: Write) -> Txn {
        let refused = |error: ZkError| Txn::Error(ErrorTxn { err: error.code() });
        let prepared = match write {
            Write::Create(op, r) => self.create(session, who, op, r),
            Write::Delete(r) => self.delete(who, r),
            Write::DeleteContainer { path, from_client } => {
                self.delete_container(who, path, from_client)
            }
            Write::SetData(r) => self.set_data(who, r),
            Write::SetAcl(r) => self.set_acl(who, r),
            Write::Multi(ops) => Ok(self.multi(session, who, ops)),
            Write::MalformedMulti => Err(ZkError::MarshallingError),
            Write::Reconfig if self.rules.reconfig_enabled => Err(ZkError::Unimplemented),
            Write::Reconfig => Err(ZkError::ReconfigDisabled),
            Write::CreateSession { timeout_ms } => {
                Ok(Txn::CreateSession(CreateSessionTxn { timeout_ms }))
            }
            Write::CloseSession => Ok(self.close_session(session)),
        };
        prepared.unwrap_or_else(refused)
    }

    fn look(&self, path: &str) -> Option<Ahead> {
        let key = path::key(path);
        if !self.ahead.is_empty()
            && let Some(ahead) = self.ahead.get(key)
        {
            return ahead.exists.then(|| ahead.clone());
        }
        let node = self.tree.get(key)?;
        Some(Ahead {
            exists: true,
            version: node.stat.version,
            cversion: node.stat.cversion,
            aversion: node.stat.aversion,
            children: node.child_count(),
            owner: node.stat.ephemeral_owner,
            length: node.data.as_ref().map_or(0, Bytes::len),
            acl: node.acl.clone(),
        })
    }

    fn put(&mut self, path: &str, ahead: Ahead) {
        let key = path::key(path);
        let old = match self.ahead.get_mut(key) {
            Some(slot) => Some(std::mem::replace(slot, ahead)),
            None => {
                self.ahead.insert(key.to_owned(), ahead);
                None
            }
        };
        if let Some(undo) = &mut self.undo {
            undo.push((key.to_owned(), old));
        }
    }

    fn check(&self, node: &Ahead, wanted: i32, who: &Identity) -> Result<(), ZkError> {
        if self.rules.skip_acl || node.acl.allows(wanted, who) {
            Ok(())
        } else {
            Err(ZkError::NoAuth)
        }
    }

    fn create(
        &mut self,
        session: i64,
        who: &Identity,
        op: OpCode,
        r: CreateTtlRequest,
    ) -> Result<Txn, ZkError> {
        let mode = CreateMode::from_flags(r.flags).ok_or(ZkError::BadArguments)?;
        // createContainer makes a container whatever the flags say; create with the container's flag a plain node.
        let has_ttl = mode.has_ttl() && op != OpCode::CreateContainer;
        if has_ttl && !self.rules.extended_types {
            return Err(ZkError::Unimplemented);
        }
        if op == OpCode::CreateTtl && !self.rules.extended_types {
            return Err(ZkError::Unimplemented);
        }
        if (op == OpCode::CreateTtl || has_ttl)
            && !(mode.has_ttl() && op == OpCode::CreateTtl && (1..=MAX_TTL_MS).contains(&r.ttl_ms))
        {
            return Err(ZkError::BadArguments);
        }
        if r.path.contains('\0') {
            return Err(ZkError::BadArguments);
        }
        let parent_path = path::parent(&r.path)
            .ok_or(ZkError::BadArguments)?
            .to_owned();
        let acl = acl::prepare(r.acl, who, self.rules.schemes)?;
        let mut parent = self.look(&parent_path).ok_or(ZkError::NoNode)?;
        self.check(&parent, perms::CREATE, who)?;
        let mut path = r.path;
        let sequential = mode.is_sequential() && op != OpCode::CreateContainer;
        if sequential {
            path = format!("{path}{:010}", parent.cversion);
        }
        path::validate(&path).map_err(|_| ZkError::BadArguments)?;
        if self.look(&path).is_some() {
            return Err(ZkError::NodeExists);
        }
        if matches!(Kind::from_owner(parent.owner), Kind::Ephemeral(_)) {
            return Err(ZkError::NoChildrenForEphemerals);
        }
        let length = r.data.as_ref().map_or(0, Bytes::len);
        self.quotas.check(self.tree, &path, 1, 0, length)?;
        self.quotas.note(self.tree, &path, 1, 0, length);
        parent.cversion = parent.cversion.checked_add(1).unwrap_or(parent.cversion);
        parent.children = parent.children.saturating_add(1);
        let parent_cversion = parent.cversion;
        let kind = match op {
            OpCode::CreateContainer => Kind::Container,
            OpCode::CreateTtl => Kind::Ttl(r.ttl_ms),
            _ if mode.is_ephemeral() => Kind::Ephemeral(session),
            _ => Kind::Persistent,
        };
        self.put(&parent_path, parent);
        self.put(
            &path,
            Ahead {
                exists: true,
                version: 0,
                cversion: 0,
                aversion: 0,
                children: 0,
                owner: kind.owner(),
                length,
                acl: self.shared(&acl),
            },
        );
        Ok(create_txn(
            op,
            kind,
            path,
            r.data,
            acl,
            parent_cversion,
            r.ttl_ms,
        ))
    }

    /// A list for checks inside this batch; the tree numbers its own.
    fn shared(&self, acl: &[Acl]) -> Arc<AclList> {
        Arc::new(AclList::new(0, acl.to_vec()))
    }

    /// Marks a node deleted and takes it off its parent.
    fn remove(&mut self, path: &str, parent_path: &str, node: Ahead) {
        self.quotas.note(self.tree, path, -1, node.length, 0);
        if let Some(mut parent) = self.look(parent_path) {
            parent.children -= 1;
            self.put(parent_path, parent);
        }
        self.put(
            path,
            Ahead {
                exists: false,
                ..node
            },
        );
    }

    fn delete(&mut self, who: &Identity, r: DeleteRequest) -> Result<Txn, ZkError> {
        if path::is_built_in(&r.path) || r.path.contains('\0') {
            return Err(ZkError::BadArguments);
        }
        let parent_path = path::parent(&r.path)
            .ok_or(ZkError::BadArguments)?
            .to_owned();
        let parent = self.look(&parent_path).ok_or(ZkError::NoNode)?;
        self.check(&parent, perms::DELETE, who)?;
        let node = self.look(&r.path).ok_or(ZkError::NoNode)?;
        expect_version(node.version, r.version)?;
        if node.children > 0 {
            return Err(ZkError::NotEmpty);
        }
        self.remove(&r.path, &parent_path, node);
        Ok(Txn::Delete(DeleteTxn { path: r.path }))
    }

    fn delete_container(
        &mut self,
        who: &Identity,
        path: String,
        from_client: bool,
    ) -> Result<Txn, ZkError> {
        if path::is_built_in(&path) || path.contains('\0') {
            return Err(ZkError::BadArguments);
        }
        let parent_path = path::parent(&path).ok_or(ZkError::BadArguments)?.to_owned();
        let parent = self.look(&parent_path).ok_or(ZkError::NoNode)?;
        let node = self.look(&path).ok_or(ZkError::NoNode)?;
        let kind = Kind::from_owner(node.owner);
        if from_client {
            if !matches!(kind, Kind::Container | Kind::Ttl(_)) {
                return Err(ZkError::BadArguments);
            }
            self.check(&parent, perms::DELETE, who)?;
        }
        if node.children > 0 {
            return Err(ZkError::NotEmpty);
        }
        if !matches!(kind, Kind::Container | Kind::Ttl(_)) {
            return Err(ZkError::BadVersion);
        }
        self.remove(&path, &parent_path, node);
        Ok(Txn::DeleteContainer(DeleteTxn { path }))
    }

    fn set_data(&mut self, who: &Identity, r: SetDataRequest) -> Result<Txn, ZkError> {
        path::validate(&r.path).map_err(|_| ZkError::BadArguments)?;
        let mut node = self.look(&r.path).ok_or(ZkError::NoNode)?;
        self.check(&node, perms::WRITE, who)?;
        let length = r.data.as_ref().map_or(0, Bytes::len);
        self.quotas
            .check(self.tree, &r.path, 0, node.length, length)?;
        expect_version(node.version, r.version)?;
        self.quotas.note(self.tree, &r.path, 0, node.length, length);
        node.length = length;
        node.version = next_version(node.version);
        let version = node.version;
        self.put(&r.path, node);
        Ok(Txn::SetData(SetDataTxn {
            path: r.path,
            data: r.data,
            version,
        }))
    }

    fn set_acl(&mut self, who: &Identity, r: SetAclRequest) -> Result<Txn, ZkError> {
        path::validate(&r.path).map_err(|_| ZkError::BadArguments)?;
        let acl = acl::prepare(r.acl, who, self.rules.schemes)?;
        let mut node = self.look(&r.path).ok_or(ZkError::NoNode)?;
        self.check(&node, perms::ADMIN, who)?;
        expect_version(node.aversion, r.version)?;
        node.aversion = next_version(node.aversion);
        node.acl = self.shared(&acl);
        let version = node.aversion;
        self.put(&r.path, node);
        Ok(Txn::SetAcl(SetAclTxn {
            path: r.path,
            acl,
            version,
        }))
    }

    fn check_version(&mut self, who: &Identity, r: CheckVersionRequest) -> Result<Txn, ZkError> {
        path::validate(&r.path).map_err(|_| ZkError::BadArguments)?;
        let node = self.look(&r.path).ok_or(ZkError::NoNode)?;
        self.check(&node, perms::READ, who)?;
        expect_version(node.version, r.version)?;
        Ok(Txn::Check(CheckVersionTxn {
            path: r.path,
            version: next_version(node.version),
        }))
    }

    fn multi(&mut self, session: i64, who: &Identity, ops: Vec<MultiOp>) -> Txn {
        self.undo = Some(Vec::new());
        self.quotas.begin_multi();
        let mut failed = None;
        let mut txns = Vec::with_capacity(ops.len());
        for op in ops {
            let result = match failed {
                Some(_) => Err(ZkError::RuntimeInconsistency),
                None => self.multi_op(session, who, op),
            };
            txns.push(result.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                Txn::Error(ErrorTxn { err: error.code() })
            }));
        }
        let undo = self.undo.take().unwrap_or_default();
        self.quotas.end_multi(failed.is_none());
        if failed.is_some() {
            for (key, old) in undo.into_iter().rev() {
                match old {
                    Some(old) => self.ahead.insert(key, old),
                    None => self.ahead.remove(&key),
                };
            }
        }
        Txn::Multi(txns)
    }

    fn multi_op(&mut self, session: i64, who: &Identity, op: MultiOp) -> Result<Txn, ZkError> {
        let code = op.opcode();
        match op {
            MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => {
                let r = CreateTtlRequest {
                    path: r.path,
                    data: r.data,
                    acl: r.acl,
                    flags: r.flags,
                    ttl_ms: -1,
                };
                self.create(session, who, code, r)
            }
            MultiOp::CreateTtl(r) => self.create(session, who, code, r),
            MultiOp::Delete(r) => self.delete(who, r),
            MultiOp::SetData(r) => self.set_data(who, r),
            MultiOp::Check(r) => self.check_version(who, r),
            // Refused before it comes here.
            MultiOp::GetData(_) | MultiOp::GetChildren(_) => Err(ZkError::MarshallingError),
        }
    }

    fn close_session(&mut self, session: i64) -> Txn {
        let mut paths: Vec<String> = Vec::new();
        for key in self.tree.ephemerals_of(session) {
            if !self
                .ahead
                .get(&**key)
                .is_some_and(|ahead| !ahead.exists || ahead.owner != session)
            {
                paths.push(key.to_string());
            }
        }
        for (key, ahead) in &self.ahead {
            if ahead.exists
                && ahead.owner == session
                && self
                    .tree
                    .get(key)
                    .is_none_or(|node| node.stat.ephemeral_owner != session)
            {
                paths.push(key.clone());
            }
        }
        paths.sort();
        for path in &paths {
            if let (Some(node), Some(parent)) = (self.look(path), path::parent(path)) {
                self.remove(path, parent, node);
            }
        }
        Txn::CloseSession(Some(paths))
    }
}

/// -1 means any; other negative numbers are compared as they are.
fn expect_version(current: i32, expected: i32) -> Result<(), ZkError> {
    if expected == -1 || expected == current {
        Ok(())
    } else {
        Err(ZkError::BadVersion)
    }
}

/// After the largest version comes 0: -1 would mean any.
fn next_version(current: i32) -> i32 {
    match current.wrapping_add(1) {
        -1 => 0,
        next => next,
    }
}

fn create_txn(
    op: OpCode,
    kind: Kind,
    path: String,
    data: Option<Bytes>,
    acl: Vec<Acl>,
    parent_cversion: i32,
    ttl_ms: i64,
) -> Txn {
    let plain = |path, data, acl| CreateTxn {
        path,
        data,
        acl,
        ephemeral: matches!(kind, Kind::Ephemeral(_)),
        parent_cversion,
    };
    match op {
        OpCode::CreateContainer => Txn::CreateContainer(CreateContainerTxn {
            path,
            data,
            acl,
            parent_cversion,
        }),
        OpCode::CreateTtl => Txn::CreateTtl(CreateTtlTxn {
            path,
            data,
            acl,
            parent_cversion,
            ttl_ms,
        }),
        OpCode::Create2 => Txn::Create2(plain(path, data, acl)),
        _ => Txn::Create(plain(path, data, acl)),
    }
}
