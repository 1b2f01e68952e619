//! What the servers of a connect string say to a connection, for whoever waits for them.

use crate::config::ZkConfig;
use crate::session::tls;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Servers, and addresses of each, that are looked at.
const LOOKED_AT: (usize, usize) = (5, 2);
const PATIENCE: Duration = Duration::from_secs(1);
/// A request for TLS that every server of it answers, be it with an alert: a ClientHello (TLS 1.2) that offers one suite.
const HELLO: &[u8] = &[
    0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3, // 32 random bytes follow
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    0, // no session
    0, 2, 0xc0, 0x2f, // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    1, 0, // no compression
];

/// In one line: why there may be no session yet.
pub async fn look(config: &ZkConfig) -> String {
    let mut seen = Vec::new();
    for (host, port) in config.connect.servers.iter().take(LOOKED_AT.0) {
        let addresses: Vec<_> = match tokio::net::lookup_host((host.as_str(), *port)).await {
            Ok(found) => found.collect(),
            Err(error) => {
                seen.push(format!("{host}:{port} cannot be resolved ({error})"));
                continue;
            }
        };
        for address in addresses.into_iter().take(LOOKED_AT.1) {
            let said = timeout(PATIENCE, look_at(config, host, address)).await;
            let said = said.unwrap_or_else(|_| "no answer within 1 s".to_owned());
            seen.push(format!("{host}:{port} ({}): {said}", address.ip()));
        }
    }
    seen.join("; ")
}

async fn look_at(config: &ZkConfig, host: &str, address: SocketAddr) -> String {
    let silent = "takes connections but gives no session";
    let stream = match TcpStream::connect(address).await {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    if let Some(tls) = &config.tls {
        return match tls::handshake(tls, stream, host, address).await {
            // With TLS 1.3 a server says only after the handshake that it does not like the client's certificate.
            Ok(mut stream) => match timeout(PATIENCE / 2, stream.read_u8()).await {
                Ok(Err(error)) => tls::explain(&error, host),
                _ => silent.into(),
            },
            Err(reason) => reason,
        };
    }
    if speaks_tls(stream).await {
        tls::EXPECTED.into()
    } else {
        silent.into()
    }
}

async fn speaks_tls(mut stream: TcpStream) -> bool {
    let mut answer = [0; 4];
    let heard = async {
        stream.write_all(HELLO).await?;
        stream.read_exact(&mut answer).await
    };
    // A server of plain text closes, or waits for more.
    matches!(timeout(PATIENCE / 2, heard).await, Ok(Ok(_))) && tls::is_record(&answer)
}
