//! One connection: a frame in, its answer out, then the next frame. Small answers to requests that had arrived together
//! go out together.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use gracchus_kafka_proto::{Chunk, Frame};
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

/// Answers that wait for those of the requests behind them are not more than this together.
const HELD_ANSWERS: u64 = 16 * 1024;
/// After so many bytes without a pause a connection lets the others have the thread.
const TURN: usize = 128 * 1024;

/// Small answers to requests that arrived with others, to be written with theirs.
#[derive(Debug, Default)]
struct Held {
    frame: Frame,
    bytes: u64,
}

impl Held {
    /// Takes the answer, if it is small.
    fn hold(&mut self, answer: &mut Frame) -> bool {
        let bytes = answer.len();
        let in_memory = answer.chunks.iter().all(|c| matches!(c, Chunk::Bytes(_)));
        let room = in_memory && self.bytes + bytes <= HELD_ANSWERS;
        if room {
            self.bytes += bytes;
            self.frame.chunks.append(&mut answer.chunks);
        }
        room
    }

    async fn write(&mut self, stream: &TcpStream, activity: &Activity) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.bytes = 0;
        let frame = std::mem::take(&mut self.frame);
        write_frame(stream, frame, || activity.touch()).await
    }
}

/// Why the loop ended; None when the client simply closed.
type Ended = Option<String>;

fn write_failed(error: &io::Error) -> Ended {
    (!is_disconnect(error)).then(|| format!("writing failed: {error}"))
}

/// The loop.
async fn exchange<S: Service>(
    stream: &mut TcpStream,
    info: &Arc<ConnectionInfo>,
    service: &S,
    shared: &Shared,
    activity: &Activity,
) -> Ended {
    // brokers must get through when clients hold all the memory
    let memory = (!info.privileged).then_some(&shared.memory);
    let mut reader = FrameReader::new(shared.max_frame);
    let mut held = Held::default();
    let mut turn = 0;
    loop {
        if !reader.has_frame() {
            if let Err(error) = held.write(stream, activity).await {
                return write_failed(&error);
            }
            if turn >= TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        let mut frame = match reader.next(stream, memory, || activity.touch()).await {
            Ok(frame) => frame,
            Err(error) => {
                // those before it are answered all the same
                let _ = held.write(stream, activity).await;
                return match error {
                    FrameError::Closed(false) => None,
                    FrameError::Io(e) if is_disconnect(&e) => None,
                    error => Some(error.to_string()),
                };
            }
        };
        turn += frame.bytes.len();
        let is_produce = frame.is_produce();
        let outcome = {
            let mut answer = pin!(service.answer(info, frame.bytes));
            let first = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
            match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    if is_produce {
                        frame.memory = None; // appended, it waits for a flush or its replicas
                    }
                    if let Err(error) = held.write(stream, activity).await {
                        return write_failed(&error);
                    }
                    answer.await
                }
            }
        };
        drop(frame.memory);
        activity.touch();
        match outcome {
            Outcome::Nothing => {}
            Outcome::Close(reason) => {
                let _ = held.write(stream, activity).await;
                return Some(reason);
            }
            Outcome::Reply(mut answer) => {
                if held.hold(&mut answer) {
                    continue;
                }
                let mut written = held.write(stream, activity).await;
                if written.is_ok() {
                    written = write_frame(stream, answer, || activity.touch()).await;
                }
                if let Err(error) = written {
                    return write_failed(&error);
                }
            }
        }
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
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
