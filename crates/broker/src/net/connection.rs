//! One connection: a frame in, its answer out, then the next frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::frame::{FrameError, FrameReader};
use super::limits::{LineLimiter, RequestMemory};
use super::write::write_frame;
use super::{Outcome, Service};
use crate::context::ConnectionInfo;

/// What all connections of a broker share.
#[derive(Debug)]
pub struct Shared {
    /// Memory of requests.
    pub memory: RequestMemory,
    /// `socket.request.max.bytes`.
    pub max_frame: usize,
    /// `connections.max.idle.ms`; None = for ever.
    pub idle: Option<Duration>,
    /// Lines that clients can cause.
    pub lines: LineLimiter,
    /// Cancelled to close all connections.
    pub stop: CancellationToken,
}

/// Activity of a connection in ms since it began: reads, writes, answers.
struct Activity {
    begun: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    fn touch(&self) {
        self.last_ms.store(
            u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// How long it is still to be left alone; None when it has been idle too long.
    fn left(&self, idle: Duration) -> Option<Duration> {
        let quiet = self
            .begun
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)));
        idle.checked_sub(quiet).filter(|d| !d.is_zero())
    }
}

/// Serves the connection until it ends.
pub async fn serve<S: Service>(
    mut stream: TcpStream,
    info: Arc<ConnectionInfo>,
    service: Arc<S>,
    shared: Arc<Shared>,
) {
    let activity = Activity {
        begun: Instant::now(),
        last_ms: AtomicU64::new(0),
    };
    let idle = async {
        let Some(limit) = shared.idle else {
            return std::future::pending().await;
        };
        while let Some(left) = activity.left(limit) {
            tokio::time::sleep(left).await;
        }
    };
    // a token of its own: every wake-up looks at it, and the shared one's lock would be everybody's
    let stop = shared.stop.child_token();
    let reason = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        reason = exchange(&mut stream, &info, &*service, &shared, &activity) => reason,
        () = idle => {
            tracing::debug!(client = %info.peer, listener = %info.listener_name, "closed an idle connection");
            return;
        }
    };
    if let Some(reason) = reason
        && let Some(left_out) = shared.lines.admit(Instant::now())
    {
        let more = if left_out == 0 {
            String::new()
        } else {
            format!(" ({left_out} such lines left out before)")
        };
        tracing::warn!(
            "closing the connection of {} on listener {}: {reason}{more}",
            info.peer,
            info.listener_name
        );
    }
}

/// The loop. Returns why it ended, None when the client simply closed.
async fn exchange<S: Service>(
    stream: &mut TcpStream,
    info: &Arc<ConnectionInfo>,
    service: &S,
    shared: &Shared,
    activity: &Activity,
) -> Option<String> {
    let mut reader = FrameReader::new(shared.max_frame);
    loop {
        let frame = match reader
            .next(stream, &shared.memory, || activity.touch())
            .await
        {
            Ok(frame) => frame,
            Err(FrameError::Closed(false)) => return None,
            Err(FrameError::Io(e)) if is_disconnect(&e) => return None,
            Err(error) => return Some(error.to_string()),
        };
        let outcome = service.answer(info, frame.bytes).await;
        drop(frame.memory);
        activity.touch();
        match outcome {
            Outcome::Nothing => {}
            Outcome::Close(reason) => return Some(reason),
            Outcome::Reply(answer) => {
                match write_frame(stream, answer, || activity.touch()).await {
                    Ok(()) => {}
                    Err(e) if is_disconnect(&e) => return None,
                    Err(e) => return Some(format!("writing failed: {e}")),
                }
            }
        }
    }
}

fn is_disconnect(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut
    )
}

#[cfg(test)]
mod tests {
    /// An idle connection costs its task: what the handlers keep across their waits must not grow it unseen.
    #[test]
    fn a_connection_is_small() {
        fn size<T>(_: impl FnOnce(tokio::net::TcpStream) -> T) -> usize {
            std::mem::size_of::<T>()
        }
        type Broker = std::sync::Arc<crate::Broker>;
        let bytes = size(|stream| super::serve::<Broker>(stream, missing(), missing(), missing()));
        assert!(bytes < 4096, "{bytes} bytes");
    }

    fn missing<T>() -> T {
        unreachable!("only types are looked at")
    }
}
