//! The handle that callers clone.

use crate::config::ZkConfig;
use crate::event::{self, EventReceiver};
use crate::op::{MultiFailure, Op, OpResult, Reply};
use crate::session::{self, Batch, Command, Done};
use bytes::Bytes;
use gracchus_zk_proto::response::ClientInfo;
use gracchus_zk_proto::{Acl, AddWatchMode, CreateMode, Stat, WatcherType, ZkError};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Requests of a session that may be open, sent or not; beyond it they are refused with `ThrottledOp`.
pub const MAX_OPEN_REQUESTS: usize = 1 << 16;
/// And the bytes that they may take together; a single one passes whatever its size.
pub const MAX_OPEN_BYTES: usize = 64 << 20;
/// Room for `reopen` and `close` beside the requests.
const CONTROL: usize = 16;

/// State that the task shows to the handles.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Id, password and negotiated timeout of the present session.
    pub session: Mutex<Option<(i64, Bytes)>>,
    pub timeout_ms: AtomicI32,
    /// Why the last login failed.
    pub auth_failure: Mutex<Option<String>>,
    open_requests: AtomicUsize,
    open_bytes: AtomicUsize,
}

/// The place of a request, or of several, among the open ones, given back when all are answered.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    count: usize,
    size: usize,
}

impl Place {
    fn take(shared: &Arc<Shared>, count: usize, size: usize) -> Option<Place> {
        let requests = shared.open_requests.fetch_add(count, Ordering::Relaxed);
        let bytes = shared.open_bytes.fetch_add(size, Ordering::Relaxed);
        let place = Place {
            shared: shared.clone(),
            count,
            size,
        };
        let full =
            requests + count > MAX_OPEN_REQUESTS || (requests > 0 && bytes + size > MAX_OPEN_BYTES);
        (!full).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared
            .open_requests
            .fetch_sub(self.count, Ordering::Relaxed);
        self.shared
            .open_bytes
            .fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// A ZooKeeper session. Clones share it; it ends with [`ZkClient::close`], or when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ZkClient {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// A request's answer. The request is sent whether or not this is awaited.
#[derive(Debug)]
pub struct ReplyFuture(Option<oneshot::Receiver<Reply>>);

impl Future for ReplyFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let lost = Reply::failed;
        match self.0.as_mut() {
            None => Poll::Ready(lost(ZkError::ThrottledOp)),
            Some(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|r| r.unwrap_or_else(|_| lost(ZkError::ConnectionLoss))),
        }
    }
}

/// The answers to requests submitted together.
#[derive(Debug)]
pub struct RepliesFuture {
    count: usize,
    receiver: Option<oneshot::Receiver<Vec<Reply>>>,
}

impl Future for RepliesFuture {
    type Output = Vec<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Reply>> {
        let count = self.count;
        let all = |error| (0..count).map(|_| Reply::failed(error)).collect();
        match self.receiver.as_mut() {
            None => Poll::Ready(all(ZkError::ThrottledOp)),
            Some(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|r| r.unwrap_or_else(|_| all(ZkError::ConnectionLoss))),
        }
    }
}

impl ZkClient {
    pub(crate) fn of_parts(commands: mpsc::Sender<Command>, shared: Arc<Shared>) -> Self {
        ZkClient { commands, shared }
    }

    /// Starts the session's task on the current tokio runtime and returns at once; the first event says when the
    /// session is there. Attempts go on without end.
    pub fn start(config: ZkConfig) -> (ZkClient, EventReceiver) {
        let (commands, receiver) = mpsc::channel(MAX_OPEN_REQUESTS + CONTROL);
        let (events, event_receiver) = event::queue();
        let shared = Arc::new(Shared::default());
        tokio::spawn(session::run(config, receiver, events, shared.clone()));
        (ZkClient { commands, shared }, event_receiver)
    }

