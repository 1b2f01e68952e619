//! One connection's life: frames out and in at the same time, pings, silence.

use super::tls;
use super::{Command, Ended, Session, Verdict};
use crate::core::MAX_FILLED;
use crate::event::MAX_EVENTS;
use bytes::{Buf, Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How long a close waits for the server.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// An answer larger than allowed fails its request, and its bytes are read over; one beyond this is no answer of a sane server.
const MAX_SKIPPED: usize = 256 << 20;
/// Of a reply: xid, zxid, error.
const HEADER: usize = 16;

/// When something was heard or got rid of last.
struct Times {
    heard: Instant,
    /// Bytes were taken by the other side; with pings that is never long ago.
    sent: Instant,
}

/// What has arrived and is no whole frame yet.
struct Inbox {
    bytes: BytesMut,
    /// Bytes to come of an answer that is too large to be held.
    skip: usize,
}

#[derive(PartialEq, Eq)]
enum Pushed {
    Nothing,
    Some,
    /// All that was written is in the socket.
    All,
}

async fn push(
    writer: &mut (impl AsyncWrite + Unpin),
    outbox: &mut BytesMut,
) -> std::io::Result<Pushed> {
    if outbox.is_empty() {
        writer.flush().await?;
        return Ok(Pushed::All);
    }
    let written = writer.write_buf(outbox).await?;
    Ok(if written == 0 {
        Pushed::Nothing
    } else {
        Pushed::Some
    })
}

impl Session {
    pub(super) async fn serve(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> Ended {
        let mut inbox = Inbox {
            bytes: BytesMut::with_capacity(16 * 1024),
            skip: 0,
        };
        let mut outbox = BytesMut::from(self.core.connect_frame(rand::random()).as_ref());
        let connected_at = Instant::now();
        self.last_heard = self.last_heard.max(connected_at - self.timeout);
        let mut times = Times {
            heard: connected_at,
            sent: connected_at,
        };
        // Encrypted bytes may wait beneath the writer.
        let mut unflushed = false;
        let mut closing: Option<(oneshot::Sender<()>, Instant)> = None;
        loop {
            if closing.is_none() {
                self.fill(&mut outbox);
            }
            let all_sent = outbox.is_empty() && !unflushed;
            let wake = self.next_look(&times, all_sent);
            let wake = closing.as_ref().map_or(wake, |(_, until)| wake.min(*until));
            tokio::select! {
                read = reader.read_buf(&mut inbox.bytes) => match read {
                    Ok(0) => return self.cut(closing, "closed by the server".into()),
                    Err(error) => return self.cut(closing, error.to_string()),
                    Ok(_) => {
                        times.heard = Instant::now();
                        self.last_heard = times.heard;
                        match self.take_frames(&mut inbox, &mut outbox) {
                            Ok(Verdict::GoOn) => {}
                            Ok(Verdict::Ended) => return Ended::Expired,
                            Ok(Verdict::Refused) if closing.is_none() => return Ended::Refused,
                            Ok(Verdict::Refused) => return self.cut(closing, "login refused".into()),
                            Err(reason) => return self.cut(closing, reason),
                        }
                    }
                },
                // Beside reading: a server may take no more before its answers are read.
                pushed = push(&mut writer, &mut outbox), if !all_sent => match pushed {
                    Ok(Pushed::Nothing) => return self.cut(closing, "closed by the server".into()),
                    Err(error) => return self.cut(closing, error.to_string()),
                    Ok(pushed) => {
                        times.sent = Instant::now();
                        unflushed = pushed == Pushed::Some;
                    }
                },
                command = self.commands.recv(), if closing.is_none() => {
                    if let Some(done) = self.take_commands(command) {
                        closing = Some((done, Instant::now() + CLOSE_WAIT));
                        self.fill(&mut outbox);
                        outbox.extend_from_slice(&self.core.close_frame());
                    }
                }
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    if closing.as_ref().is_some_and(|(_, until)| now >= *until) {
                        return self.cut(closing, "the server did not answer the close".into());
                    }
                    if let Some(reason) = self.gone(&times, all_sent, now) {
                        return self.cut(closing, reason);
                    }
                    self.time_out();
                    if all_sent && self.core.is_established() && now >= self.ping_at(&times) {
                        outbox.extend_from_slice(&self.core.ping_frame());
                    }
                }
            }
        }
    }

    fn fill(&mut self, outbox: &mut BytesMut) {
        if outbox.len() < MAX_FILLED {
            let mut outputs = Vec::new();
            self.core.fill(outbox, &mut outputs);
            self.carry_out(&mut outputs);
        }
    }

    fn ping_at(&self, times: &Times) -> Instant {
        times.sent + self.timeout / 3
    }

    fn silence_limit(&self, times: &Times) -> Instant {
        times.heard + self.timeout * 2 / 3
    }

    /// When the clock has something to say next.
    fn next_look(&self, times: &Times, all_sent: bool) -> Instant {
        let mut wake = self.silence_limit(times);
        if !all_sent {
            wake = wake.min(times.sent + self.timeout);
        } else if self.core.is_established() {
            wake = wake.min(self.ping_at(times));
        }
        self.next_time_out().map_or(wake, |at| wake.min(at))
    }

    /// Why the server is as good as gone.
    fn gone(&self, times: &Times, all_sent: bool, now: Instant) -> Option<String> {
        if now >= self.silence_limit(times) {
            let silence = self.timeout * 2 / 3;
            return Some(format!("nothing heard for {} ms", silence.as_millis()));
        }
        let stuck = !all_sent && now >= times.sent + self.timeout;
        stuck.then(|| "the server takes no more bytes".into())
    }

    /// Takes in what callers have sent by now, so that it goes out in one write; whom to tell when the session is to be closed.
    fn take_commands(&mut self, first: Option<Command>) -> Option<oneshot::Sender<()>> {
        let mut next = first;
        loop {
            match next {
                Some(Command::Request(op, done)) => self.take(op, done),
                Some(Command::Requests(ops, batch)) => self.take_all(ops, batch),
                Some(Command::Reopen) => {}
                Some(Command::Close(done)) => return Some(done),
                // Nobody holds a handle any more.
                None => return Some(oneshot::channel().0),
            }
            match self.commands.try_recv() {
                Ok(command) => next = Some(command),
                Err(_) => return None,
            }
        }
    }

    /// The connection is gone; while closing that is what we wait for.
    fn cut(&mut self, closing: Option<(oneshot::Sender<()>, Instant)>, reason: String) -> Ended {
        match closing {
            None => Ended::Cut(reason),
            Some((done, _)) => {
                self.end();
                let _ = done.send(());
                Ended::Closed
            }
        }
    }

    /// Takes whole frames out of `inbox`.
    fn take_frames(&mut self, inbox: &mut Inbox, outbox: &mut BytesMut) -> Result<Verdict, String> {
        let limit = self.config.max_frame;
        let mut outputs = Vec::new();
        loop {
            let skipped = inbox.skip.min(inbox.bytes.len());
            inbox.bytes.advance(skipped);
            inbox.skip -= skipped;
            let Some(length) = inbox.bytes.first_chunk::<4>() else {
                return Ok(Verdict::GoOn);
            };
            if !self.core.is_established() && tls::is_record(length) {
                return Err(tls::EXPECTED.into());
            }
            let length = i32::from_be_bytes(*length);
            let size = usize::try_from(length).ok().filter(|n| *n <= MAX_SKIPPED);
            let size = size.ok_or_else(|| format!("a frame of {length} bytes"))?;
            // Of an answer that is too large the header says whose it is.
            let taken = if size <= limit { size } else { HEADER };
            if inbox.bytes.len() < 4 + taken {
                inbox.bytes.reserve(4 + taken - inbox.bytes.len());
                return Ok(Verdict::GoOn);
            }
            inbox.bytes.advance(4);
            let body: Bytes = inbox.bytes.split_to(taken).freeze();
            inbox.skip = size - taken;
            let result = if size <= limit {
                self.core.frame(body, outbox, &mut outputs)
            } else {
                let refused = self.core.refuse_frame(body, &mut outputs);
                refused.map(|what| {
                    tracing::warn!(
                        "{}: ZooKeeper's answer to {what} has {size} bytes; {limit} are allowed (jute.maxbuffer), so the request fails",
                        self.config.name
                    );
                })
            };
            match self.carry_out(&mut outputs) {
                Verdict::GoOn => {}
                verdict => return Ok(verdict),
            }
            result.map_err(|error| error.to_string())?;
            if self.events.untaken() > MAX_EVENTS {
                return Err(format!("{MAX_EVENTS} events of watches are not taken"));
            }
        }
    }
}
