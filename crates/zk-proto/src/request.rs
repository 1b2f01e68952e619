//! The record of each request, without its header.

use crate::data::Acl;
use crate::jute::record;
use bytes::Bytes;

record! {
    /// create, create2 and createContainer.
    pub struct CreateRequest { pub path: String, pub data: Option<Bytes>, pub acl: Option<Vec<Acl>>, pub flags: i32 }
}
record! {
    pub struct CreateTtlRequest {
        pub path: String, pub data: Option<Bytes>, pub acl: Option<Vec<Acl>>, pub flags: i32,
        /// ms without a change before the node may go.
        pub ttl_ms: i64,
    }
}
record! {
    pub struct DeleteRequest { pub path: String, /** -1 matches any. */ pub version: i32 }
}
record! {
    pub struct DeleteContainerRequest { pub path: String }
}
record! {
    pub struct SetDataRequest { pub path: String, pub data: Option<Bytes>, pub version: i32 }
}
record! {
    pub struct SetAclRequest { pub path: String, pub acl: Option<Vec<Acl>>, /** Compared with aversion. */ pub version: i32 }
}
record! {
    /// exists, getData, getChildren and getChildren2.
    pub struct PathWatchRequest { pub path: String, pub watch: bool }
}
record! {
    /// getACL and getAllChildrenNumber.
    pub struct PathRequest { pub path: String }
}
record! {
    /// Any path is echoed, null too.
    pub struct SyncRequest { pub path: Option<String> }
}
record! {
    pub struct GetEphemeralsRequest { pub prefix: Option<String> }
}
record! {
    /// check, inside a multi only.
    pub struct CheckVersionRequest { pub path: String, pub version: i32 }
}
record! {
    pub struct ReconfigRequest {
        pub joining: Option<String>, pub leaving: Option<String>, pub new_members: Option<String>, pub config_id: i64,
    }
}
record! {
    pub struct SetWatchesRequest {
        pub relative_zxid: i64, pub data: Vec<String>, pub exist: Vec<String>, pub child: Vec<String>,
    }
}
record! {
    pub struct SetWatches2Request {
        pub relative_zxid: i64, pub data: Vec<String>, pub exist: Vec<String>, pub child: Vec<String>,
        pub persistent: Vec<String>, pub persistent_recursive: Vec<String>,
    }
}
record! {
    pub struct AddWatchRequest { pub path: String, pub mode: i32 }
}
record! {
    /// checkWatches and removeWatches.
    pub struct WatchesRequest { pub path: String, pub watcher_type: i32 }
}
record! {
    pub struct AuthRequest { pub auth_type: i32, pub scheme: Option<String>, pub auth: Option<Bytes> }
}
record! {
    pub struct SaslRequest { pub token: Option<Bytes> }
}
