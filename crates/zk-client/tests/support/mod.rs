//! A scripted server: every frame is read and answered by the test.
#![allow(dead_code)]

use bytes::{BufMut, Bytes, BytesMut};
use gracchus_zk_client::{EventReceiver, EventType, Op, SessionState, ZkConfig, ZkEvent};
use gracchus_zk_proto::response::GetDataResponse;
use gracchus_zk_proto::{
    ConnectRequest, ConnectResponse, Jute, OpCode, Reader, ReplyHeader, RequestHeader, Stat,
    WatcherEvent, xid,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const PASSWORD: &[u8] = b"0123456789abcdef";

pub struct Server(pub TcpListener);

/// One accepted connection.
pub struct Peer(pub TcpStream);

impl Server {
    pub async fn start() -> Server {
        Server(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn config(&self, chroot: &str) -> ZkConfig {
        let mut config = ZkConfig::new(
            format!("{}{chroot}", self.0.local_addr().unwrap())
                .parse()
                .unwrap(),
        );
        config.session_timeout = Duration::from_secs(30);
        config
    }

    pub async fn accept(&self) -> Peer {
        Peer(self.0.accept().await.unwrap().0)
    }

    /// Accepts and grants a session.
    pub async fn attach(&self, session_id: i64, timeout_ms: i32) -> (Peer, ConnectRequest) {
        let mut peer = self.accept().await;
        let asked = ConnectRequest::from_bytes(peer.frame().await.unwrap()).unwrap();
        peer.grant(session_id, timeout_ms).await;
        (peer, asked)
    }
}

impl Peer {
    /// The next frame's body; `None` when the client closed.
    pub async fn frame(&mut self) -> Option<Bytes> {
        let length = self.0.read_i32().await.ok()?;
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut body).await.ok()?;
        Some(body.into())
    }

    /// Until the client has closed.
    pub async fn closed(&mut self) {
        while self.frame().await.is_some() {}
    }

    /// The next request that is no ping, which is answered.
    pub async fn request(&mut self) -> Option<(RequestHeader, Reader)> {
        loop {
            let mut r = Reader::new(self.frame().await?);
            let header = RequestHeader::read(&mut r).unwrap();
            if header.xid != xid::PING {
                return Some((header, r));
            }
            self.reply(xid::PING, 0, 0, &[]).await;
        }
    }

    pub async fn expect(&mut self, op: OpCode) -> (i32, Reader) {
        let (header, r) = self.request().await.expect("the client has closed");
        assert_eq!(OpCode::from_code(header.op), Some(op));
        (header.xid, r)
    }

    pub async fn send(&mut self, body: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_i32(body.len() as i32);
        frame.extend_from_slice(body);
        let _ = self.0.write_all(&frame).await;
    }

    pub async fn grant(&mut self, session_id: i64, timeout_ms: i32) {
        let password = Some(if session_id == 0 {
            Bytes::from_static(&[0; 16])
        } else {
            Bytes::from_static(PASSWORD)
        });
        let answer = ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id,
            password,
            read_only: Some(false),
        };
        self.send(&answer.to_bytes()).await;
    }

    pub async fn reply(&mut self, xid: i32, zxid: i64, err: i32, record: &[u8]) {
        let mut body = BytesMut::new();
        ReplyHeader { xid, zxid, err }.write(&mut body);
        body.extend_from_slice(record);
        self.send(&body).await;
    }

    pub async fn notify(&mut self, zxid: i64, kind: EventType, path: &str) {
        self.reply(
            xid::NOTIFICATION,
            zxid,
            0,
            &WatcherEvent::new(kind, path).to_bytes(),
        )
        .await;
    }

    /// Answers a getData with this text.
    pub async fn data(&mut self, xid: i32, zxid: i64, text: &'static str) {
        let record = GetDataResponse {
            data: Some(Bytes::from_static(text.as_bytes())),
            stat: Stat::default(),
        };
        self.reply(xid, zxid, 0, &record.to_bytes()).await;
    }
}

pub fn get(path: &str, watch: bool) -> Op {
    Op::GetData {
        path: path.into(),
        watch,
    }
}

pub async fn session(events: &mut EventReceiver) -> SessionState {
    match events.recv().await {
        Some(ZkEvent::Session(state)) => state,
        other => unreachable!("{other:?}"),
    }
}
