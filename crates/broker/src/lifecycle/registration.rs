//! `/brokers/ids/N`: who we are for the others, and what to do when somebody stands there already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gracchus_kafka_proto::messages::ApiVersionsRequest;
use gracchus_registry::Registry;
use gracchus_registry::json::{BrokerRegistration, Endpoint, SecurityProtocol};
use gracchus_registry::registry::RegisterOutcome;

use super::error::LifecycleError;
use super::status::Status;
use crate::clock::now_ms;
use crate::config::version::MetadataVersion;
use crate::config::{BrokerConfig, Listener, SecurityProtocol as Configured};
use crate::net::client::BrokerConnection;

/// Between two looks at a registration that is in the way.
const RETRY: Duration = Duration::from_millis(250);
/// How often a waiting broker says so.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is written.
pub fn registration(config: &BrokerConfig, advertised: &[Listener]) -> BrokerRegistration {
    let ibp = MetadataVersion::parse(&config.inter_broker_protocol_version);
    BrokerRegistration {
        version: BrokerRegistration::version_for(|v| ibp.is_none_or(|ibp| ibp.at_least(v))),
        endpoints: advertised
            .iter()
            .map(|l| Endpoint {
                listener: l.name.to_string(),
                security_protocol: match l.protocol {
                    Configured::Plaintext => SecurityProtocol::Plaintext,
                    Configured::Ssl => SecurityProtocol::Ssl,
                    Configured::SaslPlaintext => SecurityProtocol::SaslPlaintext,
                    Configured::SaslSsl => SecurityProtocol::SaslSsl,
                },
                host: l.host.clone(),
                port: i32::from(l.port),
            })
            .collect(),
        rack: config.broker_rack.clone(),
        jmx_port: -1,
        timestamp_ms: now_ms(),
        features: BTreeMap::new(),
    }
}

/// An error if another process serves under this id; nothing is written. Our own listeners must not accept yet.
pub async fn refuse_if_alive(registry: &Registry, id: i32) -> Result<(), LifecycleError> {
    // content that cannot be read is nobody's address
    if let Ok(Some((registration, _))) = registry.broker(id).await
        && let Some(address) = answers(&registration).await
    {
        return Err(LifecycleError::Alive { id, address });
    }
    Ok(())
}

/// Registers. A node of a session that is over but not yet expired is waited for; a node whose broker answers is an error.
pub async fn register(
    registry: &Registry,
    id: i32,
    registration: &BrokerRegistration,
    session_timeout: Duration,
    status: &Arc<Status>,
) -> Result<i64, LifecycleError> {
    let begun = Instant::now();
    let mut lines = 0u32;
    loop {
        let (owner, ctime_ms, other) = match registry.register_broker(id, registration).await? {
            RegisterOutcome::Registered { epoch } => return Ok(epoch),
            RegisterOutcome::Taken {
                owner,
                ctime_ms,
                registration,
                ..
            } => (owner, ctime_ms, registration),
        };
        if owner == 0 {
            return Err(LifecycleError::PersistentRegistration { id });
        }
        if let Ok(other) = &other
            && !is_here(other, registration).await
            && let Some(address) = answers(other).await
        {
            return Err(LifecycleError::Alive { id, address });
        }
        if begun.elapsed() >= LINE_EVERY.saturating_mul(lines) {
            lines += 1;
            let age = (now_ms() - ctime_ms) / 1000;
            let text = format!(
                "/brokers/ids/{id} belongs to session 0x{owner:x}, registered {age} s ago, and no broker answers at its address: waiting \
                 for that session to expire, which takes up to {} s from its last sign of life",
                session_timeout.as_secs()
            );
            tracing::warn!("{text}");
            status.starting(text);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The registration's address is our own, so that we ourselves would answer there: whoever registered it is dead, as the
/// port is ours.
async fn is_here(other: &BrokerRegistration, own: &BrokerRegistration) -> bool {
    let Some(endpoint) = other.plaintext() else {
        return false;
    };
    let mut same_port = own.endpoints.iter().filter(|e| e.port == endpoint.port);
    if same_port.clone().any(|e| e.host == endpoint.host) {
        return true;
    }
    let Ok(port) = u16::try_from(endpoint.port) else {
        return false;
    };
    // by another name: only an address of this machine can be bound
    same_port.next().is_some()
        && tokio::net::lookup_host((endpoint.host.as_str(), port))
            .await
            .is_ok_and(|mut found| found.any(|at| std::net::UdpSocket::bind((at.ip(), 0)).is_ok()))
}

/// The address at which a Kafka broker answers for the registration, if one does.
async fn answers(registration: &BrokerRegistration) -> Option<String> {
    let endpoint = registration.plaintext()?;
    let port = u16::try_from(endpoint.port).ok()?;
    let patience = Duration::from_secs(2);
    let mut connection =
        BrokerConnection::connect(&endpoint.host, port, "registration-check", patience)
            .await
            .ok()?;
    connection
        .send(0, &ApiVersionsRequest::default())
        .await
        .ok()?;
    Some(format!("{}:{}", endpoint.host, endpoint.port))
}
