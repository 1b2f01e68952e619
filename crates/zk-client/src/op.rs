//! Requests as callers write them, their encoding, and typed results.

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_proto::data::{Acl, CreateMode, Stat};
use gracchus_zk_proto::jute::{Jute, JuteError, Reader, write_buffer, write_vector};
use gracchus_zk_proto::multi::{MultiHeader, MultiResponse, MultiResult};
use gracchus_zk_proto::request::*;
use gracchus_zk_proto::response::*;
use gracchus_zk_proto::{AddWatchMode, OpCode, WatcherType, ZkError};

/// One request. Paths are below the chroot; `watch` arms a one-shot watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Create {
        path: String,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        mode: CreateMode,
    },
    /// create2: also answers the stat.
    Create2 {
        path: String,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        mode: CreateMode,
        ttl_ms: Option<i64>,
    },
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    Sync {
        path: String,
    },
    /// All or nothing. Allowed inside: Create, Create2, Delete, SetData, Check.
    Multi(Vec<Op>),
    /// Inside a multi only.
    Check {
        path: String,
        version: i32,
    },
    AddWatch {
        path: String,
        mode: AddWatchMode,
    },
    RemoveWatches {
        path: String,
        kind: WatcherType,
    },
    GetEphemerals {
        prefix: String,
    },
    GetAllChildrenNumber {
        path: String,
    },
    WhoAmI,
    /// Changes an ensemble: lists separated by commas, joining and leaving or all new members; `from` is the version of
    /// the configuration that it builds on, -1 for any.
    Reconfig {
        joining: Option<String>,
        leaving: Option<String>,
        new_members: Option<String>,
        from: i64,
    },
    AddAuth {
        scheme: String,
        auth: Bytes,
    },
}

impl Op {
    /// About what the request takes in memory and on the wire.
    pub(crate) fn size(&self) -> usize {
        /// The enum itself, headers, a length in front of each field.
        const OVERHEAD: usize = 128;
        let of_acl = |acl: &[Acl]| -> usize {
            let each = |acl: &Acl| acl.id.scheme.len() + acl.id.id.len() + 12;
            acl.iter().map(each).sum()
        };
        let of_data = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
        OVERHEAD
            + match self {
                Op::Create {
                    path, data, acl, ..
                }
                | Op::Create2 {
                    path, data, acl, ..
                } => path.len() + of_data(data) + of_acl(acl),
                Op::SetData { path, data, .. } => path.len() + of_data(data),
                Op::SetAcl { path, acl, .. } => path.len() + of_acl(acl),
                Op::Multi(ops) => ops.iter().map(Op::size).sum(),
                Op::AddAuth { scheme, auth } => scheme.len() + auth.len(),
                Op::GetEphemerals { prefix } => prefix.len(),
                _ => self.path().len(),
            }
    }
}

/// What a multi that was not applied answers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of the multi failed: {error}")]
pub struct MultiFailure {
    /// Of the operation that failed, from 0.
    pub index: usize,
    pub error: ZkError,
}

/// A successful result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// The created path, with the sequence number if there is one.
    Created(String),
    Created2(String, Stat),
    Deleted,
    /// exists, setData, setACL
    Stat(Stat),
    Data(Option<Bytes>, Stat),
    Children(Vec<String>, Stat),
    Acl(Vec<Acl>, Stat),
    Paths(Vec<String>),
    Number(i32),
    Clients(Vec<ClientInfo>),
    /// A multi: its results in order, or what failed.
    Multi(Result<Vec<OpResult>, MultiFailure>),
    Done,
}

/// A reply with the zxid of its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub zxid: i64,
    pub result: Result<OpResult, ZkError>,
}

impl Reply {
    pub(crate) fn failed(error: ZkError) -> Reply {
        Reply {
            zxid: 0,
            result: Err(error),
        }
    }
}

/// A path of the server, from one below the chroot.
pub(crate) fn absolute(chroot: &str, path: &str) -> String {
    if chroot.is_empty() {
        path.to_string()
    } else if path == "/" {
        chroot.to_string()
    } else {
        format!("{chroot}{path}")
    }
}

/// Writes the path of the server, as [`absolute`] makes it.
fn put_path(out: &mut BytesMut, chroot: &str, path: &str) {
    let path = if path == "/" && !chroot.is_empty() {
        ""
    } else {
        path
    };
    out.put_i32((chroot.len() + path.len()) as i32);
    out.put_slice(chroot.as_bytes());
    out.put_slice(path.as_bytes());
}

/// The record of a create; with a time to live it goes on with that.
fn put_create(
    out: &mut BytesMut,
    chroot: &str,
    path: &str,
    data: &Option<Bytes>,
    acl: &[Acl],
    mode: CreateMode,
) {
    put_path(out, chroot, path);
    write_buffer(out, data.as_deref());
    write_vector(out, acl);
    out.put_i32(mode.flags());
}

