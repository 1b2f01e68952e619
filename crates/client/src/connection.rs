//! One connection to one broker: requests in order, answers matched by correlation id, versions agreed first.

use crate::ClientError;
use bytes::Bytes;
use gracchus_kafka_proto::messages::ApiVersionsRequest;
use gracchus_kafka_proto::{
    ApiKey, ErrorCode, Frame, Message, Request, decode_response_header, encode_request,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// How connections are made and used.
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    pub client_id: String,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    /// Requests without an answer yet; more wait.
    pub max_in_flight: usize,
    /// Largest answer that is read, bytes.
    pub max_answer: usize,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        ConnectionConfig {
            client_id: "gracchus-client".into(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            max_in_flight: 64,
            max_answer: 256 << 20,
        }
    }
}

/// Cheap to clone; closed when the last clone is gone.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    config: ConnectionConfig,
    versions: HashMap<i16, (i16, i16)>,
    next_id: AtomicI32,
    outgoing: mpsc::Sender<Frame>,
    pending: Arc<Mutex<Pending>>,
    permits: Semaphore,
    tasks: [tokio::task::AbortHandle; 2],
}

/// Who waits for which answer.
#[derive(Default)]
struct Pending {
    waiting: HashMap<i32, oneshot::Sender<Bytes>>,
    /// Why the connection is no more.
    closed: Option<String>,
}

impl Pending {
    fn close(&mut self, reason: &str) {
        self.closed.get_or_insert_with(|| reason.to_owned());
        self.waiting.clear();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.inner.address)
    }
}

impl Connection {
    /// Connects to `host:port` and asks for the versions that the broker has.
    pub async fn connect(address: &str, config: &ConnectionConfig) -> Result<Self, ClientError> {
        let failed = |reason: String| ClientError::Connect {
            address: address.to_owned(),
            reason,
        };
        let stream = tokio::time::timeout(config.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| failed(format!("nothing in {:?}", config.connect_timeout)))?
            .map_err(|e| failed(e.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|e| failed(e.to_string()))?;
        let (read, write) = stream.into_split();
        let pending = Arc::new(Mutex::new(Pending::default()));
        let (outgoing, queue) = mpsc::channel(config.max_in_flight.max(1));
        let reader = tokio::spawn(read_answers(read, pending.clone(), config.max_answer));
        let writer = tokio::spawn(write_requests(write, queue, pending.clone()));
        let mut inner = Inner {
            address: address.to_owned(),
            config: config.clone(),
            versions: HashMap::new(),
            next_id: AtomicI32::new(0),
            outgoing,
            pending,
            permits: Semaphore::new(config.max_in_flight.max(1)),
            tasks: [reader.abort_handle(), writer.abort_handle()],
        };
        inner.versions = inner.ask_versions().await?;
        Ok(Connection {
            inner: Arc::new(inner),
        })
    }

    pub fn address(&self) -> &str {
        &self.inner.address
    }

    pub fn is_closed(&self) -> bool {
        self.inner.pending.lock().closed.is_some()
    }

    /// The versions of an API that the broker has.
    pub fn broker_versions(&self, key: ApiKey) -> Option<(i16, i16)> {
        self.inner.versions.get(&key.as_i16()).copied()
    }

    /// All of the broker's API keys and versions, as it listed them.
    pub fn all_versions(&self) -> impl Iterator<Item = (i16, i16, i16)> + '_ {
        self.inner.versions.iter().map(|(k, (a, b))| (*k, *a, *b))
    }

    /// The newest version of `R` that both sides have, at most `max`.
    pub fn version<R: Request>(&self, max: i16) -> Result<i16, ClientError> {
        let broker = self.broker_versions(R::KEY);
        let newest = R::MAX_VERSION.min(max);
        broker
            .map(|(low, high)| (low.max(R::MIN_VERSION), high.min(newest)))
            .filter(|(low, high)| low <= high)
            .map(|(_, high)| high)
            .ok_or_else(|| ClientError::Unsupported {
                address: self.inner.address.clone(),
                api: R::KEY.name(),
                broker,
                client: (R::MIN_VERSION, newest),
            })
    }

    /// Sends it in the newest version that both sides have and waits for the answer.
    pub async fn send<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.send_up_to(request, i16::MAX).await
    }

    /// As [`Connection::send`], in a version of at most `max`.
    pub async fn send_up_to<R: Request>(
        &self,
        request: &R,
        max: i16,
    ) -> Result<R::Response, ClientError> {
        let version = self.version::<R>(max)?;
        self.inner
            .call(request, version, self.inner.config.request_timeout)
            .await
    }

    /// As [`Connection::send_up_to`], for requests that the broker may hold for long.
    pub async fn send_waiting<R: Request>(
        &self,
        request: &R,
        max: i16,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let version = self.version::<R>(max)?;
        self.inner.call(request, version, timeout).await
    }

    /// Sends a request that has no answer (produce with acks=0).
    pub async fn send_unanswered<R: Request>(
        &self,
        request: &R,
        max: i16,
    ) -> Result<(), ClientError> {
        let version = self.version::<R>(max)?;
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = encode_request(id, Some(&self.inner.config.client_id), version, request)?;
        self.inner.push(frame).await
    }
}

