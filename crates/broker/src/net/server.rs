//! Binding the listeners and accepting on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::Service;
use super::connection::{self, Shared};
use super::limits::ConnectionCounter;
use crate::config::Listener;
use crate::context::{ConnectionInfo, Principal};

/// A listener that cannot be had.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody has the port.
    #[error(
        "listener {listener}: port {port} is in use by another process. Stop that process (`ss -ltnp 'sport = :{port}'` \
         names it), or give this broker another port in `listeners` (gracchus start: --kafka-port)."
    )]
    InUse {
        /// As configured.
        listener: String,
        /// The port.
        port: u16,
    },
    /// Its host has no address here.
    #[error(
        "listener {listener}: its host cannot be resolved to an address of this machine: {reason}"
    )]
    Unresolvable {
        /// As configured.
        listener: String,
        /// What the resolver said.
        reason: String,
    },
    /// Anything else.
    #[error("listener {listener}: cannot bind {address}: {reason}")]
    Other {
        /// As configured.
        listener: String,
        /// Resolved.
        address: SocketAddr,
        /// What the system said.
        reason: io::Error,
    },
}

/// Sizes of socket buffers; None leaves them to the system, which tunes them by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// `socket.send.buffer.bytes`.
    pub send_buffer: Option<usize>,
    /// `socket.receive.buffer.bytes`.
    pub receive_buffer: Option<usize>,
    /// `socket.listen.backlog.size`.
    pub backlog: i32,
}

/// The backlog is at least this (and at most the system's `somaxconn`): with Kafka's default of 50, thousands of clients
/// that come back at once are made to try again a second later.
const BACKLOG: i32 = 1024;

/// A bound listener that does not accept yet: clients are refused, and the port is ours.
#[derive(Debug)]
pub struct Bound {
    /// As configured, with the port that it really has.
    pub listener: Listener,
    /// Where.
    pub address: SocketAddr,
    socket: Socket,
    options: SocketOptions,
}

/// Binds a listener. An empty host is every address, IPv4 and IPv6.
pub fn bind(listener: &Listener, options: SocketOptions) -> Result<Bound, BindError> {
    let addresses: Vec<SocketAddr> = if listener.host.is_empty() {
        vec![
            SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), listener.port),
            SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listener.port),
        ]
    } else {
        let unresolvable = |reason: String| BindError::Unresolvable {
            listener: listener.to_string(),
            reason,
        };
        let mut found: Vec<SocketAddr> = (listener.host.as_str(), listener.port)
            .to_socket_addrs()
            .map_err(|e| unresolvable(e.to_string()))?
            .collect();
        if found.is_empty() {
            return Err(unresolvable("no address".into()));
        }
        // as Java: IPv4 first where a name has both
        found.sort_by_key(SocketAddr::is_ipv6);
        found.truncate(1);
        found
    };
    let mut last = None;
    for address in addresses {
        match bind_address(address, options) {
            Ok(socket) => {
                let address = socket
                    .local_addr()
                    .ok()
                    .and_then(|a| a.as_socket())
                    .unwrap_or(address);
                let listener = Listener {
                    port: address.port(),
                    ..listener.clone()
                };
                return Ok(Bound {
                    listener,
                    address,
                    socket,
                    options,
                });
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                return Err(BindError::InUse {
                    listener: listener.to_string(),
                    port: listener.port,
                });
            }
            Err(reason) => {
                last = Some(BindError::Other {
                    listener: listener.to_string(),
                    address,
                    reason,
                })
            }
        }
    }
    Err(last.unwrap_or_else(|| BindError::Unresolvable {
        listener: listener.to_string(),
        reason: "no address".into(),
    }))
}

