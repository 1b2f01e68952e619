//! OffsetFetch, one group of it.

use super::{Desk, Step};
use crate::request::{OffsetFetch, TopicPartition};
use crate::response::{FetchedOffset, OffsetFetchResult};
use gracchus_kafka_proto::ErrorCode;

impl Desk<'_> {
    /// Whatever the group's state: it may be there for its offsets only.
    pub(super) fn fetch(&self, step: &Step<'_>, request: OffsetFetch) -> OffsetFetchResult {
        if let Err(error) = self.check(step, &request.group_id, true) {
            return OffsetFetchResult {
                error,
                offsets: Vec::new(),
            };
        }
        let group = self.groups.get(request.group_id.as_str());
        let partitions = match (request.partitions, group) {
            (Some(partitions), _) => partitions,
            (None, Some(group)) => group.offsets.iter().map(|(p, _)| p.clone()).collect(),
            (None, None) => Vec::new(),
        };
        let offsets = partitions
            .into_iter()
            .map(|partition| match group {
                Some(group) if request.require_stable && group.offsets.has_pending(&partition) => {
                    nothing(partition, ErrorCode::UnstableOffsetCommit)
                }
                Some(group) => match group.offsets.get(&partition) {
                    Some(value) => FetchedOffset {
                        partition,
                        offset: value.offset,
                        leader_epoch: value.leader_epoch,
                        metadata: value.metadata.clone(),
                        error: ErrorCode::None,
                    },
                    None => nothing(partition, ErrorCode::None),
                },
                None => nothing(partition, ErrorCode::None),
            })
            .collect();
        OffsetFetchResult {
            error: ErrorCode::None,
            offsets,
        }
    }
}

fn nothing(partition: TopicPartition, error: ErrorCode) -> FetchedOffset {
    FetchedOffset {
        partition,
        offset: -1,
        leader_epoch: -1,
        metadata: String::new(),
        error,
    }
}
