//! LeaveGroup.

use super::{Desk, Step, check_member};
use crate::group::Group;
use crate::request::{LeaveGroup, LeavingMember};
use crate::response::{LeaveGroupResult, LeftMember};
use gracchus_kafka_proto::ErrorCode;

impl Desk<'_> {
    pub(super) fn leave(&mut self, step: &mut Step<'_>, request: LeaveGroup) -> LeaveGroupResult {
        if let Err(error) = self.check(step, &request.group_id, false) {
            return LeaveGroupResult {
                error,
                members: Vec::new(),
            };
        }
        let mut group = self.groups.get_mut(request.group_id.as_str());
        let members = request
            .members
            .into_iter()
            .map(|leaving| LeftMember {
                error: match &mut group {
                    Some(group) => step.leave_one(group, &leaving),
                    None => ErrorCode::UnknownMemberId,
                },
                member_id: leaving.member_id,
                group_instance_id: leaving.group_instance_id,
            })
            .collect();
        LeaveGroupResult {
            error: ErrorCode::None,
            members,
        }
    }
}

impl Step<'_> {
    fn leave_one(&mut self, group: &mut Group, leaving: &LeavingMember) -> ErrorCode {
        let instance_id = leaving.group_instance_id.as_deref();
        let member_id = if leaving.member_id.is_empty() {
            // an administrator removes whoever holds the instance id (KIP-345)
            match instance_id.and_then(|instance_id| group.static_member(instance_id)) {
                Some(member_id) => member_id.to_owned(),
                None => return ErrorCode::UnknownMemberId,
            }
        } else {
            leaving.member_id.clone()
        };
        if group.pending_members.contains_key(&member_id) {
            self.remove_pending(group, &member_id);
            return ErrorCode::None;
        }
        if !leaving.member_id.is_empty()
            && let Err(error) = check_member(group, &member_id, instance_id)
        {
            return error;
        }
        let reason = leaving.reason.as_deref().unwrap_or("not provided");
        tracing::info!(
            group = &*group.id,
            member = member_id,
            reason,
            "a member leaves"
        );
        let why = format!("member {member_id} left; client reason: {reason}");
        self.remove_and_rebalance(group, &member_id, &why);
        ErrorCode::None
    }
}
