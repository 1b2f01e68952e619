//! The way down: leadership away first, then the network, the coordinators, the logs, and the session last, so that its
//! ephemerals vanish when nothing is served any more.

use std::sync::Arc;
use std::time::Duration;

use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::ControlledShutdownRequest;

use super::Running;
use super::status::Phase;
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::config::version::MetadataVersion;

/// Requests in progress get this long to finish.
const DRAIN: Duration = Duration::from_secs(2);
/// ZooKeeper gets this long to end the session.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

impl Running {
    /// Stops cleanly. Each step is bounded.
    pub async fn stop(self) {
        self.status.set(Phase::Stopping);
        self.loading.stop();
        let broker = &self.broker;
        let id = broker.identity.broker_id;
        let served = broker.metadata.snapshot().is_alive(id);
        tracing::info!("shutting down broker {}", broker.identity.broker_id);
        if served && broker.config.current().controlled_shutdown_enable {
            controlled_shutdown(broker).await;
        }
        // before the drain, so that no request of a group's waits through it for the other members
        broker.groups.stop();
        self.network_stop.cancel();
        self.network_tasks.close();
        if tokio::time::timeout(DRAIN, self.network_tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not end within {DRAIN:?}");
        }
        if tokio::time::timeout(DRAIN, broker.controller.stop())
            .await
            .is_err()
        {
            tracing::warn!("the controller did not take its stop within {DRAIN:?}");
        }
        broker.shutdown.cancel();
        broker.tasks.close();
        if tokio::time::timeout(Duration::from_secs(10), broker.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some background tasks did not end within 10 s");
        }
        self.loading.ended().await;
        let logs = broker.replicas.logs().clone();
        let closing = tokio::task::spawn_blocking(move || logs.shutdown(now_ms()));
        if closing.await.is_err() {
            tracing::error!("closing the logs failed; the next start recovers them");
        }
        if tokio::time::timeout(CLOSE, broker.registry.zk().close())
            .await
            .is_err()
        {
            tracing::warn!(
                "ZooKeeper did not hear of the session's end within {CLOSE:?}; it ends by its timeout"
            );
        }
        // a closed session needs no ending at the next start
        let _ = std::fs::remove_file(&self.session_file);
        tracing::info!("broker {} has shut down", broker.identity.broker_id);
    }
}

/// Asks the controller to move leaders away; a refusal or silence only means an unclean stop, in which no data is lost.
async fn controlled_shutdown(broker: &Arc<Broker>) {
    let config = broker.config.current();
    let tries = config.controlled_shutdown_max_retries.max(1);
    for attempt in 1..=tries {
        match ask(broker).await {
            Ok(0) => return,
            Ok(left) => tracing::info!(
                "controlled shutdown: leaders left: {left} (attempt {attempt} of {tries})"
            ),
            Err(reason) => {
                tracing::info!("controlled shutdown: {reason} (attempt {attempt} of {tries})")
            }
        }
        if attempt < tries {
            let pause = u64::try_from(config.controlled_shutdown_retry_backoff_ms).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
    tracing::warn!("controlled shutdown did not succeed; going down without it");
}

async fn ask(broker: &Arc<Broker>) -> Result<usize, String> {
    let config = broker.config.current();
    let version = MetadataVersion::parse(&config.inter_broker_protocol_version).map_or(3, |ibp| {
        match (
            ibp.at_least("2.4-IV1"),
            ibp.at_least("2.2-IV0"),
            ibp.at_least("0.9.0"),
        ) {
            (true, ..) => 3,
            (_, true, _) => 2,
            (_, _, true) => 1,
            _ => 0,
        }
    });
    let request = ControlledShutdownRequest {
        broker_id: broker.identity.broker_id,
        broker_epoch: broker.identity.broker_epoch(),
        ..Default::default()
    };
    let answer = broker
        .controller_link
        .send(broker, version, &request)
        .await?;
    match ErrorCode::from_code(answer.error_code) {
        ErrorCode::None => Ok(answer.remaining_partitions.len()),
        error => Err(format!("the controller answered {}", error.name())),
    }
}
