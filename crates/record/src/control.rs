//! Control batches: the markers that end a transaction.

use crate::{Batch, BatchBuilder, Codec, NO_SEQUENCE, NewRecord, RecordError};

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    Abort,
    Commit,
}

/// A marker's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTransaction {
    pub marker: Marker,
    pub coordinator_epoch: i32,
}

impl EndTransaction {
    /// Key: int16 version, int16 type (0 abort, 1 commit). Value: int16 version, int32 coordinator epoch.
    /// Other control types give `None`.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let Some([_, _, t0, t1, ..]) = key else {
            return Err(RecordError::invalid("control record without a key"));
        };
        let marker = match i16::from_be_bytes([*t0, *t1]) {
            0 => Marker::Abort,
            1 => Marker::Commit,
            _ => return Ok(None),
        };
        let Some([_, _, e0, e1, e2, e3, ..]) = value else {
            return Err(RecordError::invalid(
                "end-of-transaction marker without a value",
            ));
        };
        Ok(Some(EndTransaction {
            marker,
            coordinator_epoch: i32::from_be_bytes([*e0, *e1, *e2, *e3]),
        }))
    }

    /// The control batch that writes it.
    pub fn batch(
        self,
        timestamp: i64,
        producer_id: i64,
        producer_epoch: i16,
    ) -> Result<Batch, RecordError> {
        let mut builder = BatchBuilder::new(Codec::None)
            .producer(producer_id, producer_epoch, NO_SEQUENCE)
            .transactional(true)
            .control(true);
        let kind: i16 = match self.marker {
            Marker::Abort => 0,
            Marker::Commit => 1,
        };
        let mut key = [0u8; 4];
        key[2..].copy_from_slice(&kind.to_be_bytes());
        let mut value = [0u8; 6];
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        builder.push(NewRecord {
            timestamp,
            key: Some(&key),
            value: Some(&value),
            headers: &[],
        });
        builder.build()
    }
}
