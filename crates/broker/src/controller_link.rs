//! Requests of this broker to the active controller on another broker: one connection, one request at a time.

use std::time::Duration;

use gracchus_kafka_proto::Request;

use crate::broker::Broker;
use crate::net::client::BrokerConnection;

/// Where the open connection goes.
type Address = (i32, String, u16);

/// The connection, if there is one.
#[derive(Debug, Default)]
pub struct ControllerLink {
    open: tokio::sync::Mutex<Option<(Address, BrokerConnection)>>,
}

impl ControllerLink {
    /// Sends to whom the metadata name as the controller. A connection that was left open and turns out to be cut is
    /// opened again once. An error's text names the controller.
    pub async fn send<R: Request>(
        &self,
        broker: &Broker,
        version: i16,
        request: &R,
    ) -> Result<R::Response, String> {
        let address = controller(broker)?;
        let config = broker.config.current();
        let patience = Duration::from_millis(
            u64::try_from(config.controller_socket_timeout_ms).unwrap_or(30_000),
        );
        let (id, host, port) = &address;
        let named =
            |error: &dyn std::fmt::Display| format!("controller {id} at {host}:{port}: {error}");
        let mut open = self.open.lock().await;
        // out of its place while in use: a request given up half-way must not leave its answer for the next
        if let Some((kept, mut connection)) = open.take()
            && kept == address
            && let Ok(answer) = connection.send(version, request).await
        {
            *open = Some((kept, connection));
            return Ok(answer);
        }
        let client_id = broker.identity.broker_id.to_string();
        let mut connection = BrokerConnection::connect(host, *port, &client_id, patience)
            .await
            .map_err(|e| named(&e))?;
        let answer = connection
            .send(version, request)
            .await
            .map_err(|e| named(&e))?;
        *open = Some((address, connection));
        Ok(answer)
    }
}

fn controller(broker: &Broker) -> Result<Address, String> {
    let snapshot = broker.metadata.snapshot();
    let id = snapshot.controller_id.ok_or("no controller is known")?;
    let live = snapshot
        .brokers
        .get(&id)
        .ok_or_else(|| format!("controller {id} is not alive"))?;
    let listener = broker
        .listeners
        .control_plane
        .as_ref()
        .unwrap_or(&broker.listeners.inter_broker);
    let endpoint = live
        .endpoint(listener)
        .ok_or_else(|| format!("controller {id} has no listener {listener}"))?;
    let port =
        u16::try_from(endpoint.port).map_err(|_| format!("controller {id} has no valid port"))?;
    Ok((id, endpoint.host.clone(), port))
}
