//! Frames in: four bytes of length, then that many bytes.
//!
//! What has arrived is read in one call into a buffer that the thread's connections share in turn, so that pipelined
//! requests cost one system call together and an idle connection holds no buffer. Produce requests are slices of it, to
//! be let go with the answer; every other small request is a copy of just its size, since handlers may keep parts of it.
//! A frame that does not fit there gets a buffer of its own.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gracchus_kafka_proto::ApiKey;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::io::poll_read_buf;

use super::limits::RequestMemory;

// What the log keeps without a copy must not be a slice of a shared buffer.
const _: () = assert!(SHARED_BUFFER <= gracchus_log::tail::KEPT_AS_IT_CAME);

/// The size of a shared buffer: a batch of 256 KiB fits. Nothing may keep a slice of a frame that fits in it beyond its
/// answer.
pub const SHARED_BUFFER: usize = 288 * 1024;
/// Shared buffers that a thread keeps for the next read.
const SPARE: usize = 4;
/// A rest of a frame below this does not hold a shared buffer while it waits for more.
const SMALL_REST: usize = SHARED_BUFFER / 8;
/// A frame's own buffer is not larger than this before as much has arrived: a length alone takes no memory.
const UNPROVEN: usize = 1024 * 1024;
/// A client that stops for so long in the middle of a large frame is cut off: it holds memory that others wait for.
const STALL: Duration = Duration::from_secs(30);

/// Why no frame came.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed, between frames (clean) or within one.
    #[error("the client closed the connection{}", if *.0 { " in the middle of a request" } else { "" })]
    Closed(bool),
    /// Kafka's InvalidReceiveException.
    #[error("Invalid receive (size = {0})")]
    Negative(i32),
    /// The same, of a frame that is too large.
    #[error("Invalid receive (size = {size} larger than socket.request.max.bytes={limit}){hint}")]
    TooLarge {
        /// As announced.
        size: i32,
        /// `socket.request.max.bytes`.
        limit: usize,
        /// What it looks like instead of Kafka's protocol, if it looks like something.
        hint: &'static str,
    },
    /// Nothing came for [`STALL`] in the middle of a large frame.
    #[error("{got} of {size} bytes of a request came, then nothing for {} s", STALL.as_secs())]
    Stalled {
        /// Bytes that came.
        got: usize,
        /// As announced.
        size: usize,
    },
    /// The socket failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
}

/// Reads frames off a stream.
#[derive(Debug)]
pub struct FrameReader {
    /// What has been read and not taken.
    ahead: BytesMut,
    limit: usize,
}

/// One frame and the memory it holds.
#[derive(Debug)]
pub struct RequestFrame {
    /// The bytes after the length.
    pub bytes: Bytes,
    /// Freed when the request is done.
    pub memory: Option<OwnedSemaphorePermit>,
}

impl RequestFrame {
    /// A produce request: once appended, its bytes are the log's.
    pub fn is_produce(&self) -> bool {
        is_produce(&self.bytes)
    }
}

fn is_produce(frame: &[u8]) -> bool {
    frame.starts_with(&(ApiKey::Produce as i16).to_be_bytes())
}

/// A length that is text: somebody speaks another protocol to this port.
fn hint(length: [u8; 4]) -> &'static str {
    match &length {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" | b"DELE" => "; this looks like HTTP",
        [0x16, 0x03, ..] => "; this looks like TLS, and the listener is PLAINTEXT",
        b"SSH-" => "; this looks like SSH",
        _ => "",
    }
}

thread_local! {
    static SPARES: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of [`SHARED_BUFFER`] bytes, still warm if possible: what is left of the connection's last one, if no
/// frame of it is held any more, or one that was given back.
fn lend(mut last: BytesMut) -> BytesMut {
    if last.try_reclaim(SHARED_BUFFER) {
        return last;
    }
    let spare = SPARES.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| BytesMut::with_capacity(SHARED_BUFFER))
}

/// Takes a lent buffer back, for whoever reads next.
fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    if !buffer.try_reclaim(SHARED_BUFFER) {
        return;
    }
    SPARES.with_borrow_mut(|spares| {
        if spares.len() < SPARE {
            spares.push(buffer);
        }
    });
}

impl FrameReader {
    /// `limit` = `socket.request.max.bytes`.
    pub fn new(limit: usize) -> Self {
        Self {
            ahead: BytesMut::new(),
            limit,
        }
    }