    /// Sends a request behind all that were submitted before it. Without a connection it waits for one, at most a session
    /// timeout; then it is answered `ConnectionLoss`. With too many open it is answered `ThrottledOp` at once.
    pub fn submit(&self, op: Op) -> ReplyFuture {
        let Some(place) = Place::take(&self.shared, 1, op.size()) else {
            return ReplyFuture(None);
        };
        let (answer, receiver) = oneshot::channel();
        let done = Done::One { answer, place };
        match self.commands.try_send(Command::Request(op, done)) {
            Ok(()) => ReplyFuture(Some(receiver)),
            Err(mpsc::error::TrySendError::Closed(_)) => ReplyFuture(Some(receiver)), // its sender is gone: ConnectionLoss
            Err(mpsc::error::TrySendError::Full(_)) => ReplyFuture(None),
        }
    }

    /// [`Self::submit`] for several at once, which costs less than one by one: they are answered together, each with its own
    /// reply, when the last one is.
    pub fn submit_all(&self, ops: Vec<Op>) -> RepliesFuture {
        let count = ops.len();
        let size = ops.iter().map(Op::size).sum();
        let refused = |receiver| RepliesFuture { count, receiver };
        let Some(place) = Place::take(&self.shared, count, size) else {
            return refused(None);
        };
        let (answer, receiver) = oneshot::channel();
        let batch = Batch::new(count, answer, place);
        match self.commands.try_send(Command::Requests(ops, batch)) {
            // closed: the batch is gone with the command, and answered ConnectionLoss
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => refused(Some(receiver)),
            Err(mpsc::error::TrySendError::Full(_)) => refused(None),
        }
    }

    /// Id and password of the session, for re-attachment by a later process.
    pub fn session(&self) -> Option<(i64, Bytes)> {
        self.shared.session.lock().clone()
    }

    /// What the server has against our credentials, until it takes them.
    pub fn auth_failure(&self) -> Option<String> {
        self.shared.auth_failure.lock().clone()
    }

    /// The negotiated session timeout, ms; 0 before the first connection.
    pub fn negotiated_timeout_ms(&self) -> i32 {
        self.shared.timeout_ms.load(Ordering::Relaxed)
    }

    /// The session's task has ended: every request answers `ConnectionLoss` at once.
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// After `Expired`: starts a new session on the same handles.
    pub async fn reopen(&self) {
        let _ = self.commands.send(Command::Reopen).await;
    }

    /// Ends the session, so that its ephemerals go at once; waits for the server's word for at most 5 s.
    pub async fn close(&self) {
        let (done, receiver) = oneshot::channel();
        if self.commands.send(Command::Close(done)).await.is_ok() {
            let _ = receiver.await;
        }
    }

    async fn call(&self, op: Op) -> Result<OpResult, ZkError> {
        self.submit(op).await.result
    }

