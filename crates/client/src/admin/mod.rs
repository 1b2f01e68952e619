//! Administration: [`topics`], [`configs`], [`groups`], [`offsets`], [`reassignments`], and the cluster itself.
//!
//! What concerns one thing gives one result; what concerns many gives a result for each, since some may fail.

mod configs;
mod groups;
mod offsets;
mod reassignments;
mod topics;

pub use configs::{
    ConfigEntry, ConfigOp, ConfigResource, ConfigSource, ConfigSynonym, ResourceConfig,
    ResourceType,
};
pub use groups::{GroupDescription, GroupListing, GroupMember};
pub(crate) use offsets::commit_request;
pub use offsets::{Committed, IsolationLevel, ListedOffset, OffsetSpec};
pub use reassignments::{Reassignment, Replica, ReplicaDirs, ReplicaLog};
pub use topics::{NewPartitions, NewTopic, PartitionInfo, TopicDescription};

use crate::{ClientError, Cluster, Connection, Node};
use gracchus_kafka_proto::messages::describe_log_dirs_request::DescribableLogDirTopic;
use gracchus_kafka_proto::messages::describe_log_dirs_response::DescribeLogDirsResult;
use gracchus_kafka_proto::messages::{DescribeClusterRequest, DescribeLogDirsRequest};
use gracchus_kafka_proto::{ErrorCode, Request};
use std::collections::BTreeSet;

/// An answer for each thing that was asked about.
pub type Each<K, T> = Vec<(K, Result<T, ClientError>)>;

/// The administrative calls over a cluster.
#[derive(Debug, Clone)]
pub struct Admin {
    pub cluster: Cluster,
}

/// A cluster and its brokers.
#[derive(Debug, Clone)]
pub struct ClusterDescription {
    pub cluster_id: Option<String>,
    pub controller: Option<i32>,
    pub nodes: Vec<Node>,
}

impl Admin {
    pub fn new(cluster: Cluster) -> Self {
        Admin { cluster }
    }

    fn timeout_ms(&self) -> i32 {
        let timeout = self.cluster.config().connection.request_timeout;
        i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
    }

    /// Sends to the controller; asks for a new one when that one is none any more. `code` picks the answer's code.
    async fn on_controller<R: Request>(
        &self,
        request: &R,
        max_version: i16,
        code: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        self.cluster
            .retry(|| async {
                let controller = self.cluster.controller().await?;
                let answer = controller.send_up_to(request, max_version).await;
                if answer.is_err() {
                    self.cluster.forget_controller();
                }
                let answer = answer?;
                if code(&answer) == ErrorCode::NotController.code() {
                    self.cluster.forget_controller();
                    return Err(ClientError::api(ErrorCode::NotController, None));
                }
                Ok(answer)
            })
            .await
    }

    /// Sends to any broker.
    async fn on_any<R: Request>(
        &self,
        request: &R,
        max_version: i16,
    ) -> Result<R::Response, ClientError> {
        self.cluster
            .retry(|| async {
                let connection = self.cluster.any().await?;
                connection.send_up_to(request, max_version).await
            })
            .await
    }

    /// Sends to a group's coordinator. `code` picks the answer's code, by which the coordinator is looked for again.
    async fn on_coordinator<R: Request>(
        &self,
        group: &str,
        request: &R,
        max_version: i16,
        code: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        self.cluster
            .retry(|| async {
                let coordinator: Connection = self.cluster.group_coordinator(group).await?;
                let answer = coordinator.send_up_to(request, max_version).await?;
                let code = ErrorCode::from_code(code(&answer));
                match code {
                    ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::CoordinatorLoadInProgress => {
                        self.cluster.forget_coordinator(group);
                        Err(ClientError::api(code, None))
                    }
                    _ => Ok(answer),
                }
            })
            .await
    }

    pub async fn describe_cluster(&self) -> Result<ClusterDescription, ClientError> {
        let answer = self.on_any(&DescribeClusterRequest::default(), 1).await?;
        ClientError::check(answer.error_code, answer.error_message.as_deref())?;
        Ok(ClusterDescription {
            cluster_id: Some(answer.cluster_id),
            controller: (answer.controller_id >= 0).then_some(answer.controller_id),
            nodes: answer
                .brokers
                .into_iter()
                .map(|b| Node {
                    id: b.broker_id,
                    host: b.host,
                    port: b.port,
                    rack: b.rack,
                })
                .collect(),
        })
    }

    /// The live brokers.
    pub async fn broker_ids(&self) -> Result<BTreeSet<i32>, ClientError> {
        let nodes = self.describe_cluster().await?.nodes;
        Ok(nodes.iter().map(|node| node.id).collect())
    }

    /// The log directories of one broker, with all partitions or those named.
    pub async fn describe_log_dirs(
        &self,
        broker: i32,
        topics: Option<Vec<DescribableLogDirTopic>>,
    ) -> Result<Vec<DescribeLogDirsResult>, ClientError> {
        let request = DescribeLogDirsRequest {
            topics,
            ..Default::default()
        };
        let answer = self
            .cluster
            .retry(|| async { self.cluster.broker(broker).await?.send(&request).await })
            .await?;
        ClientError::check(answer.error_code, None)?;
        Ok(answer.results)
    }
}
