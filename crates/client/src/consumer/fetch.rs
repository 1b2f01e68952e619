//! One fetch request to one broker, and the records in its answer.

use super::{ConsumedRecord, ConsumerConfig};
use crate::admin::IsolationLevel;
use crate::{ClientError, Cluster, TopicPartition};
use bytes::Bytes;
use gracchus_kafka_proto::messages::FetchRequest;
use gracchus_kafka_proto::messages::fetch_request::{FetchPartition, FetchTopic};
use gracchus_kafka_proto::messages::fetch_response::{AbortedTransaction, PartitionData};
use gracchus_record::control::{EndTransaction, Marker};
use gracchus_record::{Codec, Entries, Entry, Record, RecordError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A partition's part of an answer: records, and the offset to go on from.
pub(super) struct Fetched {
    pub partition: TopicPartition,
    /// The offset that was asked for.
    pub asked: i64,
    pub result: Result<(Vec<ConsumedRecord>, i64), ClientError>,
}

/// Asks one broker for the records of partitions that it leads.
pub(super) async fn fetch(
    cluster: &Cluster,
    config: &ConsumerConfig,
    broker: i32,
    partitions: Vec<(TopicPartition, i64)>,
) -> Result<Vec<Fetched>, ClientError> {
    let asked: HashMap<_, _> = partitions.iter().cloned().collect();
    let mut topics: BTreeMap<String, Vec<FetchPartition>> = BTreeMap::new();
    for (tp, offset) in partitions {
        topics.entry(tp.topic).or_default().push(FetchPartition {
            partition: tp.partition,
            current_leader_epoch: -1,
            fetch_offset: offset,
            log_start_offset: -1,
            partition_max_bytes: config.partition_max_bytes,
            ..Default::default()
        });
    }
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: i32::try_from(config.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.fetch_min_bytes,
        max_bytes: config.fetch_max_bytes,
        isolation_level: config.isolation as i8,
        // no fetch session (KIP-227)
        session_id: 0,
        session_epoch: -1,
        topics: topics
            .into_iter()
            .map(|(topic, partitions)| FetchTopic {
                topic,
                partitions,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let timeout = config.fetch_max_wait + Duration::from_secs(30);
    // version 13 asks by topic id
    let answer = cluster
        .broker(broker)
        .await?
        .send_waiting(&request, 12, timeout)
        .await?;
    ClientError::check(answer.error_code, None)?;
    let mut out = Vec::new();
    for topic in answer.responses {
        let name: Arc<str> = topic.topic.as_str().into();
        for data in topic.partitions {
            let partition = TopicPartition::new(&topic.topic, data.partition_index);
            let Some(asked) = asked.get(&partition).copied() else {
                continue;
            };
            let result = ClientError::check(data.error_code, None)
                .and_then(|()| records(&name, data, asked, config));
            out.push(Fetched {
                partition,
                asked,
                result,
            });
        }
    }
    Ok(out)
}

/// The records from `from` on, without markers and, where only committed ones are wanted, without aborted ones.
fn records(
    topic: &Arc<str>,
    data: PartitionData,
    from: i64,
    config: &ConsumerConfig,
) -> Result<(Vec<ConsumedRecord>, i64), ClientError> {
    let mut next = from;
    let mut out = Vec::new();
    let bytes = data.records.and_then(|r| r.as_bytes()).unwrap_or_default();
    let mut aborted = match config.isolation {
        IsolationLevel::ReadCommitted => {
            Aborted::new(data.aborted_transactions.unwrap_or_default())
        }
        IsolationLevel::ReadUncommitted => Aborted::new(Vec::new()),
    };
    for entry in Entries::new(bytes) {
        let entry = entry?;
        entry.check_crc()?;
        if entry.last_offset() < from {
            continue;
        }
        if !aborted.hides(&entry, config.decompress_limit)? {
            entry.for_each_record(config.decompress_limit, |r| {
                if r.offset >= from {
                    out.push(consumed(topic, data.partition_index, &entry, &r));
                }
                Ok::<_, RecordError>(())
            })?;
        }
        next = entry.last_offset().saturating_add(1);
    }
    Ok((out, next))
}

fn consumed(topic: &Arc<str>, partition: i32, entry: &Entry, r: &Record<'_>) -> ConsumedRecord {
    let shared = entry.codec() == Ok(Codec::None);
    let own = |field: &[u8]| {
        if shared {
            entry.bytes().slice_ref(field)
        } else {
            Bytes::copy_from_slice(field)
        }
    };
    ConsumedRecord {
        topic: topic.clone(),
        partition,
        offset: r.offset,
        timestamp: r.timestamp,
        timestamp_type: (entry.magic() > 0).then(|| entry.timestamp_type()),
        leader_epoch: entry.leader_epoch(),
        key: r.key.map(own),
        value: r.value.map(own),
        headers: r
            .headers
            .iter()
            .map(|h| {
                let name = String::from_utf8_lossy(h.key).into_owned();
                (name, h.value.map(own))
            })
            .collect(),
    }
}

/// Which producers' records are part of an aborted transaction at the point that reading has come to.
struct Aborted {
    /// By first offset, the next one last.
    upcoming: Vec<AbortedTransaction>,
    now: HashSet<i64>,
}

impl Aborted {
    fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        transactions.sort_by_key(|t| std::cmp::Reverse(t.first_offset));
        Aborted {
            upcoming: transactions,
            now: HashSet::new(),
        }
    }

    fn hides(&mut self, entry: &Entry, limit: usize) -> Result<bool, RecordError> {
        let Entry::V2(batch) = entry else {
            return Ok(false);
        };
        let h = &batch.header;
        while let Some(t) = self.upcoming.pop_if(|t| t.first_offset <= h.last_offset()) {
            self.now.insert(t.producer_id);
        }
        if h.is_control() {
            entry.for_each_record(limit, |r| {
                if let Some(end) = EndTransaction::parse(r.key, r.value)?
                    && end.marker == Marker::Abort
                {
                    self.now.remove(&h.producer_id);
                }
                Ok::<_, RecordError>(())
            })?;
            return Ok(true);
        }
        Ok(h.is_transactional() && self.now.contains(&h.producer_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gracchus_kafka_proto::Records;

    /// Offsets that are read from `from` on, and the offset to go on from.
    fn read(isolation: IsolationLevel, from: i64) -> (Vec<i64>, i64) {
        let segment = Bytes::from_static(include_bytes!("../../tests/golden/txn-0.log"));
        let aborted = |producer_id, first_offset| AbortedTransaction {
            producer_id,
            first_offset,
            ..Default::default()
        };
        let data = PartitionData {
            records: Some(Records::from(segment)),
            aborted_transactions: Some(vec![aborted(2, 9), aborted(1, 5)]),
            ..Default::default()
        };
        let config = ConsumerConfig {
            isolation,
            ..ConsumerConfig::default()
        };
        let (records, next) = records(&"txn".into(), data, from, &config).unwrap();
        (records.iter().map(|r| r.offset).collect(), next)
    }

    #[test]
    fn aborted_records_are_left_out_and_markers_always_are() {
        let committed = vec![0, 1, 2, 3];
        assert_eq!(read(IsolationLevel::ReadCommitted, 0), (committed, 12));
        let all = vec![0, 1, 2, 3, 5, 6, 7, 9, 10];
        assert_eq!(read(IsolationLevel::ReadUncommitted, 0), (all, 12));
    }

    #[test]
    fn records_before_the_asked_offset_are_left_out() {
        let rest = vec![2, 3, 5, 6, 7, 9, 10];
        assert_eq!(read(IsolationLevel::ReadUncommitted, 2), (rest, 12));
        assert_eq!(read(IsolationLevel::ReadCommitted, 6), (vec![], 12));
    }
}
