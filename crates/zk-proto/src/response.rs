//! The record of each response, without its header.

use crate::data::{Acl, Stat};
use crate::jute::record;
use bytes::Bytes;

record! {
    /// create, sync.
    pub struct PathResponse { pub path: Option<String> }
}
record! {
    /// create2, createContainer, createTTL.
    pub struct Create2Response { pub path: String, pub stat: Stat }
}
record! {
    /// exists, setData, setACL.
    pub struct StatResponse { pub stat: Stat }
}
record! {
    pub struct GetDataResponse { pub data: Option<Bytes>, pub stat: Stat }
}
record! {
    pub struct GetChildrenResponse { pub children: Vec<String> }
}
record! {
    pub struct GetChildren2Response { pub children: Vec<String>, pub stat: Stat }
}
record! {
    pub struct GetAclResponse { pub acl: Vec<Acl>, pub stat: Stat }
}
record! {
    pub struct GetAllChildrenNumberResponse { pub total: i32 }
}
record! {
    pub struct GetEphemeralsResponse { pub paths: Vec<String> }
}
record! {
    /// addWatch answers a result code of its own, always 0.
    pub struct ErrorResponse { pub err: i32 }
}
record! {
    pub struct ClientInfo { pub scheme: String, pub user: String }
}
record! {
    pub struct WhoAmIResponse { pub clients: Vec<ClientInfo> }
}
record! {
    pub struct SaslResponse { pub token: Option<Bytes> }
}