/// A path below the chroot, from one of the server.
pub(crate) fn relative(chroot: &str, path: &str) -> String {
    match path.strip_prefix(chroot) {
        Some("") => "/".to_string(),
        Some(rest) if !chroot.is_empty() => rest.to_string(),
        _ => path.to_string(),
    }
}

impl Op {
    pub fn opcode(&self) -> OpCode {
        match self {
            Op::Create { .. } => OpCode::Create,
            Op::Create2 { mode, .. } if mode.has_ttl() => OpCode::CreateTtl,
            Op::Create2 {
                mode: CreateMode::Container,
                ..
            } => OpCode::CreateContainer,
            Op::Create2 { .. } => OpCode::Create2,
            Op::Delete { .. } => OpCode::Delete,
            Op::Exists { .. } => OpCode::Exists,
            Op::GetData { .. } => OpCode::GetData,
            Op::SetData { .. } => OpCode::SetData,
            Op::GetChildren { .. } => OpCode::GetChildren2,
            Op::GetAcl { .. } => OpCode::GetAcl,
            Op::SetAcl { .. } => OpCode::SetAcl,
            Op::Sync { .. } => OpCode::Sync,
            Op::Multi(_) => OpCode::Multi,
            Op::Check { .. } => OpCode::Check,
            Op::AddWatch { .. } => OpCode::AddWatch,
            Op::RemoveWatches { .. } => OpCode::RemoveWatches,
            Op::GetEphemerals { .. } => OpCode::GetEphemerals,
            Op::GetAllChildrenNumber { .. } => OpCode::GetAllChildrenNumber,
            Op::WhoAmI => OpCode::WhoAmI,
            Op::Reconfig { .. } => OpCode::Reconfig,
            Op::AddAuth { .. } => OpCode::Auth,
        }
    }

    /// The path, for messages; empty where there is none.
    pub fn path(&self) -> &str {
        match self {
            Op::Create { path, .. }
            | Op::Create2 { path, .. }
            | Op::Delete { path, .. }
            | Op::Exists { path, .. }
            | Op::GetData { path, .. }
            | Op::SetData { path, .. }
            | Op::GetChildren { path, .. }
            | Op::GetAcl { path }
            | Op::SetAcl { path, .. }
            | Op::Sync { path }
            | Op::Check { path, .. }
            | Op::AddWatch { path, .. }
            | Op::RemoveWatches { path, .. }
            | Op::GetAllChildrenNumber { path } => path,
            Op::GetEphemerals { prefix } => prefix,
            Op::Multi(ops) => ops.first().map_or("", Op::path),
            Op::WhoAmI | Op::Reconfig { .. } | Op::AddAuth { .. } => "",
        }
    }

    /// Encodes one step of a multi, with its header.
    fn encode_step(&self, chroot: &str, out: &mut BytesMut) -> Result<(), ZkError> {
        let code = match self {
            Op::Create2 { .. } => OpCode::Create2,
            Op::Create { .. } | Op::Delete { .. } | Op::SetData { .. } | Op::Check { .. } => {
                self.opcode()
            }
            _ => return Err(ZkError::BadArguments),
        };
        MultiHeader {
            op: code.code(),
            done: false,
            err: -1,
        }
        .write(out);
        match self {
            Op::Check { path, version } => {
                put_path(out, chroot, path);
                out.put_i32(*version);
                Ok(())
            }
            Op::Create2 {
                path,
                data,
                acl,
                mode,
                ..
            } => {
                put_create(out, chroot, path, data, acl, *mode);
                Ok(())
            }
            _ => self.encode(chroot, out),
        }
    }

