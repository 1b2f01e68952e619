//! multi and multiRead: a stream of operations, each behind a small header, ended by a marker.

use crate::OpCode;
use crate::data::Stat;
use crate::jute::{Jute, JuteError, Reader, record};
use crate::request::{
    CheckVersionRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathWatchRequest,
    SetDataRequest,
};
use crate::response::{Create2Response, GetChildrenResponse, GetDataResponse};
use bytes::BytesMut;

record! {
    /// Before every operation and result. `done` marks the end of the stream.
    #[derive(Copy)]
    pub struct MultiHeader { pub op: i32, pub done: bool, pub err: i32 }
}

impl MultiHeader {
    /// Behind the last one.
    pub const END: MultiHeader = MultiHeader {
        op: -1,
        done: true,
        err: -1,
    };
}

/// One operation of a multi or multiRead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiOp {
    Create(CreateRequest),
    Create2(CreateRequest),
    CreateContainer(CreateRequest),
    CreateTtl(CreateTtlRequest),
    Delete(DeleteRequest),
    SetData(SetDataRequest),
    Check(CheckVersionRequest),
    GetData(PathWatchRequest),
    GetChildren(PathWatchRequest),
}

impl MultiOp {
    pub fn opcode(&self) -> OpCode {
        match self {
            MultiOp::Create(_) => OpCode::Create,
            MultiOp::Create2(_) => OpCode::Create2,
            MultiOp::CreateContainer(_) => OpCode::CreateContainer,
            MultiOp::CreateTtl(_) => OpCode::CreateTtl,
            MultiOp::Delete(_) => OpCode::Delete,
            MultiOp::SetData(_) => OpCode::SetData,
            MultiOp::Check(_) => OpCode::Check,
            MultiOp::GetData(_) => OpCode::GetData,
            MultiOp::GetChildren(_) => OpCode::GetChildren,
        }
    }

    pub fn is_read(&self) -> bool {
        matches!(self, MultiOp::GetData(_) | MultiOp::GetChildren(_))
    }

    pub fn path(&self) -> &str {
        match self {
            MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => &r.path,
            MultiOp::CreateTtl(r) => &r.path,
            MultiOp::Delete(r) => &r.path,
            MultiOp::SetData(r) => &r.path,
            MultiOp::Check(r) => &r.path,
            MultiOp::GetData(r) | MultiOp::GetChildren(r) => &r.path,
        }
    }
}

/// The record of a multi or multiRead request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MultiRequest {
    pub ops: Vec<MultiOp>,
}

impl Jute for MultiRequest {
    const MIN_SIZE: usize = MultiHeader::MIN_SIZE;

    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        let mut ops = Vec::new();
        loop {
            let header = MultiHeader::read(r)?;
            if header.done {
                return Ok(MultiRequest { ops });
            }
            ops.push(match OpCode::from_code(header.op) {
                Some(OpCode::Create) => MultiOp::Create(CreateRequest::read(r)?),
                Some(OpCode::Create2) => MultiOp::Create2(CreateRequest::read(r)?),
                Some(OpCode::CreateContainer) => MultiOp::CreateContainer(CreateRequest::read(r)?),
                Some(OpCode::CreateTtl) => MultiOp::CreateTtl(CreateTtlRequest::read(r)?),
                Some(OpCode::Delete) => MultiOp::Delete(DeleteRequest::read(r)?),
                Some(OpCode::SetData) => MultiOp::SetData(SetDataRequest::read(r)?),
                Some(OpCode::Check) => MultiOp::Check(CheckVersionRequest::read(r)?),
                Some(OpCode::GetData) => MultiOp::GetData(PathWatchRequest::read(r)?),
                Some(OpCode::GetChildren) => MultiOp::GetChildren(PathWatchRequest::read(r)?),
                _ => {
                    return Err(JuteError::Unknown {
                        what: "operation in a multi",
                        value: header.op.into(),
                    });
                }
            });
        }
    }

    fn write(&self, out: &mut BytesMut) {
        for op in &self.ops {
            let header = MultiHeader {
                op: op.opcode().code(),
                done: false,
                err: -1,
            };
            header.write(out);
            match op {
                MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => {
                    r.write(out)
                }
                MultiOp::CreateTtl(r) => r.write(out),
                MultiOp::Delete(r) => r.write(out),
                MultiOp::SetData(r) => r.write(out),
                MultiOp::Check(r) => r.write(out),
                MultiOp::GetData(r) | MultiOp::GetChildren(r) => r.write(out),
            }
        }
        MultiHeader::END.write(out);
    }
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MultiResult {
    /// The created path.
    Create(String),
    /// create2, createContainer and createTTL.
    Create2(Create2Response),
    Delete,
    SetData(Stat),
    Check,
    GetData(GetDataResponse),
    GetChildren(GetChildrenResponse),
    /// In a failed multi: 0 before the operation that failed, its code, -2 after it.
    Error(i32),
}

/// The record of a multi's response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MultiResponse {
    pub results: Vec<MultiResult>,
}

impl Jute for MultiResponse {
    const MIN_SIZE: usize = MultiHeader::MIN_SIZE;

    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        let mut results = Vec::new();
        loop {
            let header = MultiHeader::read(r)?;
            if header.done {
                return Ok(MultiResponse { results });
            }
            results.push(match OpCode::from_code(header.op) {
                Some(OpCode::Create) => MultiResult::Create(String::read(r)?),
                Some(OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => {
                    MultiResult::Create2(Create2Response::read(r)?)
                }
                Some(OpCode::Delete) => MultiResult::Delete,
                Some(OpCode::SetData) => MultiResult::SetData(Stat::read(r)?),
                Some(OpCode::Check) => MultiResult::Check,
                Some(OpCode::GetData) => MultiResult::GetData(GetDataResponse::read(r)?),
                Some(OpCode::GetChildren) => {
                    MultiResult::GetChildren(GetChildrenResponse::read(r)?)
                }
                Some(OpCode::Error) => MultiResult::Error(r.i32()?),
                _ => {
                    return Err(JuteError::Unknown {
                        what: "result in a multi",
                        value: header.op.into(),
                    });
                }
            });
        }
    }

    fn write(&self, out: &mut BytesMut) {
        for result in &self.results {
            let (op, err) = match result {
                MultiResult::Create(_) => (OpCode::Create, 0),
                MultiResult::Create2(_) => (OpCode::Create2, 0),
                MultiResult::Delete => (OpCode::Delete, 0),
                MultiResult::SetData(_) => (OpCode::SetData, 0),
                MultiResult::Check => (OpCode::Check, 0),
                MultiResult::GetData(_) => (OpCode::GetData, 0),
                MultiResult::GetChildren(_) => (OpCode::GetChildren, 0),
                MultiResult::Error(code) => (OpCode::Error, *code),
            };
            let header = MultiHeader {
                op: op.code(),
                done: false,
                err,
            };
            header.write(out);
            match result {
                MultiResult::Create(path) => path.write(out),
                MultiResult::Create2(r) => r.write(out),
                MultiResult::SetData(stat) => stat.write(out),
                MultiResult::GetData(r) => r.write(out),
                MultiResult::GetChildren(r) => r.write(out),
                MultiResult::Error(code) => code.write(out),
                MultiResult::Delete | MultiResult::Check => {}
            }
        }
        MultiHeader::END.write(out);
    }
}
