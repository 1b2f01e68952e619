//! TLS between the socket and the protocol: bytes in, bytes out, and who the client's certificate stands for.

use bytes::BytesMut;
use gracchus_security::tls;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::net::TcpStream;

/// Encrypted bytes that may wait for the socket.
const MAX_ENCRYPTED: usize = 64 << 10;

pub(crate) struct Secure {
    connection: ServerConnection,
    /// The client's certificate has been looked at.
    looked: bool,
}

/// The socket as rustls wants it.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secure {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        connection.set_buffer_limit(Some(MAX_ENCRYPTED));
        Ok(Secure {
            connection,
            looked: false,
        })
    }

    /// Appends what has arrived to `input`; 0 at the end, `InvalidData` for what is no TLS or not to be trusted.
    pub fn read(&mut self, stream: &TcpStream, input: &mut BytesMut) -> io::Result<usize> {
        let arrived = self.connection.read_tls(&mut Socket(stream))?;
        if arrived == 0 {
            return Ok(0);
        }
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // So that the client learns why.
                let _ = self.flush(stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        let plain = state.plaintext_bytes_to_read();
        let start = input.len();
        input.resize(start + plain, 0);
        if let Some(space) = input.get_mut(start..) {
            self.connection.reader().read_exact(space)?;
        }
        if plain == 0 && state.peer_has_closed() {
            return Ok(0);
        }
        Ok(arrived)
    }

    /// Takes some of `bytes`.
    pub fn write(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.connection.writer().write(bytes)?;
        match self.flush(stream) {
            // The buffer is full, and so is the socket.
            Err(error) if taken == 0 || error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    /// Sends what is encrypted already; `WouldBlock` if the socket does not take all.
    pub fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Socket(stream))?;
        }
        Ok(())
    }

    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Who the client's certificate stands for, once, as soon as that is known; empty for a certificate without a readable subject.
    pub fn take_subject(&mut self) -> Option<String> {
        if self.looked || self.connection.is_handshaking() {
            return None;
        }
        self.looked = true;
        let certificate = self.connection.peer_certificates()?.first()?;
        Some(tls::subject(certificate).unwrap_or_default())
    }

    /// Says goodbye, as far as the socket takes it.
    pub fn close(&mut self, stream: &TcpStream) {
        self.connection.send_close_notify();
        let _ = self.flush(stream);
    }
}