    /// Encodes the record; an operation that may not stand where it stands is an error.
    pub(crate) fn encode(&self, chroot: &str, out: &mut BytesMut) -> Result<(), ZkError> {
        let at = |path: &str| absolute(chroot, path);
        match self {
            Op::Create {
                path,
                data,
                acl,
                mode,
            } => put_create(out, chroot, path, data, acl, *mode),
            Op::Create2 {
                path,
                data,
                acl,
                mode,
                ttl_ms,
            } => {
                put_create(out, chroot, path, data, acl, *mode);
                if mode.has_ttl() {
                    out.put_i64(ttl_ms.unwrap_or(-1));
                }
            }
            Op::Delete { path, version } => {
                put_path(out, chroot, path);
                out.put_i32(*version);
            }
            Op::Exists { path, watch }
            | Op::GetData { path, watch }
            | Op::GetChildren { path, watch } => {
                put_path(out, chroot, path);
                watch.write(out);
            }
            Op::SetData {
                path,
                data,
                version,
            } => {
                put_path(out, chroot, path);
                write_buffer(out, data.as_deref());
                out.put_i32(*version);
            }
            Op::GetAcl { path } | Op::GetAllChildrenNumber { path } => {
                PathRequest { path: at(path) }.write(out)
            }
            Op::SetAcl { path, acl, version } => {
                SetAclRequest {
                    path: at(path),
                    acl: Some(acl.clone()),
                    version: *version,
                }
                .write(out);
            }
            Op::Sync { path } => SyncRequest {
                path: Some(at(path)),
            }
            .write(out),
            Op::Multi(ops) => {
                for op in ops {
                    op.encode_step(chroot, out)?;
                }
                MultiHeader::END.write(out);
            }
            Op::Check { .. } => return Err(ZkError::BadArguments),
            Op::AddWatch { path, mode } => AddWatchRequest {
                path: at(path),
                mode: *mode as i32,
            }
            .write(out),
            Op::RemoveWatches { path, kind } => {
                WatchesRequest {
                    path: at(path),
                    watcher_type: *kind as i32,
                }
                .write(out);
            }
            Op::GetEphemerals { prefix } => GetEphemeralsRequest {
                prefix: Some(at(prefix)),
            }
            .write(out),
            Op::WhoAmI => {}
            Op::Reconfig {
                joining,
                leaving,
                new_members,
                from,
            } => ReconfigRequest {
                joining: joining.clone(),
                leaving: leaving.clone(),
                new_members: new_members.clone(),
                config_id: *from,
            }
            .write(out),
            Op::AddAuth { scheme, auth } => {
                AuthRequest {
                    auth_type: 0,
                    scheme: Some(scheme.clone()),
                    auth: Some(auth.clone()),
                }
                .write(out);
            }
        }
        Ok(())
    }

    /// Decodes the record behind a reply header without error.
    pub(crate) fn decode(&self, chroot: &str, r: &mut Reader) -> Result<OpResult, JuteError> {
        Ok(match self {
            Op::Create { .. } => OpResult::Created(relative(chroot, &String::read(r)?)),
            Op::Create2 { .. } => {
                let answer = Create2Response::read(r)?;
                OpResult::Created2(relative(chroot, &answer.path), answer.stat)
            }
            Op::Delete { .. } => OpResult::Deleted,
            Op::Exists { .. } | Op::SetData { .. } | Op::SetAcl { .. } => {
                OpResult::Stat(Stat::read(r)?)
            }
            Op::GetData { .. } | Op::Reconfig { .. } => {
                let answer = GetDataResponse::read(r)?;
                OpResult::Data(answer.data, answer.stat)
            }
            Op::GetChildren { .. } => {
                let answer = GetChildren2Response::read(r)?;
                OpResult::Children(answer.children, answer.stat)
            }
            Op::GetAcl { .. } => {
                let answer = GetAclResponse::read(r)?;
                OpResult::Acl(answer.acl, answer.stat)
            }
            Op::GetEphemerals { .. } => {
                let paths = GetEphemeralsResponse::read(r)?.paths;
                OpResult::Paths(paths.iter().map(|p| relative(chroot, p)).collect())
            }
            Op::GetAllChildrenNumber { .. } => OpResult::Number(r.i32()?),
            Op::WhoAmI => OpResult::Clients(WhoAmIResponse::read(r)?.clients),
            Op::Multi(_) => OpResult::Multi(decode_multi(chroot, MultiResponse::read(r)?)),
            Op::Sync { .. }
            | Op::Check { .. }
            | Op::AddWatch { .. }
            | Op::RemoveWatches { .. }
            | Op::AddAuth { .. } => OpResult::Done,
        })
    }
}

fn decode_multi(chroot: &str, response: MultiResponse) -> Result<Vec<OpResult>, MultiFailure> {
    let mut out = Vec::with_capacity(response.results.len());
    for (index, result) in response.results.into_iter().enumerate() {
        out.push(match result {
            MultiResult::Create(path) => OpResult::Created(relative(chroot, &path)),
            MultiResult::Create2(r) => OpResult::Created2(relative(chroot, &r.path), r.stat),
            MultiResult::Delete => OpResult::Deleted,
            MultiResult::SetData(stat) => OpResult::Stat(stat),
            MultiResult::Check => OpResult::Done,
            MultiResult::GetData(r) => OpResult::Data(r.data, r.stat),
            MultiResult::GetChildren(r) => OpResult::Children(r.children, Stat::default()),
            // the operations before the one that failed say 0
            MultiResult::Error(0) => continue,
            MultiResult::Error(code) => {
                let error = ZkError::from_code(code).unwrap_or(ZkError::SystemError);
                return Err(MultiFailure { index, error });
            }
        });
    }
    Ok(out)
}
