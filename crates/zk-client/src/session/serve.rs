//! One connection's life: frames out and in at the same time, pings, silence.

use super::{Command, Ended, Session};
use crate::core::MAX_FILLED;
use crate::event::MAX_EVENTS;
use bytes::{Buf, Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How long a close waits for the server.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// When something was heard or got rid of last.
struct Times {
    heard: Instant,
    /// Bytes were taken by the other side; with pings that is never long ago.
    sent: Instant,
}

impl Session {
    pub(super) async fn serve(&mut self, stream: TcpStream) -> Ended {
        let (mut reader, mut writer) = stream.into_split();
        let mut inbox = BytesMut::with_capacity(16 * 1024);
        let mut outbox = BytesMut::from(self.core.connect_frame().as_ref());
        let connected_at = Instant::now();
        self.last_heard = self.last_heard.max(connected_at - self.timeout);
        let mut times = Times {
            heard: connected_at,
            sent: connected_at,
        };
        let mut closing: Option<(oneshot::Sender<()>, Instant)> = None;
        loop {
            if closing.is_none() {
                self.fill(&mut outbox);
            }
            let wake = self.next_look(&times, outbox.is_empty());
            let wake = closing.as_ref().map_or(wake, |(_, until)| wake.min(*until));
            tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    Ok(0) => return self.cut(closing, "closed by the server".into()),
                    Err(error) => return self.cut(closing, error.to_string()),
                    Ok(_) => {
                        times.heard = Instant::now();
                        self.last_heard = times.heard;
                        match self.take_frames(&mut inbox, &mut outbox) {
                            Ok(false) => {}
                            Ok(true) => return Ended::Expired,
                            Err(reason) => return self.cut(closing, reason),
                        }
                    }
                },
                // Beside reading: a server may take no more before its answers are read.
                written = writer.write_buf(&mut outbox), if !outbox.is_empty() => match written {
                    Ok(0) => return self.cut(closing, "closed by the server".into()),
                    Err(error) => return self.cut(closing, error.to_string()),
                    Ok(_) => times.sent = Instant::now(),
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
                    if let Some(reason) = self.gone(&times, outbox.is_empty(), now) {
                        return self.cut(closing, reason);
                    }
                    self.time_out();
                    if outbox.is_empty() && self.core.is_established() && now >= self.ping_at(&times) {
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
            self.carry_out(outputs);
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

    /// Takes whole frames out of `inbox`; true when the session has ended.
    fn take_frames(&mut self, inbox: &mut BytesMut, outbox: &mut BytesMut) -> Result<bool, String> {
        while let Some(length) = inbox.first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let limit = self.config.max_frame;
            let size = usize::try_from(length)
                .ok()
                .filter(|n| *n <= limit)
                .ok_or_else(|| {
                    format!("a frame of {length} bytes, more than jute.maxbuffer ({limit}) allows")
                })?;
            if inbox.len() < 4 + size {
                inbox.reserve(4 + size - inbox.len());
                break;
            }
            inbox.advance(4);
            let body: Bytes = inbox.split_to(size).freeze();
            let mut outputs = Vec::new();
            let result = self.core.frame(body, outbox, &mut outputs);
            if self.carry_out(outputs) {
                return Ok(true);
            }
            result.map_err(|error| error.to_string())?;
            if self.events.untaken() > MAX_EVENTS {
                return Err(format!("{MAX_EVENTS} events of watches are not taken"));
            }
        }
        Ok(false)
    }
}
