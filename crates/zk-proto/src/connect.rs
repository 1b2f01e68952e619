//! The handshake that opens a connection.

use crate::jute::{Jute, JuteError, Reader};
use bytes::{Buf, Bytes, BytesMut};

/// The first frame of a client. `read_only` is `None` when a 3.3 client leaves the byte out; the answer then does too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectRequest {
    pub protocol_version: i32,
    pub last_zxid_seen: i64,
    /// Wanted session timeout, ms.
    pub timeout_ms: i32,
    /// 0 asks for a new session.
    pub session_id: i64,
    pub password: Option<Bytes>,
    pub read_only: Option<bool>,
}

/// The server's answer; all zero when the session can't be had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectResponse {
    pub protocol_version: i32,
    /// Negotiated session timeout, ms.
    pub timeout_ms: i32,
    pub session_id: i64,
    pub password: Option<Bytes>,
    pub read_only: Option<bool>,
}

fn read_flag(r: &mut Reader) -> Result<Option<bool>, JuteError> {
    Ok(if r.rest().has_remaining() {
        Some(bool::read(r)?)
    } else {
        None
    })
}

impl Jute for ConnectRequest {
    const MIN_SIZE: usize = 28;

    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        Ok(ConnectRequest {
            protocol_version: r.i32()?,
            last_zxid_seen: r.i64()?,
            timeout_ms: r.i32()?,
            session_id: r.i64()?,
            password: r.buffer()?,
            read_only: read_flag(r)?,
        })
    }

    fn write(&self, out: &mut BytesMut) {
        self.protocol_version.write(out);
        self.last_zxid_seen.write(out);
        self.timeout_ms.write(out);
        self.session_id.write(out);
        self.password.write(out);
        if let Some(flag) = self.read_only {
            flag.write(out);
        }
    }
}

impl Jute for ConnectResponse {
    const MIN_SIZE: usize = 20;

    fn read(r: &mut Reader) -> Result<Self, JuteError> {
        Ok(ConnectResponse {
            protocol_version: r.i32()?,
            timeout_ms: r.i32()?,
            session_id: r.i64()?,
            password: r.buffer()?,
            read_only: read_flag(r)?,
        })
    }

    fn write(&self, out: &mut BytesMut) {
        self.protocol_version.write(out);
        self.timeout_ms.write(out);
        self.session_id.write(out);
        self.password.write(out);
        if let Some(flag) = self.read_only {
            flag.write(out);
        }
    }
}
