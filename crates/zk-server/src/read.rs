//! Answers to what changes nothing: reads, watches, pings.
//!
//! Whoever calls holds the tree, so that a watch is in place before any later change is applied.

use crate::acl::Identity;
use crate::net::conn::{Conn, Out};
use crate::path;
use crate::tree::{DataTree, Node};
use crate::watch::Watches;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use gracchus_zk_proto::jute::write_buffer;
use gracchus_zk_proto::multi::{MultiOp, MultiRequest, MultiResponse, MultiResult};
use gracchus_zk_proto::request::{
    AddWatchRequest, GetEphemeralsRequest, PathRequest, SetWatches2Request, SetWatchesRequest,
    SyncRequest, WatchesRequest,
};
use gracchus_zk_proto::response::{
    ClientInfo, ErrorResponse, GetAclResponse, GetAllChildrenNumberResponse, GetChildrenResponse,
    GetDataResponse, GetEphemeralsResponse, PathResponse, WhoAmIResponse,
};
use gracchus_zk_proto::{
    AddWatchMode, EventType, Jute, JuteError, OpCode, WatcherEvent, WatcherType, ZkError, perms,
    xid,
};
use parking_lot::Mutex;
use std::borrow::Cow;

/// Data that one multiRead may answer: a request that names a large node often would have it sent as often. No client takes a
/// frame of this size either.
const MAX_MULTI_READ: usize = 64 << 20;

/// What an answer is made from.
pub(crate) struct Reading<'a> {
    pub tree: &'a DataTree,
    pub watches: &'a Mutex<Watches>,
    pub skip_acl: bool,
}

/// Operations answered here.
pub(crate) fn is_read(op: OpCode) -> bool {
    use OpCode::*;
    matches!(
        op,
        Exists
            | GetData
            | GetChildren
            | GetChildren2
            | GetAcl
            | GetAllChildrenNumber
            | GetEphemerals
            | Sync
            | Ping
            | MultiRead
            | SetWatches
            | SetWatches2
            | AddWatch
            | CheckWatches
            | RemoveWatches
            | WhoAmI
    )
}

