//! ListGroups, DescribeGroups, DeleteGroups, OffsetDelete.

use super::{Desk, Step, cleanup};
use crate::group::{Group, State};
use crate::request::{DeleteGroups, DescribeGroup, ListGroups, OffsetDelete};
use crate::response::{
    DescribedGroup, DescribedMember, ListGroupsResult, ListedGroup, OffsetDeleteResult,
};
use bytes::Bytes;
use gracchus_kafka_proto::ErrorCode;

/// The only type of group that this coordinator has.
const CLASSIC: &str = "classic";

impl Desk<'_> {
    pub(super) fn list(&self, request: &ListGroups) -> ListGroupsResult {
        if !self.active {
            return ListGroupsResult {
                error: ErrorCode::CoordinatorNotAvailable,
                groups: Vec::new(),
            };
        }
        let passes = |filter: &std::collections::BTreeSet<String>, name: &str| {
            filter.is_empty() || filter.iter().any(|f| f.eq_ignore_ascii_case(name))
        };
        let mut groups: Vec<ListedGroup> = self
            .groups
            .values()
            .filter(|group| {
                passes(&request.states, group.state().name()) && passes(&request.types, CLASSIC)
            })
            .map(|group| ListedGroup {
                group_id: group.id.to_string(),
                protocol_type: group.protocol_type.clone().unwrap_or_default(),
                state: group.state().name().to_owned(),
                group_type: CLASSIC.to_owned(),
            })
            .collect();
        groups.sort_unstable_by(|a, b| a.group_id.cmp(&b.group_id));
        let error = match self.ownership.is_any_loading() {
            true => ErrorCode::CoordinatorLoadInProgress,
            false => ErrorCode::None,
        };
        ListGroupsResult { error, groups }
    }

    pub(super) fn describe(&self, step: &Step<'_>, request: &DescribeGroup) -> DescribedGroup {
        let without_members = |error, state: &str| DescribedGroup {
            error,
            state: state.to_owned(),
            protocol_type: String::new(),
            protocol: String::new(),
            members: Vec::new(),
        };
        if let Err(error) = self.check(step, &request.group_id, true) {
            return without_members(error, "");
        }
        match self.groups.get(request.group_id.as_str()) {
            Some(group) => describe(group),
            None => without_members(ErrorCode::None, "Dead"),
        }
    }

    pub(super) fn delete_groups(
        &mut self,
        step: &mut Step<'_>,
        request: DeleteGroups,
    ) -> Vec<(String, ErrorCode)> {
        let mut results: Vec<(String, ErrorCode)> = Vec::with_capacity(request.group_ids.len());
        for group_id in indexmap::IndexSet::<String>::from_iter(request.group_ids) {
            let error = match self.check(step, &group_id, true) {
                Err(error) => error,
                Ok(()) => match self.groups.get_mut(group_id.as_str()) {
                    None => ErrorCode::GroupIdNotFound,
                    Some(group) if group.is(State::Empty) => {
                        let partitions = group.offsets.remove_all();
                        cleanup::write_tombstones(step, group, &partitions, true);
                        self.groups.remove(group_id.as_str());
                        tracing::info!(
                            group = group_id,
                            offsets = partitions.len(),
                            "the group was deleted"
                        );
                        ErrorCode::None
                    }
                    Some(_) => ErrorCode::NonEmptyGroup,
                },
            };
            results.push((group_id, error));
        }
        results
    }

    pub(super) fn delete_offsets(
        &mut self,
        step: &mut Step<'_>,
        request: OffsetDelete,
    ) -> OffsetDeleteResult {
        let failed = |error| OffsetDeleteResult {
            error,
            partitions: Vec::new(),
        };
        if let Err(error) = self.check(step, &request.group_id, false) {
            return failed(error);
        }
        let Some(group) = self.groups.get_mut(request.group_id.as_str()) else {
            return failed(ErrorCode::GroupIdNotFound);
        };
        let has_members = !group.is(State::Empty);
        if has_members && !group.is_consumer_group() {
            return failed(ErrorCode::NonEmptyGroup);
        }
        let mut partitions = Vec::with_capacity(request.partitions.len());
        let mut unused = Vec::new();
        for partition in request.partitions {
            if has_members && group.is_subscribed_to(&partition.topic) {
                partitions.push((partition, ErrorCode::GroupSubscribedToTopic));
            } else {
                partitions.push((partition.clone(), ErrorCode::None));
                unused.push(partition);
            }
        }
        if !unused.is_empty() {
            let removed = group.offsets.remove(&unused);
            if cleanup::clean_up(step, group, &removed) {
                self.groups.remove(request.group_id.as_str());
            }
            tracing::info!(
                group = request.group_id,
                offsets = removed.len(),
                "offsets of the group were deleted on request"
            );
        }
        OffsetDeleteResult {
            error: ErrorCode::None,
            partitions,
        }
    }
}

fn describe(group: &Group) -> DescribedGroup {
    let stable = group.is(State::Stable);
    let protocol = match stable {
        true => group.protocol.clone().unwrap_or_default(),
        false => String::new(),
    };
    let members = group
        .members()
        .map(|member| DescribedMember {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: match stable {
                true => member.metadata(&protocol),
                false => Bytes::new(),
            },
            assignment: match stable {
                true => member.assignment.clone(),
                false => Bytes::new(),
            },
        })
        .collect();
    DescribedGroup {
        error: ErrorCode::None,
        state: group.state().name().to_owned(),
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        protocol,
        members,
    }
}
