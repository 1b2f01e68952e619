//! Results as JSON, for `--format json`.

use base64::Engine as _;
use gracchus_zk_client::{Acl, Stat};
use serde_json::{Value, json};

pub(super) fn stat(stat: &Stat) -> Value {
    json!({
        "cZxid": stat.czxid, "ctime": stat.ctime, "mZxid": stat.mzxid, "mtime": stat.mtime, "pZxid": stat.pzxid,
        "cversion": stat.cversion, "dataVersion": stat.version, "aclVersion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner, "dataLength": stat.data_length, "numChildren": stat.num_children,
    })
}

/// `data` is null for a node without data; bytes that are no UTF-8 come as base64 with `encoding` saying so.
pub(super) fn data(path: &str, data: Option<&[u8]>, of: &Stat) -> Value {
    let (text, encoding) = match data.map(std::str::from_utf8) {
        None => (Value::Null, "null"),
        Some(Ok(text)) => (Value::from(text), "utf8"),
        Some(Err(_)) => (
            Value::from(base64::engine::general_purpose::STANDARD.encode(data.unwrap_or_default())),
            "base64",
        ),
    };
    json!({ "path": path, "data": text, "encoding": encoding, "stat": stat(of) })
}

pub(super) fn acl(path: &str, acls: &[Acl], of: &Stat) -> Value {
    let acls: Vec<Value> = acls.iter().map(|acl| json!({ "scheme": acl.id.scheme, "id": acl.id.id, "perms": super::acl::letters(acl.perms) })).collect();
    json!({ "path": path, "acl": acls, "stat": stat(of) })
}
