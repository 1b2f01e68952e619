//! The send queue to one broker: requests go in order, one outstanding, each tried until it is answered or the broker is
//! no longer there.

use std::sync::Arc;
use std::time::Duration;

use gracchus_controller::{ControlRequest, Event, PartitionKey};
use gracchus_kafka_proto::ErrorCode;
use gracchus_kafka_proto::messages::{
    LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse,
    UpdateMetadataRequest,
};
use gracchus_registry::json::BrokerRegistration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Input;
use crate::broker::Broker;
use crate::net::client::BrokerConnection;

/// Pause before a request is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Requests that wait for a broker to take them.
pub(super) const REQUESTS_MAX: usize = 1000;
/// A broker that can't be reached is named at most this often.
const COMPLAIN_EVERY: u32 = 100;

/// The sending half; dropping it, or a newer link, ends the queue.
pub(crate) struct Link {
    requests: mpsc::Sender<ControlRequest>,
    pub registration: BrokerRegistration,
    stop: CancellationToken,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Link {
    pub(crate) fn open(
        broker: &Arc<Broker>,
        broker_id: i32,
        registration: BrokerRegistration,
        answers: mpsc::Sender<Input>,
    ) -> Self {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let stop = broker.shutdown.child_token();
        let listener = broker
            .listeners
            .control_plane
            .as_ref()
            .unwrap_or(&broker.listeners.inter_broker);
        let endpoint = registration.endpoint(listener);
        let mut sender = Sender {
            broker_id,
            client_id: broker.identity.broker_id.to_string(),
            address: endpoint.and_then(|e| Some((e.host.clone(), u16::try_from(e.port).ok()?))),
            listener: listener.to_string(),
            patience: Duration::from_millis(
                u64::try_from(broker.config.current().controller_socket_timeout_ms)
                    .unwrap_or(30_000),
            ),
            connection: None,
            answers,
        };
        let stopped = stop.clone();
        broker.tasks.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = sender.run(receiver) => {}
            }
        });
        Self {
            requests,
            registration,
            stop,
        }
    }

    /// Queues a request; false when too many wait.
    pub(crate) fn send(&mut self, request: ControlRequest) -> bool {
        use mpsc::error::TrySendError;
        // closed: the broker stops
        !matches!(self.requests.try_send(request), Err(TrySendError::Full(_)))
    }
}

struct Sender {
    broker_id: i32,
    client_id: String,
    address: Option<(String, u16)>,
    listener: String,
    patience: Duration,
    connection: Option<BrokerConnection>,
    answers: mpsc::Sender<Input>,
}

impl Sender {
    async fn run(&mut self, mut requests: mpsc::Receiver<ControlRequest>) {
        while let Some(request) = requests.recv().await {
            let mut failures = 0u32;
            loop {
                match self.send(&request).await {
                    Ok(()) => break,
                    Err(reason) => {
                        if failures.is_multiple_of(COMPLAIN_EVERY) {
                            tracing::warn!(
                                "controller: broker {} does not take a request: {reason}; trying again",
                                self.broker_id
                            );
                        }
                        failures = failures.saturating_add(1);
                        self.connection = None;
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
    }

    async fn send(&mut self, request: &ControlRequest) -> Result<(), String> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            slot => {
                let (host, port) = self
                    .address
                    .as_ref()
                    .ok_or_else(|| format!("it has no listener {}", self.listener))?;
                let opened = BrokerConnection::connect(host, *port, &self.client_id, self.patience)
                    .await
                    .map_err(|e| format!("{host}:{port}: {e}"))?;
                slot.insert(opened)
            }
        };
        let event = match request {
            ControlRequest::LeaderAndIsr(r, version) => {
                let answer = connection
                    .send(*version, r)
                    .await
                    .map_err(|e| e.to_string())?;
                self.log_refusal("LeaderAndIsr", answer.error_code);
                Event::LeaderAndIsrAnswered {
                    broker_id: self.broker_id,
                    partitions: leader_and_isr_errors(r, &answer),
                }
            }
            ControlRequest::UpdateMetadata {
                content,
                broker_epoch,
                version,
            } => {
                let request = UpdateMetadataRequest {
                    broker_epoch: *broker_epoch,
                    ..content.as_ref().clone()
                };
                let answer = connection
                    .send(*version, &request)
                    .await
                    .map_err(|e| e.to_string())?;
                self.log_refusal("UpdateMetadata", answer.error_code);
                return Ok(());
            }
            ControlRequest::StopReplica(r, version) => {
                let answer = connection
                    .send(*version, r)
                    .await
                    .map_err(|e| e.to_string())?;
                self.log_refusal("StopReplica", answer.error_code);
                Event::StopReplicaAnswered {
                    broker_id: self.broker_id,
                    partitions: deleted(r, &answer),
                }
            }
        };
        let _ = self.answers.send(Input::Event(event)).await;
        Ok(())
    }

    fn log_refusal(&self, api: &str, code: i16) {
        if code != 0 {
            tracing::warn!(
                "broker {} refused {api}: {}",
                self.broker_id,
                ErrorCode::from_code(code).name()
            );
        }
    }
}

/// Errors by partition; from version 5 on the answer names topics by id, which the request translates.
pub fn leader_and_isr_errors(
    request: &LeaderAndIsrRequest,
    answer: &LeaderAndIsrResponse,
) -> Vec<(PartitionKey, ErrorCode)> {
    let mut out: Vec<_> = answer
        .partition_errors
        .iter()
        .map(|p| {
            (
                PartitionKey::new(&p.topic_name, p.partition_index),
                ErrorCode::from_code(p.error_code),
            )
        })
        .collect();
    for topic in &answer.topics {
        let Some(sent) = request
            .topic_states
            .iter()
            .find(|t| t.topic_id == topic.topic_id)
        else {
            continue;
        };
        out.extend(topic.partition_errors.iter().map(|p| {
            (
                PartitionKey::new(&sent.topic_name, p.partition_index),
                ErrorCode::from_code(p.error_code),
            )
        }));
    }
    out
}

/// The partitions that were to be deleted, each with its error, or the whole request's.
pub fn deleted(
    request: &StopReplicaRequest,
    answer: &StopReplicaResponse,
) -> Vec<(PartitionKey, ErrorCode)> {
    let mut wanted = Vec::new();
    for topic in &request.topic_states {
        let chosen = topic.partition_states.iter().filter(|p| p.delete_partition);
        wanted.extend(chosen.map(|p| PartitionKey::new(&topic.topic_name, p.partition_index)));
    }
    if request.delete_partitions {
        for topic in &request.topics {
            wanted.extend(
                topic
                    .partition_indexes
                    .iter()
                    .map(|p| PartitionKey::new(&topic.name, *p)),
            );
        }
        wanted.extend(
            request
                .ungrouped_partitions
                .iter()
                .map(|p| PartitionKey::new(&p.topic_name, p.partition_index)),
        );
    }
    let errors: std::collections::HashMap<PartitionKey, i16> = answer
        .partition_errors
        .iter()
        .map(|p| {
            (
                PartitionKey::new(&p.topic_name, p.partition_index),
                p.error_code,
            )
        })
        .collect();
    wanted
        .into_iter()
        .map(|key| {
            let code = if answer.error_code != 0 {
                answer.error_code
            } else {
                errors.get(&key).copied().unwrap_or(0)
            };
            (key, ErrorCode::from_code(code))
        })
        .collect()
}
