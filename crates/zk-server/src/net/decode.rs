//! From a request's bytes to what the committer does.

use crate::prep::Write;
use crate::state::Task;
use bytes::Bytes;
use gracchus_zk_proto::multi::{MultiOp, MultiRequest};
use gracchus_zk_proto::request::{
    CreateRequest, CreateTtlRequest, DeleteContainerRequest, ReconfigRequest,
};
use gracchus_zk_proto::{CreateMode, Jute, OpCode, ZkError};

/// Reads a request that is not answered at once.
pub(crate) fn decode_write(op: OpCode, body: Bytes) -> Task {
    let decoded = match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer => {
            CreateRequest::from_bytes(body).map(|r| {
                let r = CreateTtlRequest {
                    path: r.path,
                    data: r.data,
                    acl: r.acl,
                    flags: r.flags,
                    ttl_ms: -1,
                };
                Write::Create(op, r)
            })
        }
        OpCode::CreateTtl => CreateTtlRequest::from_bytes(body).map(|r| Write::Create(op, r)),
        OpCode::Delete => Jute::from_bytes(body).map(Write::Delete),
        OpCode::DeleteContainer => {
            DeleteContainerRequest::from_bytes(body).map(|r| Write::DeleteContainer {
                path: r.path,
                from_client: true,
            })
        }
        OpCode::SetData => Jute::from_bytes(body).map(Write::SetData),
        OpCode::SetAcl => Jute::from_bytes(body).map(Write::SetAcl),
        OpCode::Reconfig => ReconfigRequest::from_bytes(body).map(|_| Write::Reconfig),
        OpCode::CloseSession => Ok(Write::CloseSession),
        OpCode::Multi => Ok(match MultiRequest::from_bytes(body) {
            Ok(request) if request.ops.iter().all(is_fit_for_multi) => Write::Multi(request.ops),
            _ => Write::MalformedMulti,
        }),
        _ => return Task::Unimplemented,
    };
    match decoded {
        Ok(write) => Task::Write(write),
        Err(_) => Task::Refuse(ZkError::MarshallingError),
    }
}

/// A read, or flags that no create knows, spoil the whole multi.
fn is_fit_for_multi(op: &MultiOp) -> bool {
    match op {
        MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => {
            CreateMode::from_flags(r.flags).is_some()
        }
        MultiOp::CreateTtl(r) => CreateMode::from_flags(r.flags).is_some(),
        op => !op.is_read(),
    }
}
