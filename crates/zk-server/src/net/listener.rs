//! Accepts connections and counts them by address.

use super::conn::Conn;
use super::connection;
use super::secure::Secure;
use crate::state::{Clock, Shared};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// After a failed accept (no file descriptors left, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the port; nothing is accepted yet. All addresses means IPv4 alone where there is no IPv6.
pub(crate) fn bind(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    match bind_one(address, backlog) {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            bind_one((Ipv4Addr::UNSPECIFIED, address.port()).into(), backlog)
        }
        other => other,
    }
}

fn bind_one(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// With a TLS configuration the clients of this listener speak TLS.
pub(crate) async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(&shared, stream, peer, tls.as_ref()),
            Err(error) => {
                tracing::warn!("can't accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn admit(
    shared: &Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<&Arc<ServerConfig>>,
) {
    let secure = match tls.map(|config| Secure::new(config.clone())).transpose() {
        Ok(secure) => secure,
        Err(error) => {
            tracing::warn!("can't begin TLS with {peer}: {error}");
            return;
        }
    };
    let config = &shared.config;
    let address = peer.ip().to_canonical();
    let peer = SocketAddr::new(address, peer.port());
    let in_all = shared.conns.lock().len();
    let refused = {
        let mut by_address = shared.by_address.lock();
        let held = by_address.entry(address).or_insert(0);
        if config.max_client_connections > 0 && *held >= config.max_client_connections {
            Some(("maxClientCnxns", *held))
        } else if config.max_connections > 0 && in_all >= config.max_connections {
            Some(("maxCnxns", in_all))
        } else {
            *held += 1;
            None
        }
    };
    if let Some((key, held)) = refused {
        shared.metrics.connection_rejected.fetch_add(1, Relaxed);
        tracing::warn!(
            "connection of {peer} refused: {held} are open, which is the limit of {key}. The four-letter word cons lists them; raise {key} if they are wanted."
        );
        reset(stream);
        return;
    }
    let _ = stream.set_nodelay(true);
    let conn = Arc::new(Conn::new(shared.next_conn_id(), peer, Clock::wall_ms()));
    shared.conns.lock().insert(conn.id, conn.clone());
    let shared = shared.clone();
    tokio::spawn(async move {
        connection::serve(shared.clone(), conn, stream, secure).await;
        let mut by_address = shared.by_address.lock();
        if let Some(held) = by_address.get_mut(&address) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                by_address.remove(&address);
            }
        }
    });
}

/// ZooKeeper resets a connection that it does not want.
fn reset(stream: TcpStream) {
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}
