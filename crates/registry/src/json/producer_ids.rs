//! `/latest_producer_id_block`: the block of producer ids that was given out last.

use super::fields::Fields;
use super::{ZnodeError, to_json};
use bytes::Bytes;
use serde::Serialize;

/// How many ids a block has.
pub const BLOCK_SIZE: i64 = 1000;

/// Ids `first..=last`, given to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub broker_id: i32,
    pub first: i64,
    /// Inclusive.
    pub last: i64,
}

impl ProducerIdBlock {
    /// The block after `latest`, for a broker; `None`: the ids have run out.
    pub fn next(latest: Option<&ProducerIdBlock>, broker_id: i32) -> Option<Self> {
        let first = match latest {
            Some(block) => block.last.checked_add(1)?,
            None => 0,
        };
        Some(ProducerIdBlock {
            broker_id,
            first,
            last: first.checked_add(BLOCK_SIZE - 1)?,
        })
    }

    pub fn to_bytes(&self) -> Bytes {
        #[derive(Serialize)]
        struct Json {
            version: i32,
            broker: i32,
            block_start: String,
            block_end: String,
        }
        to_json(&Json {
            version: 1,
            broker: self.broker_id,
            block_start: self.first.to_string(),
            block_end: self.last.to_string(),
        })
    }

    /// Null data, before any block was given out, is no block: ask [`next`](Self::next) with `None`.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(data)?;
        let block = ProducerIdBlock {
            broker_id: fields.int("broker")?,
            first: fields.long("block_start")?,
            last: fields.long("block_end")?,
        };
        if block.first < 0 || block.last < block.first {
            return Err(ZnodeError::Value {
                what: "the block",
                found: format!("{}..={}", block.first, block.last),
            });
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other() {
        let first = ProducerIdBlock::next(None, 3).unwrap();
        assert_eq!(
            first.to_bytes().as_ref(),
            br#"{"version":1,"broker":3,"block_start":"0","block_end":"999"}"#
        );
        let second = ProducerIdBlock::next(Some(&first), 1).unwrap();
        assert_eq!((second.first, second.last), (1000, 1999));
        let end = ProducerIdBlock {
            broker_id: 1,
            first: i64::MAX - 1,
            last: i64::MAX,
        };
        assert_eq!(ProducerIdBlock::next(Some(&end), 1), None);
        assert!(
            ProducerIdBlock::parse(
                br#"{"version":1,"broker":3,"block_start":"9","block_end":"8"}"#
            )
            .is_err()
        );
    }
}