    /// Returns the path, with its sequence number if the mode adds one.
    pub async fn create(
        &self,
        path: &str,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        mode: CreateMode,
    ) -> Result<String, ZkError> {
        match self
            .call(Op::Create {
                path: path.into(),
                data,
                acl,
                mode,
            })
            .await?
        {
            OpResult::Created(path) => Ok(path),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn create2(
        &self,
        path: &str,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        mode: CreateMode,
        ttl_ms: Option<i64>,
    ) -> Result<(String, Stat), ZkError> {
        match self
            .call(Op::Create2 {
                path: path.into(),
                data,
                acl,
                mode,
                ttl_ms,
            })
            .await?
        {
            OpResult::Created2(path, stat) => Ok((path, stat)),
            _ => Err(ZkError::SystemError),
        }
    }

    /// `version` -1 matches any.
    pub async fn delete(&self, path: &str, version: i32) -> Result<(), ZkError> {
        self.call(Op::Delete {
            path: path.into(),
            version,
        })
        .await
        .map(|_| ())
    }

    pub async fn exists(&self, path: &str, watch: bool) -> Result<Option<Stat>, ZkError> {
        match self
            .call(Op::Exists {
                path: path.into(),
                watch,
            })
            .await
        {
            Ok(OpResult::Stat(stat)) => Ok(Some(stat)),
            Err(ZkError::NoNode) => Ok(None),
            Ok(_) => Err(ZkError::SystemError),
            Err(error) => Err(error),
        }
    }

    pub async fn get_data(
        &self,
        path: &str,
        watch: bool,
    ) -> Result<(Option<Bytes>, Stat), ZkError> {
        match self
            .call(Op::GetData {
                path: path.into(),
                watch,
            })
            .await?
        {
            OpResult::Data(data, stat) => Ok((data, stat)),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn set_data(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: i32,
    ) -> Result<Stat, ZkError> {
        self.stat(Op::SetData {
            path: path.into(),
            data,
            version,
        })
        .await
    }

    async fn stat(&self, op: Op) -> Result<Stat, ZkError> {
        match self.call(op).await? {
            OpResult::Stat(stat) => Ok(stat),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn get_children(
        &self,
        path: &str,
        watch: bool,
    ) -> Result<(Vec<String>, Stat), ZkError> {
        match self
            .call(Op::GetChildren {
                path: path.into(),
                watch,
            })
            .await?
        {
            OpResult::Children(children, stat) => Ok((children, stat)),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat), ZkError> {
        match self.call(Op::GetAcl { path: path.into() }).await? {
            OpResult::Acl(acl, stat) => Ok((acl, stat)),
            _ => Err(ZkError::SystemError),
        }
    }

    /// `version` is compared with the aversion.
    pub async fn set_acl(&self, path: &str, acl: Vec<Acl>, version: i32) -> Result<Stat, ZkError> {
        self.stat(Op::SetAcl {
            path: path.into(),
            acl,
            version,
        })
        .await
    }

    /// The outer error is of the request, the inner one of an operation in it.
    pub async fn multi(
        &self,
        ops: Vec<Op>,
    ) -> Result<Result<Vec<OpResult>, MultiFailure>, ZkError> {
        match self.call(Op::Multi(ops)).await? {
            OpResult::Multi(results) => Ok(results),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn sync(&self, path: &str) -> Result<(), ZkError> {
        self.call(Op::Sync { path: path.into() }).await.map(|_| ())
    }

    /// Kept for later connections of the session too.
    pub async fn add_auth(&self, scheme: &str, auth: Bytes) -> Result<(), ZkError> {
        self.call(Op::AddAuth {
            scheme: scheme.into(),
            auth,
        })
        .await
        .map(|_| ())
    }

    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<(), ZkError> {
        self.call(Op::AddWatch {
            path: path.into(),
            mode,
        })
        .await
        .map(|_| ())
    }

    pub async fn remove_watches(&self, path: &str, kind: WatcherType) -> Result<(), ZkError> {
        self.call(Op::RemoveWatches {
            path: path.into(),
            kind,
        })
        .await
        .map(|_| ())
    }

    /// Own ephemerals whose path starts with `prefix`.
    pub async fn get_ephemerals(&self, prefix: &str) -> Result<Vec<String>, ZkError> {
        match self
            .call(Op::GetEphemerals {
                prefix: prefix.into(),
            })
            .await?
        {
            OpResult::Paths(paths) => Ok(paths),
            _ => Err(ZkError::SystemError),
        }
    }

    /// Descendants of all levels.
    pub async fn get_all_children_number(&self, path: &str) -> Result<i32, ZkError> {
        match self
            .call(Op::GetAllChildrenNumber { path: path.into() })
            .await?
        {
            OpResult::Number(n) => Ok(n),
            _ => Err(ZkError::SystemError),
        }
    }

    /// Changes the ensemble; gives the new configuration. A server alone refuses it.
    pub async fn reconfig(
        &self,
        joining: Option<String>,
        leaving: Option<String>,
        new_members: Option<String>,
        from: i64,
    ) -> Result<(Option<Bytes>, Stat), ZkError> {
        let op = Op::Reconfig {
            joining,
            leaving,
            new_members,
            from,
        };
        match self.call(op).await? {
            OpResult::Data(data, stat) => Ok((data, stat)),
            _ => Err(ZkError::SystemError),
        }
    }

    pub async fn who_am_i(&self) -> Result<Vec<ClientInfo>, ZkError> {
        match self.call(Op::WhoAmI).await? {
            OpResult::Clients(clients) => Ok(clients),
            _ => Err(ZkError::SystemError),
        }
    }
}