    /// The length that the next frame announces, if that much is here.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(length) = self.ahead.first_chunk::<4>() else {
            return Ok(None);
        };
        let size = i32::from_be_bytes(*length);
        match usize::try_from(size) {
            Err(_) => Err(FrameError::Negative(size)),
            Ok(len) if len > self.limit => Err(FrameError::TooLarge {
                size,
                limit: self.limit,
                hint: hint(*length),
            }),
            Ok(len) => Ok(Some(len)),
        }
    }

    /// Whether [`FrameReader::next`] has a frame at once.
    pub fn has_frame(&self) -> bool {
        matches!(self.announced(), Ok(Some(len)) if self.ahead.len() >= 4 + len)
    }

    fn take(&mut self, len: usize) -> Bytes {
        self.ahead.advance(4);
        let frame = self.ahead.split_to(len);
        if is_produce(&frame) {
            return frame.freeze();
        }
        let copy = Bytes::copy_from_slice(&frame);
        drop(frame);
        if self.ahead.is_empty() {
            // its answer may be long in coming: a consumer waits for records most of its time
            give_back(std::mem::take(&mut self.ahead));
        }
        copy
    }

    /// The next frame. Cancelling loses nothing only between frames, so callers cancel by closing. Frames that get a
    /// buffer of their own are counted in `memory`, if there is one.
    pub async fn next<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        memory: Option<&RequestMemory>,
        mut progress: impl FnMut(),
    ) -> Result<RequestFrame, FrameError> {
        loop {
            match self.announced()? {
                Some(len) if self.ahead.len() >= 4 + len => {
                    return Ok(RequestFrame {
                        bytes: self.take(len),
                        memory: None,
                    });
                }
                Some(len) if 4 + len > SHARED_BUFFER => {
                    return self.large(len, stream, memory, progress).await;
                }
                _ => {}
            }
            if self.fill(stream).await? == 0 {
                return Err(FrameError::Closed(!self.ahead.is_empty()));
            }
            progress();
        }
    }

    /// Reads what has arrived, as far as a shared buffer takes it.
    async fn fill<R: AsyncRead + Unpin>(&mut self, stream: &mut R) -> io::Result<usize> {
        poll_fn(|cx| {
            let mut buffer = std::mem::take(&mut self.ahead);
            if buffer.is_empty() {
                buffer = lend(buffer);
            } else {
                buffer.reserve(SHARED_BUFFER.saturating_sub(buffer.len()));
            }
            let room = SHARED_BUFFER.saturating_sub(buffer.len());
            let read = poll_read_buf(Pin::new(&mut *stream), cx, &mut (&mut buffer).limit(room));
            match read {
                Poll::Pending if buffer.is_empty() => give_back(buffer),
                Poll::Pending if buffer.len() < SMALL_REST => {
                    self.ahead = BytesMut::from(&buffer[..]);
                    give_back(buffer);
                }
                _ => self.ahead = buffer,
            }
            read
        })
        .await
    }

    /// Reads a frame into a buffer of its own. Memory is taken once some of it has come, so that a length alone takes none.
    async fn large<R: AsyncRead + Unpin>(
        &mut self,
        len: usize,
        stream: &mut R,
        memory: Option<&RequestMemory>,
        mut progress: impl FnMut(),
    ) -> Result<RequestFrame, FrameError> {
        self.ahead.advance(4);
        let mut frame = BytesMut::with_capacity(len.min(UNPROVEN));
        frame.extend_from_slice(&std::mem::take(&mut self.ahead));
        let mut permit = None;
        while frame.len() < len {
            if permit.is_none()
                && frame.len() >= SHARED_BUFFER / 2
                && let Some(memory) = memory
            {
                permit = memory.take(len).await;
            }
            if frame.len() == frame.capacity() {
                frame.reserve(len - frame.len());
            }
            let missing = len - frame.len();
            let mut room = (&mut frame).limit(missing);
            let read = tokio::time::timeout(STALL, stream.read_buf(&mut room)).await;
            let Ok(read) = read else {
                return Err(FrameError::Stalled {
                    got: frame.len(),
                    size: len,
                });
            };
            if read? == 0 {
                return Err(FrameError::Closed(true));
            }
            progress();
        }
        Ok(RequestFrame {
            bytes: frame.freeze(),
            memory: permit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn memory() -> RequestMemory {
        RequestMemory::new(1 << 30, 1 << 20)
    }

    async fn frames(input: &[u8], limit: usize) -> (Vec<Bytes>, FrameError) {
        let mut stream = input;
        let mut reader = FrameReader::new(limit);
        let mut got = Vec::new();
        loop {
            match reader.next(&mut stream, Some(&memory()), || ()).await {
                Ok(frame) => got.push(frame.bytes),
                Err(error) => return (got, error),
            }
        }
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[..], body].concat()
    }

    #[tokio::test]
    async fn small_large_and_pipelined() {
        let large = vec![7u8; 3 << 20];
        let input = [framed(b"one"), framed(b""), framed(&large), framed(b"two")].concat();
        let (got, end) = frames(&input, 4 << 20).await;
        assert_eq!(got.len(), 4);
        assert_eq!(&got[0][..], b"one");
        assert_eq!(got[2].len(), large.len());
        assert_eq!(&got[3][..], b"two");
        assert!(matches!(end, FrameError::Closed(false)));
    }

    /// Every length around the shared buffer's, in pieces of every kind, produce requests (key 0) and others.
    #[tokio::test]
    async fn frames_around_the_shared_buffer() {
        for key in [0u8, 1] {
            let sizes = [
                2,
                SMALL_REST - 4,
                SMALL_REST,
                SHARED_BUFFER / 2,
                SHARED_BUFFER - 5,
                SHARED_BUFFER - 4,
                SHARED_BUFFER - 3,
                SHARED_BUFFER,
                3,
            ];
            let bodies: Vec<Vec<u8>> = sizes
                .iter()
                .enumerate()
                .map(|(i, len)| {
                    let mut body: Vec<u8> = (0..*len).map(|b| (b * 7 + i) as u8).collect();
                    body[..2].copy_from_slice(&[0, key]);
                    body
                })
                .collect();
            let input: Vec<u8> = bodies.iter().flat_map(|b| framed(b)).collect();
            for piece in [1000, SMALL_REST + 1, SHARED_BUFFER - 1, usize::MAX] {
                let (mut client, mut server) = tokio::io::duplex(50_000);
                let input = input.clone();
                let sending = tokio::spawn(async move {
                    for part in input.chunks(piece.min(input.len())) {
                        client.write_all(part).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
                let mut reader = FrameReader::new(1 << 20);
                for body in &bodies {
                    let frame = reader
                        .next(&mut server, Some(&memory()), || ())
                        .await
                        .unwrap();
                    assert!(frame.bytes == body[..], "{} bytes", body.len());
                }
                sending.await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_waits_for_its_answer_holds_no_buffer() {
        let fetch = framed(&[0, 1, 0, 12]);
        let input = [&fetch[..], &fetch].concat();
        let mut stream = &input[..];
        let mut reader = FrameReader::new(100);
        reader.next(&mut stream, None, || ()).await.unwrap();
        assert!(reader.has_frame());
        reader.next(&mut stream, None, || ()).await.unwrap();
        assert_eq!(reader.ahead.capacity(), 0);
    }

    #[tokio::test]
    async fn a_length_alone_takes_no_memory() {
        let memory = RequestMemory::new(0, 1 << 20);
        let announce = |len: u32, body: usize| {
            let (mut client, server) = tokio::io::duplex(1 << 20);
            let input = [&len.to_be_bytes()[..], &vec![1; body]].concat();
            async move {
                client.write_all(&input).await.unwrap();
                (client, server)
            }
        };
        let mut silent = Vec::new();
        for _ in 0..4 {
            let (client, mut server) = announce(1 << 20, 100).await;
            let memory = memory.clone();
            silent.push((
                client,
                tokio::spawn(async move {
                    FrameReader::new(1 << 20)
                        .next(&mut server, Some(&memory), || ())
                        .await
                }),
            ));
            tokio::task::yield_now().await;
        }
        let (_client, mut server) = announce(500_000, 500_000).await;
        let frame = FrameReader::new(1 << 20)
            .next(&mut server, Some(&memory), || ())
            .await
            .unwrap();
        assert!(frame.memory.is_some());
        for (client, reading) in silent {
            drop(client);
            assert!(matches!(
                reading.await.unwrap(),
                Err(FrameError::Closed(true))
            ));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_in_a_large_frame_is_cut_off() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        client.write_all(&(1u32 << 20).to_be_bytes()).await.unwrap();
        client.write_all(&[0; 100_000]).await.unwrap();
        let error = FrameReader::new(1 << 20)
            .next(&mut server, Some(&memory()), || ())
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                FrameError::Stalled {
                    got: 100_000,
                    size: 1_048_576
                }
            ),
            "{error}"
        );
    }

    #[tokio::test]
    async fn limits() {
        let (_, end) = frames(&(-1i32).to_be_bytes(), 100).await;
        assert!(matches!(end, FrameError::Negative(-1)));
        let (got, end) = frames(&[framed(&[0; 100]), framed(&[0; 101])].concat(), 100).await;
        assert_eq!(got.len(), 1);
        assert!(matches!(
            end,
            FrameError::TooLarge {
                size: 101,
                limit: 100,
                ..
            }
        ));
        let (_, end) = frames(b"GET / HTTP/1.1\r\n", 100).await;
        assert!(end.to_string().contains("HTTP"), "{end}");
        let (_, end) = frames(&[0, 0, 0, 9, 1], 100).await;
        assert!(matches!(end, FrameError::Closed(true)));
        let (_, end) = frames(&[0, 0], 100).await;
        assert!(matches!(end, FrameError::Closed(true)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_no_panic(input: Vec<u8>) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(frames(&input, 1 << 20));
        }
    }
}