fn bind_address(address: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Bound {
    /// Begins to accept; the tasks run on `tasks` until `shared.stop`.
    pub fn accept<S: Service>(
        self,
        privileged: bool,
        service: Arc<S>,
        shared: Arc<Shared>,
        counter: Arc<ConnectionCounter>,
        tasks: &TaskTracker,
    ) -> io::Result<()> {
        self.socket.listen(self.options.backlog.max(BACKLOG))?;
        let listener = TcpListener::from_std(self.socket.into())?;
        let name = self.listener.name.clone();
        let options = self.options;
        let connections = tasks.clone();
        tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = shared.stop.cancelled() => return,
                    accepted = accept_one(&listener, &counter, privileged) => accepted,
                };
                let (stream, peer) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // out of descriptors or memory: the pending connection stays in the backlog meanwhile
                        if shared.lines.admit(std::time::Instant::now()).is_some() {
                            tracing::error!(listener = %name, %error, "cannot accept a connection; trying again");
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let place = match counter.enter(peer.ip()) {
                    Ok(place) => place,
                    Err(too_many) => {
                        if let Some(left_out) = shared.lines.admit(std::time::Instant::now()) {
                            tracing::warn!(
                                "rejected a connection of {peer} on listener {name}: that address holds {} already, the \
                                 limit of max.connections.per.ip ({left_out} such lines left out before)",
                                too_many.limit
                            );
                        }
                        continue;
                    }
                };
                prepare(&stream, options);
                let local = stream.local_addr().unwrap_or(self.address);
                let info = Arc::new(ConnectionInfo {
                    peer,
                    local: SocketAddr::new(local.ip().to_canonical(), local.port()),
                    listener_name: name.clone(),
                    privileged,
                    principal: Principal::anonymous(),
                    client_software: parking_lot::Mutex::new(None),
                });
                let (service, shared) = (service.clone(), shared.clone());
                connections.spawn(async move {
                    connection::serve(stream, info, service, shared).await;
                    drop(place);
                });
            }
        });
        Ok(())
    }
}

/// Brokers must get through when clients hold all connections, so `max.connections` stops only the others.
async fn accept_one(
    listener: &TcpListener,
    counter: &ConnectionCounter,
    privileged: bool,
) -> io::Result<(TcpStream, SocketAddr)> {
    if !privileged {
        counter.wait_for_room().await;
    }
    listener.accept().await
}

