//! What a handler is told besides the request itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// The authenticated name behind a connection: `User:ANONYMOUS` on PLAINTEXT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    /// `User`, or what a principal builder says.
    pub kind: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Principal {
    /// The principal of an unauthenticated connection.
    pub fn anonymous() -> Self {
        Self {
            kind: "User".into(),
            name: "ANONYMOUS".into(),
        }
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

/// Facts of the connection that carries the request; one value a connection, shared by its requests.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// The address of ours that the client reached.
    pub local: SocketAddr,
    /// Name of the listener, as in `listeners` (upper case).
    pub listener_name: Arc<str>,
    /// True on the listener that brokers use among each other, or on the control plane's, if clients have another.
    pub privileged: bool,
    /// Who it is.
    pub principal: Principal,
    /// `name/version` of the client library as ApiVersions v3+ told it.
    pub client_software: parking_lot::Mutex<Option<(String, String)>>,
}

/// `/127.0.0.1`, `/0:0:0:0:0:0:0:1`: Java leaves no zeros out, and takes a mapped IPv4 address for what it is.
fn host_as_java_prints(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let groups: Vec<String> = address.segments().map(|group| format!("{group:x}")).into();
            format!("/{}", groups.join(":"))
        }
    }
}

/// One request's header and origin.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// Api key as on the wire.
    pub api_key: i16,
    /// Version that the request was written in; the answer is written in the same.
    pub api_version: i16,
    /// Echoed in the answer's header.
    pub correlation_id: i32,
    /// `client.id`; None when the client sent null.
    pub client_id: Option<Arc<str>>,
    /// The connection.
    pub connection: Arc<ConnectionInfo>,
    /// When the frame was complete.
    pub received: Instant,
    /// Its bytes.
    pub frame_len: usize,
}

impl RequestContext {
    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    /// The client's host as groups store it: `/127.0.0.1`, as Java prints an InetAddress.
    pub fn client_host(&self) -> String {
        host_as_java_prints(self.connection.peer.ip())
    }

    /// The client id, empty when the client sent none.
    pub fn client_id(&self) -> &str {
        self.client_id.as_deref().unwrap_or("")
    }

    /// Name of the listener the request came in by.
    pub fn listener_name(&self) -> &str {
        &self.connection.listener_name
    }

    /// Who asks.
    pub fn principal(&self) -> &Principal {
        &self.connection.principal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_java_does() {
        let host = |text: &str| host_as_java_prints(text.parse().unwrap());
        assert_eq!(host("127.0.0.1"), "/127.0.0.1");
        assert_eq!(host("::ffff:10.1.2.3"), "/10.1.2.3");
        assert_eq!(host("::1"), "/0:0:0:0:0:0:0:1");
        assert_eq!(host("2001:DB8::a"), "/2001:db8:0:0:0:0:0:a");
    }
}
