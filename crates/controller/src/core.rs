//! What handlers work on, and how they read and write znodes.

use gracchus_kafka_proto::ErrorCode;
use gracchus_registry::op::{MultiStep, Stat, ZkError, ZkFailure};
use gracchus_registry::{ZkOp, ZkReply, ZkResult, paths};

use bytes::Bytes;

use crate::action::{Action, ApiReply};
use crate::config::ControllerConfig;
use crate::context::Context;
use crate::controller::Gauges;
use crate::event::{ApiRequest, Change, ControlAnswer, Event, Timer};
use crate::port::Port;
use crate::request_batch::RequestBatch;

/// Why an event was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the controller epoch in ZooKeeper is not the one this controller was elected with: another one has taken over")]
    Moved,
    #[error("ZooKeeper answered {error} for {path}")]
    Zk { path: String, error: ZkError },
}

/// The controller at rest, or in the hands of the event at work.
pub(crate) struct Core {
    pub config: ControllerConfig,
    pub port: Port,
    pub cx: Context,
    pub batch: RequestBatch,
    /// The controller's id as last read; ours: we are active.
    pub active_id: i32,
    /// Takes part in elections.
    pub candidate: bool,
    /// Elections that failed in a row.
    pub failed_elections: u32,
}

impl Core {
    pub fn new(config: ControllerConfig, port: Port) -> Self {
        Self {
            config,
            port,
            cx: Context::default(),
            batch: RequestBatch::default(),
            active_id: -1,
            candidate: false,
            failed_elections: 0,
        }
    }

    pub fn is_active(&self) -> bool {
        self.active_id == self.config.broker_id
    }

    /// Handles one event to its end.
    pub async fn handle(mut self: Box<Self>, event: Event) -> Box<Self> {
        let name = event.name();
        if let Err(failure) = self.dispatch(event).await {
            match failure {
                Failure::Moved => {
                    tracing::info!(epoch = self.cx.epoch, "{name}: {failure}");
                    self.after_lost_fence().await;
                }
                Failure::Zk { path, error } => {
                    tracing::error!(
                        "{name} given up: ZooKeeper answered {error} for {path}; what it was about is looked at again at the next change or election"
                    );
                }
            }
        }
        self
    }

