//! Headers of requests and replies.

use crate::jute::record;

/// Request ids with a meaning of their own.
pub mod xid {
    /// A watch event.
    pub const NOTIFICATION: i32 = -1;
    /// Every reply to a ping, whatever the request said.
    pub const PING: i32 = -2;
    pub const AUTH: i32 = -4;
    pub const SET_WATCHES: i32 = -8;
}

record! {
    /// Before every request; `op` is an [`OpCode`](crate::OpCode)'s number.
    #[derive(Copy)]
    pub struct RequestHeader { pub xid: i32, pub op: i32 }
}

record! {
    /// Before every reply; the response record follows only when `err` is 0.
    #[derive(Copy)]
    pub struct ReplyHeader { pub xid: i32, pub zxid: i64, pub err: i32 }
}
