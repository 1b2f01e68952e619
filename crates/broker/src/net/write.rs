//! Frames out: memory by gathered writes, file regions by `sendfile`, without copying either.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use bytes::{Buf, Bytes};
use gracchus_kafka_proto::{Chunk, FileRegion, Frame};
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Slices in one gathered write; Linux takes 1024.
const MAX_SLICES: usize = 64;
/// One `sendfile` call: long enough to be cheap, short enough to let others have the thread.
const SENDFILE_STEP: u64 = 1024 * 1024;

/// Writes the frame. `progress` is told after every step that the client let through.
pub async fn write_frame(
    stream: &TcpStream,
    frame: Frame,
    mut progress: impl FnMut(),
) -> io::Result<()> {
    let mut pending: Vec<Bytes> = Vec::with_capacity(frame.chunks.len().min(MAX_SLICES));
    for chunk in frame.chunks {
        match chunk {
            Chunk::Bytes(bytes) => {
                pending.push(bytes);
                if pending.len() == MAX_SLICES {
                    gather(stream, &mut pending, true, &mut progress).await?;
                }
            }
            Chunk::File(region) => {
                gather(stream, &mut pending, true, &mut progress).await?;
                send_file(stream, &region, &mut progress).await?;
            }
        }
    }
    gather(stream, &mut pending, false, &mut progress).await
}

/// Writes and clears `pending`. With `more`, the kernel may wait for what follows before it sends a short packet.
async fn gather(
    stream: &TcpStream,
    pending: &mut Vec<Bytes>,
    more: bool,
    progress: &mut impl FnMut(),
) -> io::Result<()> {
    let flags = if more {
        SendFlags::NOSIGNAL | SendFlags::MORE
    } else {
        SendFlags::NOSIGNAL
    };
    let mut first = 0;
    while let Some(rest) = pending.get_mut(first..).filter(|r| !r.is_empty()) {
        let sent = {
            let slices: smallvec::SmallVec<[IoSlice<'_>; 16]> =
                rest.iter().map(|b| IoSlice::new(b)).collect();
            let send = || {
                rustix::net::sendmsg(
                    stream.as_fd(),
                    &slices,
                    &mut rustix::net::SendAncillaryBuffer::default(),
                    flags,
                )
                .map_err(io::Error::from)
            };
            stream.try_io(Interest::WRITABLE, send)
        };
        match sent {
            Ok(mut sent) => {
                progress();
                for bytes in rest.iter_mut() {
                    let step = sent.min(bytes.len());
                    bytes.advance(step);
                    sent -= step;
                    if !bytes.is_empty() {
                        break;
                    }
                    first += 1;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    pending.clear();
    Ok(())
}

async fn send_file(
    stream: &TcpStream,
    region: &FileRegion,
    progress: &mut impl FnMut(),
) -> io::Result<()> {
    let mut offset = region.offset;
    let mut left = region.len;
    while left > 0 {
        let step = usize::try_from(left.min(SENDFILE_STEP)).unwrap_or(usize::MAX);
        let sent = stream.try_io(Interest::WRITABLE, || {
            rustix::fs::sendfile(stream.as_fd(), region.file.as_fd(), Some(&mut offset), step)
                .map_err(io::Error::from)
        });
        match sent {
            // The length is promised already, so a file cut meanwhile can only end the connection.
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("a log file ended {left} bytes early while it was being sent"),
                ));
            }
            Ok(sent) => {
                progress();
                left = left.saturating_sub(sent as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    fn file(content: &[u8]) -> Arc<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    #[tokio::test]
    async fn memory_and_files_in_order() {
        let (server, mut client) = pair().await;
        let content: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        let mut chunks: Vec<Chunk> = (0..200u8)
            .map(|i| Chunk::Bytes(Bytes::from(vec![i; 1000])))
            .collect();
        chunks.push(Chunk::File(FileRegion {
            file: file(&content),
            offset: 10,
            len: 2_500_000,
        }));
        chunks.push(Chunk::Bytes(Bytes::from_static(b"end")));
        let mut expected: Vec<u8> = (0..200u8).flat_map(|i| vec![i; 1000]).collect();
        expected.extend_from_slice(&content[10..2_500_010]);
        expected.extend_from_slice(b"end");
        let writing =
            tokio::spawn(async move { write_frame(&server, Frame { chunks }, || ()).await });
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap().unwrap();
        assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    }

    #[tokio::test]
    async fn a_file_that_is_shorter_than_promised() {
        let (server, _client) = pair().await;
        let chunks = vec![Chunk::File(FileRegion {
            file: file(b"abc"),
            offset: 0,
            len: 10,
        })];
        let error = write_frame(&server, Frame { chunks }, || ())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