    async fn dispatch(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Startup => {
                self.candidate = true;
                self.watch_controller().await?;
                self.elect().await
            }
            Event::SessionExpired => {
                let was_active = self.is_active();
                self.active_id = -1;
                self.candidate = false;
                if was_active {
                    self.resign();
                }
                self.port.act(Action::Expired);
                Ok(())
            }
            Event::Registered => {
                self.candidate = true;
                self.resign_if_replaced().await?;
                self.elect().await
            }
            Event::Stop => {
                self.candidate = false;
                if self.is_active() {
                    self.active_id = -1;
                    self.resign();
                }
                Ok(())
            }
            Event::Timer(Timer::Elect) => self.elect().await,
            Event::Timer(Timer::Rebalance) => self.rebalance().await,
            Event::Watch { path, change } => self.watched(&path, change).await,
            Event::ZkResult { .. } => Ok(()),
            Event::Answer {
                broker_id,
                controller_epoch,
                answer,
            } => {
                if !self.is_active() || controller_epoch != self.cx.epoch {
                    return Ok(());
                }
                match answer {
                    ControlAnswer::LeaderAndIsr(response) => {
                        self.leader_and_isr_answered(broker_id, response).await
                    }
                    ControlAnswer::UpdateMetadata(response) => {
                        self.update_metadata_answered(broker_id, &response);
                        Ok(())
                    }
                    ControlAnswer::StopReplica { deleted, response } => {
                        self.stop_replica_answered(broker_id, deleted, response)
                            .await
                    }
                }
            }
            Event::Api { token, request } => {
                if !self.is_active() {
                    let reply = request.refused(ErrorCode::NotController);
                    self.port.act(Action::Reply { token, reply });
                    return Ok(());
                }
                let refusal = request.refused(ErrorCode::UnknownServerError);
                let moved = request.refused(ErrorCode::NotController);
                let answered = self.api(request).await;
                let (reply, outcome) = match answered {
                    Ok(reply) => (reply, Ok(())),
                    Err(Failure::Moved) => (moved, Err(Failure::Moved)),
                    Err(failure) => (refusal, Err(failure)),
                };
                self.port.act(Action::Reply { token, reply });
                outcome
            }
            Event::Config(config) => {
                let turned_on = config.unclean_leader_election_enable
                    && !self.config.unclean_leader_election_enable;
                self.config = config;
                if self.is_active() {
                    self.set_rebalance_timer();
                    if turned_on {
                        self.bring_partitions_online(None).await?;
                    }
                }
                Ok(())
            }
            Event::TopicConfig { topic } => {
                if self.is_active() {
                    self.bring_partitions_online(Some(&topic)).await?;
                }
                Ok(())
            }
        }
    }

    async fn api(&mut self, request: ApiRequest) -> Result<ApiReply, Failure> {
        match request {
            ApiRequest::AlterPartition { version, request } => self
                .alter_partition(version, request)
                .await
                .map(ApiReply::AlterPartition),
            ApiRequest::AllocateProducerIds(request) => self
                .allocate_producer_ids(request)
                .await
                .map(ApiReply::AllocateProducerIds),
            ApiRequest::ControlledShutdown(request) => self
                .controlled_shutdown(request)
                .await
                .map(ApiReply::ControlledShutdown),
            ApiRequest::ElectLeaders { kind, partitions } => self
                .elect_leaders(kind, partitions)
                .await
                .map(|results| ApiReply::ElectLeaders(Ok(results))),
            ApiRequest::Reassign(targets) => self
                .reassign_by_api(targets)
                .await
                .map(|results| ApiReply::Reassign(Ok(results))),
            ApiRequest::ListReassignments(partitions) => Ok(ApiReply::ListReassignments(Ok(
                self.list_reassignments(partitions),
            ))),
        }
    }

    async fn watched(&mut self, path: &str, change: Change) -> Result<(), Failure> {
        if path == paths::CONTROLLER {
            self.resign_if_replaced().await?;
            return match change {
                Change::Deleted => self.elect().await,
                _ => Ok(()),
            };
        }
        if !self.is_active() {
            return Ok(());
        }
        match path {
            paths::BROKER_IDS => self.brokers_changed().await,
            paths::TOPICS => self.topics_changed().await,
            paths::DELETE_TOPICS => self.deletions_asked_for().await,
            paths::ISR_CHANGE_NOTIFICATION => self.isr_notices().await,
            paths::LOG_DIR_EVENT_NOTIFICATION => self.log_dir_notices().await,
            paths::PREFERRED_REPLICA_ELECTION => match change {
                Change::Created => self.preferred_election_by_znode().await,
                _ => self.watch_exists(path).await,
            },
            paths::REASSIGN_PARTITIONS => self.reassignment_by_znode().await,
            _ => {
                if let Some(topic) = paths::topic_of(path) {
                    if change == Change::Data {
                        return self.partitions_changed(topic).await;
                    }
                } else if let Some(id) = paths::broker_id_of(path) {
                    if change == Change::Data {
                        return self.broker_modified(id).await;
                    }
                } else if let Some((topic, partition)) = paths::partition_of_state(path)
                    && change == Change::Data
                {
                    return self.reassigned_partition_isr_changed(topic, partition).await;
                }
                Ok(())
            }
        }
    }

    /// Figures for metrics.
    pub fn gauges(&self) -> Gauges {
        if !self.is_active() {
            return Gauges {
                controller_epoch: self.cx.epoch,
                ..Gauges::default()
            };
        }
        let preferred = |p: &crate::context::Partition| {
            let preferred = p.assignment.replicas.first().copied();
            preferred.is_some() && p.leader() != preferred
        };
        Gauges {
            active: true,
            controller_epoch: self.cx.epoch,
            live_brokers: self.cx.brokers.len(),
            topics: self.cx.topics.len(),
            partitions: self.cx.topics.values().map(|t| t.partitions.len()).sum(),
            offline_partitions: self.cx.offline_partitions(),
            preferred_replica_imbalance: self
                .cx
                .partitions()
                .filter(|(tp, p)| !self.cx.is_deleting(&tp.topic) && preferred(p))
                .count(),
            topics_to_delete: self.cx.deleting.len(),
        }
    }

    /// One operation.
    pub async fn one(&mut self, op: ZkOp) -> ZkResult {
        self.port
            .zk(vec![op])
            .await
            .pop()
            .unwrap_or(Err(ZkError::SystemError.into()))
    }

    /// Data and stat; `None` where there is no node. Missing data is empty.
    pub async fn read(&mut self, path: &str, watch: bool) -> Result<Option<(Bytes, Stat)>, Failure> {
        let result = self
            .one(ZkOp::Get {
                path: path.to_owned(),
                watch,
            })
            .await;
        data_of(path, result)
    }

    /// The same for many nodes, pipelined, in order.
    pub async fn read_all(
        &mut self,
        paths: &[String],
        watch: bool,
    ) -> Result<Vec<Option<(Bytes, Stat)>>, Failure> {
        let ops = paths
            .iter()
            .map(|path| ZkOp::Get {
                path: path.clone(),
                watch,
            })
            .collect();
        let results = self.port.zk(ops).await;
        paths
            .iter()
            .zip(results)
            .map(|(path, result)| data_of(path, result))
            .collect()
    }

    /// Children's names, ascending; none where there is no node.
    pub async fn children(&mut self, path: &str, watch: bool) -> Result<Vec<String>, Failure> {
        let result = self
            .one(ZkOp::GetChildren {
                path: path.to_owned(),
                watch,
            })
            .await;
        match result {
            Ok(ZkReply::Children { mut children, .. }) => {
                children.sort_unstable();
                Ok(children)
            }
            Ok(_) => Err(failed(path, ZkError::SystemError)),
            Err(ZkFailure {
                error: ZkError::NoNode,
                ..
            }) => Ok(Vec::new()),
            Err(failure) => Err(failed(path, failure.error)),
        }
    }

    /// Arms the watch of a node that may be missing.
    pub async fn watch_exists(&mut self, path: &str) -> Result<(), Failure> {
        match self.one(ZkOp::exists_and_watch(path)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.error == ZkError::NoNode => Ok(()),
            Err(failure) => Err(failed(path, failure.error)),
        }
    }

    /// Writes, each fenced by the controller epoch, pipelined. An outcome each: the stat of a set. A lost fence is
    /// [`Failure::Moved`]; so is the end of the session an error of the whole.
    pub async fn fenced(
        &mut self,
        steps: Vec<MultiStep>,
    ) -> Result<Vec<Result<Option<Stat>, ZkError>>, Failure> {
        let version = self.cx.epoch_version;
        let paths: Vec<String> = steps.iter().map(|step| step.path().to_owned()).collect();
        let ops = steps
            .into_iter()
            .map(|step| ZkOp::fenced(version, step))
            .collect();
        let results = self.port.zk(ops).await;
        if results.len() != paths.len() {
            return Err(failed("a batch of writes", ZkError::SystemError));
        }
        let mut outcomes = Vec::with_capacity(results.len());
        for (path, result) in paths.iter().zip(results) {
            outcomes.push(match result {
                Ok(reply) => Ok(reply.stat().cloned()),
                Err(failure) if failure.step == 0 && is_lost_fence(failure.error) => {
                    return Err(Failure::Moved);
                }
                Err(failure) if is_session_end(failure.error) => {
                    return Err(failed(path, failure.error));
                }
                Err(failure) => Err(failure.error),
            });
        }
        Ok(outcomes)
    }

    /// Deletes, fenced; nodes that are gone already are fine.
    pub async fn delete_fenced(&mut self, paths: Vec<String>) -> Result<(), Failure> {
        let steps = paths
            .iter()
            .map(|path| MultiStep::Delete {
                path: path.clone(),
                version: gracchus_registry::ANY_VERSION,
            })
            .collect();
        let outcomes = self.fenced(steps).await?;
        for (path, outcome) in paths.iter().zip(outcomes) {
            match outcome {
                Ok(_) | Err(ZkError::NoNode) => {}
                Err(error) => tracing::error!("{path} cannot be deleted: {error}"),
            }
        }
        Ok(())
    }
}

