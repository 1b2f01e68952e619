//! Notices to the controller, which deletes them when it has acted.

use super::{Registry, RegistryError, zk_error};
use crate::json::{IsrChange, LogDirEvent, TopicPartition};
use crate::op::{CreateMode, ZkOp};
use crate::paths;
use bytes::Bytes;

impl Registry {
    /// Log directories of this broker failed, or work again: the controller asks it for its replicas.
    pub async fn notify_log_dir_event(&self, broker_id: i32) -> Result<(), RegistryError> {
        let data = LogDirEvent { broker_id }.to_bytes();
        self.create_notice(paths::LOG_DIR_EVENT_PREFIX, data).await
    }

    /// ISRs that this broker wrote itself, as their leader (inter.broker.protocol.version below 2.7-IV2).
    pub async fn notify_isr_changes(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<(), RegistryError> {
        let data = IsrChange { partitions }.to_bytes();
        self.create_notice(paths::ISR_CHANGE_PREFIX, data).await
    }

    /// A lost answer may leave two notices, which is the same as one.
    async fn create_notice(&self, prefix: &str, data: Bytes) -> Result<(), RegistryError> {
        let op = ZkOp::Create {
            path: prefix.to_owned(),
            data: Some(data),
            mode: CreateMode::PersistentSequential,
        };
        let made = self.execute_one(op).await;
        made.map(|_| ())
            .map_err(|failure| zk_error(prefix, failure))
    }
}
