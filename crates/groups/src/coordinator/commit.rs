//! OffsetCommit and TxnOffsetCommit.

use super::append::{PendingAppend, PendingOffsets};
use super::{Desk, Step, check_member_of};
use crate::event::{AppendBatch, ReplyToken};
use crate::group::{Group, State};
use crate::offsets::CommittedValue;
use crate::record::{self, RecordError};
use crate::request::{CommittedOffset, OffsetCommit, TopicPartition, TxnOffsetCommit};
use crate::response::Response;
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

impl Desk<'_> {
    pub(super) fn commit(&mut self, step: &mut Step<'_>, token: ReplyToken, request: OffsetCommit) {
        let who = Committer {
            generation_id: request.generation_id,
            member_id: &request.member_id,
            group_instance_id: request.group_instance_id.as_deref(),
            producer: None,
        };
        let group = match self.check(step, &request.group_id, true) {
            Err(error) => return step.refuse_commit(token, request.offsets, error),
            // without group management, offsets may be kept by a group that has nothing else
            Ok(()) if request.generation_id < 0 => self.group_or_new(step, &request.group_id),
            Ok(()) => match self.groups.get_mut(request.group_id.as_str()) {
                Some(group) => group,
                None => {
                    let error = ErrorCode::IllegalGeneration;
                    return step.refuse_commit(token, request.offsets, error);
                }
            },
        };
        if let Err(error) = who.check(group) {
            return step.refuse_commit(token, request.offsets, error);
        }
        match group.state() {
            State::Empty => {}
            // the member learns of the rebalance by its heartbeat; until then it may save its progress
            State::Stable | State::PreparingRebalance => step.heard_from(group, who.member_id),
            State::CompletingRebalance => {
                let error = ErrorCode::RebalanceInProgress;
                return step.refuse_commit(token, request.offsets, error);
            }
        }
        step.store_offsets(group, token, request.offsets, request.retention_ms, None);
    }

    pub(super) fn txn_commit(
        &mut self,
        step: &mut Step<'_>,
        token: ReplyToken,
        request: TxnOffsetCommit,
    ) {
        // the empty group id is only tolerated by the older offset APIs
        if let Err(error) = self.check(step, &request.group_id, false) {
            return step.refuse_commit(token, request.offsets, error);
        }
        let producer = Some((request.producer_id, request.producer_epoch));
        let who = Committer {
            generation_id: request.generation_id,
            member_id: &request.member_id,
            group_instance_id: request.group_instance_id.as_deref(),
            producer,
        };
        let group = self.group_or_new(step, &request.group_id);
        match who.check(group) {
            Err(error) => step.refuse_commit(token, request.offsets, error),
            Ok(()) => step.store_offsets(group, token, request.offsets, None, producer),
        }
    }
}

struct Committer<'a> {
    generation_id: i32,
    member_id: &'a str,
    group_instance_id: Option<&'a str>,
    producer: Option<(i64, i16)>,
}

impl Committer<'_> {
    fn check(&self, group: &Group) -> Result<(), ErrorCode> {
        let claims_membership = self.generation_id >= 0
            || !self.member_id.is_empty()
            || self.group_instance_id.is_some();
        if self.generation_id < 0 && group.is(State::Empty) {
            Ok(())
        } else if claims_membership {
            check_member_of(
                group,
                self.member_id,
                self.group_instance_id,
                self.generation_id,
            )
        } else if self.producer.is_none() {
            // a group with members takes offsets from them only; transactional producers before
            // TxnOffsetCommit version 3 do not say who they are
            Err(ErrorCode::UnknownMemberId)
        } else {
            Ok(())
        }
    }
}

impl Step<'_> {
    fn refuse_commit(
        &mut self,
        token: ReplyToken,
        offsets: Vec<CommittedOffset>,
        error: ErrorCode,
    ) {
        let outcome = offsets
            .into_iter()
            .map(|offset| (offset.partition, error))
            .collect();
        self.reply(token, Response::OffsetCommit(outcome));
    }

    fn store_offsets(
        &mut self,
        group: &mut Group,
        token: ReplyToken,
        requested: Vec<CommittedOffset>,
        retention_ms: Option<i64>,
        producer: Option<(i64, i16)>,
    ) {
        let longest = self.core.config.offset_metadata_max;
        let mut outcome: Vec<(TopicPartition, ErrorCode)> = Vec::with_capacity(requested.len());
        let mut offsets: Vec<(TopicPartition, CommittedValue)> =
            Vec::with_capacity(requested.len());
        for offset in requested {
            let metadata = offset.metadata.unwrap_or_default();
            // a UTF-16 unit takes at least one byte of UTF-8
            if metadata.len() > longest && metadata.encode_utf16().count() > longest {
                outcome.push((offset.partition, ErrorCode::OffsetMetadataTooLarge));
                continue;
            }
            outcome.push((offset.partition.clone(), ErrorCode::None));
            let value = CommittedValue {
                offset: offset.offset,
                leader_epoch: offset.leader_epoch,
                metadata,
                commit_timestamp: match offset.timestamp {
                    -1 => self.wall_ms,
                    given => given,
                },
                expire_timestamp: retention_ms.map(|ms| self.wall_ms.saturating_add(ms)),
            };
            offsets.push((offset.partition, value));
        }
        if offsets.is_empty() {
            return self.reply(token, Response::OffsetCommit(outcome));
        }
        let records = match self.offset_records(&group.id, &offsets) {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(group = &*group.id, %error, "offsets cannot be stored");
                for (_, slot) in &mut outcome {
                    *slot = ErrorCode::UnknownServerError;
                }
                return self.reply(token, Response::OffsetCommit(outcome));
            }
        };
        match producer {
            Some((id, _)) => group.offsets.prepare_transactional(id, &offsets),
            None => group.offsets.prepare(&offsets),
        }
        let batch = AppendBatch {
            timestamp_ms: self.wall_ms,
            records,
            transactional: producer,
            base_sequence: 0,
        };
        let pending = PendingOffsets {
            group: group.id.clone(),
            incarnation: group.incarnation,
            token,
            producer_id: producer.map(|(id, _)| id),
            offsets,
            outcome,
        };
        let partition = self.partition_of(&group.id);
        self.append(partition, batch, PendingAppend::Offsets(Box::new(pending)));
    }

    fn offset_records(
        &self,
        group_id: &str,
        offsets: &[(TopicPartition, CommittedValue)],
    ) -> Result<Vec<(Bytes, Option<Bytes>)>, RecordError> {
        let versions = self.core.config.record_versions;
        offsets
            .iter()
            .map(|(partition, value)| {
                let key = record::offset_key(group_id, partition)?;
                Ok((key, Some(record::offset_value(value, versions)?)))
            })
            .collect()
    }
}
