//! What an applied transaction answers.

use crate::net::conn::Out;
use crate::tree::Applied;
use bytes::BytesMut;
use gracchus_zk_proto::jute::write_buffer;
use gracchus_zk_proto::multi::{MultiResponse, MultiResult};
use gracchus_zk_proto::response::Create2Response;
use gracchus_zk_proto::{Jute, OpCode, ZkError};

pub(super) fn reply(out: &mut Out, xid: i32, zxid: i64, applied: Applied) {
    out.reply(xid, zxid, |buf| fill(buf, applied));
}

fn fill(out: &mut BytesMut, applied: Applied) -> Result<(), ZkError> {
    match applied {
        Applied::Done => {}
        Applied::Created { path, stat, op } => {
            write_buffer(out, Some(path.as_bytes()));
            if op != OpCode::Create {
                stat.write(out);
            }
        }
        Applied::Changed(stat) => stat.write(out),
        Applied::Failed(error) => return Err(error),
        Applied::All(_) | Applied::NothingOf(_) => multi_response(applied).write(out),
    }
    Ok(())
}

fn multi_response(applied: Applied) -> MultiResponse {
    let results = match applied {
        Applied::All(all) => all.into_iter().map(multi_result).collect(),
        Applied::NothingOf(codes) => codes.into_iter().map(MultiResult::Error).collect(),
        _ => Vec::new(),
    };
    MultiResponse { results }
}

fn multi_result((applied, op): (Applied, OpCode)) -> MultiResult {
    match applied {
        Applied::Created {
            path,
            op: OpCode::Create,
            ..
        } => MultiResult::Create(path.to_string()),
        Applied::Created { path, stat, .. } => MultiResult::Create2(Create2Response {
            path: path.to_string(),
            stat,
        }),
        Applied::Changed(stat) => MultiResult::SetData(stat),
        Applied::Failed(error) => MultiResult::Error(error.code()),
        _ if op == OpCode::Check => MultiResult::Check,
        _ => MultiResult::Delete,
    }
}
