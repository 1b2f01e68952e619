//! What the tests share: a server on a free port and a raw client.
#![allow(dead_code)]

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_proto::{ConnectRequest, ConnectResponse, Jute, OpCode, Reader, ReplyHeader};
use gracchus_zk_server::{Whitelist, ZkConfig, ZkServer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A server in this process, with a runtime of its own.
pub struct Server {
    pub runtime: Runtime,
    pub server: Option<ZkServer>,
    pub address: SocketAddr,
}

/// The configuration that the golden material was captured with.
pub fn config(dir: &Path) -> ZkConfig {
    let mut config = ZkConfig::new(dir);
    config.client_address = "127.0.0.1:0".parse().unwrap();
    config.tick_time_ms = 1000;
    config.max_client_connections = 0;
    config.whitelist = Whitelist::All;
    config.extended_types = true;
    config.enforce_quota = true;
    config.container_check_interval_ms = 3000;
    config.pre_alloc_size = 1 << 16;
    config.super_digest = Some("super:xQJmxLMiHGwaqBvst5y6rkB6HQs=".into());
    config
}

impl Server {
    pub fn start(config: ZkConfig) -> Server {
        Self::try_start(config).unwrap()
    }

    pub fn try_start(config: ZkConfig) -> Result<Server, gracchus_zk_server::StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(ZkServer::start(config))?;
        let address = server.local_addr();
        Ok(Server {
            runtime,
            server: Some(server),
            address,
        })
    }

    pub fn handle(&self) -> &ZkServer {
        self.server.as_ref().unwrap()
    }

    pub fn stop(mut self) {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.shutdown());
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address, 10_000)
    }
}

/// A blocking client that hides nothing.
pub struct Client {
    pub stream: TcpStream,
    pub session: ConnectResponse,
    next_xid: i32,
}

pub fn connect_request(timeout_ms: i32) -> ConnectRequest {
    ConnectRequest {
        timeout_ms,
        password: Some(Bytes::from_static(&[0; 16])),
        read_only: Some(false),
        ..ConnectRequest::default()
    }
}

pub fn raw(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn send_frame(stream: &mut impl Write, body: &[u8]) -> std::io::Result<()> {
    let mut frame = BytesMut::new();
    frame.put_i32(body.len() as i32);
    frame.put_slice(body);
    stream.write_all(&frame)
}

/// A frame's body; `None` at the end of the stream.
pub fn read_frame(stream: &mut impl Read) -> Option<Bytes> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(body.into())
}

impl Client {
    pub fn connect(address: SocketAddr, timeout_ms: i32) -> Client {
        Self::handshake(address, &connect_request(timeout_ms)).unwrap()
    }

    /// `None` if the server closes without an answer.
    pub fn handshake(address: SocketAddr, request: &ConnectRequest) -> Option<Client> {
        let mut stream = raw(address);
        send_frame(&mut stream, &request.to_bytes()).unwrap();
        let session = ConnectResponse::from_bytes(read_frame(&mut stream)?).unwrap();
        Some(Client {
            stream,
            session,
            next_xid: 1,
        })
    }

    pub fn reattach(&self, address: SocketAddr) -> Option<Client> {
        let request = ConnectRequest {
            session_id: self.session.session_id,
            password: self.session.password.clone(),
            ..connect_request(self.session.timeout_ms)
        };
        Self::handshake(address, &request)
    }

    pub fn send(&mut self, op: OpCode, body: &impl Jute) -> i32 {
        self.try_send(op, body).unwrap()
    }

    pub fn try_send(&mut self, op: OpCode, body: &impl Jute) -> std::io::Result<i32> {
        let xid = self.next_xid;
        self.next_xid += 1;
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i32(op.code());
        body.write(&mut frame);
        send_frame(&mut self.stream, &frame)?;
        Ok(xid)
    }

    /// The next reply or event: its header and body.
    pub fn receive(&mut self) -> Option<(ReplyHeader, Reader)> {
        let mut reader = Reader::new(read_frame(&mut self.stream)?);
        let header = ReplyHeader::read(&mut reader).unwrap();
        Some((header, reader))
    }

    /// Sends and waits for the reply: its error code and body.
    pub fn call(&mut self, op: OpCode, body: &impl Jute) -> (i32, Reader) {
        let xid = self.send(op, body);
        let (header, reader) = self.receive().expect("a reply");
        assert_eq!(header.xid, xid, "an event came instead of a reply");
        (header.err, reader)
    }

    pub fn create(&mut self, path: &str, data: &[u8], flags: i32) -> i32 {
        let request = gracchus_zk_proto::request::CreateRequest {
            path: path.into(),
            data: Some(Bytes::copy_from_slice(data)),
            acl: Some(gracchus_zk_proto::Acl::open()),
            flags,
        };
        self.call(OpCode::Create, &request).0
    }

    pub fn get(&mut self, path: &str) -> Result<Bytes, i32> {
        let request = gracchus_zk_proto::request::PathWatchRequest {
            path: path.into(),
            watch: false,
        };
        let (err, mut reader) = self.call(OpCode::GetData, &request);
        if err != 0 {
            return Err(err);
        }
        Ok(reader.buffer().unwrap().unwrap_or_default())
    }

    pub fn is_closed(&mut self) -> bool {
        self.receive().is_none()
    }
}

impl Client {
    /// `None` if the connection is refused, reset or closed.
    pub fn handshake_or_refused(address: SocketAddr) -> Option<Client> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .ok()?;
        send_frame(&mut stream, &connect_request(5000).to_bytes()).ok()?;
        let session = ConnectResponse::from_bytes(read_frame(&mut stream)?).ok()?;
        Some(Client {
            stream,
            session,
            next_xid: 1,
        })
    }
}