fn is_lost_fence(error: ZkError) -> bool {
    matches!(error, ZkError::BadVersion | ZkError::NoNode)
}

fn is_session_end(error: ZkError) -> bool {
    matches!(
        error,
        ZkError::SessionExpired | ZkError::ConnectionLoss | ZkError::SessionMoved
    )
}

pub(crate) fn failed(path: &str, error: ZkError) -> Failure {
    Failure::Zk {
        path: path.to_owned(),
        error,
    }
}

fn data_of(path: &str, result: ZkResult) -> Result<Option<(Bytes, Stat)>, Failure> {
    match result {
        Ok(ZkReply::Data { data, stat }) => Ok(Some((data.unwrap_or_default(), stat))),
        Ok(_) => Err(failed(path, ZkError::SystemError)),
        Err(failure) if failure.error == ZkError::NoNode => Ok(None),
        Err(failure) => Err(failed(path, failure.error)),
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Startup => "start",
            Event::SessionExpired => "end of the session",
            Event::Registered => "registration in a new session",
            Event::Watch { .. } => "change in ZooKeeper",
            Event::ZkResult { .. } => "ZooKeeper's answer",
            Event::Answer { .. } => "answer of a broker",
            Event::Timer(_) => "timer",
            Event::Api { .. } => "request",
            Event::Config(_) | Event::TopicConfig { .. } => "change of configuration",
            Event::Stop => "stop",
        }
    }
}

impl ApiRequest {
    /// This error for the whole request.
    pub(crate) fn refused(&self, error: ErrorCode) -> ApiReply {
        use gracchus_kafka_proto::messages as m;
        match self {
            Self::AlterPartition { .. } => ApiReply::AlterPartition(m::AlterPartitionResponse {
                error_code: error.code(),
                ..Default::default()
            }),
            Self::AllocateProducerIds(_) => {
                ApiReply::AllocateProducerIds(m::AllocateProducerIdsResponse {
                    error_code: error.code(),
                    ..Default::default()
                })
            }
            Self::ControlledShutdown(_) => {
                ApiReply::ControlledShutdown(m::ControlledShutdownResponse {
                    error_code: error.code(),
                    ..Default::default()
                })
            }
            Self::ElectLeaders { .. } => ApiReply::ElectLeaders(Err(error)),
            Self::Reassign(_) => ApiReply::Reassign(Err(error)),
            Self::ListReassignments(_) => ApiReply::ListReassignments(Err(error)),
        }
    }
}