impl Inner {
    fn closed(&self) -> ClientError {
        ClientError::Closed {
            address: self.address.clone(),
            reason: self
                .pending
                .lock()
                .closed
                .clone()
                .unwrap_or_else(|| "end of stream".into()),
        }
    }

    async fn push(&self, frame: Frame) -> Result<(), ClientError> {
        self.outgoing.send(frame).await.map_err(|_| self.closed())
    }

    async fn call<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let api = R::KEY.name();
        let exchange = async {
            let _permit = self.permits.acquire().await.map_err(|_| self.closed())?;
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let frame = encode_request(id, Some(&self.config.client_id), version, request)?;
            let (answer, answered) = oneshot::channel();
            {
                let mut pending = self.pending.lock();
                if pending.closed.is_some() {
                    drop(pending);
                    return Err(self.closed());
                }
                pending.waiting.insert(id, answer);
            }
            // an abandoned call (timeout, dropped future) leaves nobody waiting behind
            let _forget = Forget(&self.pending, id);
            self.push(frame).await?;
            answered.await.map_err(|_| self.closed())
        };
        let body = tokio::time::timeout(timeout, exchange)
            .await
            .map_err(|_| ClientError::Timeout {
                address: self.address.clone(),
                api,
                after: timeout,
            })??;
        let (_, mut reader) =
            decode_response_header(body, R::KEY, version).map_err(|e| self.bad(api, e))?;
        R::Response::decode(&mut reader, version).map_err(|e| self.bad(api, e))
    }

    fn bad(&self, api: &'static str, error: impl std::fmt::Display) -> ClientError {
        ClientError::BadAnswer {
            address: self.address.clone(),
            api,
            reason: error.to_string(),
        }
    }

    /// A broker that lacks the newest ApiVersions answers in version 0 and lists what it has (KIP-511).
    async fn ask_versions(&self) -> Result<HashMap<i16, (i16, i16)>, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "gracchus".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
            ..Default::default()
        };
        let timeout = self.config.request_timeout;
        let newest = ApiVersionsRequest::MAX_VERSION.min(3);
        let answer = match self.call(&request, newest, timeout).await {
            Ok(a) if a.error_code == ErrorCode::UnsupportedVersion.code() => None,
            Ok(a) => Some(a),
            Err(ClientError::BadAnswer { .. }) => None,
            Err(e) => return Err(e),
        };
        let answer = match answer {
            Some(a) => a,
            None => {
                self.call(&ApiVersionsRequest::default(), 0, timeout)
                    .await?
            }
        };
        ClientError::check(answer.error_code, None)?;
        Ok(answer
            .api_keys
            .iter()
            .map(|k| (k.api_key, (k.min_version, k.max_version)))
            .collect())
    }
}

struct Forget<'a>(&'a Mutex<Pending>, i32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting.remove(&self.1);
    }
}

async fn write_requests(
    mut socket: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Frame>,
    pending: Arc<Mutex<Pending>>,
) {
    while let Some(frame) = queue.recv().await {
        for chunk in frame.chunks {
            let gracchus_kafka_proto::Chunk::Bytes(bytes) = chunk else {
                pending.lock().close("a request cannot hold file regions");
                return;
            };
            if let Err(e) = socket.write_all(&bytes).await {
                pending.lock().close(&e.to_string());
                return;
            }
        }
    }
}

async fn read_answers(socket: OwnedReadHalf, pending: Arc<Mutex<Pending>>, max_answer: usize) {
    let mut socket = BufReader::with_capacity(64 * 1024, socket);
    let reason = loop {
        match read_frame(&mut socket, max_answer).await {
            Ok(Some((id, frame))) => {
                let waiting = pending.lock().waiting.remove(&id);
                match waiting {
                    // nobody waits any more: timed out
                    None => tracing::debug!(correlation_id = id, "late answer dropped"),
                    Some(waiting) => drop(waiting.send(frame)),
                }
            }
            Ok(None) => break "closed by the broker".to_owned(),
            Err(e) => break e.to_string(),
        }
    };
    pending.lock().close(&reason);
}

/// The next frame and its correlation id; memory grows with what really arrives.
async fn read_frame(
    socket: &mut BufReader<OwnedReadHalf>,
    max_answer: usize,
) -> std::io::Result<Option<(i32, Bytes)>> {
    let length = match socket.read_i32().await {
        Ok(n) => n,
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length < 4 || length > max_answer {
        return Err(std::io::Error::other(format!(
            "an answer of {length} bytes, limits are 4 and {max_answer}"
        )));
    }
    let mut frame = Vec::with_capacity(length.min(1 << 20));
    socket.take(length as u64).read_to_end(&mut frame).await?;
    let frame = Bytes::from(frame);
    match frame.first_chunk::<4>() {
        Some(id) if frame.len() == length => Ok(Some((i32::from_be_bytes(*id), frame))),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