/// As Kafka: no Nagle, keep-alive. A failure here is no reason to refuse the client.
fn prepare(stream: &TcpStream, options: SocketOptions) {
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new());
    if let Some(bytes) = options.send_buffer {
        let _ = socket.set_send_buffer_size(bytes);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use gracchus_kafka_proto::{Chunk, Frame};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::SecurityProtocol;
    use crate::net::Outcome;
    use crate::net::limits::{ConnectionLimits, LineLimiter, RequestMemory};

    /// Sends frames back; `close` closes, `nothing` answers nothing, `wait` is never answered.
    struct Echo;

    impl Service for Echo {
        async fn answer(&self, _: &Arc<ConnectionInfo>, frame: Bytes) -> Outcome {
            match &frame[..] {
                b"close" => Outcome::Close("asked to".into()),
                b"nothing" => Outcome::Nothing,
                b"wait" => std::future::pending().await,
                _ => {
                    let length = Bytes::copy_from_slice(&(frame.len() as u32).to_be_bytes());
                    Outcome::Reply(Frame {
                        chunks: vec![Chunk::Bytes(length), Chunk::Bytes(frame)],
                    })
                }
            }
        }
    }

    fn listener(port: u16) -> Listener {
        Listener {
            name: "PLAINTEXT".into(),
            protocol: SecurityProtocol::Plaintext,
            host: "127.0.0.1".into(),
            port,
        }
    }

    fn serve(limits: ConnectionLimits, idle: Option<Duration>) -> SocketAddr {
        let bound = bind(
            &listener(0),
            SocketOptions {
                backlog: 16,
                ..Default::default()
            },
        )
        .unwrap();
        let address = bound.address;
        let shared = Arc::new(Shared {
            memory: RequestMemory::new(1 << 20, 1 << 20),
            max_frame: 1 << 20,
            idle,
            lines: LineLimiter::new(10, Duration::from_secs(1)),
            stop: CancellationToken::new(),
        });
        let counter = ConnectionCounter::new(limits);
        bound
            .accept(false, Arc::new(Echo), shared, counter, &TaskTracker::new())
            .unwrap();
        address
    }

    fn many() -> ConnectionLimits {
        ConnectionLimits::new(100, 100, "")
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[..], body].concat()
    }

    async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
        let mut got = Vec::new();
        // a reset is a close too
        let _ = stream.read_to_end(&mut got).await;
        got
    }

    #[tokio::test]
    async fn answers_in_order_and_skips_what_has_none() {
        let mut stream = TcpStream::connect(serve(many(), None)).await.unwrap();
        let input = [
            framed(b"one"),
            framed(b"nothing"),
            framed(b"two"),
            framed(b"close"),
            framed(b"three"),
        ]
        .concat();
        stream.write_all(&input).await.unwrap();
        assert_eq!(
            until_closed(&mut stream).await,
            [framed(b"one"), framed(b"two")].concat()
        );
    }

    /// Answers are held back only for requests that are answered at once.
    #[tokio::test]
    async fn an_answer_does_not_wait_for_the_next_request() {
        let large = framed(&vec![7; 100_000]);
        for first in [framed(b"one"), large] {
            let mut stream = TcpStream::connect(serve(many(), None)).await.unwrap();
            let input = [&first[..], &framed(b"wait"), &framed(b"two")].concat();
            stream.write_all(&input).await.unwrap();
            let mut got = vec![0; first.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == first);
        }
        let mut stream = TcpStream::connect(serve(many(), None)).await.unwrap();
        let broken = [
            framed(b"one"),
            framed(b"two"),
            (-1i32).to_be_bytes().to_vec(),
        ]
        .concat();
        stream.write_all(&broken).await.unwrap();
        assert_eq!(
            until_closed(&mut stream).await,
            [framed(b"one"), framed(b"two")].concat()
        );
    }

    #[tokio::test]
    async fn bad_frames_close_only_their_connection() {
        let address = serve(many(), None);
        let mut good = TcpStream::connect(address).await.unwrap();
        let huge = (i32::MAX).to_be_bytes();
        let negative = (-1i32).to_be_bytes();
        for bad in [
            &huge[..],
            &negative[..],
            b"GET / HTTP/1.1\r\n\r\n",
            &[0x16, 3, 1, 2, 0, 1],
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(bad).await.unwrap();
            assert_eq!(until_closed(&mut stream).await, b"");
        }
        let mut torn = TcpStream::connect(address).await.unwrap();
        torn.write_all(&framed(b"abc")[..5]).await.unwrap();
        torn.shutdown().await.unwrap();
        assert_eq!(until_closed(&mut torn).await, b"");
        good.write_all(&framed(b"still here")).await.unwrap();
        let mut got = vec![0; 14];
        good.read_exact(&mut got).await.unwrap();
        assert_eq!(got, framed(b"still here"));
    }

    #[tokio::test]
    async fn an_address_holds_only_so_many_connections() {
        let address = serve(ConnectionLimits::new(100, 1, ""), None);
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(&framed(b"a")).await.unwrap();
        let mut got = vec![0; 5];
        first.read_exact(&mut got).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        assert_eq!(until_closed(&mut second).await, b"");
        drop(first);
        // the place is free when the server has seen the first one's end
        loop {
            let mut third = TcpStream::connect(address).await.unwrap();
            if third.write_all(&framed(b"b")).await.is_ok()
                && third.read_exact(&mut got).await.is_ok()
            {
                assert_eq!(got, framed(b"b"));
                return;
            }
        }
    }

    #[tokio::test]
    async fn idle_connections_are_closed() {
        let mut stream = TcpStream::connect(serve(many(), Some(Duration::from_millis(20))))
            .await
            .unwrap();
        assert_eq!(until_closed(&mut stream).await, b"");
    }

    #[test]
    fn a_taken_port_is_told_with_its_cure() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = bind(&listener(port), SocketOptions::default()).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("port {port} is in use")),
            "{error}"
        );
        assert!(
            bind(
                &Listener {
                    host: "no.such.host.invalid".into(),
                    ..listener(0)
                },
                SocketOptions::default()
            )
            .is_err()
        );
    }
}
