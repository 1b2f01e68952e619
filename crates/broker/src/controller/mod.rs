//! The shell around the controller.
//!
//! What the rest of the broker needs of it. `lifecycle` calls, in this order: [`ControllerShell::new`], then (after the
//! registration) [`ControllerShell::start`], then [`ControllerShell::zk_event`] for each event of the ZooKeeper session,
//! in order. When the session has expired: [`ControllerShell::session_expired`] is awaited before a new session is
//! opened, and [`ControllerShell::registered`] is called when the broker is registered again. [`ControllerShell::stop`]
//! comes first in a shutdown after the controlled part.

use std::sync::Arc;

use gracchus_kafka_proto::ErrorCode;
use gracchus_zk_client::ZkEvent;

use crate::broker::Broker;

/// The controller of this broker, active or not.
#[derive(Debug, Default)]
pub struct ControllerShell {}

impl ControllerShell {
    /// Does nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {})
    }

    /// The broker is registered: takes part in elections from now on.
    pub fn start(self: &Arc<Self>, _broker: &Arc<Broker>) {}

    /// One event of the session, in order; must not block.
    pub fn zk_event(&self, _event: &ZkEvent) {}

    /// The session is over: resigns without touching ZooKeeper; returns when that has begun.
    pub async fn session_expired(&self) {}

    /// The broker is registered again under a new session, with this broker epoch.
    pub fn registered(&self, _broker_epoch: i64) {}

    /// Resigns and stops.
    pub async fn stop(&self) {}

    /// Is this broker the active controller? Requests that only it may carry out answer NOT_CONTROLLER otherwise.
    pub fn is_active(&self) -> bool {
        false
    }

    /// AlterPartition (56), by the active controller; `version` decides between names and topic ids and some error codes.
    pub async fn alter_partition(
        &self,
        _request: gracchus_kafka_proto::messages::AlterPartitionRequest,
        _version: i16,
    ) -> gracchus_kafka_proto::messages::AlterPartitionResponse {
        gracchus_kafka_proto::messages::AlterPartitionResponse {
            error_code: ErrorCode::NotController.code(),
            ..Default::default()
        }
    }

    /// A block of producer ids for a broker: first id and length.
    pub async fn allocate_producer_ids(
        &self,
        _broker_id: i32,
        _broker_epoch: i64,
    ) -> Result<(i64, i32), ErrorCode> {
        Err(ErrorCode::NotController)
    }

    /// ControlledShutdown (7): moves leaders away; answers the partitions that the broker still leads.
    pub async fn controlled_shutdown(
        &self,
        _broker_id: i32,
        _broker_epoch: i64,
    ) -> Result<Vec<(String, i32)>, ErrorCode> {
        Err(ErrorCode::NotController)
    }
}

pub use crate::topic_creation::auto::auto_create_topics;
