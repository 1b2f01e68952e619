//! Where to connect and how long to hold a session.

use bytes::Bytes;
use gracchus_security::digest_md5::Credentials;
use gracchus_security::tls::ClientTls;
use std::time::Duration;

/// `host:port,host:port/chroot`, as in `zookeeper.connect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectString {
    /// Names are resolved again at every attempt.
    pub servers: Vec<(String, u16)>,
    /// Empty, or a path without a trailing slash.
    pub chroot: String,
}

/// ZooKeeper's client port when a connect string names none.
pub const DEFAULT_PORT: u16 = 2181;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectStringError {
    #[error(
        "the connect string \"{0}\" names no server; it should look like host:2181 or host1:2181,host2:2181/chroot"
    )]
    Empty(String),
    #[error("\"{server}\" in the connect string \"{whole}\" has no valid port")]
    BadPort { server: String, whole: String },
    #[error("the chroot \"{chroot}\" of the connect string \"{whole}\" is not a valid path")]
    BadChroot { chroot: String, whole: String },
}

impl std::str::FromStr for ConnectString {
    type Err = ConnectStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (hosts, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let chroot = chroot.trim_end_matches('/');
        if chroot.contains("//") {
            return Err(ConnectStringError::BadChroot {
                chroot: chroot.into(),
                whole: text.into(),
            });
        }
        let mut servers = Vec::new();
        for server in hosts.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            servers.push(
                parse_server(server).ok_or_else(|| ConnectStringError::BadPort {
                    server: server.into(),
                    whole: text.into(),
                })?,
            );
        }
        if servers.is_empty() {
            return Err(ConnectStringError::Empty(text.into()));
        }
        Ok(ConnectString {
            servers,
            chroot: chroot.into(),
        })
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn parse_server(text: &str) -> Option<(String, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        let port = match tail.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if tail.is_empty() => DEFAULT_PORT,
            None => return None,
        };
        return Some((host.into(), port));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host.into(), port.parse().ok()?)),
        Some(_) => Some((text.into(), DEFAULT_PORT)), // a bare IPv6 address
        None => Some((text.into(), DEFAULT_PORT)),
    }
}

/// Who a session is by SASL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub credentials: Credentials,
    /// Where they stand, for errors: a section of a file.
    pub source: String,
}

/// How a session is held.
#[derive(Debug, Clone)]
pub struct ZkConfig {
    pub connect: ConnectString,
    /// Asked for; the server may cut it to its own bounds.
    pub session_timeout: Duration,
    /// Requests sent and not yet answered, at most (`zookeeper.max.in.flight.requests`).
    pub max_in_flight: usize,
    /// Largest reply accepted, bytes.
    pub max_frame: usize,
    /// Sent on every connection: scheme and secret.
    pub auth: Vec<(String, Bytes)>,
    /// Proven by SASL DIGEST-MD5 on every connection, before anything else.
    pub login: Option<Login>,
    /// What is spoken beneath; plain text if nothing.
    pub tls: Option<ClientTls>,
    /// A session of an earlier process to go on with: id and password.
    pub session: Option<(i64, Bytes)>,
    /// Who this is, for log lines.
    pub name: String,
}

impl ZkConfig {
    /// Kafka's defaults: 18 s, 4 MiB; pipelining as deep as the server allows without throttling.
    pub fn new(connect: ConnectString) -> Self {
        ZkConfig {
            connect,
            session_timeout: Duration::from_millis(18_000),
            max_in_flight: 512,
            max_frame: 4 << 20,
            auth: Vec::new(),
            login: None,
            tls: None,
            session: None,
            name: "zookeeper".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ConnectString> {
        text.parse().ok()
    }

    #[test]
    fn connect_strings() {
        let two = parse("a:1, b:2/kafka/x/").unwrap();
        assert_eq!(two.servers, [("a".to_string(), 1), ("b".to_string(), 2)]);
        assert_eq!(two.chroot, "/kafka/x");
        assert_eq!(parse("host").unwrap().servers, [("host".to_string(), 2181)]);
        assert_eq!(
            parse("[::1]:9/").unwrap(),
            ConnectString {
                servers: vec![("::1".into(), 9)],
                chroot: String::new()
            }
        );
        for bad in ["", " , ", "/only", "a:b", "a:70000", "a:1//x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
