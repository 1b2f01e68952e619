//! Records of an append as one batch.

use bytes::Bytes;
use gracchus_groups::AppendBatch;
use gracchus_record::{
    BatchBuilder, Codec, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NewRecord, RecordError,
};

/// The batch as Kafka's coordinator writes it: create time, the topic's own codec, base offset and epoch for the log to
/// fill in.
pub fn encode(batch: &AppendBatch, codec: Codec) -> Result<Bytes, RecordError> {
    let (producer_id, producer_epoch) = batch
        .transactional
        .unwrap_or((NO_PRODUCER_ID, NO_PRODUCER_EPOCH));
    let mut builder = BatchBuilder::new(codec)
        .producer(producer_id, producer_epoch, batch.base_sequence)
        .transactional(batch.transactional.is_some());
    for (key, value) in &batch.records {
        builder.push(NewRecord {
            timestamp: batch.timestamp_ms,
            key: Some(key),
            value: value.as_deref(),
            headers: &[],
        });
    }
    Ok(builder.build()?.bytes().clone())
}
