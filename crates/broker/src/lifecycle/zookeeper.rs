//! Reaching ZooKeeper, for as long as it takes, and ending what an earlier process of this broker left there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gracchus_registry::RegistryError;
use gracchus_registry::registry::{create_chroot, end_session};
use gracchus_zk_client::{
    ConnectString, EventReceiver, SessionState, ZkClient, ZkConfig, ZkEvent, look,
};

use super::error::LifecycleError;
use super::status::Status;
use crate::config::Loaded;

/// When the wait is first told.
const FIRST_LINE: Duration = Duration::from_secs(1);
/// How often the status is brought up to date; the session itself logs a line as often.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The last session's id and password, beside the logs that it belongs to.
const SESSION_FILE: &str = ".gracchus-session";

/// The session settings that the configuration asks for.
pub fn zk_config(loaded: &Loaded, broker: &str) -> Result<ZkConfig, LifecycleError> {
    let text = loaded.config.zookeeper_connect.clone().unwrap_or_default();
    let connect: ConnectString =
        text.parse()
            .map_err(|e: gracchus_zk_client::config::ConnectStringError| {
                LifecycleError::ConnectString(e.to_string())
            })?;
    let mut config = ZkConfig::new(connect);
    config.session_timeout = Duration::from_millis(
        u64::try_from(loaded.config.zookeeper_session_timeout_ms).unwrap_or(18_000),
    );
    if loaded
        .values
        .contains_key("zookeeper.max.in.flight.requests")
    {
        config.max_in_flight = usize::try_from(loaded.config.zookeeper_max_in_flight_requests)
            .unwrap_or(10)
            .max(1);
    }
    config.name = broker.to_owned();
    loaded.secured.apply(&mut config);
    Ok(config)
}

/// Connects. Ends the session of an earlier process first (its registration goes with it), makes the chroot, and comes
/// back with a session that lives. Waits without limit unless `zookeeper.connection.timeout.ms` was given.
pub async fn connect(
    loaded: &Loaded,
    config: &ZkConfig,
    left: Option<(i64, Bytes)>,
    status: &Arc<Status>,
) -> Result<(ZkClient, EventReceiver), LifecycleError> {
    let shown = loaded.config.zookeeper_connect.clone().unwrap_or_default();
    let connecting = async {
        if let Some(session) = left {
            tracing::info!(
                "ending the ZooKeeper session 0x{:x} that an earlier process of this broker left",
                session.0
            );
            end_session(config, session).await;
        }
        match create_chroot(config, loaded.config.zookeeper_set_acl).await {
            Err(RegistryError::Login(reason)) => {
                return Err(LifecycleError::ZooKeeperLogin(reason));
            }
            made => made?,
        }
        let (zk, mut events) = ZkClient::start(config.clone());
        loop {
            match events.recv().await {
                Some(ZkEvent::Session(SessionState::Connected { session_id, .. })) => {
                    tracing::info!(
                        "connected to ZooKeeper at {shown}: session 0x{session_id:x}, timeout {} ms",
                        zk.negotiated_timeout_ms()
                    );
                    return Ok((zk, events));
                }
                Some(ZkEvent::Session(SessionState::Expired)) => zk.reopen().await,
                Some(ZkEvent::Session(SessionState::AuthFailed)) => {
                    let reason = zk.auth_failure().unwrap_or_default();
                    return Err(LifecycleError::ZooKeeperLogin(reason));
                }
                Some(_) => {}
                None => return Err(LifecycleError::Stopped),
            }
        }
    };
    tokio::pin!(connecting);
    status.starting(format!("waiting for ZooKeeper at {shown}"));
    let begun = Instant::now();
    let given = loaded
        .values
        .contains_key("zookeeper.connection.timeout.ms");
    let limit = loaded
        .config
        .zookeeper_connection_timeout_ms
        .filter(|_| given);
    let deadline = limit.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let mut lines = 0u32;
    loop {
        let next_line = match lines {
            0 => FIRST_LINE,
            lines => LINE_EVERY.saturating_mul(lines),
        };
        let next_line = next_line.min(deadline.unwrap_or(Duration::MAX));
        let sleep = tokio::time::sleep(next_line.saturating_sub(begun.elapsed()));
        tokio::select! {
            connected = &mut connecting => return connected,
            () = sleep => {}
        }
        let state = look(config).await;
        if let (Some(timeout_ms), Some(deadline)) = (limit, deadline)
            && begun.elapsed() >= deadline
        {
            return Err(LifecycleError::NoZooKeeper {
                connect: shown.clone(),
                timeout_ms,
                state,
            });
        }
        let text = format!("waiting for ZooKeeper at {shown}: {state}");
        if lines == 0 {
            let long = limit.map_or("for as long as it takes".to_owned(), |ms| {
                format!("for {ms} ms")
            });
            tracing::warn!("{text}. Trying again {long}");
        }
        lines += 1;
        status.starting(text);
    }
}

/// Where the session is kept: in the first log directory, which only one process can hold at a time.
pub fn session_file(log_dir: &Path) -> PathBuf {
    log_dir.join(SESSION_FILE)
}

/// The session that an earlier process kept, if this ZooKeeper is the same.
pub fn kept_session(file: &Path, connect: &str) -> Option<(i64, Bytes)> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    if lines.next()? != connect {
        return None;
    }
    let id = i64::from_str_radix(lines.next()?, 16).ok()?;
    let hex = lines.next()?.as_bytes();
    let password: Option<Vec<u8>> = hex
        .chunks(2)
        .map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .and_then(|p| u8::from_str_radix(p, 16).ok())
        })
        .collect();
    Some((id, password?.into()))
}

/// Keeps the session for the next process. A failure costs only the wait for the session's end.
pub fn keep_session(file: &Path, connect: &str, session: &(i64, Bytes)) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let hex: String = session.1.iter().map(|b| format!("{b:02x}")).collect();
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut f| writeln!(f, "{connect}\n{:x}\n{hex}", session.0));
    if let Err(error) = written {
        tracing::warn!(
            "cannot keep the ZooKeeper session in {}: {error}; after a crash the next start has to wait for its end",
            file.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_session() {
        let dir = tempfile::tempdir().unwrap();
        let file = session_file(dir.path());
        assert_eq!(kept_session(&file, "a:1"), None);
        let session = (0x1234_5678_9abc_def0, Bytes::from_static(&[0, 255, 16]));
        keep_session(&file, "a:1", &session);
        assert_eq!(kept_session(&file, "a:1"), Some(session));
        assert_eq!(kept_session(&file, "b:1"), None);
        std::fs::write(&file, "a:1\nzz\n").unwrap();
        assert_eq!(kept_session(&file, "a:1"), None);
    }
}
