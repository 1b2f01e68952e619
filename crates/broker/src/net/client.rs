//! A connection to another broker (or to ourselves): one request at a time, in order, as Kafka's inter-broker clients.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gracchus_kafka_proto::{
    Chunk, DecodeError, EncodeError, Message, Request, decode_response_header, encode_request,
};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why a request has no answer; the connection is of no use after any of these.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Not connected, or cut.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The request does not fit the version.
    #[error("{0}")]
    Encode(#[from] EncodeError),
    /// The answer is none.
    #[error("{0}")]
    Decode(#[from] DecodeError),
    /// The answer is not to this request, or larger than any is.
    #[error("the peer does not keep to the protocol: {0}")]
    Protocol(String),
}

/// Answers are not larger than this: a follower's fetch is bounded by `replica.fetch.response.max.bytes` plus one batch.
const MAX_ANSWER: usize = 512 * 1024 * 1024;

/// A connection.
#[derive(Debug)]
pub struct BrokerConnection {
    stream: TcpStream,
    client_id: String,
    next_correlation: i32,
    timeout: Duration,
}

impl BrokerConnection {
    /// Connects; the name is resolved anew each time. `timeout` holds for connecting and for each answer.
    pub async fn connect(
        host: &str,
        port: u16,
        client_id: &str,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let stream = timeout(patience, TcpStream::connect((host, port)))
            .await
            .map_err(|_| ClientError::TimedOut(patience))??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            client_id: client_id.to_owned(),
            next_correlation: 0,
            timeout: patience,
        })
    }

    /// Sends a request in this version and waits for its answer.
    pub async fn send<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let patience = self.timeout;
        timeout(patience, self.exchange(version, request))
            .await
            .map_err(|_| ClientError::TimedOut(patience))?
    }

    async fn exchange<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let correlation = self.next_correlation;
        self.next_correlation = correlation.wrapping_add(1);
        let frame = encode_request(correlation, Some(&self.client_id), version, request)?;
        for chunk in &frame.chunks {
            match chunk {
                Chunk::Bytes(bytes) => self.stream.write_all(bytes).await?,
                Chunk::File(_) => {
                    return Err(ClientError::Protocol("requests carry no files".into()));
                }
            }
        }
        let answer = self.read_frame().await?;
        let (header, mut body) = decode_response_header(answer, R::KEY, version)?;
        if header.correlation_id != correlation {
            return Err(ClientError::Protocol(format!(
                "answer {} came where {correlation} was awaited",
                header.correlation_id
            )));
        }
        Ok(R::Response::decode(&mut body, version)?)
    }

    async fn read_frame(&mut self) -> Result<Bytes, ClientError> {
        let size = self.stream.read_i32().await?;
        let len = usize::try_from(size)
            .ok()
            .filter(|len| *len <= MAX_ANSWER)
            .ok_or_else(|| ClientError::Protocol(format!("an answer of {size} bytes")))?;
        let mut frame = BytesMut::with_capacity(len.min(1 << 20));
        while frame.len() < len {
            let missing = len - frame.len();
            frame.reserve(missing.min(1 << 20));
            let mut part = (&mut self.stream).take(missing as u64);
            if part.read_buf(&mut frame).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(frame.freeze())
    }
}
