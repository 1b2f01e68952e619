//! TLS beneath a session, and what tells that one side speaks it and the other does not.

use gracchus_security::tls::ClientTls;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What a client that speaks plain text sees of a server that speaks TLS.
pub(crate) const EXPECTED: &str = "this port speaks TLS and the client plain text: set zookeeper.ssl.client.enable=true, or name the port for plain text";
const IS_PLAIN: &str = "the client speaks TLS, and this port probably plain text: name the one for TLS (secureClientPort), or take zookeeper.ssl.client.enable away";

/// The first bytes of an alert or a handshake message.
pub(crate) fn is_record(bytes: &[u8; 4]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, 0..=4, _])
}

/// The handshake; the server's certificate is looked at here.
pub(crate) async fn handshake(
    tls: &ClientTls,
    stream: TcpStream,
    host: &str,
    address: SocketAddr,
) -> Result<Box<TlsStream<TcpStream>>, String> {
    let (config, name) = tls.for_host(host, address.ip());
    let connector = TlsConnector::from(config);
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(explain(&error, host)),
    }
}

/// A failure in terms of what to set right.
pub(crate) fn explain(error: &io::Error, host: &str) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(Error::InvalidMessage(_)) => format!("{IS_PLAIN} ({error})"),
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
            "the server's certificate is not trusted ({error}): put it, or the authority that signed it, into the trust store"
        ),
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!(
            "the server's certificate is of another host than {host} ({error}): name the server as its certificate does, or set an empty zookeeper.ssl.endpoint.identification.algorithm"
        ),
        Some(Error::AlertReceived(AlertDescription::ProtocolVersion)) => format!(
            "the server speaks no TLS version that the client does ({error}): see zookeeper.ssl.protocol and zookeeper.ssl.enabled.protocols"
        ),
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA,
        )) => format!(
            "the server wants a client's certificate that it trusts ({error}): see zookeeper.ssl.keystore.location, and the server's trust store"
        ),
        Some(error) => format!("TLS failed: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof
            || error.kind() == io::ErrorKind::ConnectionReset =>
        {
            format!("the server ends the TLS handshake: {IS_PLAIN}")
        }
        None => format!("TLS failed: {error}"),
    }
}
