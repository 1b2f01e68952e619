//! Sessions begin, change hands and end.

use crate::net::conn::Conn;
use crate::session::{LastHeard, password};
use crate::state::{Job, Shared};
use bytes::Bytes;
use gracchus_zk_proto::{ConnectRequest, ConnectResponse};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The session is gone: so is its connection, after the answer if it asked for that itself.
pub(super) fn end_session(shared: &Shared, job: &Job, session: i64) {
    let conn = {
        let mut sessions = shared.sessions.lock();
        let conn = sessions.conn(session);
        sessions.remove(session);
        conn
    };
    if job.conn.is_none() {
        tracing::info!(
            "session 0x{session:x} expired: its client was silent for longer than its timeout"
        );
        shared.metrics.stale_sessions_expired.fetch_add(1, Relaxed);
    }
    if let Some(conn) = &job.conn {
        conn.close(true);
    } else if let Some(conn) = conn.and_then(|id| shared.conns.lock().get(&id).cloned()) {
        conn.close(false);
    }
}

/// Tells a client that it has a session now.
pub(super) fn grant(
    shared: &Shared,
    job: &Job,
    session: i64,
    timeout_ms: i32,
    request: &ConnectRequest,
) {
    let Some(conn) = &job.conn else { return };
    let now_ms = shared.clock.now_ms();
    let heard = shared
        .sessions
        .lock()
        .add(session, timeout_ms, Some(conn.id), now_ms);
    enter(conn, heard, session, timeout_ms, request);
}

fn enter(conn: &Conn, heard: LastHeard, session: i64, timeout_ms: i32, request: &ConnectRequest) {
    let _ = conn.last_heard.set(heard);
    conn.timeout_ms.store(timeout_ms, Relaxed);
    conn.session.store(session, Release);
    if let Some(mut out) = conn.open_out() {
        out.frame(&ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id: session,
            password: Some(Bytes::copy_from_slice(&password(session))),
            read_only: request.read_only.map(|_| false),
        });
    }
}

/// A client wants its session back. Whoever holds it is cut off first, even if the password then turns out wrong.
pub(super) fn attach(shared: &Shared, job: &Job, request: &ConnectRequest, now_ms: i64) {
    let Some(conn) = &job.conn else { return };
    let session = request.session_id;
    shared
        .metrics
        .connection_revalidate_count
        .fetch_add(1, Relaxed);
    let timeout_ms = shared.clamp_timeout(request.timeout_ms);
    let (holder, heard) = {
        let mut sessions = shared.sessions.lock();
        let holder = sessions.conn(session);
        let right = sessions.contains(session)
            && request.password.as_deref() == Some(&password(session)[..]);
        let heard = right
            .then(|| sessions.attach(session, timeout_ms, conn.id, now_ms))
            .flatten();
        (holder, heard)
    };
    if let Some(holder) = holder.and_then(|id| shared.conns.lock().get(&id).cloned()) {
        holder.close(false);
    }
    match heard {
        Some(heard) => enter(conn, heard, session, timeout_ms, request),
        None => {
            tracing::info!(
                "client {} wants session 0x{session:x} back, which is unknown, expired or not its own: it is told so and makes a new one",
                conn.peer
            );
            if let Some(mut out) = conn.open_out() {
                out.frame(&ConnectResponse {
                    password: Some(Bytes::from_static(&[0; 16])),
                    read_only: request.read_only.map(|_| false),
                    ..ConnectResponse::default()
                });
            }
            conn.close(true);
        }
    }
}
