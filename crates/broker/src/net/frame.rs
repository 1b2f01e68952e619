//! Frames in: four bytes of length, then that many bytes, each in a buffer of just its size, so that a batch kept from a
//! frame keeps nothing else alive.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OwnedSemaphorePermit;

use super::limits::RequestMemory;

/// Bytes read ahead: a small request costs one system call.
const AHEAD: usize = 4096;
/// A frame's buffer is not larger than this before as much has arrived: a length alone takes no memory.
const UNPROVEN: usize = 1024 * 1024;

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
    /// The socket failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
}

/// Reads frames off a stream.
#[derive(Debug)]
pub struct FrameReader {
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

/// A length that is text: somebody speaks another protocol to this port.
fn hint(length: [u8; 4]) -> &'static str {
    match &length {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" | b"DELE" => "; this looks like HTTP",
        [0x16, 0x03, ..] => "; this looks like TLS, and the listener is PLAINTEXT",
        b"SSH-" => "; this looks like SSH",
        _ => "",
    }
}

impl FrameReader {
    /// `limit` = `socket.request.max.bytes`.
    pub fn new(limit: usize) -> Self {
        Self {
            ahead: BytesMut::new(),
            limit,
        }
    }

    /// The next frame. Cancelling loses nothing only between frames, so callers cancel by closing.
    pub async fn next<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        memory: &RequestMemory,
        mut progress: impl FnMut(),
    ) -> Result<RequestFrame, FrameError> {
        while self.ahead.len() < 4 {
            self.ahead.reserve(AHEAD);
            let mut room = (&mut self.ahead, AHEAD);
            if read_limited(stream, &mut room).await? == 0 {
                return Err(FrameError::Closed(!self.ahead.is_empty()));
            }
            progress();
        }
        let mut length = [0u8; 4];
        length.copy_from_slice(&self.ahead.split_to(4));
        let size = i32::from_be_bytes(length);
        let Ok(len) = usize::try_from(size) else {
            return Err(FrameError::Negative(size));
        };
        if len > self.limit {
            return Err(FrameError::TooLarge {
                size,
                limit: self.limit,
                hint: hint(length),
            });
        }
        let permit = memory.take(len).await;
        let mut frame = BytesMut::with_capacity(len.min(UNPROVEN));
        let have = self.ahead.len().min(len);
        frame.extend_from_slice(&self.ahead.split_to(have));
        while frame.len() < len {
            if frame.len() == frame.capacity() {
                frame.reserve(len - frame.len());
            }
            let mut room = (&mut frame, len);
            let missing = len - room.0.len();
            room.1 = missing;
            if read_limited(stream, &mut room).await? == 0 {
                return Err(FrameError::Closed(true));
            }
            progress();
        }
        if self.ahead.is_empty() {
            // the next reserve() reclaims or replaces the allocation; an idle connection should keep little
            self.ahead = BytesMut::new();
        }
        Ok(RequestFrame {
            bytes: frame.freeze(),
            memory: permit,
        })
    }
}

/// Reads at most `room.1` bytes into the spare capacity of `room.0`.
async fn read_limited<R: AsyncRead + Unpin>(
    stream: &mut R,
    room: &mut (&mut BytesMut, usize),
) -> io::Result<usize> {
    use bytes::BufMut;
    let (buffer, limit) = room;
    let mut limited = buffer.limit(*limit);
    stream.read_buf(&mut limited).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> RequestMemory {
        RequestMemory::new(1 << 30, 1 << 20)
    }

    async fn frames(input: &[u8], limit: usize) -> (Vec<Bytes>, FrameError) {
        let mut stream = input;
        let mut reader = FrameReader::new(limit);
        let mut got = Vec::new();
        loop {
            match reader.next(&mut stream, &memory(), || ()).await {
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
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(frames(&input, 1 << 20));
        }
    }
}