impl Reading<'_> {
    pub fn answer(&self, conn: &Conn, out: &mut Out, xid: i32, op: OpCode, body: &[u8]) {
        let zxid = self.tree.last_zxid();
        if matches!(op, OpCode::SetWatches | OpCode::SetWatches2) {
            let result = self.set_watches(conn, out, op, body);
            return out.reply(xid, zxid, |_| result);
        }
        let xid = if op == OpCode::Ping { xid::PING } else { xid };
        let who = conn.identity();
        out.reply(xid, zxid, |buf| self.fill(conn, &who, op, body, buf));
    }

    fn fill(
        &self,
        conn: &Conn,
        who: &Identity,
        op: OpCode,
        body: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ZkError> {
        match op {
            OpCode::Exists => {
                let (path, watch) = path_and_watch(body)?;
                if path.contains('\0') {
                    return Err(ZkError::BadArguments);
                }
                let node = self.tree.get(&path);
                if let Some(node) = node {
                    self.check(node, perms::READ, who)?;
                }
                if watch {
                    self.watches.lock().add_data(&path, conn.id);
                }
                node.ok_or(ZkError::NoNode)?.wire_stat().write(out);
            }
            OpCode::GetData => {
                let (path, watch) = path_and_watch(body)?;
                let node = self.readable(&path, who)?;
                if watch {
                    self.watches.lock().add_data(&path, conn.id);
                }
                write_buffer(out, node.data.as_deref());
                node.wire_stat().write(out);
            }
            OpCode::GetChildren | OpCode::GetChildren2 => {
                let (path, watch) = path_and_watch(body)?;
                let node = self.readable(&path, who)?;
                if watch {
                    self.watches.lock().add_child(&path, conn.id);
                }
                out.put_i32(node.child_count());
                for name in node.child_names() {
                    write_buffer(out, Some(name.as_bytes()));
                }
                if op == OpCode::GetChildren2 {
                    node.wire_stat().write(out);
                }
            }
            OpCode::GetAcl => {
                let r: PathRequest = decode(body)?;
                let node = self.tree.get(&r.path).ok_or(ZkError::NoNode)?;
                self.check(node, perms::READ | perms::ADMIN, who)?;
                let response = GetAclResponse {
                    acl: node.acl.shown_to(who),
                    stat: node.wire_stat(),
                };
                response.write(out);
            }
            OpCode::GetAllChildrenNumber => {
                let r: PathRequest = decode(body)?;
                let node = self.readable(&r.path, who)?;
                let total = i32::try_from(self.tree.descendants(node)).unwrap_or(i32::MAX);
                GetAllChildrenNumberResponse { total }.write(out);
            }
            OpCode::GetEphemerals => {
                let r: GetEphemeralsRequest = decode(body)?;
                let prefix = r
                    .prefix
                    .as_deref()
                    .filter(|prefix| *prefix != "/" && !prefix.trim().is_empty())
                    .unwrap_or("");
                let own = self.tree.ephemerals_of(conn.session());
                let mut paths: Vec<String> = own
                    .filter(|path| path.starts_with(prefix))
                    .map(|path| path.to_string())
                    .collect();
                paths.sort();
                GetEphemeralsResponse { paths }.write(out);
            }
            OpCode::Sync => {
                let r: SyncRequest = decode(body)?;
                PathResponse { path: r.path }.write(out);
            }
            OpCode::Ping => {}
            OpCode::WhoAmI => {
                let mut clients = vec![ClientInfo {
                    scheme: "ip".into(),
                    user: who.address.to_string(),
                }];
                clients.extend(who.ids.iter().map(|id| ClientInfo {
                    scheme: id.scheme.clone(),
                    user: id.id.split(':').next().unwrap_or_default().into(),
                }));
                WhoAmIResponse { clients }.write(out);
            }
            OpCode::MultiRead => self.multi_read(who, body)?.write(out),
            OpCode::AddWatch => {
                let r: AddWatchRequest = decode(body)?;
                let mode = AddWatchMode::from_code(r.mode).ok_or(ZkError::MarshallingError)?;
                self.watches.lock().add(&r.path, conn.id, mode);
                ErrorResponse { err: 0 }.write(out);
            }
            OpCode::CheckWatches | OpCode::RemoveWatches => {
                let r: WatchesRequest = decode(body)?;
                let kind =
                    WatcherType::from_code(r.watcher_type).ok_or(ZkError::MarshallingError)?;
                let mut watches = self.watches.lock();
                let found = if op == OpCode::RemoveWatches {
                    watches.remove(&r.path, conn.id, kind)
                } else {
                    watches.has(&r.path, conn.id, kind)
                };
                if !found {
                    return Err(ZkError::NoWatcher);
                }
            }
            _ => return Err(ZkError::Unimplemented),
        }
        Ok(())
    }

    fn check(&self, node: &Node, wanted: i32, who: &Identity) -> Result<(), ZkError> {
        if self.skip_acl || node.acl.allows(wanted, who) {
            Ok(())
        } else {
            Err(ZkError::NoAuth)
        }
    }

    fn readable(&self, path: &str, who: &Identity) -> Result<&Node, ZkError> {
        let node = self.tree.get(path).ok_or(ZkError::NoNode)?;
        self.check(node, perms::READ, who)?;
        Ok(node)
    }

    fn multi_read(&self, who: &Identity, body: &[u8]) -> Result<MultiResponse, ZkError> {
        let request: MultiRequest = decode(body)?;
        let mut results = Vec::with_capacity(request.ops.len());
        let mut size = 0;
        for op in request.ops {
            let result = match op {
                MultiOp::GetData(r) => self.readable(&r.path, who).map(|node| {
                    MultiResult::GetData(GetDataResponse {
                        data: node.data.clone(),
                        stat: node.wire_stat(),
                    })
                }),
                MultiOp::GetChildren(r) => self.readable(&r.path, who).map(|node| {
                    MultiResult::GetChildren(GetChildrenResponse {
                        children: node.child_names().map(str::to_owned).collect(),
                    })
                }),
                _ => return Err(ZkError::MarshallingError),
            };
            size += match &result {
                Ok(MultiResult::GetData(r)) => r.data.as_ref().map_or(0, Bytes::len),
                Ok(MultiResult::GetChildren(r)) => r.children.iter().map(String::len).sum(),
                _ => 0,
            };
            if size > MAX_MULTI_READ {
                return Err(ZkError::MarshallingError);
            }
            results.push(result.unwrap_or_else(|error| MultiResult::Error(error.code())));
        }
        Ok(MultiResponse { results })
    }

    /// Arms the watches of a client that comes back, and tells it at once what it missed.
    fn set_watches(
        &self,
        conn: &Conn,
        out: &mut Out,
        op: OpCode,
        body: &[u8],
    ) -> Result<(), ZkError> {
        let r = if op == OpCode::SetWatches2 {
            decode::<SetWatches2Request>(body)?
        } else {
            let r: SetWatchesRequest = decode(body)?;
            SetWatches2Request {
                relative_zxid: r.relative_zxid,
                data: r.data,
                exist: r.exist,
                child: r.child,
                ..SetWatches2Request::default()
            }
        };
        let mut watches = self.watches.lock();
        let mut tell = |kind: EventType, path: &str| out.event(&event_frame(-1, kind, path));
        for path in &r.data {
            match self.tree.get(path) {
                None => tell(EventType::Deleted, path),
                Some(node) if node.stat.mzxid > r.relative_zxid => {
                    tell(EventType::DataChanged, path)
                }
                Some(_) => watches.add_data(path, conn.id),
            }
        }
        for path in &r.exist {
            match self.tree.get(path) {
                Some(_) => tell(EventType::Created, path),
                None => watches.add_data(path, conn.id),
            }
        }
        for path in &r.child {
            match self.tree.get(path) {
                None => tell(EventType::Deleted, path),
                Some(node) if node.stat.pzxid > r.relative_zxid => {
                    tell(EventType::ChildrenChanged, path)
                }
                Some(_) => watches.add_child(path, conn.id),
            }
        }
        for path in &r.persistent {
            watches.add(path, conn.id, AddWatchMode::Persistent);
        }
        for path in &r.persistent_recursive {
            watches.add(path, conn.id, AddWatchMode::PersistentRecursive);
        }
        Ok(())
    }
}

/// A watch event as it goes over the wire.
pub(crate) fn event_frame(zxid: i64, kind: EventType, path: &str) -> BytesMut {
    let path = path::shown(path);
    let mut out = BytesMut::with_capacity(32 + path.len());
    out.put_i32(28 + path.len() as i32);
    out.put_i32(xid::NOTIFICATION);
    out.put_i64(zxid);
    out.put_i32(0);
    WatcherEvent::new(kind, path).write(&mut out);
    out
}

fn decode<T: Jute>(body: &[u8]) -> Result<T, ZkError> {
    T::from_bytes(Bytes::copy_from_slice(body)).map_err(|_: JuteError| ZkError::MarshallingError)
}

/// The record of most reads, without a copy.
fn path_and_watch(mut body: &[u8]) -> Result<(Cow<'_, str>, bool), ZkError> {
    let length = body.try_get_i32().map_err(|_| ZkError::MarshallingError)?;
    let length = usize::try_from(length).map_err(|_| ZkError::MarshallingError)?;
    let path = body.get(..length).ok_or(ZkError::MarshallingError)?;
    let watch = body.get(length).ok_or(ZkError::MarshallingError)?;
    Ok((String::from_utf8_lossy(path), *watch != 0))
}
