//! What clients will be told, and whether that can be right.

use std::net::ToSocketAddrs;
use std::path::Path;

use crate::config::{Listener, Listeners};
use crate::net::server::Bound;

/// Fills in what `advertised.listeners` leaves open: ports chosen by the system, and the host of a listener on all
/// addresses (Kafka takes the machine's canonical name).
pub fn resolve_advertised(listeners: &Listeners, bound: &[Bound], given: bool) -> Vec<Listener> {
    listeners
        .advertised
        .iter()
        .map(|advertised| {
            let mut advertised = advertised.clone();
            if let Some(b) = bound.iter().find(|b| b.listener.name == advertised.name)
                && advertised.port == 0
            {
                advertised.port = b.listener.port;
            }
            if !given && advertised.host.is_empty() {
                advertised.host = own_name();
            }
            advertised
        })
        .collect()
}

/// This machine's name if it resolves, else `localhost`.
fn own_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if (name.as_str(), 0)
        .to_socket_addrs()
        .is_ok_and(|mut a| a.next().is_some())
    {
        name
    } else {
        "localhost".into()
    }
}

/// One line a listener: where it listens and what it tells its clients.
pub fn table(bound: &[Bound], advertised: &[Listener]) -> Vec<String> {
    bound
        .iter()
        .map(
            |b| match advertised.iter().find(|a| a.name == b.listener.name) {
                Some(a) => format!(
                    "listener {} on {}: clients that come in here will be told {}:{}",
                    b.listener.name, b.address, a.host, a.port
                ),
                None => format!(
                    "listener {} on {}: not advertised",
                    b.listener.name, b.address
                ),
            },
        )
        .collect()
}

/// What is likely to keep clients of other machines away.
pub fn warnings(bound: &[Bound], advertised: &[Listener]) -> Vec<String> {
    let mut found = Vec::new();
    for b in bound.iter().filter(|b| !b.address.ip().is_loopback()) {
        let Some(a) = advertised.iter().find(|a| a.name == b.listener.name) else {
            continue;
        };
        let fix = format!(
            "set advertised.listeners={}://<the name or address that clients use>:{}",
            a.name, a.port
        );
        match (a.host.as_str(), a.port).to_socket_addrs() {
            Err(error) => found.push(format!(
                "listener {} advertises {}:{}, a name that does not resolve here ({error}); {fix}",
                a.name, a.host, a.port
            )),
            Ok(mut addresses) => {
                if addresses.all(|address| address.ip().is_loopback()) {
                    found.push(format!(
                        "listener {} accepts connections from other machines ({}) but tells its clients {}:{}, which is each client's \
                         own machine; {fix}",
                        a.name, b.address, a.host, a.port
                    ));
                }
            }
        }
    }
    found
}

/// Data that does not survive: on tmpfs, under /tmp, in a container's layer.
pub fn volatile_data(dir: &Path) -> Option<String> {
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794c_7630;
    let existing = dir.ancestors().find(|d| d.exists())?;
    let kind = rustix::fs::statfs(existing).ok()?.f_type;
    let why = match kind {
        TMPFS => "is in memory (tmpfs)",
        OVERLAY => "is in a container's own layer (overlay)",
        _ if dir.starts_with("/tmp") => "is under /tmp",
        _ => return None,
    };
    Some(format!(
        "data directory {} {why}: it may be gone after a restart of the machine or container",
        dir.display()
    ))
}
