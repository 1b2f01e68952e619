//! The records of the transaction log and of snapshots (ZooKeeper's on-disk formats, version 2).

use crate::OpCode;
use crate::data::Acl;
use crate::jute::{Jute, JuteError, Reader, record};
use bytes::{Buf, Bytes, BytesMut};

record! {
    /// First in every logged transaction.
    #[derive(Copy)]
    pub struct TxnHeader {
        pub client_id: i64, pub cxid: i32, pub zxid: i64, /** ms since the epoch. */ pub time: i64, pub op: i32,
    }
}
record! {
    /// The tree's digest after the transaction; optional at its end.
    #[derive(Copy)]
    pub struct TxnDigest { pub version: i32, pub tree_digest: i64 }
}
record! {
    pub struct CreateTxn {
        pub path: String, pub data: Option<Bytes>, pub acl: Vec<Acl>, pub ephemeral: bool,
        /// The parent's stored cversion after the create; -1 in files of the oldest version.
        pub parent_cversion: i32,
    }
}
record! {
    pub struct CreateContainerTxn { pub path: String, pub data: Option<Bytes>, pub acl: Vec<Acl>, pub parent_cversion: i32 }
}
record! {
    pub struct CreateTtlTxn {
        pub path: String, pub data: Option<Bytes>, pub acl: Vec<Acl>, pub parent_cversion: i32, pub ttl_ms: i64,
    }
}
record! {
    /// delete and deleteContainer.
    pub struct DeleteTxn { pub path: String }
}
record! {
    /// `version` is the one after the write.
    pub struct SetDataTxn { pub path: String, pub data: Option<Bytes>, pub version: i32 }
}
record! {
    pub struct SetAclTxn { pub path: String, pub acl: Vec<Acl>, pub version: i32 }
}
record! {
    /// `version` is the expected one plus 1.
    pub struct CheckVersionTxn { pub path: String, pub version: i32 }
}
record! {
    #[derive(Copy)]
    pub struct CreateSessionTxn { pub timeout_ms: i32 }
}
record! {
    #[derive(Copy)]
    pub struct ErrorTxn { pub err: i32 }
}
record! {
    /// One operation inside a multi, still encoded.
    pub struct SubTxn { pub op: i32, pub data: Option<Bytes> }
}
record! {
    pub struct MultiTxn { pub txns: Vec<SubTxn> }
}

/// A transaction's content, by the header's `op`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Txn {
    CreateSession(CreateSessionTxn),
    /// The ephemeral paths that go with the session; `None` in files that don't list them.
    CloseSession(Option<Vec<String>>),
    Create(CreateTxn),
    Create2(CreateTxn),
    CreateContainer(CreateContainerTxn),
    CreateTtl(CreateTtlTxn),
    Delete(DeleteTxn),
    DeleteContainer(DeleteTxn),
    SetData(SetDataTxn),
    Reconfig(SetDataTxn),
    SetAcl(SetAclTxn),
    Check(CheckVersionTxn),
    Multi(Vec<Txn>),
    Error(ErrorTxn),
}

impl Txn {
    pub fn opcode(&self) -> OpCode {
        match self {
            Txn::CreateSession(_) => OpCode::CreateSession,
            Txn::CloseSession(_) => OpCode::CloseSession,
            Txn::Create(_) => OpCode::Create,
            Txn::Create2(_) => OpCode::Create2,
            Txn::CreateContainer(_) => OpCode::CreateContainer,
            Txn::CreateTtl(_) => OpCode::CreateTtl,
            Txn::Delete(_) => OpCode::Delete,
            Txn::DeleteContainer(_) => OpCode::DeleteContainer,
            Txn::SetData(_) => OpCode::SetData,
            Txn::Reconfig(_) => OpCode::Reconfig,
            Txn::SetAcl(_) => OpCode::SetAcl,
            Txn::Check(_) => OpCode::Check,
            Txn::Multi(_) => OpCode::Multi,
            Txn::Error(_) => OpCode::Error,
        }
    }

    /// Reads the content that belongs to `op`; a multi may not hold another multi.
    pub fn read(op: i32, r: &mut Reader) -> Result<Self, JuteError> {
        Self::read_at_depth(op, r, 0)
    }

    fn read_at_depth(op: i32, r: &mut Reader, depth: u8) -> Result<Self, JuteError> {
        let unknown = || JuteError::Unknown {
            what: "transaction type",
            value: op.into(),
        };
        Ok(match OpCode::from_code(op).ok_or_else(unknown)? {
            OpCode::CreateSession => Txn::CreateSession(Jute::read(r)?),
            OpCode::CloseSession => Txn::CloseSession(if r.rest().has_remaining() {
                r.vector()?
            } else {
                None
            }),
            OpCode::Create => Txn::Create(read_create(r)?),
            OpCode::Create2 => Txn::Create2(read_create(r)?),
            OpCode::CreateContainer => Txn::CreateContainer(Jute::read(r)?),
            OpCode::CreateTtl => Txn::CreateTtl(Jute::read(r)?),
            OpCode::Delete => Txn::Delete(Jute::read(r)?),
            OpCode::DeleteContainer => Txn::DeleteContainer(Jute::read(r)?),
            OpCode::SetData => Txn::SetData(Jute::read(r)?),
            OpCode::Reconfig => Txn::Reconfig(Jute::read(r)?),
            OpCode::SetAcl => Txn::SetAcl(Jute::read(r)?),
            OpCode::Check => Txn::Check(Jute::read(r)?),
            OpCode::Error => Txn::Error(Jute::read(r)?),
            OpCode::Multi if depth == 0 => {
                let subs: Vec<SubTxn> = Jute::read(r)?;
                let mut txns = Vec::with_capacity(subs.len());
                for sub in subs {
                    let mut inner = Reader::new(sub.data.ok_or(JuteError::UnexpectedNull)?);
                    txns.push(Self::read_at_depth(sub.op, &mut inner, depth + 1)?);
                }
                Txn::Multi(txns)
            }
            _ => return Err(unknown()),
        })
    }

    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Txn::CreateSession(t) => t.write(out),
            Txn::CloseSession(paths) => {
                if let Some(paths) = paths {
                    paths.write(out);
                }
            }
            Txn::Create(t) | Txn::Create2(t) => t.write(out),
            Txn::CreateContainer(t) => t.write(out),
            Txn::CreateTtl(t) => t.write(out),
            Txn::Delete(t) | Txn::DeleteContainer(t) => t.write(out),
            Txn::SetData(t) | Txn::Reconfig(t) => t.write(out),
            Txn::SetAcl(t) => t.write(out),
            Txn::Check(t) => t.write(out),
            Txn::Error(t) => t.write(out),
            Txn::Multi(txns) => {
                let subs = txns.iter().map(|txn| {
                    let mut data = BytesMut::new();
                    txn.write(&mut data);
                    SubTxn {
                        op: txn.opcode().code(),
                        data: Some(data.freeze()),
                    }
                });
                subs.collect::<Vec<_>>().write(out);
            }
        }
    }
}

/// The oldest files end a create before `parent_cversion`.
fn read_create(r: &mut Reader) -> Result<CreateTxn, JuteError> {
    Ok(CreateTxn {
        path: Jute::read(r)?,
        data: r.buffer()?,
        acl: Jute::read(r)?,
        ephemeral: Jute::read(r)?,
        parent_cversion: if r.remaining() >= 4 { r.i32()? } else { -1 },
    })
}
