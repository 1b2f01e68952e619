//! Blocks of producer ids.

use super::{Registry, RegistryError, content, data_of, zk_error};
use crate::json::ProducerIdBlock;
use crate::op::ZkOp;
use crate::paths;
use gracchus_zk_client::ZkError;

impl Registry {
    /// Takes the next block of producer ids for a broker: compare and set, until won.
    pub async fn next_producer_id_block(
        &self,
        broker_id: i32,
    ) -> Result<ProducerIdBlock, RegistryError> {
        let path = paths::PRODUCER_ID_BLOCK;
        loop {
            let Some((data, stat)) = data_of(path, self.execute_one(ZkOp::get(path)).await)? else {
                self.ensure_paths(&[path]).await?;
                continue;
            };
            let latest = if data.is_empty() {
                None
            } else {
                Some(content(path, ProducerIdBlock::parse(&data))?)
            };
            let block = ProducerIdBlock::next(latest.as_ref(), broker_id)
                .ok_or(RegistryError::OutOfProducerIds)?;
            let set = ZkOp::SetData {
                path: path.to_owned(),
                data: Some(block.to_bytes()),
                version: stat.version,
            };
            match self.execute_one(set).await {
                Ok(_) => return Ok(block),
                Err(failure) if failure.error == ZkError::BadVersion => {} // another broker took one
                Err(failure) => return Err(zk_error(path, failure)),
            }
        }
    }
}
